//! A node: what survives its processes, and the process that runs, if one does.

use std::collections::{BTreeMap, VecDeque};

use highwater_host::{Host, NodeState};
use highwater_partition::{Command, Ticket};
use highwater_wire::{LogId, NodeId, Offset, PartitionId, PeerId};

use super::clock::Clock;
use super::disk::Disk;
use super::event::{Attempt, Life};
use super::folders::SimFolders;
use super::harm::Harm;
use super::swap::Copied;
use crate::clients::{Ask, Instant};
use crate::machine::{Machine, Place, Store, WriteAnswer};
use crate::rng::Rng;

/// What the state machine is told, in order.
#[derive(Debug)]
pub(super) enum Work {
    /// By its partition.
    Command(Command),
    /// By a client.
    Request { attempt: Attempt, ask: Ask },
}

/// Who waits behind a ticket.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiting {
    /// For a write's answer, computed from the state that ends at `until`.
    Write { attempt: Attempt, answer: WriteAnswer, until: Offset, before: Option<Place>, wrote: bool, committed: bool },
    /// For a read.
    Read { attempt: Attempt, key: u8, list: u8, linearizable: bool },
    /// For everything there is to read, at the end.
    Everything,
}

/// A database's state machine in a process.
pub(super) struct Database {
    /// Its partition.
    pub(super) partition: PartitionId,
    /// The machine.
    pub(super) machine: Box<dyn Machine>,
    /// What it has been told and not taken up.
    pub(super) work: VecDeque<Work>,
    /// Whether a turn is under way.
    pub(super) turning: bool,
    /// Whether it has stopped, and takes up nothing more.
    pub(super) stopped: bool,
}

/// A process.
pub(super) struct Process {
    /// What decides.
    pub(super) host: Host<SimFolders>,
    /// The database, once its partition is open.
    pub(super) database: Option<Database>,
    /// Who waits.
    pub(super) waiting: BTreeMap<Ticket, Waiting>,
    /// The last ticket drawn.
    pub(super) tickets: u64,
    /// What the machine tells arrives in order: not before this.
    pub(super) tells_until: Instant,
    /// HW as it was last looked at.
    pub(super) hw: BTreeMap<PartitionId, Offset>,
    /// The maximal set as it was last looked at, where this process leads.
    pub(super) counted: BTreeMap<PartitionId, Vec<PeerId>>,
    /// A partition has stopped.
    pub(super) halted: Option<String>,
}

/// How a process is going to die.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doom {
    /// After so many more effects; `None`: when its disk fails, in the middle of a step.
    pub(super) effects: Option<u64>,
    /// With the power.
    pub(super) power: bool,
}

/// A node.
pub(super) struct Node {
    /// Its id.
    pub(super) id: NodeId,
    /// Its log id.
    pub(super) log: LogId,
    /// Its clock.
    pub(super) clock: Clock,
    /// Its disk.
    pub(super) disk: Disk,
    /// Its memory, durable.
    pub(super) state: NodeState,
    /// Its database, as it lies on the disk.
    pub(super) store: Box<dyn Store>,
    /// The number of its process.
    pub(super) life: Life,
    /// Its process.
    pub(super) process: Option<Process>,
    /// It does nothing before this.
    pub(super) paused_until: Instant,
    /// Its flushes are slow before this.
    pub(super) slow_until: Instant,
    /// Its disk stands still before this.
    pub(super) stalled_until: Instant,
    /// It is going to die.
    pub(super) doom: Option<Doom>,
    /// A fault of its disk was ordered in this life, so that it may stop.
    pub(super) disk_fault: bool,
    /// What is wrong with its copies for longer than a process lasts.
    pub(super) harm: Option<Harm>,
    /// A copy of its folder that somebody keeps.
    pub(super) copy: Option<Copied>,
}

impl Node {
    /// Whether a fault of the disk strikes the files of the state machine, if it has any, and not the logs.
    pub(super) fn strikes_store(&self, rng: &Rng) -> bool {
        // Not drawn from the generator itself: a machine without files changes nothing of a run.
        rng.clone().percent(50)
    }
}
