//! Law 6: the set that a leader counts covers the recorded one, and every one that the coordinator may yet record: what the leader has asked for at the
//! record's present version, however long ago. It may count more, and never fewer, or it would commit what a member that may lead next does not have.

use std::collections::BTreeMap;

use highwater_wire::{Body, Epoch, PartitionId, PeerId, Version};

use super::Law;
use crate::facts::{Facts, Observation};

/// A set that is to replace the one of this version.
type Asked = (Version, Vec<PeerId>);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct MaximalSet {
    /// What the leader of an epoch counts now.
    counted: BTreeMap<(PartitionId, Epoch), Vec<PeerId>>,
    /// What leaders have asked for.
    asked: BTreeMap<(PartitionId, Epoch), Vec<Asked>>,
}

impl MaximalSet {
    fn check(&self, facts: &Facts, partition: PartitionId, epoch: Epoch) -> Result<(), String> {
        let Some(counted) = self.counted.get(&(partition, epoch)) else { return Ok(()) };
        let Some(record) = facts.records.get(&partition).filter(|record| record.epoch == Some(epoch)) else {
            return Ok(());
        };
        let asked = self.asked.get(&(partition, epoch)).map_or(&[][..], Vec::as_slice);
        let possible = asked.iter().filter(|(version, _)| *version == record.version).flat_map(|(_, members)| members);
        match record.set.members.iter().chain(possible).find(|member| !counted.contains(member)) {
            None => Ok(()),
            Some(missing) => Err(format!(
                "the leader of epoch {epoch} of partition {} counts {counted:?}, and {missing:?} is in the recorded set of version {}, or in one that may take its place",
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
            Observation::Recorded { partition, record } => {
                let Some(epoch) = record.epoch else { return Ok(()) };
                if let Some(asked) = self.asked.get_mut(&(*partition, epoch)) {
                    asked.retain(|(version, _)| *version >= record.version);
                }
                self.check(facts, *partition, epoch)
            }
            Observation::Sent { envelope, .. } => {
                let (Body::ChangeSet { version, members }, Some(epoch)) = (&envelope.body, envelope.epoch) else {
                    return Ok(());
                };
                let asked = self.asked.entry((envelope.partition, epoch)).or_default();
                if !asked.iter().any(|(of, known)| of == version && known == members) {
                    asked.push((*version, members.clone()));
                }
                self.check(facts, envelope.partition, epoch)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{CommitRule, NodeId};

    use super::*;
    use crate::laws::testing::{PARTITION, envelope, peer, place, recorded, see, three};

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

    #[test]
    fn a_leader_that_forgets_what_it_has_asked_for_is_found() {
        let rule = CommitRule::Isr { min: 2 };
        let forgets = |version: u64| {
            let (mut law, mut facts) = (MaximalSet::default(), three(rule));
            see(&mut law, &mut facts, recorded(PARTITION, rule, &[1, 2], 2))?;
            let counts = |members: &[u32]| Observation::Counts {
                place: place(1),
                epoch: Epoch(0),
                maximal: members.iter().map(|node| peer(*node)).collect(),
            };
            see(&mut law, &mut facts, counts(&[1, 2, 3]))?;
            let body = Body::ChangeSet { version: Version(version), members: vec![peer(1), peer(2), peer(3)] };
            see(&mut law, &mut facts, Observation::Sent { from: NodeId(1), envelope: envelope(1, 0, body) })?;
            see(&mut law, &mut facts, counts(&[1, 2]))
        };
        assert!(forgets(2).is_err());
        assert!(forgets(1).is_ok(), "the record has moved on, and nothing can come of it");
    }
}
