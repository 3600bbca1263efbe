//! Whether what clients saw of one register has an explanation: an order of all operations, each between its start and its end, in which every answer is right.
//!
//! The search is Wing's and Gong's in Lowe's form, *just-in-time linearization*: walk through the starts and ends in the order of time, and carry every
//! **configuration** that is still possible: what the register holds, and which of the operations under way have been given their place already. Only when
//! an operation ends must it have one; then everything under way may be put before it. Equal configurations are one, which is the memoisation. Nothing is kept
//! of what is over, so a history of any length is decided with as much memory as there is concurrency.
//!
//! Three things keep the configurations few, and each is exact:
//!
//! - An operation that changes nothing (a read, a swap that was refused) is placed as soon as its answer is right: that can do no harm to others.
//! - No two operations write the same value. So an unknown write whose value somebody saw was done, and before that somebody had his answer.
//! - An unknown write whose value nobody saw (**wild**) helps only to explain why a swap was refused that would otherwise have been done. It is put there, when
//!   needed, or nowhere.

use std::collections::{BTreeMap, BTreeSet};

/// How many operations may be under way at a time.
const UNDER_WAY_MAX: usize = 64;

/// An operation on a register, with what is known of its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// For messages.
    pub id: u64,
    /// When it began.
    pub invoke: u64,
    /// When it ended; `None` if its outcome is unknown: it may take effect at any time after it began, or never.
    pub end: Option<u64>,
    /// What it did, or, if it is unknown, may do.
    pub did: Did,
}

/// What an operation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// Wrote that value.
    Wrote(u64),
    /// Found the first value and replaced it by the second.
    Swapped(u64, u64),
    /// Did not find that value.
    Refused(u64),
    /// Found that value.
    Read(u64),
}

/// What the search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an explanation.
    Linearizable,
    /// There is none; why not, in words.
    Impossible(String),
    /// The search was given up; why, in words.
    NotDecided(String),
}

/// What the register holds in a configuration; `None` if it is a value that nobody saw.
type Holds = Option<u64>;

/// What the register holds, which of those under way have their place, and, as the value, the fewest wild writes that lead there.
type Configurations = BTreeMap<(Holds, u64), usize>;

/// Unknown writes whose value nobody saw.
#[derive(Default)]
struct Wild {
    /// When each plain one began, sorted.
    plain: Vec<u64>,
    /// When the first swap began, by what it expects. One is enough: a value is written once, so once it is gone it does not come back.
    swaps: BTreeMap<u64, u64>,
}

/// Decides about the operations on one register that held `initial` at first. `configurations_max` bounds the search at each step.
pub fn check(initial: u64, ops: &[Op], configurations_max: usize) -> Verdict {
    match prepare(initial, ops) {
        Ok((certain, wild)) => search(initial, &certain, &wild, configurations_max),
        Err(verdict) => verdict,
    }
}

/// Turns every unknown operation into one that was done and ended, or one that is wild.
fn prepare(initial: u64, ops: &[Op]) -> Result<(Vec<Op>, Wild), Verdict> {
    let writes = |op: &Op| match op.did {
        Did::Wrote(value) | Did::Swapped(_, value) => Some(value),
        Did::Refused(_) | Did::Read(_) => None,
    };
    let mut writer: BTreeMap<u64, usize> = BTreeMap::new();
    for (at, op) in ops.iter().enumerate() {
        if let Some(value) = writes(op)
            && (value == initial || writer.insert(value, at).is_some())
        {
            return Err(Verdict::NotDecided(format!("the value {value} is written more than once")));
        }
    }
    let mut end: Vec<Option<u64>> = ops.iter().map(|op| op.end).collect();
    let mut certain: Vec<usize> = (0..ops.len()).filter(|at| ops[*at].end.is_some()).collect();
    while let Some(at) = certain.pop() {
        let observer = ops[at];
        let (Did::Read(value) | Did::Swapped(value, _)) = observer.did else { continue };
        if value == initial {
            continue;
        }
        let Some(&by) = writer.get(&value) else {
            return Err(Verdict::Impossible(format!("{}, which nobody wrote", say(&observer))));
        };
        let seen = end[at].expect("what is certain has an end");
        if ops[by].invoke > seen {
            let (observer, write) = (say(&observer), say(&ops[by]));
            return Err(Verdict::Impossible(format!("{observer} and ended before its write began: {write}")));
        }
        // Only an unknown one's end is moved: to the first time by which somebody had seen it.
        if ops[by].end.is_none() && end[by].is_none_or(|known| known > seen) {
            end[by] = Some(seen);
            certain.push(by);
        }
    }
    let mut wild = Wild::default();
    for (op, end) in ops.iter().zip(&end) {
        match (end, op.did) {
            (None, Did::Wrote(_)) => wild.plain.push(op.invoke),
            (None, Did::Swapped(expected, _)) => {
                let first = wild.swaps.entry(expected).or_insert(op.invoke);
                *first = op.invoke.min(*first);
            }
            _ => {}
        }
    }
    wild.plain.sort_unstable();
    let certain = ops.iter().zip(end).filter(|(_, end)| end.is_some()).map(|(op, end)| Op { end, ..*op });
    Ok((certain.collect(), wild))
}

/// The walk through time.
fn search(initial: u64, ops: &[Op], wild: &Wild, configurations_max: usize) -> Verdict {
    // At one and the same time starts come before ends: two operations that touch overlap.
    let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(ops.len() * 2);
    for (at, op) in ops.iter().enumerate() {
        let end = op.end.expect("a certain operation has an end");
        events.extend([(op.invoke, false, at), (end.max(op.invoke), true, at)]);
    }
    events.sort_unstable();
    let mut slots: Vec<Option<usize>> = Vec::new();
    let mut configurations = Configurations::from([((Some(initial), 0), 0)]);
    for (time, ends, at) in events {
        if !ends {
            let free = slots.iter().position(Option::is_none).unwrap_or(slots.len());
            if free == UNDER_WAY_MAX {
                return Verdict::NotDecided(format!("more than {UNDER_WAY_MAX} operations are under way at one time"));
            }
            slots.resize(slots.len().max(free + 1), None);
            slots[free] = Some(at);
            configurations = merged(
                configurations
                    .into_iter()
                    .map(|((holds, placed), used)| ((holds, placed | harmless(ops, &slots, holds, placed)), used)),
            );
            continue;
        }
        let slot = slots.iter().position(|slot| *slot == Some(at)).expect("what ends has begun");
        let moment = Moment { ops, slots: &slots, wild, time };
        let Some(after) = moment.place(&configurations, slot, configurations_max) else {
            let (op, under_way) = (say(&ops[at]), slots.iter().flatten().count());
            return Verdict::NotDecided(format!(
                "more than {configurations_max} possibilities when {op} ended, with {under_way} operations under way"
            ));
        };
        if after.is_empty() {
            return Verdict::Impossible(unexplained(ops, &slots, &configurations, at));
        }
        configurations = after;
        slots[slot] = None;
    }
    Verdict::Linearizable
}

/// Of equal configurations the one that used the fewest wild writes is as good as all.
fn merged(all: impl Iterator<Item = ((Holds, u64), usize)>) -> Configurations {
    let mut merged = Configurations::new();
    for (key, used) in all {
        merged.entry(key).and_modify(|least| *least = used.min(*least)).or_insert(used);
    }
    merged
}

/// Those under way that change nothing, have no place yet and would be answered rightly now.
fn harmless(ops: &[Op], slots: &[Option<usize>], holds: Holds, placed: u64) -> u64 {
    let mut found = 0;
    for (slot, at) in slots.iter().enumerate() {
        let Some(at) = at.filter(|_| placed & (1 << slot) == 0) else { continue };
        let right = match ops[at].did {
            Did::Read(value) => holds == Some(value),
            Did::Refused(expected) => holds != Some(expected),
            Did::Wrote(_) | Did::Swapped(..) => false,
        };
        found |= u64::from(right) << slot;
    }
    found
}

/// An end, and what surrounds it.
struct Moment<'a> {
    ops: &'a [Op],
    slots: &'a [Option<usize>],
    wild: &'a Wild,
    time: u64,
}

impl Moment<'_> {
    /// The configurations in which the operation in that slot, which ends, has its place; its bit is cleared. `None` if there are too many on the way.
    fn place(&self, before: &Configurations, slot: usize, max: usize) -> Option<Configurations> {
        let mut after = Configurations::new();
        let mut seen: BTreeSet<(Holds, u64, usize)> = BTreeSet::new();
        let mut open: Vec<(Holds, u64, usize)> =
            before.iter().map(|((holds, placed), used)| (*holds, *placed, *used)).collect();
        while let Some((holds, placed, used)) = open.pop() {
            if placed & (1 << slot) != 0 {
                let least = after.entry((holds, placed & !(1 << slot))).or_insert(used);
                *least = used.min(*least);
            } else if seen.insert((holds, placed, used)) {
                if seen.len() > max {
                    return None;
                }
                open.extend(self.next(holds, placed, used));
            }
        }
        Some(after)
    }

    /// What may come next: one of those under way that changes the register, or a wild write that explains a refusal.
    fn next(&self, holds: Holds, placed: u64, used: usize) -> Vec<(Holds, u64, usize)> {
        let mut found = Vec::new();
        let mut put = |holds: Holds, placed: u64, used: usize| {
            found.push((holds, placed | harmless(self.ops, self.slots, holds, placed), used));
        };
        let mut wild_tried = false;
        for (slot, at) in self.slots.iter().enumerate() {
            let Some(at) = at.filter(|_| placed & (1 << slot) == 0) else { continue };
            match self.ops[at].did {
                Did::Wrote(value) => put(Some(value), placed | 1 << slot, used),
                Did::Swapped(expected, value) if holds == Some(expected) => put(Some(value), placed | 1 << slot, used),
                Did::Refused(expected) if holds == Some(expected) && !wild_tried => {
                    wild_tried = true;
                    if self.wild.swaps.get(&expected).is_some_and(|began| *began <= self.time) {
                        put(None, placed, used);
                    } else if self.wild.plain.get(used).is_some_and(|began| *began <= self.time) {
                        put(None, placed, used + 1);
                    }
                }
                Did::Swapped(..) | Did::Refused(_) | Did::Read(_) => {}
            }
        }
        found
    }
}

fn say(op: &Op) -> String {
    let did = match op.did {
        Did::Wrote(value) => format!("wrote {value}"),
        Did::Swapped(expected, value) => format!("swapped {expected} for {value}"),
        Did::Refused(expected) => format!("was refused because {expected} was not there"),
        Did::Read(value) => format!("read {value}"),
    };
    format!("operation {} {did}", op.id)
}

fn unexplained(ops: &[Op], slots: &[Option<usize>], before: &Configurations, at: usize) -> String {
    let mut held: Vec<String> = before
        .keys()
        .map(|(holds, _)| holds.map_or("a value that nobody saw".into(), |value| value.to_string()))
        .collect();
    held.dedup();
    held.truncate(10);
    let others: Vec<String> =
        slots.iter().flatten().filter(|other| **other != at).map(|other| say(&ops[*other])).collect();
    format!(
        "{}, between {} and {} ns: the register held {} before; under way were: {}",
        say(&ops[at]),
        ops[at].invoke,
        ops[at].end.unwrap_or(u64::MAX),
        held.join(" or "),
        if others.is_empty() { "none".into() } else { others.join("; ") }
    )
}

#[cfg(test)]
#[path = "linear_tests.rs"]
mod tests;
