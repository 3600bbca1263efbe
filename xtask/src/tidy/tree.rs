//! The working tree: which files the rules look at, and the rules about the tree as a whole.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{Source, Violation};

/// Folders that hold nothing written by hand.
const SKIPPED_FOLDERS: [&str; 4] = [".git", "target", "node_modules", "highwater-data"];

/// Kinds of files the rules look at.
const KINDS: [&str; 8] = ["rs", "md", "toml", "mjs", "js", "sh", "json", "run"];

/// Files that tools write.
const GENERATED: [&str; 2] = ["Cargo.lock", "package-lock.json"];

/// Reads every text file below `root`, in the order of their paths.
pub fn read(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    walk(root, root, &mut sources)?;
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn walk(root: &Path, folder: &Path, sources: &mut Vec<Source>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !SKIPPED_FOLDERS.contains(&name.as_str()) {
                walk(root, &path, sources)?;
            }
        } else if is_source(&name) {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {} as UTF-8 text", path.display()))?;
            let relative = path.strip_prefix(root).expect("the walk stays below the root");
            let path = relative.to_string_lossy().replace('\\', "/");
            sources.push(Source { path, text });
        }
    }
    Ok(())
}

/// Whether the rules look at a file of this name.
fn is_source(name: &str) -> bool {
    if GENERATED.contains(&name) {
        return false;
    }
    // `.ci/run` has no extension; its name stands for one.
    let kind = name.rsplit('.').next().unwrap_or(name);
    KINDS.contains(&kind)
}

/// Every crate says in its first line what it is for.
pub fn crates_have_a_first_word(sources: &[Source]) -> Vec<Violation> {
    let mut found = Vec::new();
    for folder in crate_folders(sources) {
        let root_of_crate = sources.iter().find(|source| {
            source.path == format!("{folder}/src/lib.rs") || source.path == format!("{folder}/src/main.rs")
        });
        match root_of_crate {
            Some(source) if source.text.starts_with("//! ") => {}
            Some(source) => found.push(format!(
                "{}: begins without a crate-level comment; say in `//!` what the crate is for",
                source.path
            )),
            None => found.push(format!("{folder}: has neither src/lib.rs nor src/main.rs")),
        }
    }
    found
}

/// Crates that must do what the compiler cannot check, and why. What each such block relies on stands above it.
const MAY_BE_UNSAFE: [(&str, &str); 3] = [
    ("crates/cli", "what runs between fork and exec, and mount namespaces for disks that are full"),
    ("crates/sql", "SQLite's C interface"),
    ("crates/simsql", "a file system that SQLite's C code calls"),
];

/// Every crate forbids unsafe code, but for those that are named because they need it.
pub fn unsafe_code_is_forbidden(sources: &[Source]) -> Vec<Violation> {
    const FORBIDDEN: &str = "#![forbid(unsafe_code)]";
    let mut found = Vec::new();
    for folder in crate_folders(sources) {
        let may = MAY_BE_UNSAFE.iter().any(|(named, _)| *named == folder);
        let roots = [format!("{folder}/src/lib.rs"), format!("{folder}/src/main.rs")];
        for root in sources.iter().filter(|source| roots.contains(&source.path)) {
            let forbids = root.text.lines().any(|line| line == FORBIDDEN);
            match (may, forbids) {
                (false, false) => found.push(format!("{}: begins without {FORBIDDEN}", root.path)),
                (true, true) => {
                    found.push(format!("{}: needs no unsafe code: take it off the list of the rule", root.path))
                }
                _ => {}
            }
        }
    }
    found
}

/// ARCHITECTURE.md's code map names every crate, in backticks, by its folder's name.
pub fn architecture_names_every_crate(sources: &[Source], architecture: &str) -> Vec<Violation> {
    crate_folders(sources)
        .iter()
        .map(|folder| folder.rsplit('/').next().unwrap_or(folder))
        .filter(|name| !architecture.contains(&format!("`{name}`")))
        .map(|name| format!("ARCHITECTURE.md: does not name the crate `{name}`"))
        .collect()
}

/// Folders with a `Cargo.toml`, but for the workspace's own.
fn crate_folders(sources: &[Source]) -> Vec<String> {
    sources.iter().filter_map(|source| source.path.strip_suffix("/Cargo.toml")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_crate_without_a_first_word_is_found() {
        let manifest = source("crates/log/Cargo.toml", "");
        let silent = source("crates/log/src/lib.rs", "mod io;\n");
        let found = crates_have_a_first_word(&[manifest.clone(), silent]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/log/src/lib.rs: "), "{found:?}");

        assert_eq!(crates_have_a_first_word(std::slice::from_ref(&manifest)).len(), 1, "no root file at all");

        let speaking = source("crates/log/src/lib.rs", "//! The log.\n");
        assert!(crates_have_a_first_word(&[manifest, speaking]).is_empty());
    }

    #[test]
    fn a_crate_that_does_not_forbid_unsafe_code_is_found() {
        let crate_of = |folder: &str, text: &str| {
            [source(&format!("{folder}/Cargo.toml"), ""), source(&format!("{folder}/src/lib.rs"), text)]
        };
        let lax = unsafe_code_is_forbidden(&crate_of("crates/log", "//! The log.\n// #![forbid(unsafe_code)]\n"));
        assert!(lax.len() == 1 && lax[0].starts_with("crates/log/src/lib.rs: "), "{lax:?}");
        let strict = "//! The log.\n\n#![forbid(unsafe_code)]\n";
        assert!(unsafe_code_is_forbidden(&crate_of("crates/log", strict)).is_empty());
        assert!(unsafe_code_is_forbidden(&crate_of("crates/sql", "//! SQL.\n")).is_empty());
        assert_eq!(unsafe_code_is_forbidden(&crate_of("crates/sql", strict)).len(), 1, "named in vain");
    }

    #[test]
    fn a_crate_missing_from_the_code_map_is_found() {
        let crates = [source("crates/log/Cargo.toml", ""), source("xtask/Cargo.toml", "")];
        let found = architecture_names_every_crate(&crates, "there is `xtask`, and a log");
        assert_eq!(found, ["ARCHITECTURE.md: does not name the crate `log`"]);
        assert!(architecture_names_every_crate(&crates, "`log`, `xtask`").is_empty());
    }

    #[test]
    fn files_written_by_tools_are_left_out_and_the_ci_script_is_not() {
        assert!(!is_source("Cargo.lock"));
        assert!(!is_source("package-lock.json"));
        assert!(!is_source("picture.png"));
        assert!(is_source("run"));
        assert!(is_source("lib.rs"));
    }
}
