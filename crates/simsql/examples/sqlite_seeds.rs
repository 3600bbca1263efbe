//! Runs seeds of the profile `sqlite` and prints what they found: `sqlite_seeds [FIRST] [COUNT] [trace]`. Fails if a law was broken.

use std::io::Write;
use std::process::ExitCode;

use highwater_sim::{Profile, RunOptions, run};

fn main() -> std::io::Result<ExitCode> {
    highwater_simsql::provide();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let trace = arguments.iter().any(|argument| argument == "trace");
    let options = RunOptions {
        first_seed: number(0, 1),
        seeds: number(1, 10),
        profile: Profile::Sqlite,
        each: trace,
        trace,
        ..RunOptions::default()
    };
    let report = run(&options);
    let mut out = std::io::stdout().lock();
    for seed in &report.each {
        out.write_all(seed.trace.as_bytes())?;
    }
    writeln!(out, "{report}")?;
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
