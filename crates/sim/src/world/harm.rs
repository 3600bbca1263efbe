//! Harm: what is wrong with a node's copies for longer than a process lasts, how much of it a run may bear, and how it ends.
//!
//! The promises hold as long as no more copies are lost than the commit rule can spare. So at any time at most [`World::spare`] nodes are harmed, which is what
//! both the database's rule and the metadata's majority can do without. Where that is none, one node may still be harmed: what a harmed node does is
//! refuse, so the cluster waits for it, and it is always made whole again.
//!
//! A harmed node may halt, and may fail to start. It may do nothing else: whatever it does say is looked at by every law as before. Harm ends when the
//! right bytes are back, after a while, or in the liveness phase; some of what can be spared is never made whole again.

use highwater_wire::{CommitRule, NodeId};

use super::World;
use super::event::{AtNode, Event, Restore};
use super::node::Node;
use super::swap::Folder;
use crate::faults::Fault;

/// What befell a node's copies.
#[derive(Debug)]
pub(super) struct Harm {
    /// By which class.
    pub(super) fault: Fault,
    /// Tells it from others of the run.
    number: u64,
    /// The true folder, while another lies in its place.
    pub(super) away: Option<Folder>,
}

impl Node {
    /// Whether there is a reason for its partitions to halt. A full disk is none: they wait for room.
    pub(super) fn may_halt(&self) -> bool {
        self.disk_fault || self.harm.is_some()
    }

    /// Whether there is a reason for its processes not to start, and for what applies its log to stop.
    pub(super) fn may_fail(&self) -> bool {
        self.may_halt() || self.disk.is_full()
    }
}

impl World {
    /// How many nodes may be lost for good: no more than the database's rule and the metadata's majority can both spare.
    pub(super) fn spare(&self) -> usize {
        let nodes = self.profile.nodes();
        let majority = nodes / 2 + 1;
        let of_rule = match self.profile.rule() {
            CommitRule::Quorum { q } => (q - 1).min(nodes - q),
            CommitRule::Isr { min } => (min - 1).min(nodes - min),
        };
        of_rule.min(nodes - majority) as usize
    }

    /// Whether that node may come to harm now.
    pub(super) fn may_harm(&self, id: NodeId) -> bool {
        let harmed = self.nodes.values().filter(|node| node.harm.is_some()).count();
        self.node(id).harm.is_none() && harmed < self.spare().max(1)
    }

    /// A node's copies come to harm, for a while.
    pub(super) fn harm(&mut self, id: NodeId, fault: Fault) {
        assert!(self.may_harm(id), "no more copies are harmed than can be spared");
        self.harms += 1;
        let number = self.harms;
        self.node_mut(id).harm = Some(Harm { fault, number, away: None });
        let when = self.now + self.rng.range(300_000, 6_000_000);
        self.queue.at(when, Event::Restore(Restore::Whole { node: id, number }));
    }

    /// The process of a node ended: its disk is as bad as before, or all that was bad has been written over.
    pub(super) fn after_crash(&mut self, id: NodeId) {
        let mut rng = self.rng.fork(19);
        let node = self.node_mut(id);
        match node.harm.as_ref().map(|harm| harm.fault) {
            Some(Fault::ReadError) => node.disk.fail_reads(&mut rng),
            Some(Fault::BitRot | Fault::LostWrite | Fault::Misdirected) if !node.disk.spoiled() => node.harm = None,
            _ => {}
        }
    }

    /// A node's copies are whole again, if it is that harm which they still suffer from.
    pub(super) fn make_whole_again(&mut self, id: NodeId, number: u64) {
        // A plot says itself when something is over.
        if self.healed.is_none()
            && self.plot_is_over() != Some(false)
            && self.node(id).harm.as_ref().is_some_and(|harm| harm.number == number)
        {
            self.make_whole(id);
        }
    }

    /// A node's copies are whole again. What its process has halted on, the next one opens.
    pub(super) fn make_whole(&mut self, id: NodeId) {
        if self.node(id).is_strange() && self.node(id).process.is_some() {
            self.die(id, false);
        }
        let Some(harm) = self.node_mut(id).harm.take() else { return };
        self.trace.note(self.now, &(id, harm.number), || format!("node {id}: whole again after {}", harm.fault.name()));
        if let Some(folder) = harm.away {
            self.put_back(id, folder);
        }
        let node = self.node(id);
        node.disk.mend();
        if harm.fault == Fault::ReadError {
            node.disk.heal_reads();
        }
        if node.process.as_ref().is_some_and(|process| process.halted.is_some()) {
            let now = self.now;
            self.later(id, now, AtNode::Die { power: false });
        }
    }
}
