//! What a state is made of.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use highwater_log::LogStore;
use highwater_partition::{Partition, Ticket};
use highwater_replica::{Replica, Timeout};
use highwater_wire::{
    Envelope, Epoch, HardState, Incarnation, LogId, NodeId, Offset, PartitionId, PeerId, Sender, Version,
};

use super::REPLICAS;
use super::disk::Disk;
use super::machine::Machine;

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

/// Who waits for the answer to the write of this number.
pub(super) fn ticket_of_write(id: u8) -> Ticket {
    Ticket(u64::from(id))
}

/// The write that this ticket waits for, if it does.
pub(super) fn write_of(ticket: Ticket) -> Option<u8> {
    u8::try_from(ticket.0).ok()
}

/// Who waits for the answer to the read of this number.
pub(super) fn ticket_of_read(number: u8) -> Ticket {
    Ticket(0x100 + u64::from(number))
}

/// The read that this ticket waits for, if it does.
pub(super) fn read_of(ticket: Ticket) -> Option<u8> {
    ticket.0.checked_sub(0x100).and_then(|number| u8::try_from(number).ok())
}

/// Who waits for the answer of this number, which only looked.
pub(super) fn ticket_of_look(number: u8) -> Ticket {
    Ticket(0x200 + u64::from(number))
}

/// A replica with its disk and its state machine: the partition that a node runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) partition: Partition<Disk>,
    pub(super) machine: Machine,
    /// An answer that has been computed, on its way to be held.
    pub(super) answer: Option<Answer>,
    pub(super) starts: u64,
}

/// An answer that depends on what the machine executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Answer {
    pub(super) ticket: Ticket,
    pub(super) reign: highwater_partition::Reign,
    /// The end of the state it was computed from.
    pub(super) until: Offset,
    pub(super) wrote: bool,
}

impl Node {
    pub(super) fn replica(&self) -> &Replica {
        self.partition.replica()
    }

    pub(super) fn disk(&self) -> &Disk {
        self.partition.log()
    }

    pub(super) fn log(&self) -> &[Entry] {
        self.disk().log()
    }

    /// What is durable of its promises.
    pub(super) fn hard(&self) -> &HardState {
        self.disk().hard_state()
    }
}

/// What lies on the disks.
pub(super) type Disks<'a> = [&'a Disk; REPLICAS];

/// The disks of these replicas.
pub(super) fn disks(nodes: &[Rc<Node>; REPLICAS]) -> Disks<'_> {
    std::array::from_fn(|index| nodes[index].disk())
}

/// Whose answer is awaited.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiting {
    /// Where it was asked.
    pub(super) node: usize,
    /// For what reads or looks: how much was committed when it arrived.
    pub(super) floor: usize,
    /// What a look saw.
    pub(super) saw: Vec<Entry>,
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
    /// Who waits for an answer.
    pub(super) waiting: BTreeMap<Ticket, Waiting>,
    /// Writes that were said to have failed.
    pub(super) failed: BTreeSet<u8>,
    pub(super) writes: u8,
    pub(super) crashes: u8,
    pub(super) silences: u8,
    pub(super) reads: u8,
    pub(super) looks: u8,
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
    /// A client's question is answered from all that the machine has executed.
    Look(u8),
    /// The answer that is on its way comes to be held.
    Hold,
    /// The machine carries out one thing that it was told.
    Turn,
}
