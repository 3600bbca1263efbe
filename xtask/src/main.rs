//! Checks and chores, in Rust so that they run wherever the project builds.
//!
//! `cargo xtask check` runs every check and never writes to the working tree; `cargo xtask fmt` is the command that does. See `docs/testing.md`.

#![forbid(unsafe_code)]

mod check;
mod deny;
mod dist;
mod fuzz;
mod harness_proof;
mod licence;
mod metadata;
mod tidy;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What the command line offers.
const USAGE: &str = "\
usage: cargo xtask COMMAND

  check   every check: tidy rules, dependencies, format, lints, documents, tests; writes nothing outside the target folder
  tidy    the tidy rules alone (seconds)
  deny    what the dependencies must be like (deny.toml): licences, duplicates, sources; advisories where cargo-deny and its database can be had
  test    the tests alone
  harness-proof [NAME...]
          puts known bugs into a copy of the source and demands that the simulator or the model catches each by name (minutes)
  fuzz [ROUNDS [SEED]]
          damaged bytes for everything that reads a disk or a socket, more of them than the tests try; 1000000 rounds of seed 1 if not told otherwise
  dist    build the release binary into target/dist, and check that it names no folder of its builder (minutes)
  fmt     format every source file in place";

fn main() -> ExitCode {
    let command = env::args().nth(1).unwrap_or_default();
    let outcome = match command.as_str() {
        "check" => check::everything(&root()),
        "tidy" => check::tidy_alone(&root()),
        "deny" => deny::run(&root()),
        "dist" => dist::run(&root()),
        "test" => check::tests_alone(&root()),
        "harness-proof" => harness_proof::run(&root(), &env::args().skip(2).collect::<Vec<_>>()),
        "fuzz" => fuzz::run(&root(), env::args().nth(2).as_deref(), env::args().nth(3).as_deref()),
        "fmt" => check::format_in_place(&root()),
        "" | "help" | "--help" | "-h" => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        other => {
            eprintln!("unknown command {other:?}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's root: the folder above this crate's.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies one level below the workspace's root").to_path_buf()
}
