//! A node: started once, shared by everything that serves clients, stopped once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::thread::JoinHandle;
use std::time::Instant;

use highwater_host::{Host, HostError, HostStart};
use highwater_replica::Timing;
use highwater_wire::{Incarnation, NodeId, PeerId};
use tokio::sync::oneshot;

use crate::config::Config;
use crate::core_thread::{Core, CoreStart, Registry};
use crate::database::Database;
use crate::error::{StartError, Unavailable};
use crate::folder::{DataFolder, random_u64};
use crate::inbox::{Inbox, ToCore};
use crate::peers::{NoPeers, Peers};
use crate::view::NodeView;

/// A running node.
pub struct Node {
    id: NodeId,
    cluster: u64,
    incarnation: Incarnation,
    cluster_key: [u8; 32],
    registry: Registry,
    inbox: Inbox,
    failed: Arc<OnceLock<String>>,
    started: Instant,
    scratch: PathBuf,
    scratch_files: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Node {
    /// Takes the data folder and starts. Returns once the core runs; databases open behind it.
    pub fn start(config: Config) -> Result<Node, StartError> {
        Node::start_with(config, Box::new(NoPeers))
    }

    /// Like [`Node::start`], with a way to other nodes.
    pub fn start_with(config: Config, peers: Box<dyn Peers>) -> Result<Node, StartError> {
        let (folder, state) = DataFolder::take(&config)?;
        let cluster_key = folder.cluster_key()?;
        let scratch = folder.clear_scratch()?;
        let incarnation = *state.incarnations.last().expect("taking the folder adds this start's incarnation");
        let (id, cluster) = (state.node, state.cluster);
        let me = PeerId { node: state.node, log: state.log };
        let started = Instant::now();
        let mut effects = Vec::new();
        let start = HostStart {
            state,
            voters: vec![me],
            databases: config.databases.clone(),
            address: config.address.clone(),
            timing: Timing::default(),
            session_ms: config.session_ms,
            seed: random_u64()?,
            now: 0,
        };
        let host = Host::new(start, folder.logs()?, &mut effects).map_err(|error| host_error(&config, error))?;
        let (inbox, receiver) = Inbox::new();
        let registry: Registry = Arc::new(RwLock::new(BTreeMap::new()));
        let failed = Arc::new(OnceLock::new());
        let core = CoreStart {
            folder,
            registry: registry.clone(),
            inbox: inbox.clone(),
            peers,
            options: config.sql,
            ahead_bytes_max: config.ahead_bytes_max,
            started,
            failed: failed.clone(),
        };
        let core = Core::new(core, host, effects);
        let thread = std::thread::Builder::new()
            .name("core".into())
            .spawn(move || core.run(receiver))
            .map_err(StartError::io("the core's thread cannot be started"))?;
        tracing::info!(node = id.0, cluster = format!("{cluster:016x}"), starts = incarnation.starts, "the node runs");
        Ok(Node {
            id,
            cluster,
            incarnation,
            cluster_key,
            registry,
            inbox,
            failed,
            started,
            scratch,
            scratch_files: AtomicU64::new(1),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// This node's id.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The cluster it belongs to.
    pub fn cluster(&self) -> u64 {
        self.cluster
    }

    /// This process start.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The cluster's key for batons.
    pub fn cluster_key(&self) -> &[u8; 32] {
        &self.cluster_key
    }

    /// A path for a new file that nobody needs over a restart. Whatever is left there is removed at the next start.
    pub fn scratch_file(&self) -> PathBuf {
        let number = self.scratch_files.fetch_add(1, Ordering::Relaxed);
        self.scratch.join(number.to_string())
    }

    /// When it started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Why it stopped on its own, if it has.
    pub fn failed(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    /// The database of that name.
    pub fn database(&self, name: &str) -> Result<Arc<Database>, Unavailable> {
        let registry = self.registry.read().expect("no holder of this lock panics");
        registry.get(name).cloned().ok_or_else(|| Unavailable::UnknownDatabase {
            name: name.to_string(),
            known: match registry.len() {
                0 => "none yet".to_string(),
                _ => registry.keys().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "),
            },
        })
    }

    /// All databases, by name.
    pub fn databases(&self) -> Vec<Arc<Database>> {
        self.registry.read().expect("no holder of this lock panics").values().cloned().collect()
    }

    /// What there is to see now.
    pub async fn view(&self) -> Result<NodeView, Unavailable> {
        let (reply, view) = oneshot::channel();
        self.inbox.send(ToCore::View(reply))?;
        view.await.map_err(|_| Unavailable::ShuttingDown)
    }

    /// Stops in good order: what is flushing is finished, logs are closed and marked so. Blocks until then. Whoever still waits for an outcome hears that
    /// the node is shutting down.
    pub fn stop(&self) {
        let (done, stopped) = mpsc::channel();
        if self.inbox.send(ToCore::Stop(done)).is_ok() {
            // An error means that the core ended on its own, which has been reported.
            let _ = stopped.recv();
        }
        let thread = self.thread.lock().expect("no holder of this lock panics").take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the core's thread panicked");
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

fn host_error(config: &Config, error: HostError) -> StartError {
    StartError::Host { folder: config.data.clone(), reason: error.to_string() }
}
