//! No write that was acknowledged as committed is missing at the end.

use crate::clients::{Final, History};

/// See the module.
pub(super) fn check(history: &History, last: &Final) -> Result<(), String> {
    for call in history.calls() {
        if let Some(offset) = call.committed_write()
            && !last.place.contains_key(&call.op)
        {
            return Err(format!(
                "{:?} was acknowledged as committed at offset {offset}, and has no effect at the end: {call:?}",
                call.op
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{ends, history, wrote};

    #[test]
    fn a_missing_write_is_found() {
        let calls = history(&[wrote(1, 0, 0, 1), wrote(2, 0, 5, 2)]);
        assert!(check(&calls, &ends(&[1, 2])).is_ok());
        assert!(check(&calls, &ends(&[1])).is_err());
    }
}
