//! Every register, taken alone, is linearizable: writes, compare-and-sets and linearizable reads can be put into one order that keeps to real time and
//! explains every answer. Nothing but what clients were told is used, not even the journal.
//!
//! The search is Wing and Gong's ("Testing and verifying concurrent objects", 1993) with Lowe's memory of the configurations already tried
//! ("Testing for linearizability", 2016). Histories are short: one register has about a hundred calls, of which a handful overlap.

use std::collections::{BTreeMap, BTreeSet};

use crate::clients::{Ask, End, Final, Freshness, History, Instant};
use crate::machine::{Write, WriteAnswer};

/// Configurations tried before a register is given up as undecided. Undecided is not a violation: the journal's laws look at the same calls.
const BUDGET: usize = 200_000;

/// What a call on a register did, as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// It wrote this.
    Put(u64),
    /// It found the first and wrote the second.
    Swap(u64, u64),
    /// It saw this.
    Look(u64),
}

#[derive(Clone, Copy, Debug)]
struct Event {
    action: Action,
    invoked: Instant,
    /// `None`: it may take effect at any time after it was asked, or never.
    returned: Option<Instant>,
}

/// See the module.
pub(super) fn check(history: &History, _: &Final) -> Result<(), String> {
    for (key, events) in by_register(history) {
        if !linearizable(&events) {
            return Err(format!(
                "no order of the {} calls on register {key} explains what clients were told: {events:?}",
                events.len()
            ));
        }
    }
    Ok(())
}

fn by_register(history: &History) -> BTreeMap<u8, Vec<Event>> {
    let mut registers: BTreeMap<u8, Vec<Event>> = BTreeMap::new();
    for call in history.calls() {
        let (invoked, returned) = (call.invoked, call.returned);
        let (key, action, returned) = match (call.ask, call.end) {
            (Ask::Read { key, freshness: Freshness::Linearizable, .. }, End::Read(seen)) => {
                (key, Action::Look(seen.register), returned)
            }
            (Ask::Write { entry, leader_ack }, end) => {
                let (key, done) = match entry.write {
                    Write::Set { key, value } => (key, Action::Put(value)),
                    Write::Cas { key, expect, value } => (key, Action::Swap(expect, value)),
                    Write::Append { .. } => continue,
                };
                match end {
                    // With `ack=leader` even an answer says nothing about what stays.
                    End::Wrote { .. } if leader_ack => (key, done, None),
                    End::Wrote { answer: WriteAnswer::Mismatch { found }, .. } => (key, Action::Look(found), returned),
                    End::Wrote { .. } => (key, done, returned),
                    End::Unknown => (key, done, None),
                    End::Failed | End::Truncated | End::Read(_) => continue,
                }
            }
            _ => continue,
        };
        registers.entry(key).or_default().push(Event { action, invoked, returned });
    }
    for events in registers.values_mut() {
        // Values are unique, so a write of unknown outcome whose value nobody saw may be taken for one that never happened.
        let seen: BTreeSet<u64> = events
            .iter()
            .filter_map(|event| match event.action {
                Action::Look(value) => Some(value),
                Action::Swap(expect, _) => Some(expect),
                Action::Put(_) => None,
            })
            .collect();
        events.retain(|event| match event.action {
            Action::Put(value) | Action::Swap(_, value) => event.returned.is_some() || seen.contains(&value),
            Action::Look(_) => true,
        });
        events.sort_by_key(|event| (event.invoked, event.returned));
    }
    registers
}

fn linearizable(events: &[Event]) -> bool {
    let mut tried: BTreeSet<(Vec<u64>, u64)> = BTreeSet::new();
    let start = (vec![0_u64; events.len().div_ceil(64)], 0_u64);
    let mut open = vec![start];
    while let Some((taken, value)) = open.pop() {
        if tried.len() > BUDGET {
            return true;
        }
        if !tried.insert((taken.clone(), value)) {
            continue;
        }
        let is_taken = |index: usize| taken[index / 64] >> (index % 64) & 1 == 1;
        let left = || events.iter().enumerate().filter(|(index, _)| !is_taken(*index));
        // Whatever ended first must come before anything that began after that.
        let Some(first_end) = left().filter_map(|(_, event)| event.returned).min() else { return true };
        for (index, event) in left().take_while(|(_, event)| event.invoked <= first_end) {
            let after = match event.action {
                Action::Put(new) => Some(new),
                Action::Swap(expect, new) => (value == expect).then_some(new),
                Action::Look(seen) => (value == seen).then_some(value),
            };
            if let Some(after) = after {
                let mut next = taken.clone();
                next[index / 64] |= 1 << (index % 64);
                open.push((next, after));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Call;
    use crate::laws::testing::{call, ends, history, position, seen, set, wrote};
    use crate::machine::{Entry, OpId};

    fn read(op: u64, time: u64, value: u64) -> Call {
        let ask = Ask::Read { key: 0, list: 0, freshness: Freshness::Linearizable };
        call(op, 1, time, ask, End::Read(seen(0, value)))
    }

    fn cas(op: u64, time: u64, expect: u64, answer: WriteAnswer) -> Call {
        let entry = Entry { op: OpId(op), keyed: false, write: Write::Cas { key: 0, expect, value: op } };
        call(op, 2, time, Ask::Write { entry, leader_ack: false }, End::Wrote { answer, at: position(1) })
    }

    fn decide(calls: &[Call]) -> bool {
        check(&history(calls), &ends(&[])).is_ok()
    }

    #[test]
    fn reads_of_old_values_are_found() {
        assert!(decide(&[wrote(1, 0, 0, 1), read(9, 5, 1)]));
        assert!(!decide(&[wrote(1, 0, 0, 1), read(9, 5, 0)]));
        assert!(!decide(&[wrote(1, 0, 0, 1), wrote(2, 0, 5, 2), read(8, 10, 2), read(9, 20, 1)]));
    }

    #[test]
    fn calls_that_overlap_may_come_in_either_order() {
        let slow = Call { returned: Some(30), ..wrote(1, 0, 0, 1) };
        assert!(decide(&[slow, read(8, 5, 0), read(9, 10, 1)]));
        assert!(!decide(&[slow, read(8, 5, 1), read(9, 10, 0)]));
    }

    #[test]
    fn an_unknown_write_may_take_effect_late_or_never_but_not_twice() {
        let unknown = call(1, 0, 0, set(1), End::Unknown);
        assert!(decide(&[unknown, read(8, 5, 0), read(9, 10, 1)]));
        assert!(decide(&[unknown, read(8, 5, 0)]));
        assert!(!decide(&[unknown, read(7, 5, 1), wrote(2, 3, 10, 2), read(8, 15, 2), read(9, 20, 1)]));
    }

    #[test]
    fn two_compare_and_sets_of_one_value_cannot_both_win() {
        assert!(decide(&[cas(1, 0, 0, WriteAnswer::Written), cas(2, 0, 0, WriteAnswer::Mismatch { found: 1 })]));
        assert!(!decide(&[cas(1, 0, 0, WriteAnswer::Written), cas(2, 0, 0, WriteAnswer::Written)]));
    }
}
