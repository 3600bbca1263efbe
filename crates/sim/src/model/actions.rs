//! What may happen next in a state.

use std::rc::Rc;

use highwater_replica::{Role, Timeout};
use highwater_wire::{Body, CommitRule, Envelope};

use super::search::Search;
use super::world::{Action, COORDINATOR, Facts, Local, Node, State, peer, write_of};
use super::{REPLICAS, coordinator};

impl Search {
    /// Everything that may happen in `state`. Deliveries that change nothing are left out.
    pub(super) fn actions(&mut self, state: &State) -> Vec<Action> {
        let facts = Rc::clone(self.facts.get(state.facts));
        let mut actions = Vec::new();
        for index in 0..REPLICAS {
            let node = Rc::clone(self.nodes.get(state.nodes[index]));
            let deliveries = self.deliveries(index, state.nodes[index], state.inboxes[index]);
            actions.extend(deliveries.iter().map(|(message, _)| Action::At(index, Local::Deliver(*message))));
            let (durable, end) = (node.disk().durable(), node.log().len());
            if durable < end {
                actions.push(Action::At(index, Local::Flush));
            }
            if facts.crashes < self.config.crashes {
                actions.extend((durable..=end).map(|kept| Action::At(index, Local::Crash(kept))));
            }
            let role = node.replica().role();
            // One answer at a time is on its way to be held.
            let executes = node.machine.reign().is_some() && node.answer.is_none();
            let appends = self.config.rule.is_none() && matches!(role, Role::Leader { .. });
            if (executes || appends) && facts.writes < self.config.writes {
                actions.push(Action::At(index, Local::Write(facts.writes + 1)));
            }
            if executes && facts.looks < self.config.looks {
                actions.push(Action::At(index, Local::Look(facts.looks + 1)));
            }
            // What the machine says comes behind the answer that it gave before.
            if node.answer.is_some() {
                actions.push(Action::At(index, Local::Hold));
            } else if node.machine.next().is_some() {
                actions.push(Action::At(index, Local::Turn));
            }
            if facts.reads < self.config.reads && !matches!(role, Role::Idle | Role::Candidate { .. }) {
                actions.push(Action::At(index, Local::Read(facts.reads + 1)));
            }
            // The replicas are alike until one stands: that one is called replica 0.
            let alike = facts.stands == 0 && facts.reigns.is_empty();
            let may_stand = facts.stands < self.config.stands && (!alike || index == 0);
            if may_stand && !matches!(role, Role::Leader { .. }) {
                actions.push(Action::At(index, Local::Stand));
            }
            actions.extend(
                self.timeouts(&facts, index, &role, &node)
                    .into_iter()
                    .map(|timeout| Action::At(index, Local::Fire(timeout))),
            );
        }
        if self.config.rule.is_some() {
            self.coordinator_actions(state, &facts, &mut actions);
        }
        actions
    }

    fn timeouts(&self, facts: &Facts, index: usize, role: &Role, node: &Node) -> Vec<Timeout> {
        let mut due = Vec::new();
        let live = node.replica().stream_is_live();
        if matches!(role, Role::Follower { .. }) && live && facts.silences < self.config.silences {
            due.push(Timeout::Silent);
        }
        // A read that nobody confirms is asked about again, and the coordinator with it.
        let somebody_reads = facts.waiting.keys().any(|ticket| write_of(*ticket).is_none());
        if self.config.rule.is_some() && matches!(role, Role::Leader { .. }) && somebody_reads {
            due.push(Timeout::Heartbeat);
        }
        if let (Some(CommitRule::Isr { .. }), Role::Leader { .. }) = (self.config.rule, role) {
            due.extend((0..REPLICAS).filter(|member| *member != index).map(|member| Timeout::Lagging(peer(member))));
        }
        due
    }

    fn coordinator_actions(&self, state: &State, facts: &Facts, actions: &mut Vec<Action>) {
        let versions_left = facts.record.version.0 < self.config.versions;
        if !versions_left {
            return;
        }
        let numbers = self.sets.get(state.inboxes[COORDINATOR]);
        let inbox: Vec<&Envelope> = numbers.iter().map(|number| &**self.messages.get(*number)).collect();
        for (epoch, leader, starts, set) in coordinator::appointments(facts, &inbox, self.config.commit_rule()) {
            actions.push(Action::Appoint { epoch, leader, starts, set });
        }
        for (number, envelope) in numbers.iter().zip(&inbox) {
            if matches!(envelope.body, Body::ChangeSet { .. }) && coordinator::is_of_use(facts, envelope) {
                actions.push(Action::Change(*number));
            }
        }
    }
}
