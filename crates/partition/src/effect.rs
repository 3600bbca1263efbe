//! What comes out of a partition.

use highwater_replica::{ProposeError, ReadError, Role};
use highwater_wire::{Dest, Envelope, Epoch, NodeId, Offset, PeerId, Position, Set, Unfit, Version};

use crate::input::Ticket;
use crate::machine::Command;

/// One thing to do, in order.
#[derive(Debug)]
pub enum Effect<Job> {
    /// Send a message.
    Send(Dest, Envelope),
    /// Run this on the flush thread and bring the result back as `Input::FlushDone`.
    Flush(Job),
    /// For the state machine.
    Machine(Command),
    /// Answer whoever waits.
    Answer(Ticket, Outcome),
    /// That node sent what no honest one sends; it changed nothing.
    Reject(NodeId, Unfit),
    /// The replica's role changed: for logs, metrics and whoever coordinates.
    Role(Role),
    /// The disk is full (with what it said) in the middle of a step: nothing is sent or written until there is room. `None`: there is room again, and
    /// everything that waited is done.
    DiskFull(Option<String>),
    /// The log is poisoned or a law is broken: this partition does nothing more until the process restarts. Its tickets have been answered.
    Halted(String),
}

/// How a waiting request ended. A client must be able to tell *failed* (no effect, now or later) from *unknown*.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The write is acknowledged as it asked to be; a held answer may leave; a read may be served from what is published, which includes `position`.
    Done(Position),
    /// The proposal is not and never will be in the log.
    Refused(ProposeError),
    /// No room: the disk is full, nothing was appended.
    Full(String),
    /// The write is in the log, and leadership was lost before it was acknowledged: it may yet be committed, or be cut.
    Unknown(Position),
    /// A held answer that showed no effect of its own, or a read: nothing happened, ask again.
    Lost(ReadError),
    /// That position was truncated at a failover: what the log holds at its offset is of another epoch.
    Truncated {
        /// The epoch the log has there.
        found: Option<Epoch>,
    },
    /// This partition has halted.
    Halted(String),
}

/// What there is to see of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The role.
    pub role: Role,
    /// The highest epoch promised or entered.
    pub epoch: Option<Epoch>,
    /// The leader as this replica knows it.
    pub leader: Option<PeerId>,
    /// The record's version, where this replica leads.
    pub version: Option<Version>,
    /// The committed set, where this replica leads.
    pub set: Option<Set>,
    /// High watermark.
    pub hw: Offset,
    /// The log's append end.
    pub end: Offset,
    /// The log end offset (durable).
    pub leo: Offset,
    /// What the state machine has applied.
    pub applied: Offset,
    /// What readers see.
    pub published: Offset,
    /// The peers, where this replica leads.
    pub peers: Vec<PeerStatus>,
    /// Why the partition halted, if it has.
    pub halted: Option<String>,
}

/// What a leader knows of a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The node.
    pub node: NodeId,
    /// Its acknowledged LEO.
    pub leo: Offset,
    /// The applied offset it told.
    pub applied: Offset,
    /// Whether it keeps up: of the ISR under `isr`; within `replica_lag_max` under `quorum`.
    pub in_sync: bool,
    /// Milliseconds since it was last heard of.
    pub heard_ms_ago: u64,
}
