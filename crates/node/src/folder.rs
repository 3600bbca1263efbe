//! A node's data folder.
//!
//! ```text
//! node            whose folder this is: cluster, node id, log id, incarnations; replaced as a whole
//! key             the key for batons of a cluster of one
//! peers           the nodes of the cluster and their addresses; absent for a cluster of one
//! meta/           the log of the metadata
//! db/NAME/log/    a database's log
//! db/NAME/sql/    its SQLite file
//! logs            the names of all logs made here, so that a missing one is never taken for new
//! scratch/        backups and imports on their way; emptied at every start
//! ```
//!
//! The folder itself is locked by the process that uses it. The file `node` is written before anything else in a new folder, so a folder with logs and
//! without it is one that lost it: never taken for new.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_host::{Folders, NodeState};
use highwater_log::{FileIo, Io, IoFile, Log, LogError, Options, control, durable_replace, is_full};
use highwater_wire::check::{INCARNATIONS_MAX, STARTS_MAX, check_address};
use highwater_wire::{Incarnation, LogId, NodeId, PartitionId, PeerId};

use crate::config::Config;
use crate::error::StartError;

/// The logs of a node: over files.
pub(crate) type NodeLog = Log<FileIo>;

const NODE_KIND: [u8; 8] = *b"node-mem";
const NODE_VERSION: u16 = 2;
const KEY_KIND: [u8; 8] = *b"batonkey";
const KEY_VERSION: u16 = 1;
const PEERS_KIND: [u8; 8] = *b"peerlist";
const PEERS_VERSION: u16 = 1;
const LOGS_KIND: [u8; 8] = *b"made-log";
const LOGS_VERSION: u16 = 1;

/// The cluster of a node that does not know all of its peers' log ids yet.
pub(crate) const UNFORMED: u64 = 0;

/// The nodes of a cluster of several. Empty for a cluster of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct PeerList {
    /// Where each is reached, this one included.
    pub(crate) addresses: BTreeMap<NodeId, String>,
    /// The first voters; empty until the cluster is formed. Durable before the cluster's number is, so that a node that stops half way writes the same
    /// first entry at its next start.
    pub(crate) voters: Vec<PeerId>,
}

/// A data folder that this process holds.
pub(crate) struct DataFolder {
    path: PathBuf,
    /// Holds the lock. It goes with the process, however that ends.
    io: Arc<FileIo>,
}

impl DataFolder {
    /// Takes the folder, making it if there is none. Nothing of another process's, node's or cluster's is touched.
    pub(crate) fn take(config: &Config) -> Result<(DataFolder, NodeState), StartError> {
        if !check_address(&config.address) {
            return Err(StartError::Address { found: config.address.len() });
        }
        let folder = DataFolder::lock(&config.data)?;
        let mut state = match folder.load_upto("node", NODE_KIND, NODE_VERSION)? {
            Some((version, payload)) => folder.decode_state(version, &payload, config)?,
            None => folder.new_state(config)?,
        };
        if state.starts >= STARTS_MAX {
            return Err(StartError::StartsExhausted { folder: folder.path, starts: state.starts, most: STARTS_MAX });
        }
        state.starts += 1;
        if state.incarnations.len() >= INCARNATIONS_MAX {
            // The first is the one that was acknowledged; of the others, any may be the one on record, and the oldest is the least likely.
            state.incarnations.drain(1..=state.incarnations.len() - (INCARNATIONS_MAX - 1));
        }
        state.incarnations.push(Incarnation { starts: state.starts, random: random_u64()? });
        folder.persist(&state)?;
        Ok((folder, state))
    }

    fn lock(path: &Path) -> Result<DataFolder, StartError> {
        let io = FileIo::open(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => StartError::InUse(path.to_owned()),
            _ => StartError::io(format!("the data folder {} cannot be opened", path.display()))(error),
        })?;
        Ok(DataFolder { path: path.to_owned(), io: Arc::new(io) })
    }

    /// The folder of a node that does not run, with what the node remembers. Nothing is changed.
    pub(crate) fn of_stopped_node(path: &Path) -> Result<(DataFolder, NodeState), StartError> {
        let folder = DataFolder::lock(path)?;
        let missing = || StartError::NodeFileMissing { folder: path.to_owned(), found: "something".to_string() };
        let (version, payload) = folder.load_upto("node", NODE_KIND, NODE_VERSION)?.ok_or_else(missing)?;
        let state = folder.read_state(version, &payload)?;
        Ok((folder, state))
    }

    fn read_state(&self, version: u16, payload: &[u8]) -> Result<NodeState, StartError> {
        let read = match version {
            1 => postcard::from_bytes(payload).map(state_of_version_one),
            _ => postcard::from_bytes(payload),
        };
        read.map_err(|error| StartError::Damaged {
            file: self.path.join("node"),
            reason: format!("its checksum holds and its contents do not read: {error}"),
        })
    }

    fn decode_state(&self, version: u16, payload: &[u8], config: &Config) -> Result<NodeState, StartError> {
        let state = self.read_state(version, payload)?;
        match config.node {
            Some(NodeId(wanted)) if wanted != state.node.0 => {
                Err(StartError::OtherNode { folder: self.path.clone(), found: state.node.0, wanted })
            }
            _ => match config.cluster {
                Some(wanted) if wanted != state.cluster => {
                    Err(StartError::OtherCluster { folder: self.path.clone(), found: state.cluster, wanted })
                }
                _ => Ok(state),
            },
        }
    }

    fn new_state(&self, config: &Config) -> Result<NodeState, StartError> {
        for rest in ["meta", "db", "key", "logs"] {
            if self.path.join(rest).exists() {
                return Err(StartError::NodeFileMissing { folder: self.path.clone(), found: format!("`{rest}`") });
            }
        }
        Ok(NodeState {
            cluster: match config.cluster {
                Some(cluster) => cluster,
                None if config.peers.is_empty() => random_u64()?.max(1),
                // Drawn from the nodes' log ids once all of them are known.
                None => UNFORMED,
            },
            node: config.node.unwrap_or(NodeId(1)),
            log: LogId(random_u64()?),
            starts: 0,
            incarnations: Vec::new(),
            older_copy: false,
        })
    }

    /// Makes the node's memory durable.
    pub(crate) fn persist(&self, state: &NodeState) -> Result<(), StartError> {
        assert!(state.starts > 0 && !state.incarnations.is_empty(), "a started node has an incarnation");
        let payload = postcard::to_stdvec(state).expect("a node's memory has nothing that cannot be written");
        self.save_sealed("node", NODE_KIND, NODE_VERSION, &payload)
    }

    /// The other nodes, as given or else as remembered. Addresses that are given are remembered.
    pub(crate) fn peers(&self, config: &Config, state: &NodeState) -> Result<PeerList, StartError> {
        let refuse = |reason: String| Err(StartError::Peers { folder: self.path.clone(), reason });
        let remembered: Option<PeerList> = match self.load_sealed("peers", PEERS_KIND, PEERS_VERSION)? {
            None => None,
            Some(payload) => Some(postcard::from_bytes(&payload).map_err(|error| StartError::Damaged {
                file: self.path.join("peers"),
                reason: format!("its checksum holds and its contents do not read: {error}"),
            })?),
        };
        let given = &config.peers;
        if given.is_empty() {
            return match remembered {
                None if state.cluster == UNFORMED => {
                    refuse("its cluster is not formed yet: give --peers as at the first start".to_string())
                }
                remembered => Ok(remembered.unwrap_or_default()),
            };
        }
        if !given.contains_key(&state.node) {
            return refuse(format!("the list lacks this node, {}: name all nodes, this one included", state.node));
        }
        let list = match remembered {
            // A cluster of one has a key of its own from its first start on.
            None if state.cluster != UNFORMED && !self.path.join("key").exists() => {
                return Err(self.peers_missing());
            }
            None if state.cluster != UNFORMED => {
                return refuse(
                    "it is a cluster of one already: give this node a new folder with --data, and import the database there"
                        .to_string(),
                );
            }
            Some(before) if !before.addresses.keys().eq(given.keys()) => {
                let ids =
                    |map: &BTreeMap<NodeId, String>| map.keys().map(NodeId::to_string).collect::<Vec<_>>().join(", ");
                return refuse(format!(
                    "its cluster has nodes {}, and the list names {}",
                    ids(&before.addresses),
                    ids(given)
                ));
            }
            before => PeerList { addresses: given.clone(), voters: before.map(|list| list.voters).unwrap_or_default() },
        };
        self.remember_peers(&list)?;
        Ok(list)
    }

    /// The list of the other nodes is not there, and should be.
    pub(crate) fn peers_missing(&self) -> StartError {
        StartError::PeersFileMissing(self.path.join("peers"))
    }

    /// Makes the list of the other nodes durable.
    pub(crate) fn remember_peers(&self, list: &PeerList) -> Result<(), StartError> {
        let payload = postcard::to_stdvec(list).expect("a list of addresses can be written");
        self.save_sealed("peers", PEERS_KIND, PEERS_VERSION, &payload)
    }

    /// The cluster's key for batons, drawn at the first start.
    pub(crate) fn cluster_key(&self) -> Result<[u8; 32], StartError> {
        if let Some(payload) = self.load_sealed("key", KEY_KIND, KEY_VERSION)? {
            return payload.as_slice().try_into().map_err(|_| StartError::Damaged {
                file: self.path.join("key"),
                reason: format!("it holds {} bytes where a key has 32", payload.len()),
            });
        }
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(no_randomness)?;
        self.save_sealed("key", KEY_KIND, KEY_VERSION, &key)?;
        Ok(key)
    }

    /// Where a database's SQLite file lies.
    pub(crate) fn sql_folder(&self, name: &str) -> PathBuf {
        self.path.join("db").join(name).join("sql")
    }

    /// The folder for files that nobody needs over a restart, emptied.
    pub(crate) fn clear_scratch(&self) -> Result<PathBuf, StartError> {
        let scratch = self.path.join("scratch");
        let failed = || StartError::io(format!("{} cannot be emptied", scratch.display()));
        match fs::remove_dir_all(&scratch) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed()(error)),
            _ => {}
        }
        fs::create_dir(&scratch).map_err(failed())?;
        Ok(scratch)
    }

    /// The logs in this folder, for the host.
    pub(crate) fn logs(&self) -> Result<Logs, StartError> {
        let made = match self.load_sealed("logs", LOGS_KIND, LOGS_VERSION)? {
            None => BTreeSet::new(),
            Some(payload) => postcard::from_bytes(&payload).map_err(|error| StartError::Damaged {
                file: self.path.join("logs"),
                reason: format!("its checksum holds and its contents do not read: {error}"),
            })?,
        };
        Ok(Logs { path: self.path.clone(), io: self.io.clone(), made })
    }

    /// A file that has had one version only.
    fn load_sealed(&self, name: &str, kind: [u8; 8], version: u16) -> Result<Option<Vec<u8>>, StartError> {
        assert_eq!(version, 1, "earlier versions are read by who knows them");
        Ok(self.load_upto(name, kind, version)?.map(|(_, payload)| payload))
    }

    /// A file of any version from 1 to the one known, with its version.
    fn load_upto(&self, name: &str, kind: [u8; 8], known: u16) -> Result<Option<(u16, Vec<u8>)>, StartError> {
        let file = self.path.join(name);
        let failed = || StartError::io(format!("{} cannot be read", file.display()));
        let bytes = match self.io.open(name) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed()(error)),
            Ok(opened) => {
                let mut bytes = vec![0; opened.len().map_err(failed())? as usize];
                let read = opened.read_at(0, &mut bytes).map_err(failed())?;
                bytes.truncate(read);
                bytes
            }
        };
        let damaged = |reason: String| StartError::Damaged { file: file.clone(), reason };
        let (version, payload) = control::open(kind, &bytes).map_err(|error| damaged(error.to_string()))?;
        if !(1..=known).contains(&version) {
            return Err(damaged(format!("it is of version {version}, and this build knows versions up to {known}")));
        }
        Ok(Some((version, payload.to_vec())))
    }

    fn save_sealed(&self, name: &str, kind: [u8; 8], version: u16, payload: &[u8]) -> Result<(), StartError> {
        durable_replace(&*self.io, name, &control::seal(kind, version, payload)).map_err(|error| StartError::Io {
            what: format!("{} cannot be written", self.path.join(name).display()),
            error: std::io::Error::other(error),
        })
    }
}

/// The fields of version 1 of the node's memory, in their order there.
type NodeStateV1 = (u64, NodeId, LogId, u64, Vec<Incarnation>);

/// Version 1 did not know that a folder can be refused for good.
fn state_of_version_one((cluster, node, log, starts, incarnations): NodeStateV1) -> NodeState {
    NodeState { cluster, node, log, starts, incarnations, older_copy: false }
}

fn no_randomness(error: getrandom::Error) -> StartError {
    StartError::Io { what: "no random numbers can be had".into(), error: std::io::Error::other(error.to_string()) }
}

pub(crate) fn random_u64() -> Result<u64, StartError> {
    getrandom::u64().map_err(no_randomness)
}

/// Opens logs under the data folder.
pub(crate) struct Logs {
    path: PathBuf,
    io: Arc<FileIo>,
    /// The names of all that were ever made here.
    made: BTreeSet<String>,
}

impl Folders for Logs {
    type Log = NodeLog;

    fn open(&mut self, partition: PartitionId, name: &str, log: LogId) -> Result<NodeLog, LogError> {
        let folder = match partition {
            PartitionId::METADATA => self.path.join("meta"),
            _ => self.path.join("db").join(name).join("log"),
        };
        // The metadata has a name of its own that no database can bear.
        let known = if partition == PartitionId::METADATA { "/metadata".to_string() } else { name.to_string() };
        let poisoned = |what: String| LogError::Poisoned(format!("{}: {what}", folder.display()));
        let options = Options { create: !self.made.contains(&known), ..Options::default() };
        let full = |what: String| LogError::Full(format!("{}: {what}", folder.display()));
        let io = FileIo::open(&folder)
            .map_err(|error| if is_full(&error) { full(error.to_string()) } else { poisoned(error.to_string()) })?;
        let log = Log::open(io, options, log)
            .map_err(|error| if error.is_full() { full(error.to_string()) } else { poisoned(error.to_string()) })?;
        tracing::info!(partition = partition.0, name, folder = %folder.display(), recovered = ?log.recovered(), "opened a log");
        if !self.made.contains(&known) {
            let mut made = self.made.clone();
            made.insert(known);
            let payload = postcard::to_stdvec(&made).expect("names can be written");
            durable_replace(&*self.io, "logs", &control::seal(LOGS_KIND, LOGS_VERSION, &payload))
                .map_err(|error| if error.harmless { full(error.to_string()) } else { poisoned(error.to_string()) })?;
            self.made = made;
        }
        Ok(log)
    }
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
