//! A crate depends on nothing that its source does not name: what is not used is built, audited and updated for nobody.
//!
//! The source of the product is `src` and `build.rs`; what only tests name is a dependency of tests.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Source, Violation, code_of};
use crate::metadata::list;

/// Dependencies that no source needs to name: the crate, the dependency, and why it is there.
const NEEDED_UNNAMED: [(&str, &str, &str); 0] = [];

/// Every dependency of a crate of the workspace that none of its sources names.
pub fn check(metadata: &Value, sources: &[Source]) -> Result<Vec<Violation>> {
    let members = list(metadata, "workspace_members")?;
    let packages = list(metadata, "packages")?;
    let root = metadata["workspace_root"].as_str().context("cargo metadata has no workspace_root")?;
    let libraries: BTreeMap<&str, &str> = packages.iter().filter_map(library).collect();
    let mut found = Vec::new();
    for package in packages.iter().filter(|package| members.contains(&package["id"])) {
        let name = package["name"].as_str().context("a package has no name")?;
        let manifest = package["manifest_path"].as_str().context("a package has no manifest")?;
        let folder = manifest.strip_prefix(root).and_then(|path| path.strip_suffix("Cargo.toml"));
        let folder = folder.context("a member lies outside of the workspace")?.trim_start_matches('/');
        for dependency in list(package, "dependencies")? {
            let wanted = dependency["name"].as_str().context("a dependency has no name")?;
            // A rename is what the source says; else the library's name, which may differ from its package's.
            let called = dependency["rename"].as_str().or(libraries.get(wanted).copied()).unwrap_or(wanted);
            let called = called.replace('-', "_");
            let for_tests = dependency["kind"] == "dev";
            let mut own = sources.iter().filter(|source| is_read(source, folder, for_tests));
            let excused = NEEDED_UNNAMED.iter().any(|(of, what, _)| *of == name && *what == wanted);
            let used = own.any(|source| source.text.lines().any(|line| has_word(code_of(line), &called)));
            if !used && !excused {
                let who = if for_tests { "its tests depend" } else { "it depends" };
                found.push(format!("{folder}Cargo.toml: {who} on {wanted}, and no source names `{called}`"));
            }
        }
    }
    Ok(found)
}

/// A package's name, and its library's.
fn library(package: &Value) -> Option<(&str, &str)> {
    const KINDS: [&str; 5] = ["lib", "rlib", "dylib", "cdylib", "proc-macro"];
    let is_library = |target: &&Value| {
        target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| KINDS.iter().any(|known| kind == known)))
    };
    let target = package["targets"].as_array()?.iter().find(is_library)?;
    Some((package["name"].as_str()?, target["name"].as_str()?))
}

/// Whether that file is one in which a dependency of this kind counts as named.
fn is_read(source: &Source, folder: &str, for_tests: bool) -> bool {
    let Some(path) = source.path.strip_prefix(folder) else { return false };
    let product = path.starts_with("src/") || path == "build.rs";
    let tests = ["tests/", "examples/", "benches/"].iter().any(|place| path.starts_with(place));
    path.ends_with(".rs") && (product || for_tests && tests)
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |text: Option<char>| text.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    line.match_indices(word)
        .any(|(at, _)| !is_part(line[..at].chars().next_back()) && !is_part(line[at + word.len()..].chars().next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(kind: Value) -> Value {
        serde_json::json!({
            "workspace_root": "/w",
            "workspace_members": ["a"],
            "packages": [
                {"id": "a", "name": "a", "manifest_path": "/w/crates/a/Cargo.toml", "targets": [],
                 "dependencies": [{"name": "md-5", "rename": null, "kind": kind}]},
                {"id": "m", "name": "md-5", "targets": [{"kind": ["lib"], "name": "md5"}], "dependencies": []},
            ],
        })
    }

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_dependency_that_no_source_names_is_found() {
        let unused = [
            source("crates/a/src/lib.rs", "use md55; // md5\n"),
            source("crates/b/src/lib.rs", "use md5;"),
            source("crates/a/tests/x.rs", "use md5;"),
        ];
        let found = check(&metadata(Value::Null), &unused).expect("complete");
        assert!(
            found.len() == 1 && found[0].contains("md-5") && found[0].starts_with("crates/a/Cargo.toml"),
            "{found:?}"
        );
        assert!(check(&metadata("dev".into()), &unused).expect("complete").is_empty(), "tests may name it");
        let used = [source("crates/a/src/x/y.rs", "    let sum = md5::sum();\n")];
        assert!(check(&metadata(Value::Null), &used).expect("complete").is_empty());
    }
}
