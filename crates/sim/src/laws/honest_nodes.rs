//! A node whose folder was never an older copy of itself is not refused as one (docs/protocol.md section 9): repeated registrations, lost answers and
//! coordinators that are behind notwithstanding.
//!
//! Whether a folder was put back is seen from outside by its starts: each is the last one's number and one more, and one that comes again shows a copy. Whoever
//! goes by another name does so because of its folder.

use std::collections::{BTreeMap, BTreeSet};

use highwater_wire::{Body, Incarnation, NodeId, PartitionId};

use super::Law;
use crate::facts::{Facts, Observation};
use crate::world::STRANGERS;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct HonestNodes {
    /// Every process so far, and whose it is.
    processes: BTreeMap<Incarnation, NodeId>,
    /// The greatest number of a start.
    starts: BTreeMap<NodeId, u64>,
    /// Whose folder was an older copy once.
    copied: BTreeSet<NodeId>,
}

impl Law for HonestNodes {
    fn name(&self) -> &'static str {
        "honest-nodes-are-accepted"
    }

    fn after(&mut self, _: &Facts, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::Opened { place, incarnation, .. } if place.partition == PartitionId::METADATA => {
                let before = self.starts.insert(place.node, incarnation.starts);
                if place.node.0 >= STRANGERS || before.is_some_and(|before| incarnation.starts <= before) {
                    self.copied.insert(place.node);
                }
                self.processes.insert(*incarnation, place.node);
                Ok(())
            }
            Observation::Sent { from, envelope } => {
                let Body::Registered { incarnation, accepted: false } = &envelope.body else { return Ok(()) };
                // To a process that has ended, whose word arrives late, that answer is right and harms nobody.
                let runs = |node: &&NodeId| self.starts.get(*node) == Some(&incarnation.starts);
                match self.processes.get(incarnation).filter(|node| !self.copied.contains(node)).filter(runs) {
                    None => Ok(()),
                    Some(node) => Err(format!(
                        "node {from} refuses start {} of node {node} as one of an older copy, and its folder is the only one it ever had",
                        incarnation.starts
                    )),
                }
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use highwater_wire::{CommitRule, Envelope, HardState, Sender};

    use super::*;
    use crate::facts::Place;
    use crate::laws::testing::{incarnation, peer, see, three};

    fn starts(node: u32, starts: u64) -> Observation {
        let place = Place { partition: PartitionId::METADATA, node: NodeId(node) };
        let incarnation = incarnation(starts);
        Observation::Opened { place, incarnation, batches: Bytes::new(), hard: HardState::default() }
    }

    fn refuses(starts: u64) -> Observation {
        let sender = Sender { peer: peer(1), incarnation: incarnation(1) };
        let body = Body::Registered { incarnation: incarnation(starts), accepted: false };
        let envelope = Envelope { partition: PartitionId::METADATA, sender, epoch: None, body };
        Observation::Sent { from: NodeId(1), envelope }
    }

    #[test]
    fn an_honest_node_that_is_refused_is_found_and_an_older_copy_may_be() {
        let (mut law, mut facts) = (HonestNodes::default(), three(CommitRule::Quorum { q: 2 }));
        for start in [5, 6] {
            assert!(see(&mut law, &mut facts, starts(2, start)).is_ok());
        }
        assert!(see(&mut law, &mut facts, refuses(5)).is_ok(), "a late answer to a process that has ended");
        assert!(see(&mut law, &mut facts, refuses(6)).is_err());
        assert!(see(&mut law, &mut facts, starts(2, 6)).is_ok());
        assert!(see(&mut law, &mut facts, refuses(6)).is_ok());
    }
}
