//! A node: started once, shared by everything that serves clients, stopped once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use highwater_host::{Host, HostError, HostStart, Input, NodeState};
use highwater_replica::Timing;
use highwater_wire::{Incarnation, NodeId, PeerId};
use tokio::sync::oneshot;

use crate::config::Config;
use crate::core_thread::{Core, CoreStart, Registry};
use crate::database::Database;
use crate::error::{StartError, Unavailable};
use crate::folder::{DataFolder, PeerList, UNFORMED, random_u64};
use crate::inbox::{Inbox, ToCore};
use crate::peers::{NoPeers, Peers};
use crate::secret::{Secret, Secrets};
use crate::tcp::{Door, ForwardStream, Introduction, NodeTls, PeerRefused, TcpPeers, dial_to_forward, gather};
use crate::view::NodeView;

/// How long a node that hands over waits for what it has executed to be committed. What is not by then is decided by the election.
const DRAIN_WAIT: Duration = Duration::from_millis(500);

/// A running node.
pub struct Node {
    id: NodeId,
    cluster: u64,
    incarnation: Incarnation,
    /// The key for batons of a cluster of one.
    own_key: Option<[u8; 32]>,
    introduction: Arc<Introduction>,
    tls: NodeTls,
    addresses: BTreeMap<NodeId, String>,
    registry: Registry,
    inbox: Inbox,
    failed: Arc<OnceLock<String>>,
    halted: Arc<OnceLock<String>>,
    started: Instant,
    scratch: PathBuf,
    scratch_files: AtomicU64,
    leaving: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A node whose folder is taken and which does not run yet.
pub struct Prepared {
    config: Config,
    folder: DataFolder,
    state: NodeState,
    peers: PeerList,
    introduction: Arc<Introduction>,
    tls: NodeTls,
    door: Door,
}

impl Prepared {
    /// Where connections of other nodes go; serve it before [`Prepared::run`], or a new cluster's nodes wait for each other for ever.
    pub fn door(&self) -> Door {
        self.door.clone()
    }

    /// Forms the cluster, if this node is the first time there, and starts. While it waits for other nodes `waiting` is told again and again who is missing and why, and
    /// returns whether to go on (after a pause of its own); `None` if it did not.
    pub fn run(mut self, waiting: impl FnMut(&BTreeMap<NodeId, String>) -> bool) -> Result<Option<Node>, StartError> {
        if self.state.cluster == UNFORMED {
            let Some((voters, cluster)) =
                gather(&self.peers.addresses, &self.introduction, &self.tls, waiting).map_err(StartError::Forming)?
            else {
                return Ok(None);
            };
            self.peers.voters = voters;
            self.folder.remember_peers(&self.peers)?;
            self.state.cluster = cluster;
            self.folder.persist(&self.state)?;
            self.introduction.formed(cluster);
        }
        let voters = match self.peers.addresses.is_empty() {
            true => vec![self.introduction.me()],
            false => self.peers.voters.clone(),
        };
        assert!(voters.contains(&self.introduction.me()), "a node is among its cluster's voters");
        Node::start_with(self, voters).map(Some)
    }
}

impl Node {
    /// Takes the data folder and starts. Returns once the core runs; databases open behind it. A node with peers waits for them first, if its cluster is
    /// not formed yet; they reach it through the door of [`Node::prepare`].
    pub fn start(config: Config) -> Result<Node, StartError> {
        let prepared = Node::prepare(config)?;
        let node = prepared.run(|_| true)?;
        Ok(node.expect("nobody asked to give up"))
    }

    /// Takes the data folder, so that other nodes may ask who this one is. Nothing runs yet.
    pub fn prepare(config: Config) -> Result<Prepared, StartError> {
        let (folder, state) = DataFolder::take(&config)?;
        let peers = folder.peers(&config, &state)?;
        let incarnation = *state.incarnations.last().expect("taking the folder adds this start's incarnation");
        let introduction = Arc::new(Introduction::new(
            state.cluster,
            PeerId { node: state.node, log: state.log },
            incarnation,
            config.secrets.clone(),
        ));
        let tls = NodeTls::new().map_err(StartError::Tls)?;
        let door = Door::new(introduction.clone(), tls.clone());
        Ok(Prepared { config, folder, state, peers, introduction, tls, door })
    }

    fn start_with(prepared: Prepared, voters: Vec<PeerId>) -> Result<Node, StartError> {
        let Prepared { config, folder, state, peers, introduction, tls, door } = prepared;
        let scratch = folder.clear_scratch()?;
        if let Err(reason) = highwater_sql::set_temporary_folder(&scratch) {
            // A second node in this process, which tests have.
            tracing::info!(%reason, "temporary files of SQLite's go elsewhere");
        }
        let incarnation = *state.incarnations.last().expect("taking the folder adds this start's incarnation");
        let (id, cluster) = (state.node, state.cluster);
        let started = Instant::now();
        let mut effects = Vec::new();
        let start = HostStart {
            state,
            voters,
            databases: config.databases.clone(),
            address: config.address.clone(),
            timing: Timing::default(),
            session_ms: config.session_ms,
            seed: random_u64()?,
            now: 0,
        };
        let host = Host::new(start, folder.logs()?, &mut effects).map_err(|error| host_error(&config, error))?;
        if peers.addresses.is_empty() && host.voters().len() > 1 {
            return Err(folder.peers_missing());
        }
        // Not before that: a key of its own is what a node alone is known by.
        let own_key = match peers.addresses.is_empty() {
            true => Some(folder.cluster_key()?),
            false => None,
        };
        let (inbox, receiver) = Inbox::new();
        let registry: Registry = Arc::new(RwLock::new(BTreeMap::new()));
        let (failed, halted) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
        let addresses = peers.addresses.clone();
        let peers: Box<dyn Peers> = match peers.addresses.is_empty() {
            true => Box::new(NoPeers),
            false => Box::new(
                TcpPeers::dial(&peers.addresses, &introduction, &tls, &door, &inbox)
                    .map_err(StartError::io("no threads for the other nodes"))?,
            ),
        };
        door.open(inbox.clone());
        let core = CoreStart {
            node: id,
            folder,
            registry: registry.clone(),
            inbox: inbox.clone(),
            peers,
            options: config.sql,
            ahead_bytes_max: config.ahead_bytes_max,
            started,
            failed: failed.clone(),
            halted: halted.clone(),
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
            own_key,
            introduction,
            tls,
            addresses,
            registry,
            inbox,
            failed,
            halted,
            started,
            scratch,
            scratch_files: AtomicU64::new(1),
            leaving: AtomicBool::new(false),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// This node's id.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Whether the cluster has other nodes.
    pub fn has_peers(&self) -> bool {
        self.addresses.len() > 1
    }

    /// The other nodes of the cluster.
    pub fn others(&self) -> Vec<NodeId> {
        self.addresses.keys().copied().filter(|node| *node != self.id).collect()
    }

    /// Where that node is reached.
    pub fn address_of(&self, node: NodeId) -> Option<&str> {
        self.addresses.get(&node).map(String::as_str)
    }

    /// The cluster it belongs to.
    pub fn cluster(&self) -> u64 {
        self.cluster
    }

    /// This process start.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The cluster's keys for batons: new ones are made with the first, and those of any are accepted. There is one for each cluster secret that is accepted now.
    pub fn baton_keys(&self) -> Vec<[u8; 32]> {
        match self.own_key {
            Some(key) => vec![key],
            None => self.introduction.shared_keys(),
        }
    }

    /// Whether nodes prove a secret to each other, so that who forwards a request is known.
    pub fn has_secret(&self) -> bool {
        self.introduction.secrets().is_some()
    }

    /// The secret by which this node proves itself now; `None` if none is configured. A connection that was dialled while it was another is better dialled anew: the other nodes
    /// may soon accept that one no longer.
    pub fn proves_by(&self) -> Option<Secret> {
        self.introduction.secrets().map(Secrets::present)
    }

    /// Dials another node to forward requests to it: HTTP/1.1, behind a proof that it is that node.
    ///
    /// # Errors
    /// Any [`PeerRefused`]; nothing was forwarded.
    pub async fn dial_to_forward(&self, node: NodeId) -> Result<ForwardStream, PeerRefused> {
        let unknown = || std::io::Error::new(std::io::ErrorKind::NotFound, format!("node {node} has no known address"));
        let address = self.addresses.get(&node).ok_or_else(unknown)?;
        dial_to_forward(address, node, &self.introduction, &self.tls).await
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

    /// Why its replica of the metadata has halted, if it has. Unless its registration was refused, what it leads or follows beside may go on.
    pub fn halted(&self) -> Option<&str> {
        self.halted.get().map(String::as_str)
    }

    /// The database of that name.
    pub fn database(&self, name: &str) -> Result<Arc<Database>, Unavailable> {
        let registry = self.registry.read().expect("no holder of this lock panics");
        if registry.is_empty() {
            // A node learns of its databases once it has registered: until then none is unknown.
            let reason = self.halted().unwrap_or("this node has not joined its cluster yet").to_string();
            return Err(Unavailable::NotServing { name: name.to_string(), reason });
        }
        registry.get(name).cloned().ok_or_else(|| Unavailable::UnknownDatabase {
            name: name.to_string(),
            known: registry.keys().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "),
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

    /// Whether this node is about to stop: it takes no new writes on itself.
    pub fn leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// Hands over what this node leads: takes no new writes on itself, waits until what it has executed is committed, asks the coordinator for another leader, and
    /// waits until there is one. Returns after `wait` at the latest; then the others find out when this node is gone. A cluster of one has nobody to hand over to.
    pub async fn leave(&self, wait: Duration) {
        if !self.has_peers() {
            return;
        }
        self.leaving.store(true, Ordering::Release);
        let databases = self.databases();
        let handed_over = async {
            for database in &databases {
                let until = Instant::now() + DRAIN_WAIT;
                while database.leader() == Some(self.id) && database.bytes_ahead() > 0 && Instant::now() < until {
                    // sleep: what is ahead is committed by the core within a flush or two.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            self.inbox.send(ToCore::Host(Input::Leave))?;
            for database in &databases {
                database.wait_for_leader(|leader| leader.is_some_and(|leader| leader != self.id)).await;
            }
            Ok::<(), Unavailable>(())
        };
        match tokio::time::timeout(wait, handed_over).await {
            Ok(Ok(())) => tracing::info!("handed over"),
            Ok(Err(reason)) => tracing::warn!(%reason, "nothing was handed over"),
            Err(_) => tracing::warn!("leadership was not handed over within {} ms", wait.as_millis()),
        }
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
