//! `highwater chaos`: clients and a checker against a cluster that meets faults.
//!
//! 1. A cluster of its own is started, with tables that are made for being checked ([`clients`]).
//! 2. Clients of several kinds write, compare-and-set and read. Everything they ask and are answered goes to a file, the *history*.
//! 3. Meanwhile nodes are killed, paused, cut off and worse, and brought back ([`faults`]).
//! 4. Then all nodes run; writes of which it is not known what became of them are asked for once more, with the same keys.
//! 5. Once every replica has applied everything, what each holds is read twice into the history: through the node, and, after it has ended, from its SQLite file.
//! 6. The history is judged by a checker that knows nothing else ([`judge`], crate `highwater-history`): `highwater chaos check FILE` does the same again later.

mod ask;
mod clients;
mod faults;
mod judge;
mod readings;
mod recorder;
mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use highwater_client::Client;
use highwater_history::{Record, Run, VERSION};
use highwater_sim::rng::Rng;

use crate::args::{ChaosArgs, ChaosCommand};
use crate::cluster::{Cluster, free_addresses};
use clients::{Doubt, REGISTERS, Shared};
use faults::Inflicted;
use recorder::Recorder;
use report::Report;

/// Nodes that have not done it after this long never will.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often nodes are looked at.
const TICK: Duration = Duration::from_millis(20);

/// Runs the command.
pub(crate) fn run(args: &ChaosArgs) -> anyhow::Result<ExitCode> {
    if let Some(ChaosCommand::Check(args) | ChaosCommand::Report(args)) = &args.command {
        return judge::run(args);
    }
    let temporary = tempfile::Builder::new().prefix("highwater-chaos-").tempdir().context("no temporary folder")?;
    let folder = args.data.clone().unwrap_or_else(|| temporary.path().to_path_buf());
    let outcome = chaos(args, &folder);
    let clean = outcome.as_ref().is_ok_and(|report| report.is_clean(args.judge.allow_undecided));
    faults::release(&folder, args.data.is_some() || !clean);
    if args.data.is_none() && !clean {
        let kept: PathBuf = temporary.keep();
        eprint(&format!("the nodes' data and logs, and the history, are kept in {}", kept.display()));
    }
    judge::give(&outcome?, &args.judge)
}

fn chaos(args: &ChaosArgs, folder: &Path) -> anyhow::Result<Report> {
    if !(args.kill_every > 0.0 && args.restart_after >= 0.0 && args.restart_after < 3600.0) {
        bail!(
            "--every must be above 0 and --restart-after from 0, in seconds; found {} and {}",
            args.kill_every,
            args.restart_after
        );
    }
    if Cluster::held(folder)? != 0 {
        bail!("{} holds a cluster already; chaos starts with a new one", folder.display());
    }
    let seed = args.seed.unwrap_or_else(faults::new_seed);
    eprint(&format!("the seed is {seed}: --seed {seed} makes the same choices"));
    let mut cluster = Cluster::new(folder, &free_addresses(args.nodes)?)?;
    faults::prepare(args, &mut cluster)?;
    cluster.start_all()?;
    wait_until("the nodes are ready", || cluster.all_ready())?;
    let urls: Vec<String> = cluster.members.iter().map(|member| member.url()).collect();
    Client::new(urls.clone())?.execute("main", &clients::tables())?;

    let begun = Instant::now();
    let path = args.history.clone().unwrap_or_else(|| folder.join("history.jsonl"));
    let (command, nodes) = (command(args, seed), args.nodes);
    let recorder = Recorder::create(&path, begun, Run { version: VERSION, command, nodes, registers: REGISTERS })?;
    match work(args, seed, &mut cluster, begun, &urls, &recorder) {
        Ok(()) => recorder.finish()?,
        Err(error) => {
            // What there is of the history may explain it.
            return Err(match recorder.abandon() {
                Ok(()) => error.context(format!("the history until then is in {}", path.display())),
                Err(lost) => error.context(lost),
            });
        }
    }
    judge::judge(&path, &args.judge)
}

/// Lets the clients work while faults are inflicted, and reads what is there afterwards.
fn work(
    args: &ChaosArgs,
    seed: u64,
    cluster: &mut Cluster,
    begun: Instant,
    urls: &[String],
    recorder: &Recorder,
) -> anyhow::Result<()> {
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let shared = Shared {
        recorder,
        urls,
        stop: &stop,
        acknowledged: &acknowledged,
        position: Mutex::new(None),
        registers: (0..REGISTERS).map(|_| AtomicU64::new(0)).collect(),
        value: AtomicU64::new(0),
        every: Duration::from_secs(1) / args.rate,
    };
    // The clients' choices are others than the faults', which begin with the seed itself.
    let mut rng = Rng::new(seed).fork(1);
    let doubts: Vec<Doubt> = std::thread::scope(|scope| {
        let threads = clients::run(scope, args, &shared, &mut rng);
        let faults = faults::inflict(args, seed, cluster, begun, &acknowledged);
        stop.store(true, Ordering::Relaxed);
        let doubts: anyhow::Result<Vec<Vec<Doubt>>> =
            threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect();
        for one in faults? {
            recorder.put(&fault(one, recorder));
        }
        anyhow::Ok(doubts?.into_iter().flatten().collect())
    })?;
    wait_until("the nodes are ready again", || cluster.all_ready())?;
    clients::ask_again(&doubts, &mut Client::new(urls.to_vec())?, &shared);
    readings::read(cluster, recorder)
}

fn fault(one: Inflicted, recorder: &Recorder) -> Record {
    Record::Fault(highwater_history::Fault {
        kind: one.fault.name(),
        victim: one.victim,
        led: one.led,
        led_metadata: one.led_metadata,
        what: one.what,
        begin: recorder.at(one.at),
        in_force: recorder.at(one.in_force),
        end: one.until.map(|until| recorder.at(until)),
    })
}

/// The command line that does the same again.
fn command(args: &ChaosArgs, seed: u64) -> String {
    let kinds: Vec<String> = args.faults.0.iter().map(|fault| fault.name()).collect();
    format!(
        "highwater chaos --nodes {} --seconds {} --writers {} --swappers {} --readers {} --rate {} --every {} --restart-after {} --faults {} --seed {seed}",
        args.nodes,
        args.seconds,
        args.writers,
        args.swappers,
        args.readers,
        args.rate,
        args.kill_every,
        args.restart_after,
        kinds.join(",")
    )
}

/// Looks again and again until it is so.
fn wait_until(what: &str, mut holds: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !holds()? {
        if begun.elapsed() > PATIENCE {
            bail!("{what}: not within {PATIENCE:?}");
        }
        // sleep: other processes are looked at again, with a limit.
        std::thread::sleep(TICK);
    }
    Ok(())
}

fn eprint(text: &str) {
    use std::io::Write;
    // Without a standard error there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "{text}");
}
