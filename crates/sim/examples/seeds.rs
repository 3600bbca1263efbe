//! Runs seeds and prints what they found: `seeds [FIRST] [COUNT] [PROFILE] [trace] [small]`, or `seeds former` for those that once broke a law. Fails if a law
//! was broken, or if a situation is missing that so many seeds should have come into. With `small`, the first failure is made small.

use std::io::Write;
use std::process::ExitCode;

use highwater_sim::{Plan, Profile, Reduction, Report, RunOptions, former_seeds, run, shrink};

fn main() -> std::io::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let report = match arguments.first().map(String::as_str) {
        Some("former") => former().map_err(std::io::Error::other)?,
        _ => seeds(&arguments),
    };
    let mut out = std::io::stdout().lock();
    for seed in &report.each {
        out.write_all(seed.trace.as_bytes())?;
    }
    writeln!(out, "{report}")?;
    if let Some(first) = report.violations.first().filter(|_| arguments.iter().any(|argument| argument == "small")) {
        let plan = Plan { seed: first.seed, profile: first.profile, reduction: Reduction::default(), text: false };
        if let Some(small) = shrink(&plan) {
            let (violation, runs) = (&small.violation, small.runs);
            writeln!(out, "made small in {runs} runs:\n{}again with: {}", small.story, violation.replay)?;
        }
    }
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn seeds(arguments: &[String]) -> Report {
    let number = |at: usize, default| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let trace = arguments.iter().any(|argument| argument == "trace");
    run(&RunOptions {
        first_seed: number(0, 1),
        seeds: number(1, 10),
        profile: arguments.get(2).and_then(|name| name.parse().ok()).unwrap_or(Profile::Mixed),
        jobs: 2,
        each: trace,
        trace,
        ..RunOptions::default()
    })
}

fn former() -> Result<Report, String> {
    let mut all = Report::default();
    for (profile, first_seed) in former_seeds()? {
        all.merge(run(&RunOptions { seeds: 1, first_seed, profile, ..RunOptions::default() }));
    }
    Ok(all)
}
