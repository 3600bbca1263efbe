//! `cargo xtask harness-proof [NAME...]`: puts known bugs into the source, one at a time, and demands that each is caught by name.
//!
//! A harness that has never caught anything proves nothing. `crates/sim/proof/*.patch` holds the bugs. Nothing is changed in the working tree: the
//! workspace is copied into the target folder, and a patch is applied to the copy, built, and run as it says until it is caught or its budget is spent.
//! First of all the source as it is must pass the same seeds and sizes. The first lines of a patch, up to the first `---`, say:
//!
//! | Line | |
//! |---|---|
//! | `Bug:` | what it does |
//! | `Row:` | the rule of the protocol that it breaks, or by what the product's own bug was found |
//! | `Law:` | what may catch it, separated by commas: each a part of what a broken law says, its name as a rule |
//! | `With:` | how it is looked for; several such lines must each catch it. `seeds COUNT PROFILE`, `plot COUNT NAME` or `model STATES RULE [BOUND=NUMBER...]`, as `crates/sim/examples/proof.rs` takes it |

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// What the copy consists of.
const COPIED: &[&str] = &[".cargo", "Cargo.toml", "Cargo.lock", "crates", "xtask"];

/// A known bug.
#[derive(Debug)]
struct Bug {
    name: String,
    path: PathBuf,
    laws: String,
    /// How it is looked for.
    with: Vec<Search>,
}

/// One way to look for a bug.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Search {
    /// `seeds`, `plot` or `model`.
    kind: String,
    /// Seeds or states, at most.
    budget: u64,
    /// Where.
    rest: Vec<String>,
}

impl Search {
    fn parse(text: &str) -> Result<Search> {
        let mut words = text.split_whitespace().map(str::to_owned);
        let kind = words.next().unwrap_or_default();
        ensure!(
            ["seeds", "plot", "model"].contains(&kind.as_str()),
            "`With:` begins with `seeds`, `plot` or `model`; found {text:?}"
        );
        let budget = words.next().unwrap_or_default();
        let budget = budget.parse().with_context(|| format!("{kind} wants a number, and has {budget:?}"))?;
        Ok(Search { kind, budget, rest: words.collect() })
    }

    /// The package and example that does it. SQLite has its own, so that other bugs need not wait for its build.
    fn example(&self) -> (&'static str, &'static str) {
        match self.rest.iter().any(|word| word == "sqlite") {
            true => ("highwater-simsql", "proof_sqlite"),
            false => ("highwater-sim", "proof"),
        }
    }
}

/// The copy and where it is built.
struct Copy {
    root: PathBuf,
    source: PathBuf,
    target: PathBuf,
}

/// Runs the proof of the bugs named, or of all.
///
/// # Errors
/// If the source as it is breaks a law, if a patch does not apply or build, or if a bug is not caught by one of its laws.
pub fn run(root: &Path, named: &[String]) -> Result<()> {
    let mut bugs = read_bugs(&root.join("crates/sim/proof"))?;
    if let Some(unknown) = named.iter().find(|name| bugs.iter().all(|bug| bug.name != **name)) {
        bail!("there is no crates/sim/proof/{unknown}.patch");
    }
    bugs.retain(|bug| named.is_empty() || named.contains(&bug.name));
    ensure!(!bugs.is_empty(), "there is no patch in crates/sim/proof");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let work = target.join("harness-proof");
    let copy = Copy { root: root.to_path_buf(), source: work.join("source"), target: work.join("target") };
    copy.refresh()?;
    for search in searches(&bugs) {
        let said = copy.look(&search, "").context("the source as it is")?;
        ensure!(said.starts_with("held"), "without any bug: {said}");
        println!("without any bug: {said}");
    }
    let width = bugs.iter().map(|bug| bug.name.len()).max().unwrap_or(0);
    let mut missed = Vec::new();
    for bug in &bugs {
        let outcome = copy.prove(bug);
        copy.refresh()?;
        let said = outcome.unwrap_or_else(|error| vec![format!("FAILED: {error:#}")]);
        println!("{:width$}  {}", bug.name, said.join("; "));
        if !said.iter().all(|said| said.starts_with("caught")) {
            missed.push(bug.name.as_str());
        }
    }
    ensure!(missed.is_empty(), "not caught by name: {}", missed.join(", "));
    println!("{} of {} known bugs are caught by name", bugs.len(), bugs.len());
    Ok(())
}

/// Every way of looking, each with the greatest budget that a bug gives it.
fn searches(bugs: &[Bug]) -> Vec<Search> {
    let mut all: BTreeMap<(String, Vec<String>), u64> = BTreeMap::new();
    for Search { kind, budget, rest } in bugs.iter().flat_map(|bug| &bug.with) {
        let most = all.entry((kind.clone(), rest.clone())).or_default();
        *most = (*most).max(*budget);
    }
    all.into_iter().map(|((kind, rest), budget)| Search { kind, budget, rest }).collect()
}

fn read_bugs(folder: &Path) -> Result<Vec<Bug>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .with_context(|| format!("reading {}", folder.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    paths.sort();
    paths.into_iter().map(|path| read_bug(&path).with_context(|| path.display().to_string())).collect()
}

fn read_bug(path: &Path) -> Result<Bug> {
    let text = fs::read_to_string(path)?;
    let head: Vec<&str> = text.lines().take_while(|line| !line.starts_with("---")).collect();
    let fields = |name: &str| head.iter().filter_map(|line| line.strip_prefix(name)).map(str::trim).collect::<Vec<_>>();
    for wanted in ["Bug:", "Row:", "Law:"] {
        ensure!(fields(wanted).len() == 1, "its head has one line `{wanted}`");
    }
    let with: Vec<Search> = fields("With:").into_iter().map(Search::parse).collect::<Result<_>>()?;
    ensure!(!with.is_empty(), "its head has a line `With:`");
    let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    Ok(Bug { name, path: path.to_path_buf(), laws: fields("Law:").concat(), with })
}

impl Copy {
    /// Makes the copy equal to the source. A file that is equal already keeps its time, and one that is not gets a new one, so that just what differs
    /// from the last build is built again, whatever became of the last run.
    fn refresh(&self) -> Result<()> {
        for name in COPIED {
            mirror(&self.root.join(name), &self.source.join(name))?;
        }
        Ok(())
    }

    /// Puts the bug in and looks for it in every way it names. Returns what each of them said.
    fn prove(&self, bug: &Bug) -> Result<Vec<String>> {
        let mut patch = Command::new("patch");
        patch.args(["-p1", "--silent", "--forward", "--fuzz=0", "--input"]).arg(&bug.path).current_dir(&self.source);
        let applied = patch.output().context("running patch")?;
        ensure!(
            applied.status.success(),
            "it does not apply, since the source it changes has moved on: {}",
            String::from_utf8_lossy(&applied.stdout)
        );
        bug.with.iter().map(|search| self.look(search, &bug.laws)).collect()
    }

    /// Builds for many short builds and runs: without optimisation (a build is ten times as fast, a seed half as fast) and with nothing for debuggers.
    fn build(&self, package: &str, example: &str) -> Result<()> {
        let built = Command::new("cargo")
            .args(["build", "--quiet", "--package", package, "--example", example])
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("RUSTFLAGS", "-Awarnings")
            .current_dir(&self.source)
            .status()
            .context("running cargo")?;
        ensure!(built.success(), "it does not build");
        Ok(())
    }

    /// Builds what looks for a broken law, and lets it look. Without names any law counts.
    fn look(&self, search: &Search, laws: &str) -> Result<String> {
        let (package, example) = search.example();
        self.build(package, example)?;
        let output = Command::new(self.target.join("debug/examples").join(example))
            .args([&search.kind, laws, &search.budget.to_string()])
            .args(&search.rest)
            .output()
            .context("running the simulator")?;
        ensure!(output.status.success(), "{search:?} did not run: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// Makes `to` equal to `from`, files and folders. What is not at `from` goes.
fn mirror(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
        for stale in fs::read_dir(to)? {
            let stale = stale?;
            if !from.join(stale.file_name()).exists() {
                if stale.path().is_dir() { fs::remove_dir_all(stale.path())? } else { fs::remove_file(stale.path())? }
            }
        }
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            mirror(&from.join(&name), &to.join(&name))?;
        }
    } else if from.exists() {
        let wanted = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        if fs::read(to).ok().as_ref() != Some(&wanted) {
            fs::write(to, wanted).with_context(|| format!("writing {}", to.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_patch_has_a_head_that_reads_and_a_second_law_of_the_same_search_takes_the_greater_budget() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/sim/proof");
        let bugs = read_bugs(&root).expect("the heads read");
        assert!(bugs.len() > 40, "{} known bugs", bugs.len());
        let most = searches(&bugs);
        for search in bugs.iter().flat_map(|bug| &bug.with) {
            assert!(
                most.iter()
                    .any(|one| (one.kind == search.kind && one.rest == search.rest) && one.budget >= search.budget)
            );
        }
    }

    #[test]
    fn a_way_to_look_that_is_none_is_said() {
        assert!(Search::parse("guesses 5 mixed").is_err());
        assert!(Search::parse("seeds many mixed").is_err());
        let found = Search::parse("model 1000 isr:2 crashes=1").expect("a model");
        assert_eq!((found.budget, found.rest.len()), (1000, 2));
    }
}
