//! Linearizable reads that wait for a confirmation, and reads at followers.

use std::collections::{BTreeMap, BTreeSet};

use highwater_replica::Role;
use highwater_wire::Body;

use super::{Mark, Watcher};
use crate::facts::{Facts, Observation, Place};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// The round that a leader asks for and nobody has confirmed. Leaders ask only when somebody waits.
    asked: BTreeMap<Place, u64>,
}

impl Reads {
    fn confirmed(&mut self, place: Place, round: u64) {
        if self.asked.get(&place).is_some_and(|asked| *asked <= round) {
            self.asked.remove(&place);
        }
    }
}

impl Watcher for Reads {
    fn look(&mut self, _: &Facts, seen: &Observation, reached: &mut BTreeSet<Mark>) {
        match seen {
            Observation::Sent { from, envelope } => {
                if let Body::Confirm { round } = envelope.body {
                    self.asked.insert(Place { partition: envelope.partition, node: *from }, round);
                }
            }
            Observation::Received { node, envelope } => match envelope.body {
                Body::Confirmed { round } => {
                    self.confirmed(Place { partition: envelope.partition, node: *node }, round);
                }
                Body::ReadIndexAnswer { index, .. } => {
                    reached.insert(if index.is_some() { Mark::FollowerRead } else { Mark::FollowerReadDenied });
                }
                _ => {}
            },
            Observation::Role { role: Role::Leader { .. }, place } => {
                self.asked.remove(place);
            }
            Observation::Role { place, .. } if self.asked.remove(place).is_some() => {
                reached.insert(Mark::ConfirmDeposed);
            }
            Observation::Crashed { node } => self.asked.retain(|place, _| place.node != *node),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{CommitRule, NodeId};

    use super::*;
    use crate::laws::testing::{envelope, place, three};

    #[test]
    fn a_leader_deposed_while_it_asks_is_noticed_and_one_that_was_confirmed_is_not() {
        let deposed = |confirmed: bool| {
            let (mut watcher, facts, mut reached) =
                (Reads::default(), three(CommitRule::Quorum { q: 2 }), BTreeSet::new());
            let confirm = envelope(1, 0, Body::Confirm { round: 4 });
            watcher.look(&facts, &Observation::Sent { from: NodeId(1), envelope: confirm }, &mut reached);
            if confirmed {
                let answer = envelope(2, 0, Body::Confirmed { round: 4 });
                watcher.look(&facts, &Observation::Received { node: NodeId(1), envelope: answer }, &mut reached);
            }
            watcher.look(&facts, &Observation::Role { place: place(1), role: Role::Idle }, &mut reached);
            reached
        };
        assert_eq!(deposed(false), BTreeSet::from([Mark::ConfirmDeposed]));
        assert_eq!(deposed(true), BTreeSet::new());
    }
}
