//! One write at one offset for all time, and offsets in the order of the effects.

use std::collections::BTreeMap;

use crate::clients::{Final, History};

/// See the module.
pub(super) fn check(history: &History, last: &Final) -> Result<(), String> {
    let mut by_offset = BTreeMap::new();
    for call in history.calls() {
        let Some(offset) = call.committed_write() else { continue };
        if let Some(other) = by_offset.insert(offset, call.op) {
            return Err(format!("offset {offset} was acknowledged for {other:?} and for {:?}", call.op));
        }
    }
    let placed = |op| last.place.get(op).copied();
    let placed: Vec<_> = by_offset.iter().filter_map(|(offset, op)| Some((*offset, *op, placed(op)?))).collect();
    for pair in placed.windows(2) {
        let ((low, first, before), (high, second, after)) = (pair[0], pair[1]);
        if before >= after {
            return Err(format!(
                "{first:?} lies at offset {low} and {second:?} at {high}, and they took effect the other way round"
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
    fn a_second_write_at_an_offset_and_offsets_out_of_order_are_found() {
        let ordered = history(&[wrote(1, 0, 0, 1), wrote(2, 0, 5, 2)]);
        assert!(check(&ordered, &ends(&[1, 2])).is_ok());
        assert!(check(&ordered, &ends(&[2, 1])).is_err());
        assert!(check(&history(&[wrote(1, 0, 0, 1), wrote(2, 0, 5, 1)]), &ends(&[1, 2])).is_err());
    }
}
