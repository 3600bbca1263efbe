//! `highwater dev`: a cluster on this machine, as long as the command runs.
//!
//! A node that ends stays down, or is started again with `--restart`. An interrupt or SIGTERM ends the nodes in good order, and then the command.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::DevArgs;
use crate::cluster::{Cluster, ending};
use crate::output::line;

/// How often the nodes are looked at.
const TICK: Duration = Duration::from_millis(50);

/// How long a node stays down before `--restart` starts it again.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// Nodes that are not ready after this long never will be.
const READY_MAX: Duration = Duration::from_secs(120);

/// Runs the command.
pub(crate) fn run(args: &DevArgs) -> anyhow::Result<ExitCode> {
    // The nodes live as long as the thread that starts them, which is this one: the runtime has no threads of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("the runtime cannot be started")?.block_on(dev(args))
}

async fn dev(args: &DevArgs) -> anyhow::Result<ExitCode> {
    let held = Cluster::held(&args.data)?;
    let nodes = args.nodes.unwrap_or(if held == 0 { 3 } else { held });
    if u32::from(args.port) + nodes - 1 > u32::from(u16::MAX) || args.port == 0 {
        bail!("the nodes' ports are --port and the {} after it, at most 65535; found {}", nodes - 1, args.port);
    }
    let addresses: Vec<SocketAddr> =
        (0..nodes as u16).map(|at| SocketAddr::from((Ipv4Addr::LOCALHOST, args.port + at))).collect();
    let mut cluster = Cluster::new(&args.data, &addresses)?;
    let mut terminate = signal(SignalKind::terminate()).context("signals cannot be waited for")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("signals cannot be waited for")?;
    cluster.start_all()?;
    let begun = Instant::now();
    while !cluster.all_ready()? {
        if begun.elapsed() > READY_MAX {
            bail!(
                "the nodes are not ready after {READY_MAX:?}; what they say is in the logs in {}",
                args.data.display()
            );
        }
        if told(&mut terminate, &mut interrupt).await {
            cluster.stop();
            return Ok(ExitCode::SUCCESS);
        }
    }
    announce(args, &cluster);
    let mut down_since: Vec<Option<Instant>> = vec![None; cluster.members.len()];
    while !told(&mut terminate, &mut interrupt).await {
        for (index, down) in down_since.iter_mut().enumerate() {
            if let Some(status) = cluster.members[index].ended() {
                *down = Some(Instant::now());
                let next = match args.restart {
                    true => "it is started again".to_string(),
                    false => {
                        format!("it stays down; it comes back with: highwater {}", cluster.arguments(index).join(" "))
                    }
                };
                say(&format!("node {} {}; {next}", cluster.members[index].id, ending(status)));
            }
            if args.restart && down.is_some_and(|since| since.elapsed() > RESTART_AFTER) {
                *down = None;
                cluster.start(index)?;
                let member = &cluster.members[index];
                say(&format!("node {} runs again as process {}", member.id, member.pid().unwrap_or_default()));
            }
        }
    }
    cluster.stop();
    Ok(ExitCode::SUCCESS)
}

/// Whether the command was told to end, within one tick.
async fn told(terminate: &mut Signal, interrupt: &mut Signal) -> bool {
    tokio::select! {
        _ = terminate.recv() => true,
        _ = interrupt.recv() => true,
        // sleep: the nodes are looked at from time to time.
        () = tokio::time::sleep(TICK) => false,
    }
}

fn announce(args: &DevArgs, cluster: &Cluster) {
    if args.json {
        let nodes: Vec<Value> = cluster
            .members
            .iter()
            .map(|member| json!({"id": member.id, "pid": member.pid(), "http": member.url(), "data": member.data}))
            .collect();
        line(&json!({"database": "main", "nodes": nodes}).to_string());
        return;
    }
    for member in &cluster.members {
        line(&format!(
            "node {}  process {}  {}  data in {}",
            member.id,
            member.pid().unwrap_or_default(),
            member.url(),
            member.data.display()
        ));
    }
    line("ready");
}

/// Says something that is no result.
fn say(text: &str) {
    // Without a standard error there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "{text}");
}
