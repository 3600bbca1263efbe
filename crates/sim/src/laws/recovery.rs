//! What a process finds in its log is what the last one left: everything that was durable, promises included, nothing that was never there, and no gap.
//! It finds it at all, unless its disk is full or was ordered to fail.

use super::Law;
use crate::facts::{Attempt, Facts, LogFacts, Observation};
use highwater_wire::PartitionId;

/// See the module.
#[derive(Debug)]
pub(super) struct Recovery;

impl Law for Recovery {
    fn name(&self) -> &'static str {
        "recovery-finds-what-was-durable"
    }

    fn before(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        if let Observation::NotStarted { node, error, excused: false } = seen {
            return Err(format!("node {node} does not start, and nothing is wrong with its disk: {error}"));
        }
        let Observation::Opened { place, batches, hard, .. } = seen else { return Ok(()) };
        let metadata = place.partition == PartitionId::METADATA;
        let mut found = LogFacts::default();
        found.append(batches, metadata)?;
        let Some(left) = facts.logs.get(place) else { return Ok(()) };
        // What was interrupted may have happened or not.
        let (mut durable, mut most) = (left.durable, left.clone());
        match &left.attempt {
            Some(Attempt::Cut(to)) => durable = durable.min(*to),
            Some(Attempt::Append(batches)) => most.append(batches, metadata)?,
            Some(Attempt::Persist(_)) | None => {}
        }
        let attempted = matches!(&left.attempt, Some(Attempt::Persist(attempted)) if attempted == hard);
        if left.hard != *hard && !attempted {
            return Err(format!("recovery of {place:?} finds the promises {hard:?}, and {:?} were durable", left.hard));
        }
        if found.end() < durable {
            return Err(format!("recovery of {place:?} finds {} entries, and {durable} were durable", found.end()));
        }
        match found.entries.last() == most.before(found.end()).as_ref() {
            true => Ok(()),
            false => Err(format!(
                "recovery of {place:?} finds {} entries that end with {:?}, where the log had {:?} of {}",
                found.end(),
                found.entries.last(),
                most.before(found.end()),
                most.end()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use highwater_wire::{CommitRule, Epoch, HardState, NodeId};

    use super::*;
    use crate::laws::testing::{append, entry, opened, place, see, take, three};

    #[test]
    fn a_durable_entry_that_is_gone_and_one_that_never_was_are_found() {
        let recovers = |found: Bytes| {
            let mut facts = three(CommitRule::Quorum { q: 2 });
            append(&mut facts, 1, 0, 7, true);
            append(&mut facts, 1, 0, 8, false);
            see(&mut Recovery, &mut facts, opened(1, found, None))
        };
        let both = Bytes::from([entry(0, 0, 7), entry(1, 0, 8)].concat());
        assert!(recovers(both).is_ok());
        assert!(recovers(entry(0, 0, 7)).is_ok(), "what was not flushed may be gone");
        assert!(recovers(Bytes::new()).is_err());
        assert!(recovers(entry(0, 0, 9)).is_err());
    }

    #[test]
    fn a_promise_that_is_gone_is_found() {
        let finds = |promised: Option<u32>| {
            let mut facts = three(CommitRule::Quorum { q: 2 });
            let hard = HardState { promised: Some(Epoch(3)), ..HardState::default() };
            take(&mut facts, &Observation::Persisted { place: place(1), hard });
            see(&mut Recovery, &mut facts, opened(1, Bytes::new(), promised))
        };
        assert!(finds(Some(3)).is_ok());
        assert!(finds(Some(2)).is_err());
        assert!(finds(None).is_err());
    }

    #[test]
    fn a_process_that_does_not_start_on_a_sound_disk_is_found() {
        let fails = |excused| {
            let seen = Observation::NotStarted { node: NodeId(1), error: "no".to_owned(), excused };
            see(&mut Recovery, &mut three(CommitRule::Quorum { q: 2 }), seen)
        };
        assert!(fails(true).is_ok());
        assert!(fails(false).is_err());
    }
}
