//! The node's replica of the metadata: what its partition wants done, and the view that its committed entries add up to.
//!
//! The view follows HW, on the metadata's leader as anywhere else, so that nobody ever acts on what is not committed. It is in memory only.

use bytes::Bytes;
use highwater_coordinator::{Command as MetadataCommand, Event};
use highwater_partition::{Command, Effect as PartitionEffect, Input as PartitionInput, Outcome};
use highwater_replica::Role;
use highwater_wire::{Epoch, Offset, PartitionId};

use crate::api::{Effect, Folders};
use crate::host::{Host, Job, MetadataReplica, Work};

impl<F: Folders> Host<F> {
    /// Hands an input on to the metadata's replica. Before the cluster is formed, and after that failed, there is none to hear it.
    pub(crate) fn step_metadata(&mut self, input: PartitionInput, out: &mut Vec<Effect<Job<F>>>) {
        let MetadataReplica::Running(partition) = &mut self.metadata else { return };
        let mut effects = Vec::new();
        partition.step(self.now, input, &mut effects);
        self.metadata_effects(effects, out);
    }

    /// Appends a command, if this node still leads the metadata in the epoch in which it was decided.
    pub(crate) fn propose(&mut self, epoch: Epoch, command: MetadataCommand, out: &mut Vec<Effect<Job<F>>>) {
        let MetadataReplica::Running(partition) = &mut self.metadata else { return };
        let mut effects = Vec::new();
        let appended = partition.append(self.now, epoch, command.batch(), &mut effects);
        self.metadata_effects(effects, out);
        if !appended {
            self.queue.push_back(Work::Coordinator(Event::NotProposed(command)));
        }
    }

    fn metadata_effects(&mut self, effects: Vec<PartitionEffect<Job<F>>>, out: &mut Vec<Effect<Job<F>>>) {
        for effect in effects {
            match effect {
                PartitionEffect::Send(dest, envelope) => self.send(dest, envelope, out),
                PartitionEffect::Flush(job) => out.push(Effect::Flush(PartitionId::METADATA, job)),
                PartitionEffect::Machine(command) => self.metadata_command(command, out),
                PartitionEffect::Answer(ticket, outcome) => {
                    if let Some(id) = self.reads.remove(&ticket) {
                        let confirmed = matches!(outcome, Outcome::Done(_));
                        self.queue.push_back(Work::Coordinator(Event::Read { id, confirmed }));
                    }
                }
                PartitionEffect::Reject(node, unfit) => out.push(Effect::Reject(node, unfit)),
                PartitionEffect::Role(role) => {
                    self.metadata_role(&role);
                    out.push(Effect::Role(PartitionId::METADATA, role));
                }
                PartitionEffect::DiskFull(reason) => out.push(Effect::DiskFull(PartitionId::METADATA, reason)),
                PartitionEffect::Halted(reason) => self.halt_metadata(reason, out),
            }
        }
    }

    fn metadata_command(&mut self, command: Command, out: &mut Vec<Effect<Job<F>>>) {
        match command {
            Command::Apply { from, to, batches, committed } => {
                assert!(committed, "the metadata is applied only once it is committed");
                self.apply(from, to, &batches, out);
            }
            Command::Rewind { to } => {
                assert!(self.applied <= to, "what is committed is never rewound: {} to {to}", self.applied);
                self.queue.push_back(Work::Metadata(PartitionInput::Rewound(self.applied)));
            }
            // The view has no readers of its own, and proposes nothing by itself.
            Command::Publish { .. } | Command::Lead { .. } => {}
        }
    }

    fn apply(&mut self, from: Offset, to: Offset, batches: &Bytes, out: &mut Vec<Effect<Job<F>>>) {
        assert!(
            from == self.applied && from < to,
            "entries are applied once and in order: {from}..{to} at {}",
            self.applied
        );
        let commands = match MetadataCommand::read_batches(batches) {
            Ok(commands) => commands,
            Err(error) => {
                let reason = format!("the metadata cannot be applied at offsets {from} to {to}: {error}");
                return self.halt_metadata(reason, out);
            }
        };
        for command in commands {
            let outcome = self.view.apply(&command);
            self.recorded(&command);
            if self.coordinator.is_some() {
                self.queue.push_back(Work::Coordinator(Event::Applied(command, outcome)));
            }
        }
        self.applied = to;
        self.queue.push_back(Work::Metadata(PartitionInput::Applied(to)));
        self.begin_to_coordinate(out);
        self.open_assigned(out);
    }

    fn metadata_role(&mut self, role: &Role) {
        self.metadata_leader = match role {
            Role::Leader { .. } => Some(self.me.peer.node),
            Role::Follower { leader, .. } => Some(leader.node),
            Role::Idle | Role::Candidate { .. } => None,
        };
        self.stop_coordinating();
        self.leads = match role {
            Role::Leader { epoch, epoch_start } => Some((*epoch, *epoch_start)),
            _ => None,
        };
        self.registration.leader_changed(self.now);
    }

    /// The view stops where it is: partitions led here go on, and nothing new is decided.
    pub(crate) fn halt_metadata(&mut self, reason: String, out: &mut Vec<Effect<Job<F>>>) {
        self.stop_coordinating();
        self.leads = None;
        self.metadata_leader = None;
        self.metadata = MetadataReplica::Halted(reason.clone());
        out.push(Effect::Halted(PartitionId::METADATA, reason));
    }
}
