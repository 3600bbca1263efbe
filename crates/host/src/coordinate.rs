//! The coordinator's life on this node.
//!
//! It begins when this node leads the metadata and the control entry of its own epoch is committed and applied: from then on the view holds
//! whatever was committed before. It ends with the role. Events for a coordinator that does not run are dropped; whoever sent them asks again.

use highwater_coordinator::{Action, Coordinator, CoordinatorStart, Event};
use highwater_partition::{Input as PartitionInput, Ticket};
use highwater_wire::Epoch;

use crate::api::{Effect, Folders};
use crate::host::{Host, Job, Work};

impl<F: Folders> Host<F> {
    /// Begins to coordinate, if the time has come.
    pub(crate) fn begin_to_coordinate(&mut self, out: &mut Vec<Effect<Job<F>>>) {
        let Some((epoch, epoch_start)) = self.leads else { return };
        if self.coordinator.is_some() || self.applied <= epoch_start {
            return;
        }
        let start = CoordinatorStart {
            me: self.me,
            epoch,
            heartbeat_ms: self.start.timing.heartbeat_ms,
            session_ms: self.start.session_ms,
            voters: self.voters.clone(),
            databases: self.start.databases.clone(),
            gone: self.gone.iter().copied().collect(),
            now: self.now,
        };
        let mut actions = Vec::new();
        self.coordinator = Some(Coordinator::new(start, &self.view, &mut actions));
        self.perform(epoch, actions, out);
        // This node's own registration need not wait for its next turn.
        self.registration.leader_changed(self.now);
        self.tick_registration(out);
    }

    /// Ends it; whatever it was waiting for means nothing any more.
    pub(crate) fn stop_coordinating(&mut self) {
        self.coordinator = None;
        self.reads.clear();
    }

    /// Hands an event on to the coordinator.
    pub(crate) fn step_coordinator(&mut self, event: Event, out: &mut Vec<Effect<Job<F>>>) {
        let (Some(coordinator), Some((epoch, _))) = (&mut self.coordinator, self.leads) else { return };
        let mut actions = Vec::new();
        coordinator.step(self.now, event, &self.view, &mut actions);
        self.perform(epoch, actions, out);
    }

    fn perform(&mut self, epoch: Epoch, actions: Vec<Action>, out: &mut Vec<Effect<Job<F>>>) {
        for action in actions {
            match action {
                Action::Propose(command) => self.queue.push_back(Work::Propose(epoch, command)),
                Action::Read(id) => {
                    self.tickets += 1;
                    let ticket = Ticket(self.tickets);
                    let before = self.reads.insert(ticket, id);
                    assert!(before.is_none(), "tickets are drawn once");
                    self.queue.push_back(Work::Metadata(PartitionInput::Read { ticket }));
                }
                Action::Reject(node, unfit) => out.push(Effect::Reject(node, unfit)),
                Action::Send(node, envelope) => self.coordinator_sends(node, envelope, out),
            }
        }
    }
}
