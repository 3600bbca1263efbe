//! `cargo xtask harness-proof`: puts known bugs into the source, one at a time, and demands that the simulator catches each by name.
//!
//! A harness that has never caught anything proves nothing. `crates/sim/proof/*.patch` holds the bugs; each file says in its first lines what the bug
//! is (`Bug:`), which laws may catch it (`Law:`), and on request how far to look for it (`Seeds:`) and with which nodes and rule (`Profile:`). Nothing
//! is changed in the working tree: the workspace is copied into the target folder, and a patch is applied to the copy. First of all the source as
//! it is must pass the same seeds.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Seeds for a patch that does not say otherwise.
const SEEDS: u64 = 60;

/// What the copy consists of.
const COPIED: &[&str] = &[".cargo", "Cargo.toml", "Cargo.lock", "crates", "xtask"];

/// A known bug.
#[derive(Debug)]
struct Bug {
    name: String,
    path: PathBuf,
    what: String,
    laws: Vec<String>,
    seeds: u64,
    profile: String,
}

/// Runs the proof.
///
/// # Errors
/// If the source as it is breaks a law, if a patch does not apply or build, or if a bug is not caught by one of its laws.
pub fn run(root: &Path) -> Result<()> {
    let bugs = read_bugs(&root.join("crates/sim/proof"))?;
    ensure!(!bugs.is_empty(), "there is no patch in crates/sim/proof");
    let work = root.join("target/harness-proof");
    let copy = work.join("source");
    copy_workspace(root, &copy)?;

    println!("the source as it is");
    let seeds: BTreeSet<(String, u64)> = bugs.iter().map(|bug| (bug.profile.clone(), bug.seeds)).collect();
    for (profile, count) in seeds {
        let broken = simulate(&work, &copy, &profile, count)?;
        ensure!(broken.is_empty(), "without any bug, {count} seeds of profile {profile} break {broken:?}");
        println!("  {count} seeds of profile {profile}: all laws held");
    }
    let mut missed = Vec::new();
    for bug in &bugs {
        println!("{}: {}", bug.name, bug.what);
        apply(&copy, &bug.path, false)?;
        let broken = simulate(&work, &copy, &bug.profile, bug.seeds);
        apply(&copy, &bug.path, true)?;
        let broken = broken?;
        let named: Vec<&String> = broken.iter().filter(|law| bug.laws.contains(law)).collect();
        match named.is_empty() {
            false => println!("  caught in {} of {} seeds, by {:?}", broken.len(), bug.seeds, dedup(&broken)),
            true => {
                println!("  NOT caught by {:?} in {} seeds; broken: {:?}", bug.laws, bug.seeds, dedup(&broken));
                missed.push(bug.name.as_str());
            }
        }
    }
    ensure!(missed.is_empty(), "the simulator does not catch by name: {}", missed.join(", "));
    Ok(())
}

fn dedup(laws: &[String]) -> BTreeSet<&str> {
    laws.iter().map(String::as_str).collect()
}

fn read_bugs(folder: &Path) -> Result<Vec<Bug>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .with_context(|| format!("reading {}", folder.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    paths.sort();
    paths.into_iter().map(|path| read_bug(&path)).collect()
}

fn read_bug(path: &Path) -> Result<Bug> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let field = |name: &str| {
        let head = text.lines().take_while(|line| !line.starts_with("---"));
        head.filter_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned()).next()
    };
    let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let (Some(what), Some(laws)) = (field("Bug:"), field("Law:")) else {
        bail!("{} must begin with a line `Bug:` and a line `Law:`", path.display());
    };
    Ok(Bug {
        name,
        path: path.to_path_buf(),
        what,
        laws: laws.split(',').map(|law| law.trim().to_owned()).collect(),
        seeds: field("Seeds:").map_or(Ok(SEEDS), |seeds| seeds.parse()).context("`Seeds:` is a number")?,
        profile: field("Profile:").unwrap_or_else(|| "mixed".to_owned()),
    })
}

/// Copies what is needed to build, anew. Files that did not change keep their time, so that only what a patch touches is built again.
fn copy_workspace(root: &Path, copy: &Path) -> Result<()> {
    if copy.exists() {
        fs::remove_dir_all(copy).with_context(|| format!("removing {}", copy.display()))?;
    }
    fs::create_dir_all(copy).with_context(|| format!("making {}", copy.display()))?;
    for name in COPIED {
        let from = root.join(name);
        if from.exists() {
            let done = Command::new("cp").arg("-pR").arg(&from).arg(copy).status().context("running cp")?;
            ensure!(done.success(), "{} could not be copied", from.display());
        }
    }
    Ok(())
}

fn apply(copy: &Path, patch: &Path, reverse: bool) -> Result<()> {
    let mut command = Command::new("patch");
    command.args(["-p1", "--silent", "--forward", "--input"]).arg(patch).current_dir(copy);
    if reverse {
        command.arg("--reverse");
    }
    let done = command.status().context("running patch")?;
    ensure!(done.success(), "{} does not apply: the source it changes has moved on; make it anew", patch.display());
    Ok(())
}

/// Builds the copy and runs seeds; returns the law that each failing seed broke.
fn simulate(work: &Path, copy: &Path, profile: &str, seeds: u64) -> Result<Vec<String>> {
    let target = work.join("target");
    // The simulator knows no SQL; its profile of that name has a program of its own.
    let (package, example) = match profile {
        "sqlite" => ("highwater-simsql", "sqlite_seeds"),
        _ => ("highwater-sim", "seeds"),
    };
    let build = Command::new("cargo")
        .args(["build", "--quiet", "--package", package, "--example", example])
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTFLAGS", "-Awarnings")
        .current_dir(copy)
        .status()
        .context("running cargo")?;
    ensure!(build.success(), "the patched source does not build");
    let output = Command::new(target.join("debug/examples").join(example))
        .args(["1", &seeds.to_string(), profile])
        .output()
        .context("running the simulator")?;
    // 1 says that a law was broken.
    let ran = output.status.code().is_some_and(|code| code <= 1);
    ensure!(ran, "the simulator did not run: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(text.contains(" seeds, "), "the simulator printed no report");
    let laws = text.lines().filter(|line| line.starts_with("seed "));
    Ok(laws.filter_map(|line| line.split_once(" broke ")?.1.split_once(':')).map(|(law, _)| law.to_owned()).collect())
}
