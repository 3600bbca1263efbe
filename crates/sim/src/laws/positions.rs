//! Epochs, promises and what readers see never go back on a node, and published <= HW.

use std::collections::BTreeMap;

use highwater_wire::Offset;

use super::Law;
use crate::facts::{Facts, Observation, Place};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Positions {
    /// What readers of each running process have seen.
    published: BTreeMap<Place, Offset>,
}

impl Law for Positions {
    fn name(&self) -> &'static str {
        "positions-never-go-back"
    }

    fn before(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::Persisted { place, hard } | Observation::Opened { place, hard, .. } => {
                let before = facts.logs.get(place).and_then(|log| log.hard.promised);
                match hard.promised >= before {
                    true => Ok(()),
                    false => {
                        Err(format!("{place:?} had promised {before:?}, and now durably says {:?}", hard.promised))
                    }
                }
            }
            Observation::Published { place, at, .. } => {
                let (before, hw) = (self.published.insert(*place, *at).unwrap_or(0), facts.log(*place).hw);
                if *at < before {
                    return Err(format!("readers of {place:?} saw {before} and now see {at}"));
                }
                match *at <= hw {
                    true => Ok(()),
                    false => Err(format!("readers of {place:?} see {at}, above its HW {hw}")),
                }
            }
            Observation::Crashed { node } => {
                self.published.retain(|place, _| place.node != *node);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use highwater_wire::{CommitRule, Epoch};

    use super::*;
    use crate::laws::testing::{append, opened, place, see, three};

    #[test]
    fn a_promise_that_is_forgotten_is_found() {
        let (mut law, mut facts) = (Positions::default(), three(CommitRule::Quorum { q: 2 }));
        assert!(see(&mut law, &mut facts, opened(1, Bytes::new(), Some(4))).is_ok());
        assert!(see(&mut law, &mut facts, opened(1, Bytes::new(), Some(3))).is_err());
    }

    #[test]
    fn readers_that_go_back_or_see_above_hw_are_found() {
        let (mut law, mut facts) = (Positions::default(), three(CommitRule::Quorum { q: 2 }));
        append(&mut facts, 1, 0, 7, true);
        let mut step = |seen| see(&mut law, &mut facts, seen);
        let published = |at| Observation::Published { place: place(1), at, content: 0 };
        assert!(step(published(1)).is_err());
        step(Observation::HighWatermark { place: place(1), hw: 1, leads: Some(Epoch(0)) }).unwrap();
        assert!(step(published(1)).is_ok());
        assert!(step(published(0)).is_err());
    }
}
