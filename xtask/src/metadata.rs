//! What cargo says of the workspace and of everything that it resolved.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The answer of `cargo metadata`.
///
/// # Errors
/// If cargo cannot be run or does not answer.
pub fn of_workspace(root: &Path) -> Result<Value> {
    let text = output(root, &["metadata", "--format-version", "1", "--locked"])?;
    serde_json::from_str(&text).context("`cargo metadata` answered something that is not JSON")
}

/// What cargo prints when it is run with these arguments.
///
/// # Errors
/// If it cannot be run, fails, or prints what is no text.
pub fn output(root: &Path, args: &[&str]) -> Result<String> {
    let said = args.join(" ");
    let output = Command::new("cargo").args(args).current_dir(root).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start `cargo {said}`"))?;
    if !output.status.success() {
        bail!("`cargo {said}` failed ({})", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("`cargo {said}` printed what is no text"))
}

/// A list in an answer.
///
/// # Errors
/// If there is none of that name.
pub fn list<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>> {
    value[name].as_array().with_context(|| format!("cargo metadata has no list {name:?}"))
}
