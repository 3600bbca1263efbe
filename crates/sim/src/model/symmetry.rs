//! Replicas 1 and 2 are alike: a state and its mirror image, where they have changed places, behave alike, and one of them is explored.
//!
//! Messages, facts and sets are mirrored by renaming. A replica is opaque, so its mirror image is found by taking the mirrored step: whatever led to the
//! one leads, renamed, to the other.

use std::rc::Rc;

use highwater_replica::Timeout;
use highwater_wire::{Body, Envelope, Incarnation, PeerId};

use super::intern::Numbers;
use super::world::{Action, Facts, Local, Reign, State, incarnation, peer};
use super::{REPLICAS, search::Search};

/// The place of replica `index` in the mirror.
pub(super) fn mirrored(index: usize) -> usize {
    match index {
        1 => 2,
        2 => 1,
        other => other,
    }
}

/// Mirror images found so far.
#[derive(Default)]
pub(super) struct Mirror {
    pub(super) nodes: Numbers,
    messages: Numbers,
    sets: Numbers,
    facts: Numbers,
}

fn peer_in_mirror(other: PeerId) -> PeerId {
    peer(mirrored(other.node.0 as usize))
}

fn peers_in_mirror(peers: &mut [PeerId]) {
    peers.iter_mut().for_each(|peer| *peer = peer_in_mirror(*peer));
    peers.sort_unstable();
}

fn process_in_mirror(process: Incarnation) -> Incarnation {
    incarnation(mirrored(process.random as usize), process.starts)
}

fn envelope_in_mirror(mut envelope: Envelope) -> Envelope {
    envelope.sender.peer = peer_in_mirror(envelope.sender.peer);
    envelope.sender.incarnation = process_in_mirror(envelope.sender.incarnation);
    match &mut envelope.body {
        Body::Lead(lead) => {
            lead.leader = peer_in_mirror(lead.leader);
            lead.incarnation = process_in_mirror(lead.incarnation);
            peers_in_mirror(&mut lead.replicas);
            peers_in_mirror(&mut lead.set.members);
        }
        Body::ChangeSet { members, .. } => peers_in_mirror(members),
        _ => {}
    }
    envelope
}

fn facts_in_mirror(mut facts: Facts) -> Facts {
    facts.record.leader = facts.record.leader.map(|(leader, starts)| (mirrored(leader), starts));
    facts.record.set = facts.record.set.into_iter().map(mirrored).collect();
    facts.reigns = facts.reigns.into_iter().map(|reign| Reign { node: mirrored(reign.node), ..reign }).collect();
    facts.known_hw.swap(1, 2);
    facts.waiting.values_mut().for_each(|waiting| waiting.node = mirrored(waiting.node));
    facts
}

impl Search {
    pub(super) fn message_in_mirror(&mut self, message: u32) -> u32 {
        if let Some(known) = self.mirror.messages.get(message) {
            return known;
        }
        let image = envelope_in_mirror(Envelope::clone(self.messages.get(message)));
        let image = self.messages.number(image);
        self.mirror.messages.note(message, image);
        image
    }

    pub(super) fn local_in_mirror(&mut self, local: Local) -> Local {
        match local {
            Local::Deliver(message) => Local::Deliver(self.message_in_mirror(message)),
            Local::Fire(Timeout::Lagging(member)) => Local::Fire(Timeout::Lagging(peer_in_mirror(member))),
            other => other,
        }
    }

    fn set_in_mirror(&mut self, set: u32) -> u32 {
        if let Some(known) = self.mirror.sets.get(set) {
            return known;
        }
        let messages = Rc::clone(self.sets.get(set));
        let image = messages.iter().map(|message| self.message_in_mirror(*message)).collect();
        let image = self.sets.number(image);
        self.mirror.sets.note(set, image);
        image
    }

    fn facts_in_mirror(&mut self, facts: u32) -> u32 {
        if let Some(known) = self.mirror.facts.get(facts) {
            return known;
        }
        let image = facts_in_mirror(Facts::clone(self.facts.get(facts)));
        let image = self.facts.number(image);
        self.mirror.facts.note(facts, image);
        image
    }

    fn node_in_mirror(&self, node: u32) -> u32 {
        self.mirror.nodes.get(node).expect("the mirror image of every replica is made with it")
    }

    /// Of a state and its mirror image, the one that stands for both.
    pub(super) fn representative(&mut self, state: State) -> State {
        let mut image = state;
        for index in 0..REPLICAS {
            image.nodes[mirrored(index)] = self.node_in_mirror(state.nodes[index]);
            image.inboxes[mirrored(index)] = self.set_in_mirror(state.inboxes[index]);
        }
        image.inboxes[REPLICAS] = self.set_in_mirror(state.inboxes[REPLICAS]);
        image.facts = self.facts_in_mirror(state.facts);
        // Compared without the inboxes first, so that states which differ by them alone are represented alike.
        let key = |state: &State| (state.nodes, state.facts, state.inboxes);
        if key(&image) < key(&state) { image } else { state }
    }

    pub(super) fn action_in_mirror(&mut self, action: &Action) -> Action {
        match action {
            Action::At(index, what) => Action::At(mirrored(*index), self.local_in_mirror(*what)),
            Action::Appoint { epoch, leader, starts, set } => Action::Appoint {
                epoch: *epoch,
                leader: mirrored(*leader),
                starts: *starts,
                set: set.iter().copied().map(mirrored).collect(),
            },
            Action::Change(message) => Action::Change(self.message_in_mirror(*message)),
        }
    }
}
