//! Taking an action: the state it leads to, judged by every law.

use std::rc::Rc;

use highwater_replica::Timeout;
use highwater_wire::{Body, Envelope};

use super::outcome::Outcome;
use super::search::Search;
use super::world::{
    Action, COORDINATOR, Entry, Facts, Local, Node, State, Waiting, disks, ticket_of_look, ticket_of_read,
    ticket_of_write,
};
use super::{REPLICAS, coordinator, laws, local};

/// A step that was taken: the state it leads to, or the law it breaks.
pub(super) type Taken = Result<State, String>;

impl Search {
    /// Takes the action; none if it leads beyond the bounds.
    pub(super) fn take(&mut self, state: &State, action: &Action) -> Option<Taken> {
        match action {
            Action::At(index, what) => self.take_local(state, *index, *what),
            Action::Appoint { epoch, leader, starts, set } => {
                let mut facts = Facts::clone(self.facts.get(state.facts));
                coordinator::next_version(&mut facts);
                facts.record.epoch = Some(*epoch);
                facts.record.leader = Some((*leader, *starts));
                facts.record.set = set.clone();
                Some(self.tell_record(state, facts))
            }
            Action::Change(number) => {
                let Body::ChangeSet { members, .. } = &self.messages.get(*number).body else {
                    panic!("a change is asked for by ChangeSet")
                };
                let mut facts = Facts::clone(self.facts.get(state.facts));
                facts.record.set = members.iter().map(|member| member.node.0 as usize).collect();
                coordinator::next_version(&mut facts);
                Some(self.tell_record(state, facts))
            }
        }
    }

    fn tell_record(&mut self, state: &State, facts: Facts) -> Taken {
        let envelope = coordinator::told(&facts.record, &self.config);
        let rule = self.config.commit_rule();
        let next = self.tell_all(state, facts, Some(envelope));
        let (facts, nodes) = (Rc::clone(self.facts.get(next.facts)), self.nodes_of(&next));
        laws::durable_where_promised(&facts, &disks(&nodes), rule)?;
        laws::covers_record(&facts, &nodes)?;
        Ok(next)
    }

    pub(super) fn nodes_of(&self, state: &State) -> [Rc<Node>; REPLICAS] {
        std::array::from_fn(|index| Rc::clone(self.nodes.get(state.nodes[index])))
    }

    /// Tells all replicas the record, and asks them for promises on its version.
    pub(super) fn tell_all(&mut self, state: &State, facts: Facts, record: Option<Envelope>) -> State {
        let mut next = *state;
        for envelope in record.into_iter().chain(coordinator::requests(&facts.record, &self.config)) {
            let message = self.messages.number(envelope);
            for index in 0..REPLICAS {
                next.inboxes[index] = self.sets.add(next.inboxes[index], message);
            }
        }
        next.facts = self.facts.number(facts);
        self.settle(state, next)
    }

    fn take_local(&mut self, state: &State, index: usize, what: Local) -> Option<Taken> {
        let outcome = self.outcome(index, state.nodes[index], what);
        let outcome = Rc::clone(&self.outcomes[outcome as usize]);
        let (node, sent, done) = match &*outcome {
            Outcome::Beyond => return None,
            Outcome::Stopped(reason) => return Some(Err(format!("replica {index} stopped itself: {reason}"))),
            Outcome::Done { node, sent, done } => (*node, sent, done),
        };
        let mut next = *state;
        next.nodes[index] = node;
        for (to, message) in sent {
            next.inboxes[*to] = self.sets.add(next.inboxes[*to], *message);
        }
        let known = Rc::clone(self.facts.get(state.facts));
        if let Err(law) = self.judge_disks(state, &next, &known, index) {
            return Some(Err(law));
        }
        // Most steps are of no interest to the oracle: its memory is copied only for those that are.
        let counted = !matches!(
            what,
            Local::Deliver(_) | Local::Flush | Local::Fire(Timeout::Lagging(_)) | Local::Hold | Local::Turn
        );
        if counted || done.is_announced() {
            let mut facts = Facts::clone(&known);
            count(&mut facts, index, what, self.nodes.get(state.nodes[index]).machine.entries());
            if let Err(law) = self.judge_announced(state, &next, &mut facts, index, done) {
                return Some(Err(law));
            }
            next.facts = self.facts.number(facts);
        }
        Some(Ok(self.settle(state, next)))
    }

    /// The laws of what a step announced, began or cut.
    fn judge_announced(
        &self,
        before: &State,
        after: &State,
        facts: &mut Facts,
        index: usize,
        done: &local::Done,
    ) -> Result<(), String> {
        let nodes = self.nodes_of(after);
        if let Some(to) = done.cut {
            let before = self.nodes.get(before.nodes[index]);
            laws::cuts(facts, index, to, before.log(), nodes[index].log())?;
        }
        if let Some((epoch, log)) = &done.led {
            laws::begins_to_lead(facts, index, nodes[index].starts, *epoch, log)?;
        }
        if let Some(hw) = done.hw {
            let epoch = nodes[index].replica().promised().ok_or("HW without an epoch")?;
            laws::announces(facts, index, nodes[index].disk(), epoch, hw)?;
        }
        if done.hw.is_some() || !done.answers.is_empty() {
            laws::durable_where_promised(facts, &disks(&nodes), self.config.commit_rule())?;
        }
        if let Some(shown) = &done.shown {
            laws::shows(facts, index, shown)?;
        }
        for (ticket, outcome) in &done.answers {
            laws::answers(facts, index, *ticket, outcome)?;
        }
        laws::failed_is_nowhere(facts, &disks(&nodes))
    }

    /// The laws of what lies on the disks, as far as the step of replica `index` changed it.
    fn judge_disks(&self, before: &State, after: &State, facts: &Facts, index: usize) -> Result<(), String> {
        let nodes = self.nodes_of(after);
        let (old, new) = (self.nodes.get(before.nodes[index]), &nodes[index]);
        if new.replica().stream_is_live() && !old.replica().stream_is_live() {
            laws::goes_live(&nodes, index)?;
        }
        if !new.machine.is_to_rewind() {
            laws::machine_holds_the_log(index, new.log(), new.machine.entries())?;
        }
        if old.log() != new.log() {
            laws::logs_agree(&disks(&nodes))?;
            laws::failed_is_nowhere(facts, &disks(&nodes))?;
        }
        if old.disk() != new.disk() {
            laws::durable_where_promised(facts, &disks(&nodes), self.config.commit_rule())?;
        }
        laws::covers_record(facts, &nodes)
    }

    /// The coordinator confirms at once what it can: later it might not, and its answer may still arrive at any time or never.
    fn confirm(&mut self, state: &mut State) {
        let facts = Rc::clone(self.facts.get(state.facts));
        for message in self.sets.get(state.inboxes[COORDINATOR]).to_vec() {
            if let Some((to, answer)) = coordinator::confirmation(&facts, self.messages.get(message)) {
                let answer = self.messages.number(answer);
                state.inboxes[to] = self.sets.add(state.inboxes[to], answer);
            }
        }
    }

    /// Brings a state, reached in one step from `before`, into its normal form: answers that change nobody are given, and what nobody can make use of any
    /// more is forgotten. What the step did not touch has that form already.
    pub(super) fn settle(&mut self, before: &State, state: State) -> State {
        let mut state = state;
        if before.inboxes[COORDINATOR] != state.inboxes[COORDINATOR] {
            self.confirm(&mut state);
        }
        let mut state = self.answer(before, state);
        for index in 0..REPLICAS {
            if (before.nodes[index], before.inboxes[index]) == (state.nodes[index], state.inboxes[index]) {
                continue;
            }
            // What the disk says, not the replica: a promise that is not durable is forgotten in a crash, and older messages may then be obeyed.
            let promised = self.nodes.get(state.nodes[index]).hard().promised;
            let (messages, inbox) = (&self.messages, state.inboxes[index]);
            let (sets, keeps_old) = (&mut self.sets, self.config.keeps_old);
            state.inboxes[index] = *self
                .not_older
                .entry((inbox, promised))
                .or_insert_with(|| sets.retain(inbox, |message| keeps_old || messages.get(message).epoch >= promised));
        }
        let (messages, inbox) = (&self.messages, state.inboxes[COORDINATOR]);
        if (before.facts, before.inboxes[COORDINATOR]) != (state.facts, inbox) {
            let facts = self.facts.get(state.facts);
            let sets = &mut self.sets;
            state.inboxes[COORDINATOR] = *self
                .of_use
                .entry((inbox, state.facts))
                .or_insert_with(|| sets.retain(inbox, |message| coordinator::is_of_use(facts, messages.get(message))));
        }
        state
    }
}

/// Counts a step of replica `index`, whose machine has executed this much, against the bounds, and notes who waits for an answer from then on.
fn count(facts: &mut Facts, index: usize, what: Local, executed: &[Entry]) {
    match what {
        Local::Crash(_) => {
            facts.crashes += 1;
            facts.waiting.retain(|_, waiting| waiting.node != index);
        }
        Local::Write(id) => {
            facts.writes += 1;
            facts.waiting.insert(ticket_of_write(id), Waiting { node: index, floor: 0, saw: Vec::new() });
        }
        Local::Fire(Timeout::Silent) => facts.silences += 1,
        Local::Stand => facts.stands += 1,
        Local::Read(number) => {
            facts.reads += 1;
            let floor = facts.committed.len();
            facts.waiting.insert(ticket_of_read(number), Waiting { node: index, floor, saw: Vec::new() });
        }
        Local::Look(number) => {
            facts.looks += 1;
            let (floor, saw) = (facts.committed.len(), executed.to_vec());
            facts.waiting.insert(ticket_of_look(number), Waiting { node: index, floor, saw });
        }
        Local::Deliver(_) | Local::Flush | Local::Fire(_) | Local::Hold | Local::Turn => {}
    }
}
