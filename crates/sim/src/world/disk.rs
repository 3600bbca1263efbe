//! A node's disk: one simulated folder for each log, with what is known of them outside the process.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use highwater_log::mem::{Fault, MemFile, MemIo, Op};
use highwater_wire::PartitionId;

use crate::rng::Rng;

/// What a log writes to.
pub(super) type DiskIo = MemIo;
/// One of its files.
pub(super) type DiskFile = MemFile;

#[derive(Debug, Default)]
struct Folders {
    folders: BTreeMap<PartitionId, MemIo>,
    made: BTreeSet<PartitionId>,
    /// What folders made later will suffer from.
    capacity: bool,
}

/// A disk; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk(Rc<RefCell<Folders>>);

impl Disk {
    /// The folder of a partition's log, as the running process sees it.
    pub(super) fn folder(&self, partition: PartitionId) -> MemIo {
        self.0.borrow_mut().folders.entry(partition).or_default().clone()
    }

    /// Whether a log was made there, durably.
    pub(super) fn was_made(&self, partition: PartitionId) -> bool {
        self.0.borrow().made.contains(&partition)
    }

    /// Notes that one was.
    pub(super) fn made(&self, partition: PartitionId) {
        self.0.borrow_mut().made.insert(partition);
    }

    /// The process is gone. With `power` gone too, any part of what was not synced is.
    pub(super) fn crash(&self, power: bool, rng: &mut Rng) {
        for folder in self.0.borrow_mut().folders.values_mut() {
            folder.heal();
            match power {
                true => folder.crash(|choices| rng.below(choices as u64) as usize),
                false => folder.kill(),
            }
        }
    }

    /// One operation fails, after some more have succeeded.
    pub(super) fn fail_once(&self, rng: &mut Rng) {
        let op = if rng.percent(50) { Some(*rng.pick(&[Op::Write, Op::Sync])) } else { None };
        self.fail(Fault { op, after: rng.below(20), full: false, for_ever: false, short: rng.percent(50) }, rng);
    }

    /// From some operation on all fail: the moment at which the process is going to die, in the middle of what it does.
    pub(super) fn fail_from(&self, rng: &mut Rng) {
        let (after, short) = (rng.below(40), rng.percent(50));
        self.fail(Fault { op: None, after, full: false, for_ever: true, short }, rng);
    }

    fn fail(&self, fault: Fault, rng: &mut Rng) {
        let folders = self.0.borrow();
        let all: Vec<_> = folders.folders.values().collect();
        if !all.is_empty() {
            rng.pick(&all).fail(fault);
        }
    }

    /// No more room than is used now, and a little; or all the room there is again.
    pub(super) fn set_full(&self, full: bool) {
        let mut folders = self.0.borrow_mut();
        folders.capacity = full;
        for folder in folders.folders.values() {
            folder.set_capacity(full.then(|| folder.used_bytes() + 300));
        }
    }

    /// Whether it is full.
    pub(super) fn is_full(&self) -> bool {
        self.0.borrow().capacity
    }

    /// Nothing fails any more.
    pub(super) fn heal(&self) {
        self.set_full(false);
        for folder in self.0.borrow().folders.values() {
            folder.heal();
        }
    }
}
