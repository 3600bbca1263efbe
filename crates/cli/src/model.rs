//! `highwater sim model`: the exhaustive run of a small cluster, by named configurations or by bounds of one's own.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure};
use clap::Args;
use highwater_sim::model::{Config, Named, Progress, Report, Size, Told, named, run_all};
use serde_json::{Value, json};

use crate::output::{document, line};

/// How often a search says how far it has come.
const BETWEEN_WORDS: Duration = Duration::from_secs(10);

/// Bounds given here replace those of the configurations that are run.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// Which configurations: `ci`, those that every check runs (minutes), or `large` (minutes to hours and gigabytes each).
    #[arg(long, default_value = "ci", value_name = "SIZE", conflicts_with = "only")]
    size: Size,
    /// The configurations of these names instead, whatever their size. May be given more than once.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Print all configurations with their bounds, and run none.
    #[arg(long)]
    list: bool,
    /// How many configurations are searched at one time.
    #[arg(long, default_value_t = 2, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..))]
    jobs: u8,
    /// How many epochs there may be.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    epochs: Option<u32>,
    /// How many entries clients write.
    #[arg(long, value_name = "NUMBER")]
    writes: Option<u8>,
    /// How often a replica crashes, all together.
    #[arg(long, value_name = "NUMBER")]
    crashes: Option<u8>,
    /// How many streams one process may open.
    #[arg(long, value_name = "NUMBER")]
    streams: Option<u64>,
    /// How often a live stream is given up as silent, all together.
    #[arg(long, value_name = "NUMBER")]
    silences: Option<u8>,
    /// How many appointments and changes of the ISR are recorded, all together.
    #[arg(long, value_name = "NUMBER")]
    versions: Option<u64>,
    /// Self-electing: how often somebody stands, all together.
    #[arg(long, value_name = "NUMBER")]
    stands: Option<u8>,
    /// How many linearizable reads arrive (0 or 1).
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(..=1))]
    reads: Option<u8>,
    /// How many answers that only looked are held (0 or 1).
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(..=1))]
    looks: Option<u8>,
    /// The state machine does what it is told at any later time, and an answer comes to be held at any time after its proposal.
    #[arg(long)]
    late_machine: bool,
    /// Explore the ballot of the first epoch in all its orders too.
    #[arg(long)]
    first_ballot: bool,
    /// Stop a search, incomplete, after this many states; a state takes some 100 to 250 bytes.
    #[arg(long, value_name = "NUMBER")]
    states_max: Option<usize>,
    /// Print exactly one JSON document on standard output.
    #[arg(long)]
    json: bool,
}

/// Runs the command. Exit 0 if every search visited all states and no law was broken.
pub(crate) fn run(args: &ModelArgs) -> anyhow::Result<ExitCode> {
    let list = chosen(args)?;
    if args.list {
        return Ok(print_list(&list, args.json));
    }
    let begun = Instant::now();
    let clocks = Mutex::new(BTreeMap::new());
    let seconds = Mutex::new(BTreeMap::new());
    let reports = run_all(&list, usize::from(args.jobs), &|one, what| match what {
        Told::Begins => {
            clocks.lock().expect("no thread panics").insert(one.name, (Instant::now(), Instant::now()));
        }
        Told::GoesOn(progress) => {
            let mut clocks = clocks.lock().expect("no thread panics");
            let (begun, said) = clocks.get_mut(one.name).expect("it has begun");
            if said.elapsed() >= BETWEEN_WORDS {
                *said = Instant::now();
                say_progress(one.name, progress, *begun);
            }
        }
        Told::Ended(report) => {
            let took = clocks.lock().expect("no thread panics")[one.name].0.elapsed().as_secs_f64();
            seconds.lock().expect("no thread panics").insert(one.name, took);
            if !args.json {
                line(&format!("{}: {report}\n  of {}, in {took:.1} s", one.name, one.config));
            }
        }
    });
    let (took, peak) = (begun.elapsed().as_secs_f64(), peak_memory_bytes());
    if args.json {
        let seconds = seconds.into_inner().expect("no thread panics");
        let models: Vec<Value> =
            list.iter().zip(&reports).map(|(one, report)| described(one, report, seconds[one.name])).collect();
        document(&json!({"models": models, "seconds": took, "peak_memory_bytes": peak}));
    } else {
        let memory = peak.map_or("unknown".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
        line(&format!("{} searches in {took:.1} s, peak memory {memory}", reports.len()));
    }
    Ok(if reports.iter().all(Report::is_good) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The configurations that the command line asks for, with its bounds.
fn chosen(args: &ModelArgs) -> anyhow::Result<Vec<Named>> {
    let all = named();
    let mut list: Vec<Named> = if args.only.is_empty() {
        all.into_iter().filter(|one| args.list || one.size == args.size).collect()
    } else {
        let names: Vec<&str> = all.iter().map(|one| one.name).collect();
        let find = |name: &String| {
            let found = all.iter().find(|one| one.name == name).cloned();
            found.ok_or_else(|| anyhow!("there is no configuration {name:?}; there are {}", names.join(", ")))
        };
        args.only.iter().map(find).collect::<Result<_, _>>()?
    };
    for (at, one) in list.iter().enumerate() {
        ensure!(!list[..at].iter().any(|before| before.name == one.name), "{} is named twice", one.name);
    }
    for one in &mut list {
        replace_bounds(&mut one.config, args);
    }
    if list.is_empty() {
        bail!("no configuration has the size {}", args.size);
    }
    Ok(list)
}

fn replace_bounds(config: &mut Config, args: &ModelArgs) {
    fn replace<T: Copy>(bound: &mut T, given: Option<T>) {
        *bound = given.unwrap_or(*bound);
    }
    replace(&mut config.epochs, args.epochs);
    replace(&mut config.writes, args.writes);
    replace(&mut config.crashes, args.crashes);
    replace(&mut config.streams, args.streams);
    replace(&mut config.silences, args.silences);
    replace(&mut config.versions, args.versions);
    replace(&mut config.stands, args.stands);
    replace(&mut config.reads, args.reads);
    replace(&mut config.states_max, args.states_max);
    replace(&mut config.looks, args.looks);
    config.first_ballot |= args.first_ballot;
    config.late_machine |= args.late_machine;
}

fn print_list(list: &[Named], json: bool) -> ExitCode {
    if json {
        let models = list
            .iter()
            .map(|one| json!({"model": one.name, "size": one.size.to_string(), "bounds": one.config.to_string()}));
        document(&json!({"models": models.collect::<Vec<_>>()}));
    } else {
        list.iter().for_each(|one| line(&format!("{} ({})\n  {}", one.name, one.size, one.config)));
    }
    ExitCode::SUCCESS
}

fn described(one: &Named, report: &Report, seconds: f64) -> Value {
    json!({
        "model": one.name, "bounds": one.config.to_string(), "states": report.states, "steps": report.steps, "depth": report.depth,
        "messages": report.messages, "states_of_one_replica": report.replicas, "healed": report.healed, "complete": report.complete, "seconds": seconds,
        "violation": report.violation.as_ref().map(|found| json!({"law": found.law, "trace": found.trace})),
    })
}

/// Progress is for whoever watches: without a standard error nobody does.
fn say_progress(name: &str, progress: Progress, begun: Instant) {
    let Progress { states, waiting, depth } = progress;
    let seconds = begun.elapsed().as_secs();
    let _ = writeln!(
        std::io::stderr(),
        "{name}: {seconds} s, {states} states, {waiting} of them to be expanded, depth {depth}"
    );
}

/// The most memory that this process has occupied, where the system tells (Linux, `VmHWM`).
fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(peak.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}
