//! What recovery finds after a process died in the middle of something, and disks that fail or are full.

use std::collections::BTreeSet;

use highwater_wire::{Offset, PartitionId, batch};

use super::{Mark, Watcher};
use crate::facts::{Attempt, Facts, Observation};
use crate::faults::Fault;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Disks;

/// Entries in batches.
fn count(batches: &bytes::Bytes) -> Offset {
    batch::split(batches).filter_map(|part| Some(part.ok()?.0.count)).sum()
}

impl Watcher for Disks {
    fn look(&mut self, facts: &Facts, seen: &Observation, reached: &mut BTreeSet<Mark>) {
        match seen {
            Observation::Opened { place, batches, hard, .. } => {
                let Some(left) = facts.logs.get(place) else { return };
                let found = count(batches);
                if found < left.end() && !matches!(left.attempt, Some(Attempt::Cut(_))) {
                    reached.insert(Mark::UnflushedLost);
                }
                match &left.attempt {
                    Some(Attempt::Append(_)) if found > left.end() => {
                        reached.insert(Mark::AppendSurvived);
                    }
                    Some(Attempt::Cut(_)) => {
                        reached.insert(Mark::CutInterrupted);
                    }
                    Some(Attempt::Persist(wanted)) if wanted == hard => {
                        reached.insert(Mark::PromiseSurvived);
                    }
                    Some(Attempt::Persist(_)) => {
                        reached.insert(Mark::PromiseLost);
                    }
                    Some(Attempt::Append(_)) | None => {}
                }
            }
            Observation::Torn { .. } => {
                reached.insert(Mark::TornTail);
            }
            Observation::NotStarted { .. } => {
                reached.insert(Mark::NotStarted);
            }
            Observation::Full { .. } => {
                reached.insert(Mark::DiskFull);
            }
            Observation::FlushFailed { .. } => {
                reached.insert(Mark::FlushFailed);
            }
            Observation::Struck { fault: Fault::PowerAll, .. } => {
                let lives = |partition| {
                    facts.logs.iter().any(|(place, log)| place.partition == partition && log.incarnation.is_some())
                };
                let mut databases = facts.records.keys().filter(|id| **id != PartitionId::METADATA);
                if databases.any(|id| lives(*id)) {
                    reached.insert(Mark::PowerOfAll);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use highwater_wire::CommitRule;

    use super::*;
    use crate::laws::testing::{append, entry, opened, place, take, three};

    #[test]
    fn what_a_restart_finds_less_or_more_than_was_there_is_noticed() {
        let finds = |batches: Bytes| {
            let (mut facts, mut reached) = (three(CommitRule::Quorum { q: 2 }), BTreeSet::new());
            append(&mut facts, 1, 0, 7, false);
            let attempt = Attempt::Append(entry(1, 0, 8));
            take(&mut facts, &Observation::Attempted { place: place(1), attempt });
            Disks.look(&facts, &opened(1, batches, None), &mut reached);
            reached
        };
        assert_eq!(finds(Bytes::new()), BTreeSet::from([Mark::UnflushedLost]));
        assert_eq!(finds(entry(0, 0, 7)), BTreeSet::new());
        let both = Bytes::from([entry(0, 0, 7), entry(1, 0, 8)].concat());
        assert_eq!(finds(both), BTreeSet::from([Mark::AppendSurvived]));
    }
}
