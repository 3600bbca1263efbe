//! What readers see is committed, and is exactly what replaying the committed log gives.

use super::Law;
use crate::facts::{Facts, Observation};

/// See the module.
#[derive(Debug)]
pub(super) struct PublishedCommitted;

impl Law for PublishedCommitted {
    fn name(&self) -> &'static str {
        "published-is-committed"
    }

    fn after(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        let Observation::Published { place, at, content } = seen else { return Ok(()) };
        let committed = facts.committed(place.partition);
        let Some(index) = at.checked_sub(1) else { return Ok(()) };
        match committed.get(index as usize) {
            Some(held) if held.content == *content => Ok(()),
            Some(_) => Err(format!("readers of {place:?} see another state at {at} than the committed log gives")),
            None => Err(format!("readers of {place:?} see {at}, and {} entries are committed", committed.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{CommitRule, Epoch};

    use super::*;
    use crate::laws::testing::{append, place, see, three};

    #[test]
    fn a_state_that_is_not_committed_or_not_the_logs_is_found() {
        let mut facts = three(CommitRule::Quorum { q: 2 });
        append(&mut facts, 1, 0, 7, true);
        append(&mut facts, 1, 0, 8, true);
        let law = &mut PublishedCommitted;
        see(law, &mut facts, Observation::HighWatermark { place: place(1), hw: 1, leads: Some(Epoch(0)) }).unwrap();
        let content = |facts: &Facts, at| facts.log(place(1)).before(at).map_or(0, |held| held.content);
        let published = |at, content| Observation::Published { place: place(1), at, content };
        let (one, two) = (content(&facts, 1), content(&facts, 2));
        assert!(see(law, &mut facts, published(1, one)).is_ok());
        assert!(see(law, &mut facts, published(1, two)).is_err());
        assert!(see(law, &mut facts, published(2, two)).is_err());
    }
}
