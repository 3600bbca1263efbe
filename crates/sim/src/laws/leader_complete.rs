//! Law 3: what was committed never changes, and every leader of a later epoch holds it when it starts.

use highwater_replica::Role;

use super::Law;
use crate::facts::{Facts, Observation};

/// See the module.
#[derive(Debug)]
pub(super) struct LeaderComplete;

impl Law for LeaderComplete {
    fn name(&self) -> &'static str {
        "leader-completeness"
    }

    fn before(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::Role { place, role: Role::Leader { epoch, .. } } => {
                let (log, committed) = (facts.log(*place), facts.committed_before(place.partition, *epoch));
                let Some(last) = committed.last() else { return Ok(()) };
                match log.before(committed.len() as u64) {
                    Some(held) if held.chain == last.chain => Ok(()),
                    found => Err(format!(
                        "node {} begins to lead epoch {epoch} of partition {} without what is committed: {} entries, the last of epoch {}; \
                         its log has {} entries and there {found:?}",
                        place.node,
                        place.partition.0,
                        committed.len(),
                        last.epoch,
                        log.end()
                    )),
                }
            }
            // A leader's claim may not contradict an earlier one.
            Observation::HighWatermark { place, hw, leads: Some(epoch) } => {
                let (log, committed) = (facts.log(*place), facts.committed(place.partition));
                let both = (*hw).min(committed.len() as u64);
                let Some(last) = both.checked_sub(1).map(|index| committed[index as usize]) else { return Ok(()) };
                match log.before(both) {
                    Some(held) if held.chain == last.chain => Ok(()),
                    found => Err(format!(
                        "node {} claims HW {hw} in epoch {epoch} of partition {}, and its log has {found:?} where {last:?} was committed",
                        place.node, place.partition.0
                    )),
                }
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{CommitRule, Epoch};

    use super::*;
    use crate::laws::testing::{append, place, see, three};

    #[test]
    fn a_leader_without_a_committed_entry_is_found() {
        let mut facts = three(CommitRule::Quorum { q: 2 });
        append(&mut facts, 1, 0, 7, true);
        append(&mut facts, 2, 0, 7, true);
        let law = &mut LeaderComplete;
        let commit = Observation::HighWatermark { place: place(1), hw: 1, leads: Some(Epoch(0)) };
        assert!(see(law, &mut facts, commit).is_ok());
        let leads =
            |node| Observation::Role { place: place(node), role: Role::Leader { epoch: Epoch(1), epoch_start: 0 } };
        assert!(see(law, &mut facts, leads(2)).is_ok());
        assert!(see(law, &mut facts, leads(3)).is_err());
        let late = Observation::Role { place: place(3), role: Role::Leader { epoch: Epoch(0), epoch_start: 0 } };
        assert!(see(law, &mut facts, late).is_ok(), "a leader of the same or an earlier epoch is another law's matter");
    }

    #[test]
    fn a_second_commit_at_the_same_offset_is_found() {
        let mut facts = three(CommitRule::Quorum { q: 2 });
        append(&mut facts, 1, 0, 7, true);
        append(&mut facts, 2, 1, 8, true);
        let law = &mut LeaderComplete;
        let commit = |node, epoch| Observation::HighWatermark { place: place(node), hw: 1, leads: Some(Epoch(epoch)) };
        assert!(see(law, &mut facts, commit(1, 0)).is_ok());
        assert!(see(law, &mut facts, commit(2, 1)).is_err());
    }
}
