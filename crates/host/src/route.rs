//! Who gets which message.
//!
//! What comes from a part of this node and is for another part of it goes through the queue, as if it had arrived. An envelope does not say whether it is
//! meant for the replica or for the coordinator beside it, so what arrives is told apart by what it says:
//!
//! | About | Says | For |
//! |---|---|---|
//! | the metadata | `Register`, `Heartbeat` | the coordinator |
//! | | `Registered`, `OlderCopy` | the node |
//! | | anything else | the replica |
//! | a database | `Promise`, `WhoLeads`, `ChangeSet` | the coordinator |
//! | | `Confirm` of an odd round | the coordinator: the replica beside it must not answer in its place |
//! | | `Refused` | both: each heeds only what is above the epoch it knows |
//! | | anything else | the replica |
//!
//! A coordinator that does not run, a partition that is not held: the message is dropped, and asked again by whoever needs the answer.

use highwater_coordinator::Event;
use highwater_partition::Input as PartitionInput;
use highwater_wire::{Body, Dest, Envelope, NodeId, PartitionId};

use crate::api::{Effect, Folders};
use crate::host::{Host, Job, Work};

impl<F: Folders> Host<F> {
    /// A message arrived, from another node or from a replica of this one.
    pub(crate) fn arrived(&mut self, envelope: Envelope) {
        if envelope.partition == PartitionId::METADATA {
            let work = match envelope.body {
                Body::Register { .. } | Body::Heartbeat { .. } => Work::Coordinator(Event::Message(envelope)),
                Body::Registered { .. } | Body::OlderCopy { .. } => Work::Node(envelope),
                _ => Work::Metadata(PartitionInput::Message(envelope)),
            };
            return self.queue.push_back(work);
        }
        let (coordinator, replica) = match envelope.body {
            Body::Promise { .. } | Body::WhoLeads | Body::ChangeSet { .. } => (true, false),
            Body::Confirm { round } => (round % 2 == 1, round % 2 == 0),
            Body::Refused { .. } => (true, true),
            _ => (false, true),
        };
        assert!(coordinator || replica, "every message is for somebody");
        if coordinator && self.coordinator.is_some() {
            self.queue.push_back(Work::Coordinator(Event::Message(envelope.clone())));
        }
        // A replica asks and refuses nothing of itself: its own answer was for the coordinator.
        if replica && envelope.sender != self.me {
            self.queue.push_back(Work::Database(envelope.partition, PartitionInput::Message(envelope)));
        }
    }

    /// A replica of this node, or the node itself, sends a message.
    pub(crate) fn send(&mut self, dest: Dest, envelope: Envelope, out: &mut Vec<Effect<Job<F>>>) {
        let here = self.me.peer.node;
        match dest {
            Dest::Node(node) if node == here => self.arrived(envelope),
            Dest::Node(node) => out.push(Effect::Send(node, envelope)),
            Dest::Coordinator => match self.metadata_leader {
                Some(leader) if leader == here => self.queue.push_back(Work::Coordinator(Event::Message(envelope))),
                Some(leader) => out.push(Effect::Send(leader, envelope)),
                None => {}
            },
        }
    }

    /// The coordinator of this node sends a message. To this node it goes straight to the replica, since it is never for the coordinator.
    pub(crate) fn coordinator_sends(&mut self, to: NodeId, envelope: Envelope, out: &mut Vec<Effect<Job<F>>>) {
        if to != self.me.peer.node {
            return out.push(Effect::Send(to, envelope));
        }
        let work = if envelope.partition == PartitionId::METADATA {
            Work::Node(envelope)
        } else {
            Work::Database(envelope.partition, PartitionInput::Message(envelope))
        };
        self.queue.push_back(work);
    }
}
