//! Processes that register, or die before they have.

use std::collections::BTreeSet;

use highwater_wire::{Body, NodeId};

use super::{Mark, Watcher};
use crate::facts::{Facts, Observation};
use crate::world::STRANGERS;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Whose registration is not answered yet.
    asking: BTreeSet<NodeId>,
}

impl Watcher for Processes {
    fn look(&mut self, _: &Facts, seen: &Observation, reached: &mut BTreeSet<Mark>) {
        match seen {
            Observation::Sent { from, envelope } => {
                if let Body::Register { incarnations, .. } = &envelope.body {
                    self.asking.insert(*from);
                    if incarnations.len() >= 3 {
                        reached.insert(Mark::RegisteredLate);
                    }
                }
            }
            Observation::Received { node, envelope } => {
                if matches!(envelope.body, Body::Registered { .. }) {
                    self.asking.remove(node);
                }
                let refused =
                    matches!(envelope.body, Body::OlderCopy { .. } | Body::Registered { accepted: false, .. });
                if refused && node.0 >= STRANGERS {
                    reached.insert(Mark::OlderRefused);
                }
            }
            Observation::Crashed { node } if self.asking.remove(node) => {
                reached.insert(Mark::DiedUnregistered);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::CommitRule;

    use super::*;
    use crate::laws::testing::{envelope, incarnation, three};

    #[test]
    fn a_death_before_the_answer_and_three_processes_at_once_are_noticed() {
        let (mut watcher, facts, mut reached) =
            (Processes::default(), three(CommitRule::Quorum { q: 2 }), BTreeSet::new());
        let registers = |starts: u64| {
            let incarnations = (1..=starts).map(incarnation).collect();
            let body = Body::Register { incarnations, address: "there".to_owned() };
            Observation::Sent { from: NodeId(1), envelope: envelope(1, 0, body) }
        };
        watcher.look(&facts, &registers(2), &mut reached);
        assert!(reached.is_empty());
        watcher.look(&facts, &Observation::Crashed { node: NodeId(1) }, &mut reached);
        assert_eq!(reached, BTreeSet::from([Mark::DiedUnregistered]));
        watcher.look(&facts, &registers(3), &mut reached);
        assert!(reached.contains(&Mark::RegisteredLate));
        let refused = envelope(1, 0, Body::OlderCopy { refused: incarnation(1), newest: incarnation(2) });
        for (node, is_told) in [(2, false), (STRANGERS + 2, true)] {
            let seen = Observation::Received { node: NodeId(node), envelope: refused.clone() };
            watcher.look(&facts, &seen, &mut reached);
            assert_eq!(reached.contains(&Mark::OlderRefused), is_told);
        }
    }
}
