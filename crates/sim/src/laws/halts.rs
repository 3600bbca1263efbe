//! A partition stops for good only when its disk has failed or is full. Everything else that stops one is a bug: an assertion that looks at what was
//! received, a cut that is taken for impossible.

use super::Law;
use crate::facts::{Facts, Observation};

/// See the module.
#[derive(Debug)]
pub(super) struct Halts;

impl Law for Halts {
    fn name(&self) -> &'static str {
        "halts-only-for-a-reason"
    }

    fn after(&mut self, _: &Facts, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::Halted { place, reason, excused: false } => Err(format!(
                "node {} halts partition {}, and nothing is wrong with its disk: {reason}",
                place.node, place.partition.0
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::CommitRule;

    use super::*;
    use crate::laws::testing::{place, see, three};

    #[test]
    fn a_halt_on_a_sound_disk_is_found() {
        let halts = |excused| {
            let seen = Observation::Halted { place: place(1), reason: "so".to_owned(), excused };
            see(&mut Halts, &mut three(CommitRule::Quorum { q: 2 }), seen)
        };
        assert!(halts(true).is_ok());
        assert!(halts(false).is_err());
    }
}
