//! `highwater serve`: configuration, start, the ready line, and an orderly end.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use highwater_http::{Server, ServerConfig, Tokens};
use highwater_node::{Config, Node, Secret, Secrets};
use highwater_wire::{CommitRule, NodeId};
use serde::Deserialize;

use crate::args::ServeArgs;
use crate::output::line;

/// How long a node that is told to stop waits for another one to lead in its place.
const HAND_OVER_WAIT: Duration = Duration::from_secs(2);

/// The configuration file. What is also given on the command line wins; tokens add up.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// The data folder.
    data: Option<PathBuf>,
    /// The address to listen on.
    listen: Option<SocketAddr>,
    /// Where clients and other nodes reach this node, if that is another address than it listens on.
    advertise: Option<String>,
    /// All nodes of the cluster with their addresses: `1 = "HOST:PORT"`.
    #[serde(default)]
    peers: std::collections::BTreeMap<String, String>,
    /// The node's id.
    id: Option<u32>,
    #[serde(default)]
    tokens: Vec<String>,
    #[serde(default)]
    read_tokens: Vec<String>,
    cluster_secret: Option<String>,
    /// Databases to create when the cluster is formed, with their commit rules: `main = "quorum:1"`.
    #[serde(default)]
    databases: std::collections::BTreeMap<String, String>,
}

impl File {
    fn load(path: &Path) -> anyhow::Result<File> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not a configuration", path.display()))
    }
}

fn commit_rule(text: &str) -> anyhow::Result<CommitRule> {
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0);
    match text.split_once(':') {
        Some(("quorum", q)) if number(q).is_some() => Ok(CommitRule::Quorum { q: number(q).unwrap_or(1) }),
        Some(("isr", min)) if number(min).is_some() => Ok(CommitRule::Isr { min: number(min).unwrap_or(1) }),
        _ => bail!("a commit rule is quorum:NUMBER or isr:NUMBER; found {text:?}"),
    }
}

/// Runs a node until it is told to stop.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let file = args.config.as_deref().map(File::load).transpose()?.unwrap_or_default();
    start_log(&args.log)?;
    let listen = args.listen.or(file.listen).unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8080)));
    let data = args.data.clone().or(file.data).unwrap_or_else(|| PathBuf::from("highwater-data"));
    let tokens = Tokens::new(
        nonempty([args.token.clone(), file.tokens].concat(), "--token")?,
        nonempty([args.read_token.clone(), file.read_tokens].concat(), "--read-token")?,
    );
    let secret = args.cluster_secret.clone().or(file.cluster_secret);
    let secret = secret.map(|text| Secret::parse(&text)).transpose()?;
    let server = ServerConfig { tokens, has_cluster_secret: secret.is_some(), ..ServerConfig::new(listen) };
    let mut node = Config { node: args.id.or(file.id).map(NodeId), ..Config::single(&data) };
    node.secrets = secret.map(Secrets::one);
    let listed = args.peers.iter().map(|peer| peer.split_once('=').with_context(|| not_a_peer(peer)));
    node.peers = match args.peers.is_empty() {
        false => peers(listed.collect::<anyhow::Result<Vec<_>>>()?)?,
        true => peers(file.peers.iter().map(|(id, address)| (id.as_str(), address.as_str())).collect())?,
    };
    if node.peers.len() > 1 {
        let majority = node.peers.len() as u32 / 2 + 1;
        node.databases = vec![("main".to_string(), CommitRule::Quorum { q: majority })];
    }
    if !file.databases.is_empty() {
        node.databases = file
            .databases
            .iter()
            .map(|(name, rule)| Ok((name.clone(), commit_rule(rule)?)))
            .collect::<anyhow::Result<_>>()?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(1024)
        .build()
        .context("the runtime cannot be started")?;
    runtime.block_on(serve(node, server, args.advertise.clone().or(file.advertise)))
}

fn not_a_peer(found: &str) -> String {
    format!("a peer is ID=HOST:PORT, as in 2=127.0.0.1:8081; found {found:?}")
}

fn peers(listed: Vec<(&str, &str)>) -> anyhow::Result<std::collections::BTreeMap<NodeId, String>> {
    let mut peers = std::collections::BTreeMap::new();
    for (id, address) in listed {
        let wrong = || not_a_peer(&format!("{id}={address}"));
        let id = NodeId(id.trim().parse().with_context(wrong)?);
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        port.with_context(wrong)?;
        if peers.insert(id, address.to_string()).is_some() {
            bail!("node {id} is named twice among the peers");
        }
    }
    if peers.len() == 2 {
        tracing::warn!("a cluster of two nodes stops writing when either is lost; three survive the loss of one");
    }
    Ok(peers)
}

fn nonempty(tokens: Vec<String>, option: &str) -> anyhow::Result<Vec<String>> {
    if tokens.iter().any(|token| token.trim().is_empty()) {
        bail!("an empty {option} would let everybody in");
    }
    Ok(tokens)
}

fn start_log(filter: &str) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .with_context(|| format!("--log must be a level or a filter; found {filter:?}"))?;
    // Colours are for terminals: in a file they are noise.
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
    Ok(())
}

async fn serve(mut config: Config, server: ServerConfig, address: Option<String>) -> anyhow::Result<ExitCode> {
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
    tokio::spawn(stop_on_failure(node.clone(), stop.clone()));
    let (ending, ended) = tokio::sync::watch::channel(false);
    tokio::spawn(hand_over(node.clone(), stopped.clone(), ending));
    tokio::spawn(announce(node.clone(), bound, databases, folder));
    let mut stopping = ended;
    let told = async move {
        // An error means that the sender is gone, and with it everything.
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    server.run(node.clone(), told).await;
    let failed = node.failed().map(str::to_string);
    tokio::task::spawn_blocking(move || node.stop()).await.context("stopping the node failed")?;
    match failed {
        Some(reason) => bail!("the node stopped by itself: {reason}"),
        None => Ok(ExitCode::SUCCESS),
    }
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
async fn announce(node: Arc<Node>, address: SocketAddr, databases: Vec<String>, folder: PathBuf) {
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
    line(&format!(
        "highwater is ready at http://{address} (node {}, database {names}, data in {})",
        node.id(),
        folder.display()
    ));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_file_is_read_and_unknown_keys_are_refused() {
        let file: File = toml::from_str(
            "data = \"/d\"\nlisten = \"127.0.0.1:1\"\nid = 3\npeers = { 3 = \"h:1\" }\ntokens = [\"a\"]\n[databases]\nshop = \"quorum:1\"\n",
        )
        .expect("a configuration");
        assert_eq!((file.id, file.tokens.len()), (Some(3), 1));
        assert_eq!(commit_rule(&file.databases["shop"]).ok(), Some(CommitRule::Quorum { q: 1 }));
        let error = toml::from_str::<File>("lisen = \"x\"").expect_err("a misspelt key").to_string();
        assert!(error.contains("lisen"), "{error}");
    }

    #[test]
    fn commit_rules_are_read_as_they_are_written() {
        assert_eq!(commit_rule("isr:2").ok(), Some(CommitRule::Isr { min: 2 }));
        for wrong in ["quorum", "quorum:0", "isr:x", "leader:1", ""] {
            assert!(commit_rule(wrong).is_err(), "{wrong}");
        }
    }
}
