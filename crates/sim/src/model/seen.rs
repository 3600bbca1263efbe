//! The states visited, each with the one it was reached from, and which of them another one makes superfluous.
//!
//! More messages allow everything that fewer do, and the laws do not look at them: a state is not explored if another one has the same replicas and
//! facts and all its messages. So of the states with the same replicas and facts those are kept at hand, in a chain, that no other one contains.
//!
//! A state takes some fifty bytes here: chains are links between states, and their beginnings are found by an open-addressed table of numbers.

use std::hash::{Hash, Hasher};

use super::intern::{FastHasher, Sets};
use super::world::State;

/// No state.
const NONE: u32 = u32::MAX;

pub(super) struct Seen {
    states: Vec<State>,
    parents: Vec<u32>,
    /// The next state of the same chain.
    next: Vec<u32>,
    contained: Vec<bool>,
    /// The beginnings of chains. Its length is a power of two.
    table: Vec<u32>,
    chains: usize,
}

/// Whether they differ by their messages alone.
fn is_alike(one: &State, other: &State) -> bool {
    one.nodes == other.nodes && one.facts == other.facts
}

fn contains(larger: &State, smaller: &State, sets: &Sets) -> bool {
    larger.inboxes.iter().zip(&smaller.inboxes).all(|(larger, smaller)| sets.contains(*larger, *smaller))
}

impl Seen {
    pub(super) fn new() -> Self {
        Seen {
            states: Vec::new(),
            parents: Vec::new(),
            next: Vec::new(),
            contained: Vec::new(),
            table: vec![NONE; 1 << 10],
            chains: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    pub(super) fn get(&self, number: usize) -> State {
        self.states[number]
    }

    /// The state that this one was first reached from.
    pub(super) fn parent(&self, number: usize) -> usize {
        self.parents[number] as usize
    }

    /// Whether another state has the same replicas and facts and more messages.
    pub(super) fn is_contained(&self, number: usize) -> bool {
        self.contained[number]
    }

    /// Notes a state that was reached from another, unless one that is known contains it.
    pub(super) fn add(&mut self, state: State, parent: usize, sets: &Sets) {
        let place = self.place(&state);
        let first = self.table[place];
        let mut at = first;
        while at != NONE {
            if contains(&self.states[at as usize], &state, sets) {
                return;
            }
            at = self.next[at as usize];
        }
        let rest = self.drop_contained(first, &state, sets);
        let number = u32::try_from(self.states.len()).expect("fewer than 2^32 states");
        assert!(number != NONE, "fewer than 2^32 - 1 states");
        self.states.push(state);
        self.parents.push(u32::try_from(parent).expect("fewer than 2^32 states"));
        self.next.push(rest);
        self.contained.push(false);
        self.table[place] = number;
        if first == NONE {
            self.chains += 1;
            if self.chains * 3 > self.table.len() * 2 {
                self.grow();
            }
        }
    }

    /// The chain that begins at `first` without what `larger` contains.
    fn drop_contained(&mut self, first: u32, larger: &State, sets: &Sets) -> u32 {
        let (mut head, mut last, mut at) = (NONE, NONE, first);
        while at != NONE {
            let following = self.next[at as usize];
            if contains(larger, &self.states[at as usize], sets) {
                self.contained[at as usize] = true;
            } else {
                match last {
                    NONE => head = at,
                    last => self.next[last as usize] = at,
                }
                last = at;
            }
            at = following;
        }
        if last != NONE {
            self.next[last as usize] = NONE;
        }
        head
    }

    /// Where in the table the chain of states like this one begins, or would.
    fn place(&self, state: &State) -> usize {
        let mask = self.table.len() - 1;
        let mut hasher = FastHasher::default();
        (state.nodes, state.facts).hash(&mut hasher);
        let mut place = (hasher.finish() >> 7) as usize & mask;
        while self.table[place] != NONE && !is_alike(&self.states[self.table[place] as usize], state) {
            place = (place + 1) & mask;
        }
        place
    }

    fn grow(&mut self) {
        let larger = vec![NONE; self.table.len() * 2];
        let before = std::mem::replace(&mut self.table, larger);
        for first in before.into_iter().filter(|first| *first != NONE) {
            let place = self.place(&self.states[first as usize]);
            self.table[place] = first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(node: u32, inbox: u32) -> State {
        State { nodes: [node, 0, 0], inboxes: [inbox, 0, 0, 0], facts: 0 }
    }

    #[test]
    fn a_state_with_fewer_messages_is_not_noted_or_is_marked_once_a_larger_one_is() {
        let (mut sets, mut seen) = (Sets::new(), Seen::new());
        let [one, other, both] = [vec![1], vec![2], vec![1, 2]].map(|messages| sets.number(messages));
        for inbox in [one, other, one, both, other, both] {
            seen.add(state(7, inbox), 0, &sets);
        }
        let noted: Vec<_> = (0..seen.len()).map(|at| (seen.get(at).inboxes[0], seen.is_contained(at))).collect();
        assert_eq!(noted, [(one, true), (other, true), (both, false)]);
    }

    #[test]
    fn neither_of_two_that_have_what_the_other_lacks_is_dropped_and_other_replicas_are_other_states() {
        let (mut sets, mut seen) = (Sets::new(), Seen::new());
        let numbers: Vec<u32> = (1..=5).map(|message| sets.number(vec![message])).collect();
        for node in 0..5_000 {
            numbers.iter().for_each(|inbox| seen.add(state(node, *inbox), node as usize, &sets));
        }
        assert_eq!(seen.len(), 25_000);
        for node in 0..5_000 {
            numbers.iter().for_each(|inbox| seen.add(state(node, *inbox), 0, &sets));
        }
        assert_eq!(seen.len(), 25_000, "all of them are known, also after the table has grown");
        assert!((0..25_000).all(|at| !seen.is_contained(at) && seen.parent(at) == at / 5));
    }
}
