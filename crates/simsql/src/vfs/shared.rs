//! What the connections of one process to one file share: SQLite's locks on the file, and the index of its log, which on Unix lies in a mapped file that
//! the first connection to come empties.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::ops::Range;

use rusqlite::ffi;

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner(u64);

/// How a connection has locked the file: see <https://www.sqlite.org/lockingv3.html>.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    None,
    Shared,
    Reserved,
    Pending,
    Exclusive,
}

impl Level {
    pub(super) fn of(code: c_int) -> Level {
        match code {
            ffi::SQLITE_LOCK_NONE => Level::None,
            ffi::SQLITE_LOCK_SHARED => Level::Shared,
            ffi::SQLITE_LOCK_RESERVED => Level::Reserved,
            ffi::SQLITE_LOCK_PENDING => Level::Pending,
            _ => Level::Exclusive,
        }
    }
}

/// How a slot of the index is locked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Slot {
    Shared(BTreeSet<Owner>),
    Exclusive(Owner),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    owners: u64,
    levels: BTreeMap<Owner, Level>,
    slots: BTreeMap<usize, Slot>,
    /// The index. Words, so that each is aligned as SQLite wants.
    regions: Vec<Box<[u64]>>,
    mappers: BTreeSet<Owner>,
}

impl Shared {
    /// A new connection.
    pub(super) fn owner(&mut self) -> Owner {
        self.owners += 1;
        Owner(self.owners)
    }

    /// Raises a connection's lock, if the others' allow it.
    pub(super) fn raise(&mut self, owner: Owner, level: Level) -> bool {
        let others = self.levels.iter().filter(|(other, _)| **other != owner).map(|(_, level)| *level).max();
        let others = others.unwrap_or(Level::None);
        let allowed = match level {
            Level::None | Level::Shared => others < Level::Pending,
            Level::Reserved | Level::Pending => others < Level::Reserved,
            Level::Exclusive => others == Level::None,
        };
        let now = self.levels.get(&owner).copied().unwrap_or(Level::None);
        if allowed {
            self.set_level(owner, now.max(level));
        } else if level == Level::Exclusive && others < Level::Reserved {
            // Nobody new may read from now on.
            self.set_level(owner, Level::Pending);
        }
        allowed
    }

    /// Lowers a connection's lock.
    pub(super) fn set_level(&mut self, owner: Owner, level: Level) {
        match level {
            Level::None => self.levels.remove(&owner),
            level => self.levels.insert(owner, level),
        };
    }

    /// Whether anybody is going to write.
    pub(super) fn is_reserved(&self) -> bool {
        self.levels.values().any(|level| *level >= Level::Reserved)
    }

    /// A region of the index; null if there is none and none is to be made.
    pub(super) fn map(&mut self, owner: Owner, region: usize, bytes: usize, extend: bool) -> *mut u64 {
        self.mappers.insert(owner);
        if region >= self.regions.len() && !extend {
            return std::ptr::null_mut();
        }
        while self.regions.len() <= region {
            self.regions.push(vec![0; bytes / size_of::<u64>()].into_boxed_slice());
        }
        self.regions[region].as_mut_ptr()
    }

    /// A connection has done with the index. When nobody has it any more it is gone: the next one makes it anew.
    pub(super) fn unmap(&mut self, owner: Owner) {
        self.mappers.remove(&owner);
        self.unlock_slots(owner, 0..ffi::SQLITE_SHM_NLOCK as usize);
        if self.mappers.is_empty() {
            self.regions.clear();
        }
    }

    /// Locks slots of the index, all or none.
    pub(super) fn lock_slots(&mut self, owner: Owner, slots: Range<usize>, exclusive: bool) -> bool {
        let free = slots.clone().all(|slot| match self.slots.get(&slot) {
            None => true,
            Some(Slot::Exclusive(other)) => *other == owner,
            Some(Slot::Shared(others)) => !exclusive || others.iter().all(|other| *other == owner),
        });
        if !free {
            return false;
        }
        for slot in slots {
            match self.slots.get_mut(&slot) {
                Some(Slot::Shared(owners)) if !exclusive => {
                    owners.insert(owner);
                }
                _ if exclusive => {
                    self.slots.insert(slot, Slot::Exclusive(owner));
                }
                _ => {
                    self.slots.insert(slot, Slot::Shared(BTreeSet::from([owner])));
                }
            }
        }
        true
    }

    /// Gives a connection's locks on slots back.
    pub(super) fn unlock_slots(&mut self, owner: Owner, slots: Range<usize>) {
        for slot in slots {
            let free = match self.slots.get_mut(&slot) {
                Some(Slot::Shared(owners)) => {
                    owners.remove(&owner);
                    owners.is_empty()
                }
                Some(Slot::Exclusive(other)) => *other == owner,
                None => false,
            };
            if free {
                self.slots.remove(&slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_keeps_readers_away_and_readers_a_writer() {
        let mut shared = Shared::default();
        let (one, other) = (shared.owner(), shared.owner());
        assert!(shared.raise(one, Level::Shared) && shared.raise(other, Level::Shared));
        assert!(shared.raise(one, Level::Reserved) && !shared.raise(other, Level::Reserved));
        assert!(!shared.raise(one, Level::Exclusive), "another reads");
        shared.set_level(other, Level::None);
        assert!(!shared.raise(other, Level::Shared), "one waits to write");
        assert!(shared.raise(one, Level::Exclusive) && shared.is_reserved());
        shared.set_level(one, Level::None);
        assert!(shared.raise(other, Level::Shared) && !shared.is_reserved());
    }

    #[test]
    fn slots_are_locked_by_many_or_by_one() {
        let mut shared = Shared::default();
        let (one, other) = (shared.owner(), shared.owner());
        assert!(shared.lock_slots(one, 3..4, false) && shared.lock_slots(other, 3..4, false));
        assert!(!shared.lock_slots(one, 2..5, true));
        shared.unlock_slots(other, 3..4);
        assert!(shared.lock_slots(one, 2..5, true), "a lock that is alone is raised");
        assert!(!shared.lock_slots(other, 4..5, false));
        shared.unmap(one);
        assert!(shared.lock_slots(other, 4..5, false));
    }

    #[test]
    fn the_index_is_gone_with_the_last_who_had_it() {
        let mut shared = Shared::default();
        let (one, other) = (shared.owner(), shared.owner());
        assert!(shared.map(one, 0, 64, false).is_null());
        let at = shared.map(one, 0, 64, true);
        assert_eq!(shared.map(other, 0, 64, false), at, "it is shared");
        shared.unmap(one);
        assert_eq!(shared.map(other, 0, 64, false), at);
        shared.unmap(other);
        assert!(shared.map(one, 0, 64, false).is_null());
    }
}
