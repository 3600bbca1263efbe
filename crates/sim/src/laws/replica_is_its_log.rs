//! A replica holds what its log says: replaying the log from its beginning on an empty machine gives what readers see.

use highwater_wire::{NodeId, Offset};

use crate::machine::State;

/// What a failure is called.
pub(crate) const NAME: &str = "a-replica-is-its-log";

/// Compares what readers of a node see at an offset with what its log gave an empty machine, or why it gave nothing.
pub(crate) fn check(node: NodeId, at: Offset, shown: &State, replayed: Result<State, String>) -> Result<(), String> {
    match replayed {
        Ok(state) if state == *shown => Ok(()),
        Ok(_) => Err(format!("readers of node {node} see at {at} what replaying its log does not give")),
        Err(error) => Err(format!("the log of node {node} up to {at} is not replayed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::ends;

    #[test]
    fn a_state_that_is_not_the_logs_and_a_log_that_is_not_replayed_are_found() {
        let shown = ends(&[1, 2]).state;
        let with = |replayed| check(NodeId(1), 2, &shown, replayed);
        assert!(with(Ok(shown.clone())).is_ok());
        assert!(with(Ok(ends(&[1]).state)).is_err());
        assert!(with(Err("a gap".to_owned())).is_err());
    }
}
