//! Under `quorum`, a leader commits only through an entry of its own epoch (docs/protocol.md section 5): an entry of an older epoch may lie on q
//! replicas and still be overwritten by a later leader that never had it.

use highwater_wire::{CommitRule, PartitionId};

use super::Law;
use crate::facts::{Facts, Observation};

/// See the module.
#[derive(Debug)]
pub(super) struct OwnEpoch;

impl Law for OwnEpoch {
    fn name(&self) -> &'static str {
        "commit-through-own-epoch"
    }

    fn before(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        let Observation::HighWatermark { place, hw, leads: Some(epoch) } = seen else { return Ok(()) };
        let by_quorum = place.partition == PartitionId::METADATA
            || facts.records.get(&place.partition).is_some_and(|r| matches!(r.set.rule, CommitRule::Quorum { .. }));
        // What was committed already may be known again by any leader.
        if !by_quorum || *hw <= facts.committed(place.partition).len() as u64 {
            return Ok(());
        }
        match facts.log(*place).before(*hw) {
            Some(held) if held.epoch == *epoch => Ok(()),
            found => Err(format!(
                "node {} leads epoch {epoch} of partition {} and raises HW to {hw}, whose entry is not of that epoch: {found:?}",
                place.node, place.partition.0
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::Epoch;

    use super::*;
    use crate::laws::testing::{append, place, see, three};

    #[test]
    fn a_commit_of_an_older_epochs_entry_is_found() {
        let commits = |rule| {
            let mut facts = three(rule);
            append(&mut facts, 1, 0, 7, true);
            append(&mut facts, 2, 0, 7, true);
            see(&mut OwnEpoch, &mut facts, Observation::HighWatermark { place: place(1), hw: 1, leads: Some(Epoch(1)) })
        };
        assert!(commits(CommitRule::Quorum { q: 2 }).is_err());
        assert!(commits(CommitRule::Isr { min: 2 }).is_ok(), "under isr every member holds it");
    }
}
