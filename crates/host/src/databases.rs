//! The databases that the metadata assigns to this node: opening their partitions, and handing inputs and effects on.
//!
//! A partition is opened once its record is applied here, names this node with the log id of its folder, and the node is registered. What cannot
//! be opened is kept as halted, with the reason. Whoever asks a partition that is not open gets an answer at once.
//!
//! A partition that has halted neither leads nor promises any more, which the coordinator, who sees only that the node lives, cannot know. So as long
//! as the record names it as leader, the node refuses, in its name, the record's epoch: the coordinator then has another appointed, by a ballot
//! in which a halted replica does not promise. (After a restart the record's incarnation is gone anyway.)
//!
//! A state machine that has stopped executes nothing, so a leader that has no other would keep everybody from writing for as long as its node lives. It halts, and
//! another is appointed. A follower needs none to hold entries and to acknowledge them, which others may need for their commits: it goes on until it
//! is made to lead.

use highwater_log::{LogError, LogStore};
use highwater_partition::{Effect as PartitionEffect, Input as PartitionInput, Kind, Outcome, Partition, Ticket};
use highwater_replica::{Mode, ReadError, Role, Start};
use highwater_wire::{Body, Dest, Envelope, Epoch, PartitionId};

use crate::api::{Effect, Folders};
use crate::host::{Host, Job, Work, reason};
use crate::registration::Registration;

/// A database that is assigned to this node.
pub(crate) enum Database<L: LogStore> {
    /// It runs, or ran until its partition halted.
    Open(Box<Partition<L>>),
    /// It could not be opened, for this reason.
    Closed(String),
}

impl<L: LogStore> Database<L> {
    /// Why it halted, if it has.
    pub(crate) fn halted(&self) -> Option<&str> {
        match self {
            Database::Open(partition) => partition.halted(),
            Database::Closed(reason) => Some(reason),
        }
    }
}

impl<F: Folders> Host<F> {
    /// Opens what is assigned to this node and not open yet.
    pub(crate) fn open_assigned(&mut self, out: &mut Vec<Effect<Job<F>>>) {
        if self.registration != Registration::Accepted {
            return;
        }
        let missing: Vec<(PartitionId, String)> = self
            .view
            .partitions()
            .filter(|record| record.replicas.contains(&self.me.peer) && !self.databases.contains_key(&record.id))
            .map(|record| (record.id, record.name.clone()))
            .collect();
        for (id, name) in missing {
            let opened = self.folders.open(id, &name, self.me.peer.log);
            if let Err(LogError::Full(reason)) = opened {
                // Tried again at the next heartbeat.
                if self.without_room.insert(id) {
                    out.push(Effect::DiskFull(id, Some(reason)));
                }
                continue;
            }
            if self.without_room.remove(&id) {
                out.push(Effect::DiskFull(id, None));
            }
            let usable = opened.map_err(|error| reason(&error)).and_then(unless_exhausted);
            let database = match usable {
                Ok(log) => {
                    out.push(Effect::Opened(id, name));
                    let mut partition = Box::new(self.partition(id, log));
                    if let Some(epoch) = self.view.partition(id).and_then(|record| record.epoch) {
                        partition.recorded(epoch);
                    }
                    Database::Open(partition)
                }
                Err(reason) => {
                    out.push(Effect::Halted(id, reason.clone()));
                    Database::Closed(reason)
                }
            };
            let before = self.databases.insert(id, database);
            assert!(before.is_none(), "a partition is opened once");
            self.queue.push_back(Work::Database(id, PartitionInput::Tick));
        }
    }

    /// A command was applied: the partition here learns which epoch is on record now.
    pub(crate) fn recorded(&mut self, command: &highwater_coordinator::Command) {
        let highwater_coordinator::Command::Appoint { id, .. } = command else { return };
        if let Some(Database::Open(partition)) = self.databases.get_mut(id)
            && let Some(epoch) = self.view.partition(*id).and_then(|record| record.epoch)
        {
            partition.recorded(epoch);
        }
    }

    /// Gives up what this node leads on record and does not serve any more.
    pub(crate) fn renounce_halted(&mut self, out: &mut Vec<Effect<Job<F>>>) {
        let led = Some((self.me.peer, self.me.incarnation));
        let halted = self.databases.iter().filter(|(_, database)| database.halted().is_some());
        let refusals: Vec<Envelope> = halted
            .filter_map(|(id, _)| self.view.partition(*id))
            .filter(|record| record.leader == led)
            .filter_map(|record| {
                let body = Body::Refused { promised: record.epoch?.next()? };
                Some(Envelope { partition: record.id, sender: self.me, epoch: record.epoch, body })
            })
            .collect();
        for refusal in refusals {
            assert_ne!(refusal.partition, PartitionId::METADATA, "the metadata has no record");
            self.send(Dest::Coordinator, refusal, out);
        }
    }

    /// A database's state machine has stopped.
    pub(crate) fn machine_stopped(&mut self, id: PartitionId, reason: String, out: &mut Vec<Effect<Job<F>>>) {
        self.stopped.entry(id).or_insert(reason);
        self.halt_without_machine(id, out);
    }

    /// Halts a partition that leads and has no state machine to lead with.
    fn halt_without_machine(&mut self, id: PartitionId, out: &mut Vec<Effect<Job<F>>>) {
        let Some(reason) = self.stopped.get(&id) else { return };
        let Some(Database::Open(partition)) = self.databases.get_mut(&id) else { return };
        if matches!(partition.replica().role(), Role::Leader { .. }) {
            let mut effects = Vec::new();
            partition.stop(&format!("its state machine has stopped: {reason}"), &mut effects);
            self.database_effects(id, effects, out);
        }
    }

    fn partition(&self, id: PartitionId, log: F::Log) -> Partition<F::Log> {
        assert_ne!(id, PartitionId::METADATA, "the metadata is no database");
        let start = Start {
            partition: id,
            me: self.me.peer,
            incarnation: self.me.incarnation,
            mode: Mode::Appointed,
            timing: self.start.timing,
            // Another jitter for each partition, so that their timers do not all run out together.
            seed: self.start.seed ^ u64::from(id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            shape: log.shape().clone(),
            hard: log.hard_state().clone(),
            now: self.now,
        };
        Partition::new(start, log, Kind::Ahead)
    }

    /// Hands an input on to a database's partition.
    pub(crate) fn step_database(&mut self, id: PartitionId, input: PartitionInput, out: &mut Vec<Effect<Job<F>>>) {
        let partition = match self.databases.get_mut(&id) {
            Some(Database::Open(partition)) => partition,
            closed => {
                if let Some(ticket) = ticket_of(&input) {
                    let outcome = match closed {
                        Some(Database::Closed(reason)) => Outcome::Halted(reason.clone()),
                        _ => Outcome::Lost(ReadError::NoLeader),
                    };
                    out.push(Effect::Answer(ticket, outcome));
                }
                return;
            }
        };
        let mut effects = Vec::new();
        partition.step(self.now, input, &mut effects);
        self.database_effects(id, effects, out);
        self.halt_without_machine(id, out);
    }

    /// Hands on what a database's partition wants done.
    pub(crate) fn database_effects(
        &mut self,
        id: PartitionId,
        effects: Vec<PartitionEffect<Job<F>>>,
        out: &mut Vec<Effect<Job<F>>>,
    ) {
        for effect in effects {
            match effect {
                PartitionEffect::Send(dest, envelope) => self.send(dest, envelope, out),
                PartitionEffect::Flush(job) => out.push(Effect::Flush(id, job)),
                PartitionEffect::Machine(command) => out.push(Effect::Machine(id, command)),
                PartitionEffect::Answer(ticket, outcome) => out.push(Effect::Answer(ticket, outcome)),
                PartitionEffect::Reject(node, unfit) => out.push(Effect::Reject(node, unfit)),
                PartitionEffect::Role(role) => out.push(Effect::Role(id, role)),
                PartitionEffect::DiskFull(reason) => out.push(Effect::DiskFull(id, reason)),
                PartitionEffect::Halted(reason) => out.push(Effect::Halted(id, reason)),
            }
        }
    }
}

/// A log whose epochs are exhausted is not opened: nobody could ever be elected to lead it again, and every word of it would be refused elsewhere.
pub(crate) fn unless_exhausted<L: LogStore>(log: L) -> Result<L, String> {
    let entered = log.hard_state().promised.max(log.shape().last_epoch());
    match entered.filter(|epoch| *epoch >= Epoch::MAX) {
        None => Ok(log),
        Some(epoch) => Err(format!(
            "its epochs are exhausted: the log has promised epoch {epoch}, and the greatest that can be led is {}. A node that was faulty, or lied, has \
             made it so, and no election can take it back. Its data is whole: stop the node, write it to a file with \
             `highwater log replay DATA/db/NAME/log --to FILE`, and import that into a new cluster with `highwater db import`",
            Epoch::MAX
        )),
    }
}

/// Whom to answer about an input that reached no partition. A `Hold` there depends on nothing that this process ever executed: it has no reign.
fn ticket_of(input: &PartitionInput) -> Option<Ticket> {
    match input {
        PartitionInput::Hold { ticket, .. }
        | PartitionInput::Read { ticket }
        | PartitionInput::AtLeast { ticket, .. } => Some(*ticket),
        PartitionInput::Message(_)
        | PartitionInput::Tick
        | PartitionInput::Timeout(_)
        | PartitionInput::Disconnected(_)
        | PartitionInput::FlushDone(_)
        | PartitionInput::Propose(_)
        | PartitionInput::Forget { .. }
        | PartitionInput::Applied(_)
        | PartitionInput::Rewound(_) => None,
    }
}
