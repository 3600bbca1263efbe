//! Law 4: from its commit on, an entry is durable on what the rule names: `quorum:q`, q of the recorded set; `isr`, every member of the recorded
//! ISR, at least `min` of them.

use highwater_wire::{CommitRule, Offset, PartitionId};

use super::Law;
use crate::facts::{Facts, Observation};

/// See the module. Looked at whenever an entry becomes committed, a log loses entries, or the record changes.
#[derive(Debug)]
pub(super) struct CommittedDurable;

fn check(facts: &Facts, partition: PartitionId, upto: Offset) -> Result<(), String> {
    let committed = facts.committed(partition);
    let prefix = &committed[..committed.len().min(upto as usize)];
    let Some((copies, members)) = facts.demanded(partition).filter(|_| !prefix.is_empty()) else { return Ok(()) };
    let holders = facts.holders(partition, members, prefix);
    let floor = match facts.records[&partition].set.rule {
        CommitRule::Isr { min } => copies.max(min),
        CommitRule::Quorum { .. } => copies,
    };
    match holders.len() as u32 >= floor {
        true => Ok(()),
        false => Err(format!(
            "{} entries of partition {} are committed, which demands durable copies on {floor} of {members:?}; only nodes {holders:?} \
             have them",
            prefix.len(),
            partition.0
        )),
    }
}

impl Law for CommittedDurable {
    fn name(&self) -> &'static str {
        "committed-is-durable"
    }

    fn after(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::HighWatermark { place, leads: Some(_), .. }
            | Observation::Cut { place, .. }
            | Observation::Opened { place, .. } => check(facts, place.partition, Offset::MAX),
            Observation::Recorded { partition, .. } => check(facts, *partition, Offset::MAX),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::Epoch;

    use super::*;
    use crate::laws::testing::{append, place, see, three};

    fn committed_with(rule: CommitRule, durable: [bool; 3]) -> Result<(), String> {
        let mut facts = three(rule);
        for (node, durable) in (1..).zip(durable) {
            append(&mut facts, node, 0, 7, durable);
        }
        let commit = Observation::HighWatermark { place: place(1), hw: 1, leads: Some(Epoch(0)) };
        see(&mut CommittedDurable, &mut facts, commit)
    }

    #[test]
    fn a_commit_with_a_copy_that_is_not_durable_is_found() {
        assert!(committed_with(CommitRule::Quorum { q: 2 }, [true, true, false]).is_ok());
        assert!(committed_with(CommitRule::Quorum { q: 2 }, [true, false, false]).is_err());
        assert!(committed_with(CommitRule::Isr { min: 2 }, [true, true, false]).is_err());
        assert!(committed_with(CommitRule::Isr { min: 2 }, [true, true, true]).is_ok());
    }

    #[test]
    fn a_cut_that_takes_a_copy_away_is_found() {
        let mut facts = three(CommitRule::Quorum { q: 2 });
        append(&mut facts, 1, 0, 7, true);
        append(&mut facts, 2, 0, 7, true);
        let law = &mut CommittedDurable;
        let commit = Observation::HighWatermark { place: place(1), hw: 1, leads: Some(Epoch(0)) };
        assert!(see(law, &mut facts, commit).is_ok());
        assert!(see(law, &mut facts, Observation::Cut { place: place(2), to: 0 }).is_err());
    }
}
