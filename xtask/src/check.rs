//! The steps of `cargo xtask check`, cheapest first, each timed. A step that fails ends the run with the command that repeats it alone.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::tidy;

/// Runs every check.
pub fn everything(root: &Path) -> Result<()> {
    let begun = Instant::now();
    timed("tidy", || tidy_alone(root))?;
    timed("fmt", || cargo(root, &["fmt", "--all", "--check"], &[]))?;
    timed("clippy", || {
        let lints = ["--", "-D", "warnings"];
        let mut args = vec!["clippy", "--workspace", "--all-targets", "--locked"];
        args.extend(lints);
        cargo(root, &args, &[])
    })?;
    timed("doc", || {
        let args = ["doc", "--workspace", "--no-deps", "--locked"];
        cargo(root, &args, &[("RUSTDOCFLAGS", "-D warnings")])
    })?;
    tests_alone(root)?;
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
    timed("tests", || {
        if has_nextest(root) {
            cargo(root, &["nextest", "run", "--workspace", "--locked", "--no-fail-fast"], &[])
        } else {
            cargo(root, &["test", "--workspace", "--locked", "--all-targets", "--no-fail-fast"], &[])
        }
    })?;
    timed("doc tests", || cargo(root, &["test", "--workspace", "--locked", "--doc"], &[]))
}

/// Formats every source file in place.
pub fn format_in_place(root: &Path) -> Result<()> {
    cargo(root, &["fmt", "--all"], &[])
}

/// Whether `cargo nextest` can be run here.
fn has_nextest(root: &Path) -> bool {
    Command::new("cargo")
        .args(["nextest", "--version"])
        .current_dir(root)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
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
