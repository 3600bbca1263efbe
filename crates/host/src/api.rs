//! What goes into a host and what comes out.

use highwater_coordinator::RuleError;
use highwater_log::{FlushDone, LogError, LogStore};
use highwater_partition::{Command, Outcome, Ticket};
use highwater_replica::{Role, Timing};
use highwater_wire::batch::BatchError;
use highwater_wire::{Envelope, Incarnation, LogId, NodeId, PartitionId, PeerId, Unfit};
use serde::{Deserialize, Serialize};

/// What a node must remember beside its logs, replaced as a whole and durable before anything later is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// The cluster this folder belongs to, drawn when it was formed.
    pub cluster: u64,
    /// The node.
    pub node: NodeId,
    /// The folder's log id: every log made in it bears it.
    pub log: LogId,
    /// How often it has been started.
    pub starts: u64,
    /// The incarnations since the last acknowledged registration, that one included, oldest first.
    pub incarnations: Vec<Incarnation>,
    /// The cluster has refused this folder as an older copy of itself. It never takes part again: its starts might come to outnumber those of the true one.
    pub older_copy: bool,
}

/// What a host starts from. `state` already holds this start's incarnation as its last, and is durable.
#[derive(Clone, Debug)]
pub struct HostStart {
    /// The node's memory.
    pub state: NodeState,
    /// The first voters of the metadata; used only if the metadata log is empty, to form the cluster.
    pub voters: Vec<PeerId>,
    /// Databases to create when the cluster is formed, with their rules; on all voters.
    pub databases: Vec<(String, highwater_wire::CommitRule)>,
    /// Where clients and peers reach this node.
    pub address: String,
    /// Durations of replication.
    pub timing: Timing,
    /// Without a heartbeat for this long, a node is taken for dead by the coordinator (600).
    pub session_ms: u64,
    /// What jitter is drawn from.
    pub seed: u64,
    /// The time now.
    pub now: u64,
}

/// Why a host cannot start. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The metadata's log cannot be opened or written.
    #[error("the metadata's log: {0}")]
    Log(#[from] LogError),
    /// The metadata's log does not read back.
    #[error("the metadata's log is damaged: {0}")]
    Damaged(#[from] BatchError),
    /// A configured database cannot keep what it declares.
    #[error("database {name:?} cannot be created as configured: {error}")]
    Database {
        /// Its name.
        name: String,
        /// Why not.
        error: RuleError,
    },
}

/// Where partitions' logs come from.
pub trait Folders {
    /// The logs.
    type Log: LogStore;

    /// Opens the log of a partition, making it with this log id if it was never made before. One that was, and is not there any more, is an error: made
    /// anew it would have forgotten what it promised. [`LogError::Full`] says that it can be opened once there is room on the disk.
    fn open(&mut self, partition: PartitionId, name: &str, log: LogId) -> Result<Self::Log, LogError>;
}

/// One event.
#[derive(Debug)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// A message from another node arrived.
    Message(Envelope),
    /// The connection to that node broke.
    Disconnected(NodeId),
    /// The connection to that node broke and connecting anew was refused: its process is gone, and its session ends at once.
    Gone(NodeId),
    /// The node is about to stop in good order: the coordinator is asked to let others lead what is led here. What is led here goes on until then.
    Leave,
    /// A flush job of that partition ended.
    FlushDone(PartitionId, FlushDone),
    /// The state machine of a database has stopped for this reason, and carries out nothing more until the process restarts.
    MachineStopped(PartitionId, String),
    /// Something for a database's partition: a client's request or news of its state machine. Metadata is not reached this way.
    Partition(PartitionId, highwater_partition::Input),
}

/// One thing to do, in order.
#[derive(Debug)]
pub enum Effect<Job> {
    /// Make the node's memory durable before anything that follows.
    Persist(NodeState),
    /// Send a message to another node.
    Send(NodeId, Envelope),
    /// Run this on a flush thread and bring the result back.
    Flush(PartitionId, Job),
    /// A partition was opened: open its state machine and answer with `Input::Partition(id, Rewound(applied))`.
    Opened(PartitionId, String),
    /// For that partition's state machine.
    Machine(PartitionId, Command),
    /// Answer whoever waits.
    Answer(Ticket, Outcome),
    /// That node sent what no honest one sends, and it changed nothing: close the connection that it came on, and say so.
    Reject(NodeId, Unfit),
    /// A role changed.
    Role(PartitionId, Role),
    /// A partition waits for room on the disk, with what that said; or, with `None`, has found it and done what waited.
    DiskFull(PartitionId, Option<String>),
    /// A partition stopped.
    Halted(PartitionId, String),
}
