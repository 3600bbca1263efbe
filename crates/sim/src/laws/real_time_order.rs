//! Acknowledged writes and linearizable reads take effect in the order in which one ended before the other began.

use crate::clients::{Ask, Call, End, Final, Freshness, History};

/// Where a call lies in the order of effects: writes between prefixes, reads at one. Doubled, so that a read of n effects lies between the n-th
/// effect and the next.
fn place(call: &Call, last: &Final) -> Option<u64> {
    match (call.ask, call.end) {
        (Ask::Write { .. }, _) if call.committed_write().is_some() => {
            last.place.get(&call.op).map(|place| 2 * place + 1)
        }
        (Ask::Read { freshness: Freshness::Linearizable, .. }, End::Read(seen)) => Some(2 * seen.effects),
        _ => None,
    }
}

/// See the module.
pub(super) fn check(history: &History, last: &Final) -> Result<(), String> {
    let placed: Vec<_> = history.calls().filter_map(|call| Some((call, place(call, last)?, call.returned?))).collect();
    let mut by_begin = placed.clone();
    by_begin.sort_by_key(|(call, _, _)| (call.invoked, call.op));
    let mut by_end = placed;
    by_end.sort_by_key(|(call, _, returned)| (*returned, call.op));
    // The greatest place among the calls that had ended when each call began.
    let (mut ended, mut greatest) = (by_end.iter().peekable(), None::<(&Call, u64)>);
    for (call, place, _) in by_begin {
        while let Some((other, reached, _)) = ended.next_if(|(_, _, returned)| *returned < call.invoked) {
            if greatest.is_none_or(|(_, so_far)| so_far < *reached) {
                greatest = Some((other, *reached));
            }
        }
        if let Some((other, reached)) = greatest.filter(|(_, reached)| *reached > place) {
            return Err(format!(
                "{call:?} began after {other:?} had ended, and comes before it in the order of effects ({place} against {reached})"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{call, ends, history, seen, wrote};

    fn read(effects: u64, time: u64) -> Call {
        let ask = Ask::Read { key: 0, list: 0, freshness: Freshness::Linearizable };
        call(9, 1, time, ask, End::Read(seen(effects, effects)))
    }

    #[test]
    fn a_stale_read_and_writes_out_of_order_are_found() {
        let with = |read| history(&[wrote(1, 0, 10, 1), wrote(2, 0, 20, 2), read]);
        assert!(check(&with(read(2, 30)), &ends(&[1, 2])).is_ok());
        assert!(check(&with(read(1, 20)), &ends(&[1, 2])).is_ok(), "at the same time as the second write");
        assert!(check(&with(read(1, 30)), &ends(&[1, 2])).is_err(), "after the second write had ended");
        assert!(check(&with(read(2, 15)), &ends(&[1, 2])).is_err(), "before the second write had begun");
        assert!(check(&with(read(2, 30)), &ends(&[2, 1])).is_err(), "the writes the other way round");
    }
}
