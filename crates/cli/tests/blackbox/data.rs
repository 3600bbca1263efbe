//! Real inputs, which are not part of the project.

use std::io::Write;
use std::path::PathBuf;

/// A folder below the one that `HIGHWATER_TEST_DATA` names, or nothing, loudly, where there is none.
///
/// # Panics
/// Under `CI=true` if the folder is not there: what continuous integration does not run is not checked.
pub(crate) fn folder(name: &str) -> Option<PathBuf> {
    let found = std::env::var_os("HIGHWATER_TEST_DATA").map(|root| PathBuf::from(root).join(name));
    if let Some(folder) = found.filter(|folder| folder.is_dir()) {
        return Some(folder);
    }
    skip(&format!("no folder {name} below HIGHWATER_TEST_DATA"));
    None
}

/// Says that a test is skipped, and why.
///
/// # Panics
/// Under `CI=true`.
pub(crate) fn skip(why: &str) {
    assert!(!required(), "{why}, and under CI=true this test may not be skipped");
    // Not by `eprintln`, which a test's runner keeps to itself when the test passes.
    let told = writeln!(std::io::stderr(), "SKIPPED: {why}");
    told.expect("standard error can be written to");
}

/// Whether skipping is forbidden.
fn required() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1")
}
