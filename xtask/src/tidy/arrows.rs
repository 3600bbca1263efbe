//! The arrows that must not exist between crates, checked on what cargo resolved rather than on what manifests say, so that a forbidden crate is found
//! behind any number of others.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Violation;
use crate::metadata::list;

/// What the crates of the workspace depend on, by package name. Crates of the workspace bear their folder's name (`log`, not `highwater-log`).
#[derive(Debug, Default)]
pub struct Graph {
    /// The workspace's crates.
    members: BTreeSet<String>,
    /// Direct dependencies that end up in the product.
    product: BTreeMap<String, BTreeSet<String>>,
    /// Direct dependencies of tests, for the workspace's crates alone.
    tests: BTreeMap<String, BTreeSet<String>>,
}

/// Crates that decide: no runtime, no client interface.
const WITHOUT_TOKIO: [&str; 9] = ["wire", "log", "replica", "partition", "coordinator", "host", "sim", "simsql", "sql"];

/// Crates that must not know that SQL exists, nor what clients speak.
const WITHOUT_SQL: [&str; 7] = ["wire", "log", "replica", "partition", "coordinator", "host", "sim"];

/// From one crate to another that it may not reach, directly or through others.
fn forbidden() -> Vec<(&'static str, &'static str)> {
    let mut pairs = Vec::new();
    for from in WITHOUT_TOKIO {
        pairs.extend(["tokio", "axum", "hyper", "node", "http", "cli"].map(|to| (from, to)));
    }
    for from in WITHOUT_SQL {
        pairs.extend(["rusqlite", "libsqlite3-sys", "sql"].map(|to| (from, to)));
    }
    for from in ["wire", "log", "replica", "partition", "coordinator", "host", "sql"] {
        pairs.extend([(from, "sim"), (from, "simsql")]);
    }
    // The client speaks HTTP and knows nothing of what is inside.
    for to in ["log", "replica", "partition", "coordinator", "host", "sql", "node", "http", "sim", "cli", "tokio"] {
        pairs.push(("client", to));
    }
    // The checker of histories is independent of what it judges, and touches nothing.
    for to in [
        "wire",
        "log",
        "replica",
        "partition",
        "coordinator",
        "host",
        "sim",
        "sql",
        "node",
        "http",
        "client",
        "cli",
        "tokio",
        "rusqlite",
    ] {
        pairs.push(("history", to));
    }
    // `log` knows no replication rule, `replica` no state machine and no file, `sql` no network and no peers.
    pairs.extend([("log", "replica"), ("log", "partition"), ("log", "coordinator"), ("log", "host")]);
    pairs.extend([("replica", "log"), ("replica", "partition"), ("replica", "coordinator")]);
    pairs.extend([("sql", "coordinator"), ("sql", "host"), ("node", "http"), ("node", "sim"), ("http", "sim")]);
    for from in [
        "wire",
        "log",
        "replica",
        "partition",
        "coordinator",
        "host",
        "sim",
        "sql",
        "node",
        "http",
        "client",
        "history",
    ] {
        pairs.push((from, "toml"));
    }
    pairs
}

/// From one crate to another that it may not name itself, though it may reach it through others.
const FORBIDDEN_DIRECTLY: [(&str, &str); 7] = [
    ("sql", "replica"),
    // It damages bytes for tests, and is no part of the product.
    ("wire", "fuzz"),
    ("log", "fuzz"),
    ("coordinator", "fuzz"),
    ("sql", "fuzz"),
    ("http", "fuzz"),
    ("client", "fuzz"),
];

/// Crates of which only these may depend on tokio directly.
const MAY_KNOW_TOKIO: [&str; 3] = ["node", "http", "cli"];

/// Every forbidden arrow that exists.
pub fn check(graph: &Graph) -> Vec<Violation> {
    let mut found = Vec::new();
    for (from, to) in forbidden() {
        if let Some(path) = graph.path(from, to) {
            found.push(format!("forbidden arrow: {}", path.join(" -> ")));
        } else if graph.tests.get(from).is_some_and(|direct| direct.contains(to)) {
            found.push(format!("forbidden arrow: {from} -> {to} (in its tests)"));
        }
    }
    for (from, to) in FORBIDDEN_DIRECTLY {
        if graph.product.get(from).is_some_and(|direct| direct.contains(to)) {
            found.push(format!("forbidden arrow: {from} -> {to}"));
        }
    }
    for member in &graph.members {
        let direct = graph.product.get(member).is_some_and(|direct| direct.contains("tokio"));
        if direct && !MAY_KNOW_TOKIO.contains(&member.as_str()) {
            found.push(format!("forbidden arrow: {member} -> tokio; only {} know it", MAY_KNOW_TOKIO.join(", ")));
        }
    }
    found.sort();
    found.dedup();
    found
}

impl Graph {
    /// Reads what `cargo metadata --format-version 1` printed.
    pub fn of_metadata(metadata: &Value) -> Result<Graph> {
        let members: BTreeSet<String> =
            list(metadata, "workspace_members")?.iter().filter_map(|id| id.as_str().map(str::to_owned)).collect();
        let mut names = BTreeMap::new();
        for package in list(metadata, "packages")? {
            let (Some(id), Some(name)) = (package["id"].as_str(), package["name"].as_str()) else {
                bail!("a package of cargo metadata has no id or no name");
            };
            names.insert(id.to_owned(), short_name(name, members.contains(id)));
        }
        let name_of = |id: &Value| {
            id.as_str().and_then(|id| names.get(id)).cloned().context("cargo metadata names an unknown package")
        };
        let mut graph = Graph::default();
        for id in &members {
            graph.members.insert(name_of(&Value::String(id.clone()))?);
        }
        for node in list(&metadata["resolve"], "nodes")? {
            let from = name_of(&node["id"])?;
            for dep in list(node, "deps")? {
                let to = name_of(&dep["pkg"])?;
                for kind in list(dep, "dep_kinds")? {
                    match kind["kind"].as_str() {
                        None => graph.product.entry(from.clone()).or_default().insert(to.clone()),
                        Some("dev") => graph.tests.entry(from.clone()).or_default().insert(to.clone()),
                        // What runs at build time only is not in the product.
                        Some(_) => false,
                    };
                }
            }
        }
        Ok(graph)
    }

    /// The shortest way from one crate to another through product dependencies, both ends included.
    fn path(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let mut seen = BTreeSet::from([from.to_owned()]);
        let mut paths = std::collections::VecDeque::from([vec![from.to_owned()]]);
        while let Some(path) = paths.pop_front() {
            let last = path.last().expect("a path has a first crate");
            for next in self.product.get(last).into_iter().flatten() {
                let longer = || path.iter().cloned().chain([next.clone()]).collect::<Vec<_>>();
                if next == to {
                    return Some(longer());
                }
                if seen.insert(next.clone()) {
                    paths.push_back(longer());
                }
            }
        }
        None
    }
}

/// A workspace crate's folder name for its package name; other packages keep theirs. The binary's package bears the project's name.
fn short_name(package: &str, member: bool) -> String {
    match package.strip_prefix("highwater-") {
        Some(short) if member => short.to_owned(),
        None if member && package == "highwater" => "cli".to_owned(),
        // A published crate that happens to be called like one of ours is another crate.
        _ if !member && ["log", "http", "wire", "node", "sql", "sim", "host", "cli"].contains(&package) => {
            format!("{package} (published)")
        }
        _ => package.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(product: &[(&str, &str)], tests: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::default();
        for (from, to) in product {
            graph.members.insert((*from).to_owned());
            graph.product.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        for (from, to) in tests {
            graph.tests.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        graph
    }

    #[test]
    fn every_forbidden_arrow_is_found_directly_in_tests_and_behind_others() {
        for (from, to) in forbidden() {
            assert_ne!(from, to);
            let named = |found: &[Violation]| found.iter().any(|f| f.contains(from) && f.contains(to));
            assert!(named(&check(&graph(&[(from, to)], &[]))), "{from} -> {to}");
            assert!(named(&check(&graph(&[], &[(from, to)]))), "{from} -> {to} in tests");
            let behind = check(&graph(&[(from, "between"), ("between", to)], &[]));
            assert!(behind.contains(&format!("forbidden arrow: {from} -> between -> {to}")), "{behind:?}");
        }
    }

    #[test]
    fn what_may_be_reached_may_still_not_be_named() {
        for (from, to) in FORBIDDEN_DIRECTLY {
            assert_eq!(check(&graph(&[(from, to)], &[])).len(), 1, "{from} -> {to}");
            assert!(check(&graph(&[(from, "between"), ("between", to)], &[])).is_empty());
        }
    }

    #[test]
    fn tokio_is_for_three_crates_only() {
        for member in MAY_KNOW_TOKIO {
            assert!(check(&graph(&[(member, "tokio")], &[])).is_empty(), "{member}");
        }
        assert_eq!(check(&graph(&[("newcomer", "tokio")], &[])).len(), 1);
    }

    #[test]
    fn metadata_is_read_with_kinds_and_folder_names() {
        let text = r#"{
            "workspace_members": ["a", "b"],
            "packages": [
                {"id": "a", "name": "highwater-log"}, {"id": "b", "name": "highwater"},
                {"id": "c", "name": "tokio"}, {"id": "d", "name": "log"}
            ],
            "resolve": {"nodes": [
                {"id": "a", "deps": [
                    {"pkg": "c", "dep_kinds": [{"kind": "dev"}]}, {"pkg": "d", "dep_kinds": [{"kind": null}]}
                ]},
                {"id": "b", "deps": [{"pkg": "c", "dep_kinds": [{"kind": "build"}, {"kind": null}]}]},
                {"id": "c", "deps": []}, {"id": "d", "deps": []}
            ]}
        }"#;
        let metadata = serde_json::from_str(text).expect("the sample is JSON");
        let graph = Graph::of_metadata(&metadata).expect("the sample is complete");
        assert_eq!(graph.members, BTreeSet::from(["cli".to_owned(), "log".to_owned()]));
        assert!(graph.tests["log"].contains("tokio"));
        assert!(graph.product["cli"].contains("tokio"));
        assert!(graph.product["log"].contains("log (published)"));
        assert_eq!(check(&graph), ["forbidden arrow: log -> tokio (in its tests)"]);
    }
}
