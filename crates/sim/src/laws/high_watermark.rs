//! Law 5, its first half: HW covers only committed entries, is at most the durable LEO, and never goes down while a process runs.

use super::Law;
use crate::facts::{Facts, Observation};

/// See the module.
#[derive(Debug)]
pub(super) struct HighWatermark;

impl Law for HighWatermark {
    fn name(&self) -> &'static str {
        "high-watermark-is-committed"
    }

    fn before(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        let Observation::HighWatermark { place, hw, .. } = seen else { return Ok(()) };
        let log = facts.log(*place);
        if *hw < log.hw {
            return Err(format!("node {} takes HW of {place:?} back from {} to {hw}", place.node, log.hw));
        }
        if *hw > log.durable {
            return Err(format!(
                "node {} claims HW {hw} of {place:?}, and only {} is durable there",
                place.node, log.durable
            ));
        }
        Ok(())
    }

    fn after(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        let Observation::HighWatermark { place, hw, .. } = seen else { return Ok(()) };
        let (log, committed) = (facts.log(*place), facts.committed(place.partition));
        let held = log.before(*hw);
        match held == hw.checked_sub(1).and_then(|index| committed.get(index as usize)).copied() {
            true => Ok(()),
            false => Err(format!(
                "node {} claims HW {hw} of {place:?}, where its log has {held:?} and {} entries are committed",
                place.node,
                committed.len()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{CommitRule, Epoch};

    use super::*;
    use crate::laws::testing::{append, place, see, three};

    #[test]
    fn an_hw_above_what_is_durable_or_committed_is_found() {
        let claims = |node, hw, leads: Option<u32>| {
            let mut facts = three(CommitRule::Quorum { q: 2 });
            append(&mut facts, 1, 0, 7, true);
            append(&mut facts, 1, 0, 8, false);
            append(&mut facts, 2, 0, 7, true);
            let leads = leads.map(Epoch);
            see(&mut HighWatermark, &mut facts, Observation::HighWatermark { place: place(node), hw, leads })
        };
        assert!(claims(1, 1, Some(0)).is_ok());
        assert!(claims(1, 2, Some(0)).is_err(), "its own second entry is not durable");
        assert!(claims(2, 1, None).is_err(), "a follower was told more than is committed");
    }

    #[test]
    fn an_hw_that_goes_down_is_found() {
        let mut facts = three(CommitRule::Quorum { q: 2 });
        append(&mut facts, 1, 0, 7, true);
        let at = |hw| Observation::HighWatermark { place: place(1), hw, leads: Some(Epoch(0)) };
        assert!(see(&mut HighWatermark, &mut facts, at(1)).is_ok());
        assert!(see(&mut HighWatermark, &mut facts, at(0)).is_err());
    }
}
