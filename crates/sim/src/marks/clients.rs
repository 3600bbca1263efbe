//! What writers are told when things go wrong.

use std::collections::BTreeSet;

use highwater_partition::Outcome;
use highwater_wire::{Offset, PartitionId};

use super::{Mark, Watcher};
use crate::facts::{Facts, Observation};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// Ends of writes that were acknowledged by their leader alone, each with the log's hash up to it.
    by_leader: Vec<(PartitionId, Offset, u64)>,
}

impl Watcher for Clients {
    fn look(&mut self, facts: &Facts, seen: &Observation, reached: &mut BTreeSet<Mark>) {
        match seen {
            Observation::Repeated { .. } => {
                reached.insert(Mark::AnsweredFromFirst);
            }
            Observation::Released { outcome: Outcome::Unknown(_), .. } => {
                reached.insert(Mark::OutcomeUnknown);
            }
            Observation::Released { outcome: Outcome::Full(_), .. } => {
                reached.insert(Mark::WriteFull);
            }
            Observation::Released { place, until, committed: false, outcome: Outcome::Done(_) } => {
                if let Some(held) = facts.log(*place).before(*until) {
                    self.by_leader.push((place.partition, *until, held.chain));
                }
            }
            Observation::HighWatermark { place, leads: Some(_), .. } => {
                let committed = facts.committed(place.partition);
                self.by_leader.retain(|(partition, until, chain)| {
                    let there = committed.get(until.saturating_sub(1) as usize);
                    if *partition != place.partition {
                        return true;
                    }
                    if there.is_some_and(|held| held.chain != *chain) {
                        reached.insert(Mark::LeaderAckLost);
                    }
                    there.is_none()
                });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{CommitRule, Epoch};

    use super::*;
    use crate::laws::testing::{append, place, position, take, three};

    #[test]
    fn a_write_acknowledged_by_its_leader_and_overwritten_is_noticed() {
        let ends = |kept: bool| {
            let (mut watcher, mut facts, mut reached) =
                (Clients::default(), three(CommitRule::Quorum { q: 2 }), BTreeSet::new());
            append(&mut facts, 1, 0, 7, true);
            let outcome = Outcome::Done(position(1));
            let released = Observation::Released { place: place(1), until: 1, committed: false, outcome };
            watcher.look(&facts, &released, &mut reached);
            let value = if kept { 7 } else { 8 };
            append(&mut facts, 2, if kept { 0 } else { 1 }, value, true);
            let claim = Observation::HighWatermark { place: place(2), hw: 1, leads: Some(Epoch(1)) };
            take(&mut facts, &claim);
            watcher.look(&facts, &claim, &mut reached);
            reached
        };
        assert_eq!(ends(true), BTreeSet::new());
        assert_eq!(ends(false), BTreeSet::from([Mark::LeaderAckLost]));
    }
}
