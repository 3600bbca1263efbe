//! At one HW, every replica shows its readers the same state.

use std::collections::BTreeMap;

use highwater_wire::NodeId;

use crate::machine::State;

/// What a failure is called.
pub(crate) const NAME: &str = "replicas-agree";

/// Compares what was read of all living nodes at the end, when all know one HW.
pub(crate) fn check(ends: &BTreeMap<NodeId, State>) -> Result<(), String> {
    let Some((first, state)) = ends.first_key_value() else { return Ok(()) };
    match ends.iter().find(|(_, other)| *other != state) {
        None => Ok(()),
        Some((other, _)) => Err(format!("at one HW, node {other} shows another state than node {first}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::ends;

    #[test]
    fn a_replica_that_shows_something_else_is_found() {
        let of = |states: &[&[u64]]| {
            let states = (1..).zip(states).map(|(node, ops)| (NodeId(node), ends(ops).state));
            check(&states.collect())
        };
        assert!(of(&[]).is_ok());
        assert!(of(&[&[1, 2], &[1, 2], &[1, 2]]).is_ok());
        assert!(of(&[&[1, 2], &[1, 2], &[1]]).is_err());
        assert!(of(&[&[1, 2], &[2, 1]]).is_err());
    }
}
