//! Every effect is of a write that a client asked for, and that was not told to have failed or to have changed nothing.

use crate::clients::{End, Final, History};

/// See the module.
pub(super) fn check(history: &History, last: &Final) -> Result<(), String> {
    for op in &last.journal {
        let Some(call) = history.call(*op).filter(|call| call.entry().is_some()) else {
            return Err(format!("{op:?} has an effect, and no client asked for it"));
        };
        let none = match call.end {
            End::Failed => true,
            End::Wrote { answer, .. } => !answer.took_effect(),
            _ => false,
        };
        if none {
            return Err(format!("{op:?} has an effect, and its client was told that it has none: {call:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{call, ends, history, set, wrote};

    #[test]
    fn effects_nobody_asked_for_or_that_failed_are_found() {
        let calls =
            history(&[wrote(1, 0, 0, 1), call(2, 0, 5, set(2), End::Failed), call(3, 1, 0, set(3), End::Unknown)]);
        assert!(check(&calls, &ends(&[1, 3])).is_ok());
        assert!(check(&calls, &ends(&[1, 2])).is_err());
        assert!(check(&calls, &ends(&[1, 9])).is_err());
    }
}
