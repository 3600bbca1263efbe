//! The steps of `cargo xtask check`, cheapest first, each timed. All run, also after one failed; what failed is listed at the end with the command that
//! repeats it alone.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{deny, tidy};

/// Runs every check.
pub fn everything(root: &Path) -> Result<()> {
    let begun = Instant::now();
    let mut failures = Vec::new();
    let mut step = |name: &str, outcome: Result<()>| {
        if let Err(error) = outcome {
            eprintln!("xtask: {name} FAILED");
            failures.push(format!("{name}: {error:#}"));
        }
    };
    step("tidy", timed("tidy", || tidy_alone(root)));
    step("deny", timed("dependencies", || deny::run(root)));
    step("fmt", timed("fmt", || cargo(root, &["fmt", "--all", "--check"], &[])));
    let clippy = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    step("clippy", timed("clippy", || cargo(root, &clippy, &[])));
    let doc = ["doc", "--workspace", "--no-deps", "--locked"];
    step("doc", timed("doc", || cargo(root, &doc, &[("RUSTDOCFLAGS", "-D warnings")])));
    step("tests", tests_alone(root));
    let former = ["run", "--quiet", "--locked", "--package", "highwater-sim", "--example", "seeds", "--", "former"];
    step("former seeds", timed("seeds that once broke a law", || cargo(root, &former, &[])));
    let seeds = ["run", "--quiet", "--locked", "--package", "highwater-sim", "--example", "seeds", "--", "1", "300"];
    step("simulator", timed("simulator, seeds 1 to 300", || cargo(root, &seeds, &[])));
    // Optimised, for it takes every order of events one by one.
    let model = ["run", "--quiet", "--locked", "--release", "--package", "highwater-sim", "--example", "model"];
    step("model", timed("exhaustive model", || cargo(root, &model, &[])));
    if !failures.is_empty() {
        bail!("{} of the checks failed:\n  {}", failures.len(), failures.join("\n  "));
    }
    eprintln!("xtask: all checks passed in {} s", begun.elapsed().as_secs());
    Ok(())
}

/// Runs the tidy rules and prints every violation found.
pub fn tidy_alone(root: &Path) -> Result<()> {
    let violations = tidy::violations(root)?;
    for violation in &violations {
        eprintln!("tidy: {violation}");
    }
    match violations.len() {
        0 => Ok(()),
        n => bail!("{n} tidy rules are broken, listed above; `cargo xtask tidy` repeats them alone"),
    }
}

/// Runs all tests: under nextest where it is installed, since it runs them side by side and names what is slow, and the documents' examples.
pub fn tests_alone(root: &Path) -> Result<()> {
    for missing in what_tests_lack() {
        eprintln!("xtask: SKIPPED for want of {missing}; under CI=true that is a failure");
    }
    timed("tests", || {
        if has_nextest(root) {
            cargo(root, &["nextest", "run", "--workspace", "--locked", "--no-fail-fast"], &[])
        } else {
            cargo(root, &["test", "--workspace", "--locked", "--all-targets", "--no-fail-fast"], &[])
        }
    })?;
    timed("doc tests", || cargo(root, &["test", "--workspace", "--locked", "--doc"], &[]))
}

/// What some tests need and this machine does not have. They say so themselves, but runners keep what a passing test says to themselves.
fn what_tests_lack() -> Vec<&'static str> {
    let mut missing = Vec::new();
    if !std::env::var_os("HIGHWATER_TEST_DATA").is_some_and(|folder| Path::new(&folder).is_dir()) {
        missing.push("the folder that HIGHWATER_TEST_DATA names: SQLite's test scripts, Chinook");
    }
    if !["node", "npm"].iter().all(|tool| runs(Command::new(tool).arg("--version"))) {
        missing.push("Node.js with npm: the stock JavaScript client");
    }
    missing
}

/// Whether a command can be run and succeeds.
fn runs(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Formats every source file in place.
pub fn format_in_place(root: &Path) -> Result<()> {
    cargo(root, &["fmt", "--all"], &[])
}

/// Whether `cargo nextest` can be run here.
fn has_nextest(root: &Path) -> bool {
    runs(Command::new("cargo").args(["nextest", "--version"]).current_dir(root))
}

/// Runs cargo in the workspace's root with its output shown.
fn cargo(root: &Path, args: &[&str], envs: &[(&str, &str)]) -> Result<()> {
    let status = Command::new("cargo")
        .args(args)
        .envs(envs.iter().copied())
        .current_dir(root)
        .status()
        .with_context(|| format!("cannot start `cargo {}`", args.join(" ")))?;
    if !status.success() {
        bail!("`cargo {}` failed ({status})", args.join(" "));
    }
    Ok(())
}

/// Runs a step and says how long it took.
fn timed(name: &str, step: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("xtask: {name} ...");
    let begun = Instant::now();
    step()?;
    eprintln!("xtask: {name} ok, {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}
