//! `cargo xtask fuzz`: the tests whose names begin with `fuzz_`, with more rounds and another seed than `cargo xtask test` gives them, optimised.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Who reads bytes that may not be what they should be.
const READERS: [&str; 6] =
    ["highwater-wire", "highwater-log", "highwater-coordinator", "highwater-sql", "highwater-http", "highwater-client"];

/// Runs every reader's tests of that kind.
///
/// # Errors
/// If an argument is no number, or a reader fails; what it failed on is printed.
pub fn run(root: &Path, rounds: Option<&str>, seed: Option<&str>) -> Result<()> {
    let number = |text: &str| text.parse::<u64>().with_context(|| format!("a whole number is wanted; found {text:?}"));
    let rounds = number(rounds.unwrap_or("1000000"))?;
    let seed = number(seed.unwrap_or("1"))?;
    let mut command = Command::new("cargo");
    command.args(["test", "--release", "--locked", "--lib"]);
    command.args(READERS.iter().flat_map(|reader| ["--package", reader]));
    command.args(["fuzz_", "--", "--nocapture"]).current_dir(root);
    command.env("HIGHWATER_FUZZ_ROUNDS", rounds.to_string()).env("HIGHWATER_FUZZ_SEED", seed.to_string());
    let status = command.status().context("cannot start cargo")?;
    ensure!(
        status.success(),
        "a reader fails on the input printed above; `cargo xtask fuzz {rounds} {seed}` repeats it"
    );
    eprintln!("xtask: {rounds} rounds of seed {seed} for every reader: none failed");
    Ok(())
}
