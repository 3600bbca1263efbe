//! The node's registration and heartbeats (docs/protocol.md section 9).
//!
//! Before anything of a database's partition is sent, the node registers with whoever coordinates: it states its incarnations since the last
//! acknowledged registration, and repeats that until it is answered. No database is opened before. Once accepted, it remembers, durably, that the
//! present incarnation is the last acknowledged. Once refused, its folder is an older copy, and the node takes part in nothing more
//! (`older_copy`).
//!
//! An answer counts only if it names this incarnation: one for an earlier process may still be on its way; and only from who leads the metadata, as far as
//! this node knows. If another has come to lead it meanwhile, that one is asked as well.
//!
//! A registered node sends heartbeats, whatever has become of its partitions: those are told about one by one.

use highwater_wire::{Body, Dest, Envelope, Millis, PartitionId};

use crate::api::{Effect, Folders};
use crate::host::{Host, Job};
use crate::older_copy::OLDER_COPY;

/// How many times per heartbeat an unanswered registration is repeated.
const REPEATS_PER_HEARTBEAT: Millis = 4;

/// Where the registration stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registration {
    /// Not answered yet; asked again at that time.
    Asking {
        /// When.
        again_at: Millis,
    },
    /// Accepted and remembered.
    Accepted,
    /// The folder is an older copy. The node takes part in nothing.
    Refused,
}

impl Registration {
    pub(crate) fn begin(now: Millis) -> Self {
        Registration::Asking { again_at: now }
    }

    /// Somebody else may answer now.
    pub(crate) fn leader_changed(&mut self, now: Millis) {
        if let Registration::Asking { again_at } = self {
            *again_at = now;
        }
    }
}

impl<F: Folders> Host<F> {
    /// Registers or sends a heartbeat, whatever is due.
    pub(crate) fn tick_registration(&mut self, out: &mut Vec<Effect<Job<F>>>) {
        if self.metadata_leader.is_none() {
            return;
        }
        let heartbeat_ms = self.start.timing.heartbeat_ms;
        match self.registration {
            Registration::Asking { again_at } if self.now >= again_at => {
                let repeat_ms = (heartbeat_ms / REPEATS_PER_HEARTBEAT).max(1);
                self.registration = Registration::Asking { again_at: self.now + repeat_ms };
                let body = Body::Register {
                    incarnations: self.state.incarnations.clone(),
                    address: self.start.address.clone(),
                };
                self.send_to_coordinator(body, out);
            }
            Registration::Accepted => {
                if self.heartbeat_at.is_none_or(|at| self.now - at >= heartbeat_ms) {
                    self.heartbeat_at = Some(self.now);
                    self.send_to_coordinator(Body::Heartbeat { leaving: self.leaving }, out);
                    self.renounce_halted(out);
                    self.open_assigned(out);
                }
            }
            Registration::Asking { .. } | Registration::Refused => {}
        }
    }

    /// This node is about to stop: said at once, and with every heartbeat from now on.
    pub(crate) fn leave(&mut self, out: &mut Vec<Effect<Job<F>>>) {
        self.leaving = true;
        self.heartbeat_at = None;
        self.tick_registration(out);
    }

    /// `Registered` arrived.
    pub(crate) fn registration_answered(&mut self, envelope: &Envelope, out: &mut Vec<Effect<Job<F>>>) {
        let Body::Registered { incarnation, accepted } = envelope.body else { return };
        let asking = matches!(self.registration, Registration::Asking { .. });
        let from_leader = self.metadata_leader == Some(envelope.sender.peer.node);
        if incarnation != self.me.incarnation || !asking || !from_leader {
            return;
        }
        assert!(self.databases.is_empty(), "no database is open before the registration is answered");
        if accepted {
            self.registration = Registration::Accepted;
            if self.state.incarnations != [incarnation] {
                self.state.incarnations = vec![incarnation];
                out.push(Effect::Persist(self.state.clone()));
            }
            self.tick_registration(out);
            self.open_assigned(out);
        } else {
            self.retire(OLDER_COPY.to_owned(), out);
        }
    }

    fn send_to_coordinator(&mut self, body: Body, out: &mut Vec<Effect<Job<F>>>) {
        let envelope = Envelope { partition: PartitionId::METADATA, sender: self.me, epoch: None, body };
        self.send(Dest::Coordinator, envelope, out);
    }
}
