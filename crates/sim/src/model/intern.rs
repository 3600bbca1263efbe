//! Interning: equal values get equal numbers, so that a state is a handful of numbers and a comparison is cheap.

// looked up only: numbers are given in the order in which values first occur, and no map here is walked.
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::rc::Rc;

/// A hasher for keys that nobody chooses with bad intent: a multiplication and a rotation for each word.
#[derive(Default)]
pub(super) struct FastHasher(u64);

impl Hasher for FastHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

/// A map that is only looked up, never walked: its order does not matter.
// looked up only: see above; its hasher has no seed either.
pub(super) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;

/// Numbers values in the order in which they first occur.
pub(super) struct Interner<T> {
    items: Vec<Rc<T>>,
    numbers: FastMap<Rc<T>, u32>,
}

impl<T: Eq + Hash> Interner<T> {
    pub(super) fn new() -> Self {
        Interner { items: Vec::new(), numbers: FastMap::default() }
    }

    /// The number of a value.
    pub(super) fn number(&mut self, item: T) -> u32 {
        if let Some(number) = self.numbers.get(&item) {
            return *number;
        }
        let number = u32::try_from(self.items.len()).expect("fewer than 2^32 values");
        let item = Rc::new(item);
        self.items.push(Rc::clone(&item));
        self.numbers.insert(item, number);
        number
    }

    /// The value of a number.
    pub(super) fn get(&self, number: u32) -> &Rc<T> {
        &self.items[number as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }
}

/// Numbers by number: a map whose keys are dense.
#[derive(Default)]
pub(super) struct Numbers(Vec<u32>);

impl Numbers {
    /// What stands for nothing.
    const NONE: u32 = u32::MAX;

    pub(super) fn get(&self, key: u32) -> Option<u32> {
        self.0.get(key as usize).copied().filter(|value| *value != Self::NONE)
    }

    pub(super) fn note(&mut self, key: u32, value: u32) {
        assert!(value != Self::NONE, "fewer than 2^32 - 1 values");
        if self.0.len() <= key as usize {
            self.0.resize(key as usize + 1, Self::NONE);
        }
        self.0[key as usize] = value;
    }
}

/// Interned sets of message numbers, with the results of adding and filtering remembered.
pub(super) struct Sets {
    sets: Interner<Vec<u32>>,
    added: FastMap<(u32, u32), u32>,
}

impl Sets {
    pub(super) fn new() -> Self {
        let mut sets = Interner::new();
        sets.number(Vec::new());
        Sets { sets, added: FastMap::default() }
    }

    /// The empty set.
    pub(super) const EMPTY: u32 = 0;

    pub(super) fn get(&self, set: u32) -> &Rc<Vec<u32>> {
        self.sets.get(set)
    }

    /// The set with one more message.
    pub(super) fn add(&mut self, set: u32, message: u32) -> u32 {
        if let Some(known) = self.added.get(&(set, message)) {
            return *known;
        }
        let items = self.sets.get(set);
        let larger = match items.binary_search(&message) {
            Ok(_) => set,
            Err(at) => {
                let mut items = Vec::clone(items);
                items.insert(at, message);
                self.sets.number(items)
            }
        };
        self.added.insert((set, message), larger);
        larger
    }

    /// The set of these messages.
    pub(super) fn number(&mut self, mut messages: Vec<u32>) -> u32 {
        messages.sort_unstable();
        self.sets.number(messages)
    }

    /// Whether one set contains another.
    pub(super) fn contains(&self, larger: u32, smaller: u32) -> bool {
        if larger == smaller {
            return true;
        }
        let mut larger = self.sets.get(larger).iter();
        self.sets.get(smaller).iter().all(|message| larger.by_ref().any(|other| other == message))
    }

    /// The set without what `keep` denies.
    pub(super) fn retain(&mut self, set: u32, keep: impl Fn(u32) -> bool) -> u32 {
        let items = Rc::clone(self.sets.get(set));
        if items.iter().all(|message| keep(*message)) {
            return set;
        }
        self.sets.number(items.iter().copied().filter(|message| keep(*message)).collect())
    }
}
