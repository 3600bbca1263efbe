//! A session that asks for at least the position it has seen gets it, and never sees less than before.

use std::collections::BTreeMap;

use crate::clients::{Ask, Call, End, Final, Freshness, History};

/// See the module.
pub(super) fn check(history: &History, _: &Final) -> Result<(), String> {
    let mut sessions: BTreeMap<u32, Vec<&Call>> = BTreeMap::new();
    for call in history.calls() {
        sessions.entry(call.client).or_default().push(call);
    }
    for calls in sessions.values_mut() {
        calls.sort_by_key(|call| (call.invoked, call.op));
        // What was seen at each position so far.
        let mut seen_so_far: Vec<(u64, u64)> = Vec::new();
        for call in calls {
            let End::Read(seen) = call.end else { continue };
            if let Ask::Read { freshness: Freshness::AtLeast(token), .. } = call.ask {
                if seen.at.offset < token.offset {
                    return Err(format!("{call:?} asked for at least {token} and saw {}", seen.at));
                }
                let before =
                    seen_so_far.iter().filter(|(offset, _)| *offset <= token.offset).map(|(_, effects)| *effects);
                let most = before.max().unwrap_or(0);
                if seen.effects < most {
                    return Err(format!("{call:?} saw {} effects, and its session had seen {most}", seen.effects));
                }
            }
            seen_so_far.push((seen.at.offset, seen.effects));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Seen;
    use crate::laws::testing::{call, ends, history, position, seen};

    #[test]
    fn a_session_that_goes_back_is_found() {
        let read = |op, time, freshness, view: Seen| {
            call(op, 4, time, Ask::Read { key: 0, list: 0, freshness }, End::Read(view))
        };
        let then = |view| {
            let first = read(1, 0, Freshness::Eventual, seen(3, 0));
            check(&history(&[first, read(2, 5, Freshness::AtLeast(position(3)), view)]), &ends(&[]))
        };
        assert!(then(seen(3, 0)).is_ok());
        assert!(then(seen(2, 0)).is_err());
        assert!(then(Seen { at: position(3), ..seen(2, 0) }).is_err());
    }
}
