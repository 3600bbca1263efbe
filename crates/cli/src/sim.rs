//! `highwater sim`: random seeds, one seed with its trace, named scenarios, the exhaustive model.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;
use highwater_sim::model;
use highwater_sim::{SCENARIOS, scenario};
use highwater_wire::CommitRule;
use serde_json::json;

use crate::args::SimArgs;
use crate::output::{document, line};
use crate::seeds;

/// Runs the command. Exit 0 if all laws held.
pub(crate) fn run(args: &SimArgs) -> anyhow::Result<ExitCode> {
    match args.scenario.as_deref() {
        Some("model") => Ok(exhaustive(args.json)),
        Some(name) => one_scenario(name, args.json),
        None => {
            highwater_simsql::provide();
            seeds::run(args)
        }
    }
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
