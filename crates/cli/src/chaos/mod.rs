//! `highwater chaos`: writers and a checker against a cluster that meets faults.
//!
//! 1. A cluster of its own is started, with a table without any key, so that a row that was written twice is there twice.
//! 2. Writers write rows that nobody else writes, each through a client of its own, and keep what became of each: acknowledged, failed or unknown.
//! 3. Meanwhile nodes are killed, paused, cut off and worse, and brought back ([`faults`]).
//! 4. Then all nodes run; what is still unknown is asked about once more, with the same keys.
//! 5. Once every replica has applied everything, the rows of each are read twice: through the node, and, after it has ended, from its SQLite file.
//!
//! | Found | Means |
//! |---|---|
//! | lost | acknowledged and missing on some replica |
//! | duplicated | on some replica more than once |
//! | phantom | on some replica though nobody wrote it, or though it was said to have failed |

mod check;
mod faults;
mod report;
mod writer;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use highwater_client::{Client, Config, Transaction};

use crate::args::ChaosArgs;
use crate::cluster::{Cluster, free_addresses};
use crate::output::{document, line};
use report::Report;
use writer::{TABLE, Writer};

/// Nodes that have not done it after this long never will.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often nodes are looked at.
const TICK: Duration = Duration::from_millis(20);

/// Runs the command.
pub(crate) fn run(args: &ChaosArgs) -> anyhow::Result<ExitCode> {
    let temporary = tempfile::Builder::new().prefix("highwater-chaos-").tempdir().context("no temporary folder")?;
    let folder = args.data.clone().unwrap_or_else(|| temporary.path().to_path_buf());
    let outcome = chaos(args, &folder);
    if args.data.is_none() && !outcome.as_ref().is_ok_and(Report::is_clean) {
        let kept: PathBuf = temporary.keep();
        eprint(&format!("the nodes' data and logs are kept in {}", kept.display()));
    }
    let report = outcome?;
    let text = report.text();
    if let Some(file) = &args.report {
        std::fs::write(file, &text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if args.json {
        document(&report.document());
    } else {
        line(&text);
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
    let mut cluster = Cluster::new(folder, &free_addresses(args.nodes)?)?;
    faults::prepare(&mut cluster)?;
    cluster.start_all()?;
    wait_until("the nodes are ready", || cluster.all_ready())?;
    let urls: Vec<String> = cluster.members.iter().map(|member| member.url()).collect();
    let create =
        format!("CREATE TABLE {TABLE} (writer INTEGER NOT NULL, number INTEGER NOT NULL, value TEXT NOT NULL)");
    Client::new(urls.clone())?.execute("main", &Transaction::of(create, []))?;

    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Instant::now();
    let (mut writers, faults) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.writers)
            .map(|id| {
                let (urls, stop, acknowledged) = (urls.clone(), &stop, &acknowledged);
                scope.spawn(move || {
                    let mut writer = Writer::new(id);
                    let mut config = Config::new(urls);
                    // They begin at different nodes, as clients do.
                    let nodes = config.urls.len();
                    config.urls.rotate_left(id as usize % nodes);
                    let client = Client::with(config);
                    client.map(|mut client| writer.run(&mut client, stop, acknowledged)).map(|()| writer)
                })
            })
            .collect();
        let faults = faults::inflict(args, &mut cluster, begun, &acknowledged);
        stop.store(true, Ordering::Relaxed);
        let writers = threads.into_iter().map(|thread| thread.join().expect("a writer does not panic"));
        let writers: Result<Vec<Writer>, _> = writers.collect();
        anyhow::Ok((writers?, faults?))
    })?;
    let took = begun.elapsed();

    wait_until("the nodes are ready again", || cluster.all_ready())?;
    let mut client = Client::new(urls)?;
    for writer in &mut writers {
        writer.ask_again(&mut client);
    }
    let replicas = check::check(&mut cluster, &writers)?;
    Ok(Report::new(args, took, &writers, &faults, &replicas))
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
