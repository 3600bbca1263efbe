//! No answer leaves before what it depends on is committed; with `ack=leader`, before it is durable on the leader.

use highwater_partition::Outcome;

use super::Law;
use crate::facts::{Facts, Observation};

/// See the module.
#[derive(Debug)]
pub(super) struct AnswersHeld;

impl Law for AnswersHeld {
    fn name(&self) -> &'static str {
        "answers-are-held"
    }

    fn after(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        let Observation::Released { place, until, committed, outcome: Outcome::Done(position) } = seen else {
            return Ok(());
        };
        let held = match committed {
            true => facts.committed(place.partition).len() as u64,
            false => facts.log(*place).durable,
        };
        if *until > held {
            let what = if *committed { "committed" } else { "durable on the leader" };
            return Err(format!("node {} lets an answer go that depends on {until}, and {held} is {what}", place.node));
        }
        match position.offset == *until {
            true => Ok(()),
            false => Err(format!("node {} acknowledges position {position} for what ends at {until}", place.node)),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{CommitRule, Epoch};

    use super::*;
    use crate::laws::testing::{append, place, position, see, three};

    #[test]
    fn an_answer_released_too_early_is_found() {
        let mut facts = three(CommitRule::Quorum { q: 2 });
        append(&mut facts, 1, 0, 7, true);
        append(&mut facts, 1, 0, 8, true);
        append(&mut facts, 1, 0, 9, false);
        let law = &mut AnswersHeld;
        see(law, &mut facts, Observation::HighWatermark { place: place(1), hw: 1, leads: Some(Epoch(0)) }).unwrap();
        let mut released = |until, committed| {
            let outcome = Outcome::Done(position(until));
            see(law, &mut facts, Observation::Released { place: place(1), until, committed, outcome })
        };
        assert!(released(1, true).is_ok());
        assert!(released(2, true).is_err());
        assert!(released(2, false).is_ok());
        assert!(released(3, false).is_err());
    }
}
