//! Law 8: a linearizable read sees everything that was acknowledged before it arrived. So does a conditional write that changed nothing, which is one.

use std::collections::BTreeMap;

use highwater_wire::{Offset, PartitionId};

use super::Law;
use crate::facts::{Facts, Observation};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ReadSeesAcknowledged {
    acknowledged: BTreeMap<PartitionId, Offset>,
    /// What each read under way must see.
    owed: BTreeMap<u64, Offset>,
}

impl Law for ReadSeesAcknowledged {
    fn name(&self) -> &'static str {
        "read-sees-the-acknowledged"
    }

    fn after(&mut self, _: &Facts, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::Acknowledged { partition, until } => {
                let greatest = self.acknowledged.entry(*partition).or_default();
                *greatest = (*greatest).max(*until);
                Ok(())
            }
            Observation::ReadAsked { place, read } => {
                self.owed.insert(*read, self.acknowledged.get(&place.partition).copied().unwrap_or(0));
                Ok(())
            }
            Observation::ReadAnswered { place, read, at } => match self.owed.remove(read) {
                Some(owed) if *at < owed => Err(format!(
                    "node {} answers a linearizable read from offset {at} of partition {}, and {owed} was acknowledged when it arrived",
                    place.node, place.partition.0
                )),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::CommitRule;

    use super::*;
    use crate::laws::testing::{PARTITION, place, see, three};

    #[test]
    fn a_stale_read_is_found() {
        let (mut law, mut facts) = (ReadSeesAcknowledged::default(), three(CommitRule::Quorum { q: 2 }));
        let mut step = |seen| see(&mut law, &mut facts, seen);
        let place = place(2);
        step(Observation::ReadAsked { place, read: 1 }).unwrap();
        step(Observation::Acknowledged { partition: PARTITION, until: 3 }).unwrap();
        step(Observation::ReadAsked { place, read: 2 }).unwrap();
        assert!(step(Observation::ReadAnswered { place, read: 1, at: 2 }).is_ok());
        assert!(step(Observation::ReadAnswered { place, read: 2, at: 2 }).is_err());
    }
}
