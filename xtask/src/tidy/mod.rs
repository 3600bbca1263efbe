//! Rules of the house that no compiler checks. Each has a test that shows it can fail.
//!
//! The patterns looked for are put together with `concat!`, so that the rules may be run on their own source.

mod arrows;
mod manifests;
mod purity;
mod tree;
mod words;

use std::path::Path;

use anyhow::{Context, Result};

/// One broken rule: where, and what to do about it.
pub type Violation = String;

/// A text file of the working tree.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its path from the workspace's root, with `/` between parts.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// Everything that is wrong, in the order of the files' paths.
///
/// # Errors
/// If the tree cannot be read or cargo cannot describe the workspace.
pub fn violations(root: &Path) -> Result<Vec<Violation>> {
    let sources = tree::read(root)?;
    let architecture = std::fs::read_to_string(root.join("ARCHITECTURE.md"))
        .context("ARCHITECTURE.md is missing from the workspace's root")?;
    let metadata = crate::metadata::of_workspace(root)?;
    let graph = arrows::Graph::of_metadata(&metadata)?;

    let mut found = arrows::check(&graph);
    for source in &sources {
        found.extend(words::check(source));
        found.extend(purity::check(source));
    }
    found.extend(manifests::check(&metadata, &sources)?);
    found.extend(tree::crates_have_a_first_word(&sources));
    found.extend(tree::unsafe_code_is_forbidden(&sources));
    found.extend(tree::architecture_names_every_crate(&sources, &architecture));
    Ok(found)
}

/// The part of a line of Rust that is code: what stands before a comment. A `//` inside a string is taken for a comment as well, which can only hide
/// something, never accuse wrongly.
fn code_of(line: &str) -> &str {
    match line.find("//") {
        Some(at) => &line[..at],
        None => line,
    }
}
