//! `highwater sim`: random seeds, one seed with its trace, named scenarios, the exhaustive model.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;
use highwater_sim::model;
use highwater_sim::{Profile, RunOptions, SCENARIOS, scenario};
use highwater_wire::CommitRule;
use serde_json::json;

use crate::args::SimArgs;
use crate::output::{document, line};

/// Runs the command. Exit 0 if all laws held.
pub(crate) fn run(args: &SimArgs) -> anyhow::Result<ExitCode> {
    match args.scenario.as_deref() {
        Some("model") => Ok(exhaustive(args.json)),
        Some(name) => one_scenario(name, args.json),
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

fn exhaustive(json: bool) -> ExitCode {
    let configs = [
        ("quorum:2", model::Config::appointed(CommitRule::Quorum { q: 2 })),
        ("isr:2", model::Config::appointed(CommitRule::Isr { min: 2 })),
        ("self-electing", model::Config::electing()),
    ];
    let mut documents = Vec::new();
    let mut good = true;
    for (name, config) in configs {
        let begun = Instant::now();
        let report = model::run(&config);
        good &= report.violation.is_none() && report.complete;
        if json {
            documents.push(json!({
                "model": name, "states": report.states, "steps": report.steps, "depth": report.depth, "complete": report.complete,
                "seconds": begun.elapsed().as_secs_f64(),
                "violation": report.violation.as_ref().map(|found| json!({"law": found.law, "trace": found.trace})),
            }));
        } else {
            line(&format!("{name}: {}({:.1} s)", report, begun.elapsed().as_secs_f64()));
        }
    }
    if json {
        document(&json!({"models": documents}));
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one_scenario(name: &str, json: bool) -> anyhow::Result<ExitCode> {
    let Some(told) = scenario(name) else {
        let names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        bail!("there is no scenario {name:?}; there are {}, and model", names.join(", "));
    };
    let good = told.is_ok();
    let (Ok(text) | Err(text)) = told;
    if json {
        document(&json!({"scenario": name, "ended_as_it_should": good, "story": text}));
    } else {
        line(text.trim_end());
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
