//! Every read, of whatever freshness and on whatever node, saw the state after some prefix of the journal, and that prefix is the one that its
//! position names: with every acknowledged write below the position, and with none above it.

use crate::clients::{End, Final, History, Seen};
use crate::machine::{Entry, NOWHERE, State};

/// See the module.
pub(super) fn check(history: &History, last: &Final) -> Result<(), String> {
    let mut reads: Vec<_> = history
        .calls()
        .filter_map(|call| match (call.ask, call.end) {
            (crate::clients::Ask::Read { key, list, .. }, End::Read(seen)) => Some((call, key, list, seen)),
            _ => None,
        })
        .collect();
    reads.sort_by_key(|(call, _, _, seen)| (seen.effects, call.op));
    let writes: Vec<_> = history
        .calls()
        .filter_map(|call| Some((call.op, call.committed_write()?, *last.place.get(&call.op)?)))
        .collect();
    let (mut state, mut effects) = (State::default(), 0);
    for (call, key, list, seen) in reads {
        if seen.effects > last.journal.len() as u64 {
            return Err(format!(
                "{call:?} saw {} effects, and there are {} at the end",
                seen.effects,
                last.journal.len()
            ));
        }
        while effects < seen.effects {
            if let Some(entry) = history.call(last.journal[effects as usize]).and_then(|call| call.entry()) {
                state
                    .apply(&Entry { keyed: false, ..*entry }, NOWHERE)
                    .map_err(|error| format!("in the journal's order, {error}"))?;
            }
            effects += 1;
        }
        let (register, elements) = (state.register(key), state.list(list));
        let expected = Seen {
            register,
            list_len: elements.len() as u64,
            list_last: elements.last().copied().unwrap_or(0),
            ..seen
        };
        if expected != seen {
            return Err(format!("{call:?} saw {seen:?}, and after {effects} effects there is {expected:?}"));
        }
        if let Some((op, offset, place)) =
            writes.iter().find(|(_, offset, place)| (*offset <= seen.at.offset) != (*place < seen.effects))
        {
            return Err(format!(
                "{call:?} saw position {} and {} effects, and {op:?}, acknowledged at offset {offset}, is effect number {place}",
                seen.at, seen.effects
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::{Ask, Freshness};
    use crate::laws::testing::{call, ends, history, position, seen, wrote};

    fn reads(view: Seen) -> Result<(), String> {
        let read = Ask::Read { key: 0, list: 0, freshness: Freshness::Eventual };
        let calls = history(&[wrote(1, 0, 0, 1), wrote(2, 0, 5, 2), call(3, 1, 9, read, End::Read(view))]);
        check(&calls, &ends(&[1, 2]))
    }

    #[test]
    fn a_read_that_is_no_prefix_or_not_that_of_its_position_is_found() {
        assert!(reads(seen(1, 1)).is_ok());
        assert!(reads(seen(2, 2)).is_ok());
        assert!(reads(seen(1, 2)).is_err(), "a later value in an earlier state");
        assert!(reads(seen(3, 2)).is_err(), "more effects than there are");
        assert!(reads(Seen { at: position(2), ..seen(1, 1) }).is_err(), "a position that covers more than was seen");
        assert!(reads(Seen { at: position(0), ..seen(1, 1) }).is_err(), "a position that covers less than was seen");
    }
}
