//! A request has one effect, however often it was sent.

use crate::clients::{Final, History};

/// See the module.
pub(super) fn check(_: &History, last: &Final) -> Result<(), String> {
    for (place, op) in last.journal.iter().enumerate() {
        // `place` maps a repeated number to its last occurrence.
        let again = last.place[op];
        if again != place as u64 {
            return Err(format!("{op:?} has two effects: as number {place} and as number {again}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{ends, history};

    #[test]
    fn a_second_effect_is_found() {
        assert!(check(&history(&[]), &ends(&[1, 2])).is_ok());
        assert!(check(&history(&[]), &ends(&[1, 2, 1])).is_err());
    }
}
