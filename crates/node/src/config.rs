//! What a node is started with.

use std::collections::BTreeMap;
use std::path::PathBuf;

use highwater_wire::{CommitRule, NodeId};

use crate::secret::Secrets;

/// The configuration of one node process. The command line and its configuration file end here; nothing below reads either.
#[derive(Clone, Debug)]
pub struct Config {
    /// The folder that holds everything: made if there is none, refused if another process uses it or if it is another node's.
    pub data: PathBuf,
    /// The node's id. `None`: whatever the folder says, 1 for a new one. `Some`: a folder of another node is refused.
    pub node: Option<NodeId>,
    /// The cluster the folder must belong to; `None` takes what the folder says, and draws one for a new folder.
    pub cluster: Option<u64>,
    /// Databases to create when the cluster is formed, with their commit rules.
    pub databases: Vec<(String, CommitRule)>,
    /// Where clients reach this node, as it tells others.
    pub address: String,
    /// All nodes of the cluster, this one included, with the addresses where they are reached. Empty: what the folder remembers, and a cluster of one for a
    /// new folder. Addresses given here replace those remembered.
    pub peers: BTreeMap<NodeId, String>,
    /// What nodes prove to each other that they know; `None` on loopback only. Kept by whoever replaces them while the node runs.
    pub secrets: Option<Secrets>,
    /// Without a heartbeat for this long a node is taken for dead, in milliseconds.
    pub session_ms: u64,
    /// How many bytes may be executed and not yet committed, for each database, before further writes are refused as overloaded.
    pub ahead_bytes_max: u64,
    /// How SQL runs.
    pub sql: highwater_sql::Options,
}

impl Config {
    /// One node with one database, `main`, in that folder: what `highwater serve` starts with no configuration at all.
    pub fn single(data: impl Into<PathBuf>) -> Config {
        Config {
            data: data.into(),
            node: None,
            cluster: None,
            databases: vec![("main".to_string(), CommitRule::Quorum { q: 1 })],
            address: "127.0.0.1:8080".to_string(),
            peers: BTreeMap::new(),
            secrets: None,
            session_ms: 600,
            ahead_bytes_max: 64 << 20,
            sql: highwater_sql::Options::default(),
        }
    }
}
