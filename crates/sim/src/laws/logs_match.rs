//! Law 2: two logs with an entry of the same epoch at the same offset are equal up to it.

use std::collections::BTreeMap;

use highwater_wire::{Epoch, Offset, PartitionId};

use super::Law;
use crate::facts::{Facts, Observation, Place};

/// See the module. Remembers every entry that any log ever held, so that two logs need not hold theirs at one time.
#[derive(Debug, Default)]
pub(super) struct LogsMatch {
    chains: BTreeMap<(PartitionId, Epoch, Offset), u64>,
}

impl LogsMatch {
    fn check(&mut self, facts: &Facts, place: Place, from: Offset) -> Result<(), String> {
        let entries = &facts.log(place).entries;
        for (offset, held) in entries.iter().enumerate().skip(from as usize) {
            let key = (place.partition, held.epoch, offset as Offset);
            if *self.chains.entry(key).or_insert(held.chain) != held.chain {
                return Err(format!(
                    "node {} holds an entry of epoch {} at offset {offset} of partition {}, and another log held that epoch there \
                     after a different past",
                    place.node, held.epoch, place.partition.0
                ));
            }
        }
        Ok(())
    }
}

impl Law for LogsMatch {
    fn name(&self) -> &'static str {
        "logs-match"
    }

    fn after(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::Opened { place, .. } => self.check(facts, *place, 0),
            Observation::Appended { place, batches } => {
                let first = highwater_wire::batch::header(batches).map_err(|error| error.to_string())?;
                self.check(facts, *place, first.base)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::CommitRule;

    use super::*;
    use crate::laws::testing::{entry, place, see, three};

    #[test]
    fn the_same_epoch_at_the_same_offset_after_another_past_is_found() {
        let (mut law, mut facts) = (LogsMatch::default(), three(CommitRule::Quorum { q: 2 }));
        let mut append = |node, base, epoch, value| {
            see(&mut law, &mut facts, Observation::Appended { place: place(node), batches: entry(base, epoch, value) })
        };
        assert!(append(1, 0, 0, 7).is_ok());
        assert!(append(1, 1, 2, 8).is_ok());
        assert!(append(2, 0, 1, 7).is_ok(), "another epoch may hold anything");
        assert!(append(2, 1, 2, 8).is_err(), "the same entry after another past");
    }
}
