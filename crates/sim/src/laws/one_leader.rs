//! Law 1: one leader for each epoch, ever: one node, and one process of it.

use std::collections::BTreeMap;

use highwater_replica::Role;
use highwater_wire::{Epoch, Incarnation, NodeId, PartitionId};

use super::Law;
use crate::facts::{Facts, Observation};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OneLeader {
    leaders: BTreeMap<(PartitionId, Epoch), (NodeId, Option<Incarnation>)>,
}

impl Law for OneLeader {
    fn name(&self) -> &'static str {
        "one-leader-per-epoch"
    }

    fn after(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        let Observation::Role { place, role: Role::Leader { epoch, .. } } = seen else { return Ok(()) };
        let leader = (place.node, facts.log(*place).incarnation);
        let first = *self.leaders.entry((place.partition, *epoch)).or_insert(leader);
        match first == leader {
            true => Ok(()),
            false => Err(format!(
                "epoch {epoch} of partition {} was led by node {} ({:?}), and now node {} ({:?}) leads it",
                place.partition.0, first.0, first.1, leader.0, leader.1
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::CommitRule;

    use super::*;
    use crate::laws::testing::{place, see, three};

    #[test]
    fn a_second_leader_of_an_epoch_is_found() {
        let (mut law, mut facts) = (OneLeader::default(), three(CommitRule::Quorum { q: 2 }));
        let leads = |node, epoch| Observation::Role {
            place: place(node),
            role: Role::Leader { epoch: Epoch(epoch), epoch_start: 0 },
        };
        assert!(see(&mut law, &mut facts, leads(1, 4)).is_ok());
        assert!(see(&mut law, &mut facts, leads(2, 5)).is_ok());
        assert!(see(&mut law, &mut facts, leads(2, 4)).is_err());
    }
}
