//! Law 6: the set that a leader counts covers the recorded one. Under `isr` it may count more (a change whose outcome it has not learned), and never
//! fewer, or it would commit what a member that may lead next does not have.

use std::collections::BTreeMap;

use highwater_wire::{Epoch, PartitionId, PeerId};

use super::Law;
use crate::facts::{Facts, Observation};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct MaximalSet {
    /// What the leader of an epoch counts now.
    counted: BTreeMap<(PartitionId, Epoch), Vec<PeerId>>,
}

impl MaximalSet {
    fn check(&self, facts: &Facts, partition: PartitionId, epoch: Epoch) -> Result<(), String> {
        let Some(counted) = self.counted.get(&(partition, epoch)) else { return Ok(()) };
        let Some(record) = facts.records.get(&partition).filter(|record| record.epoch == Some(epoch)) else {
            return Ok(());
        };
        match record.set.members.iter().find(|member| !counted.contains(member)) {
            None => Ok(()),
            Some(missing) => Err(format!(
                "the leader of epoch {epoch} of partition {} counts {counted:?}, and {missing:?} is in the recorded set of version {}",
                partition.0, record.version.0
            )),
        }
    }
}

impl Law for MaximalSet {
    fn name(&self) -> &'static str {
        "maximal-set-covers-the-recorded"
    }

    fn after(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::Counts { place, epoch, maximal } => {
                self.counted.insert((place.partition, *epoch), maximal.clone());
                self.check(facts, place.partition, *epoch)
            }
            Observation::Recorded { partition, record } => match record.epoch {
                Some(epoch) => self.check(facts, *partition, epoch),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::CommitRule;

    use super::*;
    use crate::laws::testing::{PARTITION, peer, place, recorded, see, three};

    #[test]
    fn a_leader_that_drops_a_member_before_the_record_does_is_found() {
        let (mut law, mut facts) = (MaximalSet::default(), three(CommitRule::Isr { min: 2 }));
        let counts = |members: &[u32]| Observation::Counts {
            place: place(1),
            epoch: Epoch(0),
            maximal: members.iter().map(|node| peer(*node)).collect(),
        };
        assert!(see(&mut law, &mut facts, counts(&[1, 2, 3])).is_ok());
        assert!(see(&mut law, &mut facts, counts(&[1, 2])).is_err());
        let smaller = recorded(PARTITION, CommitRule::Isr { min: 2 }, &[1, 2], 2);
        assert!(see(&mut law, &mut facts, smaller).is_ok());
        assert!(see(&mut law, &mut facts, recorded(PARTITION, CommitRule::Isr { min: 2 }, &[1, 2, 3], 3)).is_err());
    }
}
