//! What a state is made of.

use std::collections::{BTreeMap, BTreeSet};

use highwater_replica::{Replica, Timeout};
use highwater_wire::{Envelope, Epoch, HardState, Incarnation, LogId, NodeId, PartitionId, PeerId, Sender, Version};

use super::REPLICAS;

/// The partition.
pub(super) const PARTITION: PartitionId = PartitionId(1);

/// Where the coordinator's messages go: a node that holds no replica.
pub(super) const COORDINATOR: usize = REPLICAS;

/// The replica on node `index`.
pub(super) fn peer(index: usize) -> PeerId {
    PeerId { node: NodeId(index as u32), log: LogId(index as u64) }
}

/// Its `starts`-th process.
pub(super) fn incarnation(index: usize, starts: u64) -> Incarnation {
    Incarnation { starts, random: index as u64 }
}

/// A message of the coordinator.
pub(super) fn from_coordinator(epoch: Epoch, body: highwater_wire::Body) -> Envelope {
    let sender = Sender { peer: peer(COORDINATOR), incarnation: incarnation(COORDINATOR, 1) };
    Envelope { partition: PARTITION, sender, epoch: Some(epoch), body }
}

/// An entry: the epoch that wrote it and a number, 0 for a control entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub(super) epoch: Epoch,
    pub(super) id: u8,
}

/// A replica with its disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) replica: Replica,
    pub(super) starts: u64,
    /// The log as it would be read now.
    pub(super) log: Vec<Entry>,
    /// How many entries of it are durable.
    pub(super) durable: usize,
    pub(super) hard: HardState,
}

impl Node {
    /// The entries that a crash leaves.
    pub(super) fn durable_log(&self) -> &[Entry] {
        &self.log[..self.durable]
    }
}

/// The coordinator's record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Record {
    pub(super) epoch: Option<Epoch>,
    /// The leader and which of its processes promised.
    pub(super) leader: Option<(usize, u64)>,
    pub(super) version: Version,
    pub(super) set: BTreeSet<usize>,
}

/// That a replica led an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reign {
    pub(super) epoch: Epoch,
    pub(super) node: usize,
    pub(super) starts: u64,
    /// Its log when it began.
    pub(super) log: Vec<Entry>,
}

/// Everything that is no replica and no message: the record, and what the oracle remembers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Facts {
    pub(super) record: Record,
    pub(super) reigns: Vec<Reign>,
    /// What some replica has announced as committed, each entry with the epoch it was first announced in.
    pub(super) committed: Vec<(Entry, Epoch)>,
    /// The greatest HW each replica has announced, over restarts.
    pub(super) known_hw: [u64; REPLICAS],
    /// How much was committed when each read arrived that waits for its index, by the read's number.
    pub(super) read_floors: BTreeMap<u64, u64>,
    pub(super) writes: u8,
    pub(super) crashes: u8,
    pub(super) silences: u8,
    pub(super) reads: u8,
    /// Self-electing: how often somebody stood.
    pub(super) stands: u8,
}

/// A state: numbers of interned parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) nodes: [u32; REPLICAS],
    /// The messages sent to each replica, and to the coordinator.
    pub(super) inboxes: [u32; REPLICAS + 1],
    pub(super) facts: u32,
}

/// What may happen next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Action {
    /// Something happens at one replica.
    At(usize, Local),
    /// The coordinator records an appointment.
    Appoint { epoch: Epoch, leader: usize, starts: u64, set: BTreeSet<usize> },
    /// The coordinator applies a change of the ISR.
    Change(u32),
}

/// What may happen at one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Local {
    Deliver(u32),
    Flush,
    /// The process dies and starts again; this many entries of the log survive.
    Crash(usize),
    /// A client's write of this number is proposed.
    Write(u8),
    Fire(Timeout),
    /// Self-electing: the randomised time is over, and enough say that this replica would win.
    Stand,
    Read(u8),
}
