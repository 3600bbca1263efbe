//! `highwater sim`: random seeds, or one seed with its trace.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;
use highwater_sim::{Profile, RunOptions};
use serde_json::json;

use crate::args::SimArgs;
use crate::output::{document, line};

/// Runs the command. Exit 0 if all laws held.
pub(crate) fn run(args: &SimArgs) -> anyhow::Result<ExitCode> {
    match args.scenario.as_deref() {
        Some(name) => bail!("there is no scenario {name:?}"),
        None => seeds(args),
    }
}

fn seeds(args: &SimArgs) -> anyhow::Result<ExitCode> {
    let profile: Profile = match &args.profile {
        Some(name) => name.parse().map_err(anyhow::Error::msg)?,
        None => Profile::Mixed,
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let options = RunOptions {
        seeds: if args.seed.is_some() { 1 } else { args.seeds },
        first_seed: args.seed.unwrap_or(args.first),
        profile,
        jobs: args.jobs.unwrap_or(cores).max(1),
        trace: args.trace,
    };
    if args.trace && args.seed.is_none() {
        bail!("--trace prints every event of one seed: give it with --seed");
    }
    let begun = Instant::now();
    let report = highwater_sim::run(&options);
    let violations: Vec<_> = report.violations().collect();
    if args.json {
        document(&json!({
            "seeds": report.seeds.len(),
            "operations": report.operations(),
            "operations_min": report.operations_min(),
            "leader_changes": report.leader_changes(),
            "seeds_with_leader_change": report.seeds_with_leader_change(),
            "simulated_hours": report.simulated_hours(),
            "seconds": begun.elapsed().as_secs_f64(),
            "traces": report.seeds.iter().map(|seed| json!({
                "seed": seed.seed, "profile": seed.profile.name(), "trace_hash": format!("{:016x}", seed.trace_hash)})).collect::<Vec<_>>(),
            "violations": violations.iter().map(|violation| json!({
                "seed": violation.seed, "profile": violation.profile.name(), "law": violation.law,
                "what": violation.what, "replay": violation.replay})).collect::<Vec<_>>(),
        }));
    } else {
        if args.trace {
            for seed in &report.seeds {
                line(&seed.trace);
            }
        }
        if let [seed] = report.seeds.as_slice() {
            line(&format!("seed {}: trace {:016x}", seed.seed, seed.trace_hash));
        }
        line(&report.to_string());
        line(&format!("in {:.1} s", begun.elapsed().as_secs_f64()));
    }
    Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
