//! The states that readers may be shown, and which of them they are shown.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use highwater_wire::{Epoch, Offset};

use crate::ffi::Snapshot;

/// A state at the end of a transaction.
#[derive(Clone, Copy)]
pub(crate) struct State {
    /// Everything below it is in.
    pub(crate) end: Offset,
    /// The epoch of the entry before `end`.
    pub(crate) epoch: Option<Epoch>,
    pub(crate) snapshot: Snapshot,
}

/// All states since the oldest that a reader may still want, and how far readers may see.
pub(crate) struct Snapshots {
    /// HW plus one; 0 while nothing may be seen.
    published: AtomicU64,
    states: Mutex<VecDeque<State>>,
    waiting: Mutex<usize>,
    changed: Condvar,
}

impl Snapshots {
    pub(crate) fn new() -> Snapshots {
        Snapshots {
            published: AtomicU64::new(0),
            states: Mutex::new(VecDeque::new()),
            waiting: Mutex::new(0),
            changed: Condvar::new(),
        }
    }

    fn states(&self) -> MutexGuard<'_, VecDeque<State>> {
        self.states.lock().expect("nothing under this lock panics")
    }

    fn waiting(&self) -> MutexGuard<'_, usize> {
        self.waiting.lock().expect("nothing under this lock panics")
    }

    fn notify(&self) {
        if *self.waiting() > 0 {
            self.changed.notify_all();
        }
    }

    /// Readers may see everything below `hw`. Never goes back but by [`Snapshots::hide`].
    pub(crate) fn publish(&self, hw: Offset) {
        self.published.fetch_max(hw + 1, Ordering::AcqRel);
        self.notify();
    }

    /// Readers see nothing until the next publication.
    pub(crate) fn hide(&self) {
        self.published.store(0, Ordering::Release);
    }

    /// How far readers may see, if they may see anything.
    pub(crate) fn published(&self) -> Option<Offset> {
        self.published.load(Ordering::Acquire).checked_sub(1)
    }

    /// Waits until readers may see everything below `end`, or until the instant; whether they may.
    pub(crate) fn wait_published(&self, end: Offset, until: Instant, stop: &dyn Fn() -> bool) -> bool {
        self.wait(until, &|| self.published().is_some_and(|hw| hw >= end) || stop())
            && self.published().is_some_and(|hw| hw >= end)
    }

    fn wait(&self, until: Instant, ready: &dyn Fn() -> bool) -> bool {
        if ready() {
            return true;
        }
        let mut waiting = self.waiting();
        *waiting += 1;
        let ready = loop {
            if ready() {
                break true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break false;
            }
            (waiting, _) = self
                .changed
                .wait_timeout(waiting, left.min(Duration::from_millis(50)))
                .expect("nothing under this lock panics");
        };
        *waiting -= 1;
        ready
    }

    /// A transaction was committed here.
    pub(crate) fn push(&self, state: State) {
        let mut states = self.states();
        assert!(states.back().is_none_or(|last| last.end <= state.end), "states come in order");
        if states.back().is_some_and(|last| last.end == state.end) {
            states.pop_back();
        }
        states.push_back(state);
        if let Some(hw) = self.published() {
            while states.len() > 1 && states[1].end <= hw {
                states.pop_front();
            }
        }
        drop(states);
        self.notify();
    }

    /// All older states are gone: a checkpoint or a rewind left this one.
    pub(crate) fn reset(&self, state: State) {
        let mut states = self.states();
        states.clear();
        states.push_back(state);
        drop(states);
        self.notify();
    }

    /// The newest state that readers may see, other than one that a checkpoint has `passed`, waiting for it until the instant. `None`: not yet.
    pub(crate) fn newest(&self, passed: Option<&State>, until: Instant, stop: &dyn Fn() -> bool) -> Option<State> {
        let other = || self.visible().filter(|state| passed.is_none_or(|passed| passed.snapshot != state.snapshot));
        if let Some(state) = other() {
            return Some(state);
        }
        self.wait(until, &|| other().is_some() || stop());
        other()
    }

    fn visible(&self) -> Option<State> {
        let hw = self.published()?;
        let mut states = self.states();
        while states.len() > 1 && states[1].end <= hw {
            states.pop_front();
        }
        states.front().copied().filter(|state| state.end <= hw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::{Conn, Hooks, OpenMode};

    #[test]
    fn a_reader_that_a_checkpoint_passed_waits_for_what_the_checkpoint_leaves() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sqlite");
        let conn = Conn::open(path.as_path(), OpenMode::Create, Hooks::own()).unwrap();
        conn.exec("PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE t(a)").unwrap();
        let before = State { end: 1, epoch: None, snapshot: Snapshot::newest(&conn).unwrap() };
        conn.exec("INSERT INTO t VALUES(1)").unwrap();
        let after = State { end: 1, epoch: None, snapshot: Snapshot::newest(&conn).unwrap() };

        let snapshots = Snapshots::new();
        snapshots.push(before);
        snapshots.publish(1);
        let go_on = || false;
        assert!(snapshots.newest(None, Instant::now(), &go_on).is_some_and(|state| state.snapshot == before.snapshot));
        assert!(snapshots.newest(Some(&before), Instant::now(), &go_on).is_none(), "it would be passed again");
        assert!(snapshots.newest(Some(&before), Instant::now() + Duration::from_secs(60), &|| true).is_none());
        std::thread::scope(|scope| {
            let reader =
                scope.spawn(|| snapshots.newest(Some(&before), Instant::now() + Duration::from_secs(60), &go_on));
            while *snapshots.waiting() == 0 {
                std::thread::yield_now();
            }
            snapshots.reset(after);
            assert!(reader.join().unwrap().is_some_and(|state| state.snapshot == after.snapshot));
        });
    }
}
