//! Looks for a broken law until it is found or the budget is spent, for the proof of the harness:
//!
//! ```text
//! proof seeds LAWS COUNT PROFILE
//! proof plot LAWS COUNT NAME
//! proof model LAWS STATES RULE [BOUND=NUMBER...]     RULE: electing, quorum:Q or isr:MIN; start=parted is a bound too
//! ```
//!
//! A plot brings about one situation on purpose, with so many seeds. LAWS are parts of what a broken law says, separated by commas; an empty text stands for any. Prints one line, which begins with `caught`, `held` or
//! `missed` (something else was broken).

use std::io::Write;

use highwater_sim::model::{self, Config};
use highwater_sim::{Plot, Profile, RunOptions, run, run_plot};
use highwater_wire::CommitRule;

/// Seeds run at once before it is looked whether one was caught.
const BATCH: u64 = 4;

pub(crate) fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, laws, budget, place, bounds @ ..] = &arguments[..] else {
        return Err(
            "usage: proof seeds LAWS COUNT PROFILE, proof plot LAWS COUNT NAME, or proof model LAWS STATES RULE [BOUND=NUMBER...]".to_owned()
        );
    };
    let laws: Vec<&str> = laws.split(',').map(str::trim).collect();
    let budget = budget.parse().map_err(|_| format!("a budget is a number, and not {budget:?}"))?;
    let said = match kind.as_str() {
        "seeds" => seeds(&laws, budget, place.parse()?),
        "plot" => play(&laws, budget, place.parse()?),
        "model" => explore(&laws, budget, place, bounds)?,
        other => return Err(format!("seeds, plot or model, and not {other:?}")),
    };
    writeln!(std::io::stdout(), "{said}").map_err(|error| error.to_string())
}

/// What a node says that was sent what no honest node sends. It says so before a law is broken, and how a bug shows first depends on the order of events; so it
/// catches any bug.
const REJECTED: &str = "rejects what node";

fn is_named(laws: &[&str], broken: &str) -> bool {
    broken.contains(REJECTED) || laws.iter().any(|law| broken.contains(law))
}

/// What a broken law says, on one line and not all of it.
fn shortened(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join(" ").chars().take(160).collect()
}

fn seeds(laws: &[&str], count: u64, profile: Profile) -> String {
    let mut others = Vec::new();
    let mut first_seed = 1;
    while first_seed <= count {
        let seeds = BATCH.min(count + 1 - first_seed);
        let report = run(&RunOptions { seeds, first_seed, profile, jobs: 2, ..RunOptions::default() });
        for violation in &report.violations {
            let said = format!("{}: {}", violation.law, violation.what);
            if is_named(laws, &said) {
                return format!("caught in seed {} ({}) by {}", violation.seed, profile.name(), shortened(&said));
            }
            others.push((violation.seed, said));
        }
        first_seed += seeds;
    }
    match others.first() {
        None => format!("held in {count} seeds ({})", profile.name()),
        Some((seed, said)) => {
            format!(
                "missed in {count} seeds ({}); {} broke something else, seed {seed}: {}",
                profile.name(),
                others.len(),
                shortened(said)
            )
        }
    }
}

fn play(laws: &[&str], count: u64, plot: Plot) -> String {
    let mut others = Vec::new();
    for seed in 1..=count {
        let Some(violation) = run_plot(plot, seed, false).violation else { continue };
        let said = format!("{}: {}", violation.law, violation.what);
        if is_named(laws, &said) {
            return format!("caught in plot {}, seed {seed}, by {}", plot.name(), shortened(&said));
        }
        others.push((seed, said));
    }
    match others.first() {
        None => format!("held in {count} seeds of plot {}", plot.name()),
        Some((seed, said)) => {
            format!("missed in plot {}; seed {seed} broke something else: {}", plot.name(), shortened(said))
        }
    }
}

fn explore(laws: &[&str], states_max: u64, rule: &str, bounds: &[String]) -> Result<String, String> {
    let config = Config { states_max: states_max as usize, ..config(rule, bounds)? };
    let name = std::iter::once(rule).chain(bounds.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    let report = model::run(&config);
    let of = if report.complete { "all" } else { "the first" };
    Ok(match report.violation {
        None => format!("held in {of} {} states ({name})", report.states),
        Some(violation) => {
            let word = if is_named(laws, &violation.law) { "caught" } else { "missed" };
            let (states, steps) = (report.states, violation.trace.len());
            format!("{word} after {states} states ({name}), {steps} steps, by {}", shortened(&violation.law))
        }
    })
}

fn config(rule: &str, bounds: &[String]) -> Result<Config, String> {
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("{text:?} is no number"));
    let mut config = match rule.split_once(':') {
        None if rule == "electing" => Config::electing(),
        Some(("quorum", q)) => Config::appointed(CommitRule::Quorum { q: number(q)? }),
        Some(("isr", min)) => Config::appointed(CommitRule::Isr { min: number(min)? }),
        _ => return Err(format!("a rule is electing, quorum:Q or isr:MIN, and not {rule:?}")),
    };
    for bound in bounds {
        let (name, value) = bound.split_once('=').ok_or_else(|| format!("{bound:?} is no BOUND=NUMBER"))?;
        if name == "start" {
            config.beginning = value.parse()?;
            continue;
        }
        let value = number(value)?;
        let few = || u8::try_from(value).map_err(|_| format!("{bound:?} is too many"));
        match name {
            "epochs" => config.epochs = value,
            "writes" => config.writes = few()?,
            "crashes" => config.crashes = few()?,
            "streams" => config.streams = u64::from(value),
            "silences" => config.silences = few()?,
            "versions" => config.versions = u64::from(value),
            "stands" => config.stands = few()?,
            "reads" => config.reads = few()?,
            "looks" => config.looks = few()?,
            "late-machine" => config.late_machine = value > 0,
            "keep-old" => config.keeps_old = value > 0,
            "live-every" => config.live_every = value as usize,
            "first-ballot" => config.first_ballot = value > 0,
            other => return Err(format!("there is no bound {other:?}")),
        }
    }
    Ok(config)
}
