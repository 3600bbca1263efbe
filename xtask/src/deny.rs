//! `cargo xtask deny`: what the dependencies must be like, as `deny.toml` says it.
//!
//! Licences, duplicate versions and sources are checked here, from what cargo resolved, so that every machine checks them. cargo-deny reads the same file and
//! checks the same and the advisories; building it takes longer than a check may (five minutes on two cores), so it runs where it is installed, and its
//! advisories where their database can be fetched. What did not run is said.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{licence, metadata};

/// Where crates come from.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Runs the check.
///
/// # Errors
/// If a dependency is not as `deny.toml` wants it, or the file does not read.
pub fn run(root: &Path) -> Result<()> {
    let rules: toml::Table =
        std::fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?.parse()?;
    let packages = metadata::of_workspace(root)?;
    let tree = ["tree", "--workspace", "--locked", "--target", "all", "--duplicates", "--depth", "0"];
    let twice = metadata::output(root, &[&tree[..], &["--prefix", "none", "--format", "{p}"]].concat())?;
    let mut found = licences_and_sources(&packages, &strings(&rules, "licenses", "allow"))?;
    found.extend(duplicates(&twice, &skipped(&rules)?));
    for violation in &found {
        eprintln!("deny: {violation}");
    }
    cargo_deny(root)?;
    match found.len() {
        0 => Ok(()),
        n => bail!(
            "{n} dependencies are not as deny.toml wants them, listed above; `cargo xtask deny` repeats this alone"
        ),
    }
}

/// Has cargo-deny check, as far as it can here.
fn cargo_deny(root: &Path) -> Result<()> {
    let deny = |args: &[&str]| {
        let mut command = Command::new("cargo");
        command.arg("deny").args(args).current_dir(root);
        command
    };
    let runs =
        |args: &[&str]| deny(args).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success());
    if !runs(&["--version"]) {
        eprintln!("deny: advisories SKIPPED: cargo-deny is not installed (`cargo install cargo-deny --locked`)");
        return Ok(());
    }
    let mut checks = vec!["check", "licenses", "bans", "sources"];
    if runs(&["fetch"]) {
        checks.push("advisories");
    } else {
        eprintln!("deny: advisories SKIPPED: their database cannot be fetched from here");
    }
    let status = deny(&checks).status().context("cannot start `cargo deny`")?;
    if !status.success() {
        bail!("`cargo deny {}` failed ({status})", checks.join(" "));
    }
    Ok(())
}

fn strings<'a>(rules: &'a toml::Table, section: &str, name: &str) -> Vec<&'a str> {
    let list = rules.get(section).and_then(|section| section.get(name)).and_then(toml::Value::as_array);
    list.into_iter().flatten().filter_map(toml::Value::as_str).collect()
}

/// What may be there twice: names with the beginning of a version. Each must have a reason.
fn skipped(rules: &toml::Table) -> Result<Vec<(String, String)>> {
    let skips = rules.get("bans").and_then(|bans| bans.get("skip")).and_then(toml::Value::as_array);
    let read = |skip: &toml::Value| {
        let (spec, reason) = (skip.get("crate")?.as_str()?, skip.get("reason")?.as_str()?);
        let (name, version) = spec.split_once('@')?;
        (!reason.is_empty()).then(|| (name.to_string(), version.to_string()))
    };
    skips
        .into_iter()
        .flatten()
        .map(|skip| {
            read(skip)
                .with_context(|| format!("in deny.toml: `crate = \"NAME@VERSION\"` and a reason wanted, found {skip}"))
        })
        .collect()
}

fn licences_and_sources(packages: &Value, allowed: &[&str]) -> Result<Vec<String>> {
    let members = metadata::list(packages, "workspace_members")?;
    let mut found = Vec::new();
    for package in metadata::list(packages, "packages")? {
        let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
        match package["source"].as_str() {
            Some(CRATES_IO) => {}
            None if members.contains(&package["id"]) => {}
            None => found.push(format!("{name}: comes from a folder outside of the workspace")),
            Some(other) => found.push(format!("{name}: comes from {other}, where only crates.io is allowed")),
        }
        match package["license"].as_str() {
            None => found.push(format!("{name}: names no licence")),
            Some(licence) if !licence::is_met(licence, allowed)? => {
                found.push(format!("{name}: its licence is {licence}, where {} are allowed", allowed.join(", ")));
            }
            Some(_) => {}
        }
    }
    Ok(found)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Crates of which several versions remain once those are left out that may be there beside another, and what is left out in vain.
fn duplicates(tree: &str, skipped: &[(String, String)]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in tree.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            versions.entry(name).or_default().insert(version.trim_start_matches('v'));
        }
    }
    let mut found = Vec::new();
    let means = |wanted: &str, version: &str| version == wanted || version.starts_with(&format!("{wanted}."));
    for (name, wanted) in skipped {
        if !versions.get(name.as_str()).is_some_and(|all| all.iter().any(|version| means(wanted, version))) {
            found.push(format!(
                "deny.toml: {name}@{wanted} is skipped, and is not there beside another version: take it out"
            ));
        }
    }
    for (name, all) in versions {
        let skipped = |version: &&&str| skipped.iter().any(|(skip, wanted)| skip == name && means(wanted, version));
        let left: Vec<&str> = all.iter().filter(|version| !skipped(version)).copied().collect();
        if left.len() > 1 {
            found.push(format!(
                "{name}: is there in {}; bring them together, or name one with a reason in deny.toml",
                left.join(" and ")
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_and_sources_that_are_not_allowed_are_found() {
        let packages = serde_json::json!({
            "workspace_members": ["ours"],
            "packages": [
                {"id": "ours", "name": "ours", "version": "0.1.0", "source": null, "license": "MIT"},
                {"id": "a", "name": "a", "version": "1.0.0", "source": CRATES_IO, "license": "GPL-3.0-only"},
                {"id": "b", "name": "b", "version": "1.0.0", "source": CRATES_IO, "license": null},
                {"id": "c", "name": "c", "version": "1.0.0", "source": "git+https://x", "license": "MIT"},
                {"id": "d", "name": "d", "version": "1.0.0", "source": null, "license": "MIT"},
            ],
        });
        let found = licences_and_sources(&packages, &["MIT"]).expect("complete");
        let names: Vec<&str> = found.iter().map(|violation| &violation[..1]).collect();
        assert_eq!(names, ["a", "b", "c", "d"], "{found:?}");
    }

    #[test]
    fn a_second_version_is_found_unless_it_is_named_and_a_name_in_vain_is_found() {
        let tree = "x v1.2.0\nx v1.2.0 (*)\nx v0.9.1\ny v2.0.0 (proc-macro)\ny v3.0.0\n";
        let skip = |name: &str, version: &str| (name.to_string(), version.to_string());
        assert_eq!(duplicates(tree, &[]).len(), 2);
        assert!(duplicates(tree, &[skip("x", "0.9"), skip("y", "2")]).is_empty());
        let found = duplicates(tree, &[skip("x", "0"), skip("y", "2.0.0"), skip("z", "1")]);
        assert!(found.len() == 1 && found[0].contains("z@1"), "{found:?}");
        assert_eq!(duplicates(tree, &[skip("x", "0.9"), skip("y", "2.1")]).len(), 2, "y, and a name in vain");
    }

    #[test]
    fn what_is_skipped_has_a_reason() {
        let rules = |text: &str| text.parse::<toml::Table>().expect("TOML");
        let good = rules("[bans]\nskip = [{ crate = \"a@1\", reason = \"b wants it\" }]");
        assert_eq!(skipped(&good).expect("one"), [("a".to_string(), "1".to_string())]);
        for wrong in ["{ crate = \"a@1\" }", "{ crate = \"a\", reason = \"r\" }", "{ crate = \"a@1\", reason = \"\" }"]
        {
            assert!(skipped(&rules(&format!("[bans]\nskip = [{wrong}]"))).is_err(), "{wrong}");
        }
    }
}
