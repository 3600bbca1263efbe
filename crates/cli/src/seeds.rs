//! `highwater sim` without a scenario: random seeds, for a number of them or for a time, and one seed again, whole or reduced.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use highwater_sim::faults::Fault;
use highwater_sim::{Plan, Profile, Progress, Reduction, Report, RunOptions, Shrunk};
use serde_json::{Value, json};

use crate::args::{SimArgs, SimLessArgs};
use crate::output::{document, line};

/// How often a long run says how far it has come.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// Failures of so many laws are made small, at the most.
const SHRUNK_MAX: usize = 3;

/// Runs the seeds. Exit 0 if nothing is wrong.
pub(crate) fn run(args: &SimArgs) -> anyhow::Result<ExitCode> {
    let options = options(args)?;
    let begun = Instant::now();
    let end = match args.minutes {
        Some(minutes) => Some(begun + Duration::try_from_secs_f64(minutes * 60.0).context("--minutes is a time")?),
        None => None,
    };
    let told = Mutex::new(begun);
    let says = (args.progress || std::io::stderr().is_terminal()) && args.seed.is_none();
    let report = highwater_sim::run_while(&options, &|progress| {
        if says {
            say(&told, begun, progress);
        }
        end.is_none_or(|end| Instant::now() < end)
    });
    let seconds = begun.elapsed().as_secs_f64();
    // Whoever asks for one seed's trace, or for a reduced run, repeats what is known already.
    let known = args.trace || args.no_shrink || !options.reduction.is_nothing();
    let shrunk = if known { Vec::new() } else { shrink_some(&report, &options) };
    if args.json {
        document(&described(&report, &shrunk, seconds));
    } else {
        for seed in report.each.iter().filter(|_| args.trace) {
            line(&seed.trace);
        }
        if let (1, [seed]) = (report.seeds, report.each.as_slice()) {
            line(&format!("seed {}: trace {:016x}", seed.seed, seed.trace_hash));
        }
        line(&report.to_string());
        line(&format!("in {seconds:.1} s"));
        for small in &shrunk {
            line(&small_failure(small));
        }
    }
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes the first failure of each law small, of some laws at the most.
fn shrink_some(report: &Report, options: &RunOptions) -> Vec<Shrunk> {
    let mut laws = BTreeSet::new();
    let first = report.violations.iter().filter(|violation| laws.insert(violation.law.as_str()));
    let plan = |seed| Plan { seed, profile: options.profile, reduction: options.reduction.clone(), text: false };
    first.take(SHRUNK_MAX).filter_map(|violation| highwater_sim::shrink(&plan(violation.seed))).collect()
}

/// A small failure, for people.
fn small_failure(small: &Shrunk) -> String {
    let violation = &small.violation;
    let classes: Vec<&str> = small.classes.iter().map(|fault| fault.name()).collect();
    format!(
        "\nseed {} made small in {} runs: {} of {}, {} strikes left\n{}breaks {}: {}\n  again with: {}",
        violation.seed,
        small.runs,
        violation.profile.name(),
        if classes.is_empty() { "no class of faults".to_owned() } else { classes.join(", ") },
        small.strikes,
        small.story,
        violation.law,
        violation.what,
        violation.replay
    )
}

fn options(args: &SimArgs) -> anyhow::Result<RunOptions> {
    let profile: Profile = match &args.profile {
        Some(name) => name.parse().map_err(anyhow::Error::msg)?,
        None => Profile::Mixed,
    };
    if args.trace && args.seed.is_none() {
        bail!("--trace prints every event of one seed: give it with --seed");
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let unless_told = if args.minutes.is_some() { u64::MAX } else { 100 };
    Ok(RunOptions {
        seeds: if args.seed.is_some() { 1 } else { args.seeds.unwrap_or(unless_told) },
        first_seed: args.seed.unwrap_or(args.first),
        profile,
        reduction: reduction(&args.less)?,
        jobs: args.jobs.unwrap_or(cores).max(1),
        each: args.each || args.seed.is_some(),
        trace: args.trace,
    })
}

fn reduction(args: &SimLessArgs) -> anyhow::Result<Reduction> {
    let mut without = Vec::new();
    for name in &args.without_faults {
        let known = Fault::ALL.into_iter().find(|fault| fault.name() == name);
        let names = || Fault::ALL.map(Fault::name).join(", ");
        without.push(known.with_context(|| format!("a class of faults is one of {}; found {name:?}", names()))?);
    }
    ensure!(!args.skip_strikes.contains(&0), "strikes are numbered from 1");
    let skip_strikes = args.skip_strikes.clone();
    Ok(Reduction { without, skip_strikes, clients: args.clients, calls: args.calls, until_ms: args.until_ms })
}

/// Says how far the run has come, if it has not just been said.
fn say(told: &Mutex<Instant>, begun: Instant, progress: Progress) {
    let Ok(mut told) = told.try_lock() else { return };
    if told.elapsed() < SAY_EVERY {
        return;
    }
    *told = Instant::now();
    let seconds = begun.elapsed().as_secs_f64();
    let rate = progress.seeds as f64 / seconds;
    let text =
        format!("{} seeds in {seconds:.0} s, {rate:.1} in a second, {} broke a law", progress.seeds, progress.broken);
    // Nothing depends on anybody reading this.
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn described(report: &Report, shrunk: &[Shrunk], seconds: f64) -> Value {
    let (operations_min, operations_min_seed) = report.operations_min.unwrap_or_default();
    let faults: serde_json::Map<_, _> =
        report.faults.iter().map(|(fault, count)| (fault.name().to_owned(), json!(count))).collect();
    let marks: serde_json::Map<_, _> =
        report.marks.iter().map(|(mark, seeds)| (mark.name().to_owned(), json!(seeds))).collect();
    let mut all = json!({
        "passed": report.passed(),
        "seeds": report.seeds,
        "profiles": report.profiles,
        "simulated_hours": report.simulated_hours(),
        "seconds": seconds,
        "operations": report.operations,
        "operations_answered": report.succeeded,
        "operations_min": operations_min,
        "operations_min_seed": operations_min_seed,
        "leader_changes": report.leader_changes,
        "seeds_with_leader_change": report.seeds_with_leader_change,
        "faults": faults,
        "marks": marks,
        "marks_missing": report.unreached().iter().map(|mark| mark.name()).collect::<Vec<_>>(),
        "trace_hash": format!("{:016x}", report.trace_hash),
        "seeds_broken": report.broken_seeds(),
        "laws_broken": report.broken,
        "violations": report.violations.iter().map(|violation| json!({
            "seed": violation.seed, "profile": violation.profile.name(), "law": violation.law,
            "what": violation.what, "replay": violation.replay})).collect::<Vec<_>>(),
        "shrunk": shrunk.iter().map(|small| json!({
            "seed": small.violation.seed, "law": small.violation.law, "what": small.violation.what, "replay": small.violation.replay,
            "faults": small.classes.iter().map(|fault| fault.name()).collect::<Vec<_>>(), "strikes": small.strikes,
            "runs": small.runs, "story": small.story})).collect::<Vec<_>>(),
    });
    if !report.each.is_empty() {
        all["each"] = report
            .each
            .iter()
            .map(|seed| json!({"seed": seed.seed, "profile": seed.profile.name(), "trace_hash": format!("{:016x}", seed.trace_hash)}))
            .collect();
    }
    all
}
