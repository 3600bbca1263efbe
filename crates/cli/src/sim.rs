//! `highwater sim`: random seeds, one seed with its trace, named scenarios, the exhaustive model.

use std::process::ExitCode;

use anyhow::bail;
use highwater_sim::{SCENARIOS, scenario};
use serde_json::json;

use crate::args::{SimArgs, SimPart};
use crate::model;
use crate::output::{document, line};
use crate::seeds;

/// Runs the command. Exit 0 if all laws held.
pub(crate) fn run(args: &SimArgs) -> anyhow::Result<ExitCode> {
    if let Some(SimPart::Model(args)) = &args.part {
        return model::run(args);
    }
    match args.scenario.as_deref() {
        Some(name) => one_scenario(name, args.json),
        None => {
            highwater_simsql::provide();
            seeds::run(args)
        }
    }
}

fn one_scenario(name: &str, json: bool) -> anyhow::Result<ExitCode> {
    let Some(told) = scenario(name) else {
        let names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        bail!(
            "there is no scenario {name:?}; there are {}; `highwater sim model` is the exhaustive model",
            names.join(", ")
        );
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
