//! What steps of single replicas come to, computed once for all states they occur in.

use std::rc::Rc;

use highwater_wire::{Body, Envelope, Epoch};

use super::search::Search;
use super::symmetry::mirrored;
use super::world::{Local, State};
use super::{REPLICAS, local};

/// What a step of one replica comes to.
pub(super) enum Outcome {
    /// Beyond the bounds: not explored.
    Beyond,
    /// The replica stopped itself.
    Stopped(String),
    /// The new replica, and what to send to whom; the rest of what it did.
    Done { node: u32, sent: Vec<(usize, u32)>, done: local::Done },
}

fn after_of(outcome: &Outcome) -> Option<u32> {
    match outcome {
        Outcome::Done { node, .. } => Some(*node),
        Outcome::Beyond | Outcome::Stopped(_) => None,
    }
}

/// What there is to do for one replica with one inbox.
pub(super) type Deliveries = Rc<Vec<(u32, u32)>>;

/// Answers that change nobody: (to whom, message).
pub(super) type Answers = Rc<Vec<(usize, u32)>>;

impl Search {
    /// Gives all answers that change nobody: they only add messages. Of what is as it was in `before`, they were given then.
    pub(super) fn answer(&mut self, before: &State, mut state: State) -> State {
        let is_new = |index: usize, state: &State| {
            (before.nodes[index], before.inboxes[index]) != (state.nodes[index], state.inboxes[index])
        };
        let mut to_do: Vec<usize> = (0..REPLICAS).filter(|index| is_new(*index, &state)).collect();
        while let Some(index) = to_do.pop() {
            let answers = self.answers(index, state.nodes[index], state.inboxes[index]);
            for (to, message) in answers.iter() {
                let inbox = self.sets.add(state.inboxes[*to], *message);
                if inbox != state.inboxes[*to] && *to < REPLICAS && !to_do.contains(to) {
                    to_do.push(*to);
                }
                state.inboxes[*to] = inbox;
            }
        }
        state
    }

    fn answers(&mut self, index: usize, node: u32, inbox: u32) -> Answers {
        if let Some(known) = self.answers.get(&(node, inbox)) {
            return Rc::clone(known);
        }
        let mut all = Vec::new();
        for message in self.sets.get(inbox).to_vec() {
            let outcome = self.outcome(index, node, Local::Deliver(message));
            if let Outcome::Done { node: after, sent, .. } = &*self.outcomes[outcome as usize]
                && *after == node
            {
                all.extend(sent.iter().copied());
            }
        }
        all.sort_unstable();
        all.dedup();
        let all = Rc::new(all);
        self.answers.insert((node, inbox), Rc::clone(&all));
        all
    }

    /// The messages of an inbox that change this replica.
    pub(super) fn deliveries(&mut self, index: usize, node: u32, inbox: u32) -> Deliveries {
        if let Some(known) = self.deliveries.get(&(node, inbox)) {
            return Rc::clone(known);
        }
        let numbers = Rc::clone(self.sets.get(inbox));
        let mut all = Vec::new();
        for number in numbers.iter() {
            let outcome = self.outcome(index, node, Local::Deliver(*number));
            let changes = match &*self.outcomes[outcome as usize] {
                Outcome::Beyond => false,
                Outcome::Stopped(_) => true,
                Outcome::Done { node: after, done, .. } => *after != node || !done.answers.is_empty(),
            };
            if changes {
                all.push((*number, outcome));
            }
        }
        let all = Rc::new(all);
        self.deliveries.insert((node, inbox), Rc::clone(&all));
        all
    }

    /// The outcome of a step of one replica, computed once, together with its mirror image.
    pub(super) fn outcome(&mut self, index: usize, node: u32, what: Local) -> u32 {
        if let Some(known) = self.known.get(&(node, what)) {
            return *known;
        }
        let (number, after) = self.compute(index, node, what);
        let image = (mirrored(index), self.mirror.nodes.get(node).expect("made with it"), self.local_in_mirror(what));
        let (_, image_after) = match self.known.get(&(image.1, image.2)) {
            Some(known) => (*known, after_of(&self.outcomes[*known as usize])),
            None => self.compute(image.0, image.1, image.2),
        };
        if let (Some(after), Some(image)) = (after, image_after) {
            let known = self.mirror.nodes.get(after);
            assert!(known.is_none_or(|known| known == image), "a replica has one mirror image");
            self.mirror.nodes.note(after, image);
            self.mirror.nodes.note(image, after);
        }
        number
    }

    fn compute(&mut self, index: usize, number: u32, what: Local) -> (u32, Option<u32>) {
        let node = Rc::clone(self.nodes.get(number));
        let message = match what {
            Local::Deliver(message) => Some(Rc::clone(self.messages.get(message))),
            _ => None,
        };
        let outcome = match local::step(index, &node, what, message.as_deref(), &self.config) {
            Err(reason) => Outcome::Stopped(reason),
            Ok((_, done)) if done.declined => Outcome::Beyond,
            Ok((_, done)) if done.sent.iter().any(|(_, sent)| self.is_beyond(message.as_deref(), sent)) => {
                Outcome::Beyond
            }
            Ok((node, mut done)) => {
                let node = self.nodes.number(node);
                let mut sent = Vec::new();
                for (to, envelope) in std::mem::take(&mut done.sent) {
                    if self.is_modelled(&envelope) {
                        sent.push((to, self.messages.number(envelope)));
                    }
                }
                Outcome::Done { node, sent, done }
            }
        };
        let place = u32::try_from(self.outcomes.len()).expect("fewer than 2^32 outcomes");
        let after = after_of(&outcome);
        self.outcomes.push(Rc::new(outcome));
        self.known.insert((number, what), place);
        (place, after)
    }

    /// Whether a step is not explored, because of what it sends in answer to `message`.
    fn is_beyond(&self, message: Option<&Envelope>, sent: &Envelope) -> bool {
        match sent.body {
            Body::Open { stream, .. } => {
                // A batch that leaves a gap ends the stream as silence does.
                let gap = message.is_some_and(|message| matches!(message.body, Body::Batch { .. }));
                stream.number() > self.config.streams || gap && self.config.silences == 0
            }
            Body::Stand { .. } => sent.epoch >= Some(Epoch(self.config.epochs)),
            _ => false,
        }
    }

    /// Who leads is told to everybody at all times, so nobody needs to ask. Refusals are left out: they end streams and make leaders resign, which
    /// crashes, silences and later epochs do as well. What belongs to an epoch below the promised one is therefore forgotten. No folder is copied.
    fn is_modelled(&self, envelope: &Envelope) -> bool {
        !matches!(envelope.body, Body::WhoLeads | Body::Refused { .. } | Body::OlderCopy { .. })
    }
}
