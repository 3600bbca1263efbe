//! `highwater serve`: start, the ready line, and an orderly end.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use highwater_http::Server;
use highwater_node::Node;
use highwater_wire::NodeId;

use crate::args::ServeArgs;
use crate::output::line;
use crate::process;
use crate::reload::Reload;
use crate::serve_config::{Configured, TOKENS_WITHOUT_SECRET};

/// How long a node that is told to stop waits for another one to lead in its place.
const HAND_OVER_WAIT: Duration = Duration::from_secs(2);

/// How long a node that ends waits for its own parts.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// How long the process waits, at its very end, for threads that still run a client's statement.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Runs a node until it is told to stop.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    process::keep_files_private();
    highwater_sql::return_freed_memory();
    start_log(&args.log)?;
    process::raise_open_files();
    let configured = Configured::of(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(1024)
        .build()
        .context("the runtime cannot be started")?;
    let ended = runtime.block_on(serve(configured));
    // Not dropped: that would wait for a statement that does not stop, for as long as it runs. A log that is not closed is what a start is made for.
    runtime.shutdown_timeout(LAST_WAIT);
    ended
}

fn start_log(filter: &str) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .with_context(|| format!("--log must be a level or a filter; found {filter:?}"))?;
    // Colours are for terminals: in a file they are noise.
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
    Ok(())
}

async fn serve(configured: Configured) -> anyhow::Result<ExitCode> {
    let Configured { node: mut config, server, advertise: address, reload } = configured;
    let scheme = if server.tls.is_some() { "https" } else { "http" };
    let open_to_strangers = reload.wants_secret();
    keep_up(reload)?;
    // The address first: one that is taken, or that may not be listened on, is noticed before the data is touched.
    let server = Server::bind(server).await?;
    let bound = server.address();
    config.address = address.unwrap_or_else(|| bound.to_string());
    let folder = config.data.clone();
    let databases: Vec<String> = config.databases.iter().map(|(name, _)| name.clone()).collect();
    let prepared = tokio::task::spawn_blocking(move || Node::prepare(config)).await.context("starting failed")??;
    let server = server.open(&prepared);
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let stop = Arc::new(stop);
    tokio::spawn(stop_on_signal(stop.clone())?);
    let giving_up = stopped.clone();
    let started = tokio::task::spawn_blocking(move || prepared.run(|missing| wait_for_peers(missing, &giving_up)));
    let Some(node) = started.await.context("starting the node failed")?? else {
        return Ok(ExitCode::SUCCESS);
    };
    let node = Arc::new(node);
    if open_to_strangers && node.has_peers() {
        // The folder remembers peers that the configuration does not name.
        stop_node(node).await?;
        bail!(TOKENS_WITHOUT_SECRET);
    }
    tokio::spawn(stop_on_failure(node.clone(), stop.clone()));
    let (ending, ended) = tokio::sync::watch::channel(false);
    tokio::spawn(hand_over(node.clone(), stopped.clone(), ending));
    tokio::spawn(announce(node.clone(), format!("{scheme}://{bound}"), databases, folder));
    let mut stopping = ended;
    let told = async move {
        // An error means that the sender is gone, and with it everything.
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    server.run(node.clone(), told).await;
    let failed = node.failed().map(str::to_string);
    stop_node(node).await?;
    match failed {
        Some(reason) => bail!("the node stopped by itself: {reason}"),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Stops a node, but does not wait for ever for a statement that does not stop. What is then left undone is what a start does after a crash.
async fn stop_node(node: Arc<Node>) -> anyhow::Result<()> {
    let stopping = tokio::task::spawn_blocking(move || node.stop());
    match tokio::time::timeout(STOP_WAIT, stopping).await {
        Ok(stopped) => stopped.context("stopping the node failed"),
        Err(_) => {
            tracing::warn!("the node did not stop within {} s; the process ends as it is", STOP_WAIT.as_secs());
            Ok(())
        }
    }
}

/// Has tokens, secrets and the certificate read again when their files change, and on SIGHUP. Without such files SIGHUP ends the process, as it is used to.
fn keep_up(reload: Reload) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    if !reload.has_files() {
        return Ok(());
    }
    let mut signals = signal(SignalKind::hangup()).context("signals cannot be waited for")?;
    let (tell, told) = std::sync::mpsc::channel();
    tokio::spawn(async move { while signals.recv().await.is_some() && tell.send(()).is_ok() {} });
    reload.keep_up(told).context("no thread to look at the files of tokens and secrets")
}

/// A new cluster's node waits until all others have said who they are.
fn wait_for_peers(
    missing: &std::collections::BTreeMap<NodeId, String>,
    stopped: &tokio::sync::watch::Receiver<bool>,
) -> bool {
    let missing: Vec<String> = missing.iter().map(|(node, reason)| format!("node {node} ({reason})")).collect();
    tracing::info!("waiting for {} to form the cluster", missing.join(", "));
    // sleep: the others are asked again after a pause.
    std::thread::sleep(Duration::from_millis(50));
    !*stopped.borrow()
}

/// Told to stop, the node first lets others lead what it leads; clients are served, by forwarding, until that is done.
async fn hand_over(
    node: Arc<Node>,
    mut stopped: tokio::sync::watch::Receiver<bool>,
    ending: tokio::sync::watch::Sender<bool>,
) {
    // Errors mean that the other ends are gone, and with them everything.
    let _ = stopped.wait_for(|stop| *stop).await;
    if node.failed().is_none() {
        node.leave(HAND_OVER_WAIT).await;
    }
    let _ = ending.send(true);
}

/// Says once that it is ready, on standard output.
async fn announce(node: Arc<Node>, url: String, databases: Vec<String>, folder: PathBuf) {
    let mut said = None;
    loop {
        match highwater_http::not_ready(&node).await {
            Ok(None) => break,
            Ok(reason) => {
                // Once for each reason, however often it is looked at.
                if said != reason {
                    tracing::info!(reason, "not ready yet");
                    said = reason;
                }
            }
            Err(_) => return,
        }
        // sleep: the node is asked again; it gives no sign of its own when it becomes ready.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let names = databases.join(", ");
    line(&format!("highwater is ready at {url} (node {}, database {names}, data in {})", node.id(), folder.display()));
}

/// SIGTERM and SIGINT end the node in good order.
fn stop_on_signal(
    stop: Arc<tokio::sync::watch::Sender<bool>>,
) -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("signals cannot be waited for")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("signals cannot be waited for")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop");
        let _ = stop.send(true);
    })
}

/// A node that cannot go on ends the process, so that whoever supervises it notices.
async fn stop_on_failure(node: Arc<Node>, stop: Arc<tokio::sync::watch::Sender<bool>>) {
    while node.failed().is_none() {
        // sleep: a look now and then is enough for what never happens in good order.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let _ = stop.send(true);
}
