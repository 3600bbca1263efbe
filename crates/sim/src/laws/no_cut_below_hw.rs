//! Law 5, its second half: a replica never cuts below an HW that it has once known, restarts or not.

use super::Law;
use crate::facts::{Facts, Observation};

/// See the module.
#[derive(Debug)]
pub(super) struct NoCutBelowHw;

impl Law for NoCutBelowHw {
    fn name(&self) -> &'static str {
        "no-cut-below-a-known-hw"
    }

    fn before(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        let Observation::Cut { place, to } = seen else { return Ok(()) };
        let known = facts.log(*place).hw_known;
        match *to >= known {
            true => Ok(()),
            false => Err(format!("node {} cuts {place:?} at {to}, and has known HW {known}", place.node)),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{CommitRule, Epoch};

    use super::*;
    use crate::laws::testing::{append, opened, place, see, three};

    #[test]
    fn a_cut_below_an_hw_known_before_a_restart_is_found() {
        let mut facts = three(CommitRule::Quorum { q: 2 });
        append(&mut facts, 1, 0, 7, true);
        append(&mut facts, 1, 0, 8, true);
        let law = &mut NoCutBelowHw;
        let known = Observation::HighWatermark { place: place(1), hw: 1, leads: Some(Epoch(0)) };
        assert!(see(law, &mut facts, known).is_ok());
        assert!(see(law, &mut facts, Observation::Cut { place: place(1), to: 1 }).is_ok());
        let kept = crate::laws::testing::entry(0, 0, 7);
        assert!(see(law, &mut facts, opened(1, kept, None)).is_ok());
        assert!(see(law, &mut facts, Observation::Cut { place: place(1), to: 0 }).is_err());
    }
}
