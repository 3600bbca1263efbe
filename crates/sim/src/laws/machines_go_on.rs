//! A state machine stops only when its disk was ordered to fail. It refuses to be driven out of order: what it applies must continue what was applied,
//! what it publishes must have been applied, what it rewinds to must not be published yet.

use super::Law;
use crate::facts::{Facts, Observation};

/// See the module.
#[derive(Debug)]
pub(super) struct MachinesGoOn;

impl Law for MachinesGoOn {
    fn name(&self) -> &'static str {
        "machines-go-on"
    }

    fn after(&mut self, _: &Facts, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::MachineStopped { node, error, excused: false } => {
                Err(format!("the state machine of node {node} stops, and nothing is wrong with its disk: {error}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{CommitRule, NodeId};

    use super::*;
    use crate::laws::testing::{entry, see, three};
    use crate::machine::{Machines, Maps};
    use crate::rng::Rng;

    #[test]
    fn a_gap_in_what_is_applied_is_found() {
        let applies = |from: u64, excused: bool| {
            let mut machine = Maps.store(NodeId(1), Rng::new(1)).open().expect("an empty store opens");
            let Err(error) = machine.apply(from, from + 1, &entry(from, 0, 7), true) else { return Ok(()) };
            let seen = Observation::MachineStopped { node: NodeId(1), error, excused };
            see(&mut MachinesGoOn, &mut three(CommitRule::Quorum { q: 2 }), seen)
        };
        assert!(applies(0, false).is_ok());
        assert!(applies(1, false).is_err());
        assert!(applies(1, true).is_ok());
    }
}
