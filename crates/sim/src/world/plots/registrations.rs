//! Plots about registrations. Whoever takes something for the acceptance of its present process forgets those before it, and is refused as an older copy at its next start if
//! the record knows one of them.

use highwater_log::LogStore;
use highwater_replica::Role;
use highwater_wire::{Body, NodeId};

use super::{Withheld, World};
use crate::world::event::Event;

/// So many entries lie on two nodes alone.
const ENTRIES: u64 = 5;
/// Whoever died is back by then, and has asked.
const BACK_US: u64 = 3_500_000;

impl World {
    /// The answer to a process of a node reaches the next one, whose own registration is lost; then that one ends as well.
    pub(super) fn late_answer(&mut self, act: u32) -> bool {
        let node = self.staged().node;
        match act {
            0 if self.cast_third() => {
                let node = self.staged().node;
                self.staged().withheld = Withheld::Answers(node);
                self.die(node, false);
                true
            }
            0 => false,
            1 => {
                let process = self.node(node).state.incarnations.last().copied();
                let of_it =
                    |body: &Body| matches!(body, Body::Registered { incarnation, .. } if Some(*incarnation) == process);
                self.staged().kept.retain(|envelope| of_it(&envelope.body));
                if self.staged().kept.is_empty() {
                    return false;
                }
                self.staged().withheld = Withheld::Registrations(node);
                self.die(node, false);
                true
            }
            2 => {
                let process = self.node(node).process.as_ref();
                let replica =
                    process.and_then(|process| process.host.metadata_partition()).map(|partition| partition.replica());
                let Some(from) = replica.and_then(|replica| replica.leader()).map(|leader| leader.node) else {
                    return false;
                };
                let when = self.now + 1_000;
                for envelope in std::mem::take(&mut self.staged().kept) {
                    self.queue.at(when, Event::Deliver { from, to: node, connection: None, envelope });
                }
                true
            }
            3 if self.waited(300_000) => {
                self.staged().withheld = Withheld::Nothing;
                self.die(node, false);
                true
            }
            3 => false,
            _ => self.waited(BACK_US) && self.end_plot(),
        }
    }

    /// A coordinator whose entries reach nobody is asked to register a node's new process; then another coordinates, who never hears of that process.
    pub(super) fn uncommitted_registration(&mut self, act: u32) -> bool {
        let (node, coordinator) = (self.staged().node, self.staged().coordinator);
        match act {
            0 if self.cast_third() => {
                let (node, coordinator) = (self.staged().node, self.staged().coordinator);
                self.staged().withheld = Withheld::Entries(coordinator);
                self.die(node, false);
                true
            }
            0 => false,
            1 if self.waited(BACK_US) => {
                self.cut_off(coordinator);
                true
            }
            1 => false,
            2 if self.another_coordinates(coordinator) => {
                self.staged().withheld = Withheld::Nothing;
                self.die(node, false);
                self.network.heal();
                true
            }
            2 => false,
            _ => self.waited(BACK_US) && self.end_plot(),
        }
    }

    /// A node's folder is copied. Its next process registers and acknowledges entries that only it and the leader have; one more is known to the voters and never
    /// registers. Then the copy lies in its place: it starts once where nobody hears it, so that its second start has a greater number than the registered one, and the
    /// leader is cut off. Were the copy believed, those without the entries would be a majority.
    pub(super) fn older_copy(&mut self, act: u32) -> bool {
        let (node, coordinator) = (self.staged().node, self.staged().coordinator);
        let runs = self.node(node).process.is_some();
        match act {
            0 if self.cast_third() => {
                let (node, coordinator) = (self.staged().node, self.staged().coordinator);
                self.staged().end = self.replica_of(node).map_or(0, |partition| partition.log().shape().end);
                self.staged().withheld = Withheld::Copies(coordinator, None);
                self.take_copy(node);
                self.die(node, false);
                true
            }
            0 => false,
            1 => {
                let hw = self.replica_of(node).map_or(0, |partition| partition.replica().hw());
                if !self.is_live(node) || hw < self.staged().end + ENTRIES {
                    return false;
                }
                self.staged().withheld = Withheld::Copies(coordinator, Some(node));
                self.die(node, false);
                true
            }
            2 if runs && self.others_know(node) => {
                self.silence(node);
                self.put_older(node)
            }
            2 => false,
            3 if runs && self.waited(300_000) => {
                self.die(node, false);
                true
            }
            3 => false,
            4 if runs => {
                self.network.heal();
                self.staged().withheld = Withheld::Nothing;
                let leaders: Vec<_> = self.peers(node).into_iter().filter(|peer| *peer != coordinator).collect();
                leaders.into_iter().for_each(|leader| self.cut_off(leader));
                true
            }
            4 => false,
            _ => self.waited(2 * BACK_US) && self.end_plot(),
        }
    }

    /// Whether another node leads the metadata, in an epoch of which something is committed.
    fn another_coordinates(&self, than: NodeId) -> bool {
        self.nodes.values().filter(|node| node.id != than).any(|node| {
            let metadata = node.process.as_ref().and_then(|process| process.host.metadata_partition());
            metadata.is_some_and(|partition| match partition.replica().role() {
                Role::Leader { epoch_start, .. } => partition.replica().hw() > epoch_start,
                _ => false,
            })
        })
    }
}
