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
    /// Writes are remembered, so that they can be lost.
    remembers: bool,
}

/// A disk; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk(Rc<RefCell<Folders>>);

impl Disk {
    /// The folder of a partition's log, as the running process sees it.
    pub(super) fn folder(&self, partition: PartitionId) -> MemIo {
        let mut folders = self.0.borrow_mut();
        let remembers = folders.remembers;
        let folder = folders.folders.entry(partition).or_default();
        if remembers {
            folder.remember_writes();
        }
        folder.clone()
    }

    /// Writes are remembered from now on, so that they can be lost.
    pub(super) fn remember_writes(&self) {
        self.0.borrow_mut().remembers = true;
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

    /// The power goes in the middle of the last write to that file: see [`MemIo::crash_within`].
    pub(super) fn lose_power_within(&self, partition: PartitionId, name: &str, end: u64) {
        if let Some(folder) = self.0.borrow_mut().folders.get_mut(&partition) {
            folder.crash_within(name, end);
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

    /// Reads fail from some read on, in every folder.
    pub(super) fn fail_reads(&self, rng: &mut Rng) {
        for folder in self.0.borrow().folders.values() {
            folder.fail(Fault { op: Some(Op::Read), after: rng.below(30), full: false, for_ever: true, short: false });
        }
    }

    /// One read fails, after some more have succeeded.
    pub(super) fn fail_one_read(&self, rng: &mut Rng) {
        let after = rng.below(30);
        self.fail(Fault { op: Some(Op::Read), after, full: false, for_ever: false, short: false }, rng);
    }

    /// Reads succeed again.
    pub(super) fn heal_reads(&self) {
        for folder in self.0.borrow().folders.values() {
            folder.heal();
        }
    }

    /// A disk of its own with the same files, all of them durable, and no faults.
    pub(super) fn copy(&self) -> Disk {
        let disk = self.0.borrow();
        let folders = disk.folders.iter().map(|(partition, folder)| (*partition, folder.copy())).collect();
        let (made, remembers) = (disk.made.clone(), disk.remembers);
        Disk(Rc::new(RefCell::new(Folders { folders, made, capacity: false, remembers })))
    }

    /// The folders that there are.
    pub(super) fn folders(&self) -> Vec<MemIo> {
        self.0.borrow().folders.values().cloned().collect()
    }

    /// Whether anything reads otherwise than it was written.
    pub(super) fn spoiled(&self) -> bool {
        self.0.borrow().folders.values().any(MemIo::spoiled)
    }

    /// Everything reads as it was written.
    pub(super) fn mend(&self) {
        for folder in self.0.borrow().folders.values() {
            folder.mend();
        }
    }

    /// Nothing fails any more.
    pub(super) fn heal(&self) {
        self.set_full(false);
        for folder in self.0.borrow().folders.values() {
            folder.heal();
        }
    }
}
