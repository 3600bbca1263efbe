//! A node's disk in memory: real logs, over folders that lose what was not synced when the power goes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use highwater_host::Folders;
use highwater_log::mem::{Fault, MemFile, MemIo, Op};
use highwater_log::{FlushJob, Log, LogError, Options};
use highwater_wire::{LogId, PartitionId};

pub type Job = FlushJob<MemFile>;

/// Small, so that a short test sees several segments.
const OPTIONS: Options = Options { segment_bytes: 16 << 10, zero_bytes: 4 << 10, cache_bytes: 16 << 10, create: true };

/// All logs of one node.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    folders: Rc<RefCell<BTreeMap<PartitionId, MemIo>>>,
    broken: Rc<RefCell<BTreeSet<PartitionId>>>,
}

impl Disk {
    /// The power goes. `choose(n)` picks a number below `n` for everything that may go one way or another.
    pub fn crash(&self, mut choose: impl FnMut(usize) -> usize) {
        for folder in self.folders.borrow_mut().values_mut() {
            folder.crash(&mut choose);
        }
    }

    /// A disk of its own with the same files.
    pub fn copy(&self) -> Disk {
        let folders = self.folders.borrow().iter().map(|(id, folder)| (*id, folder.copy())).collect();
        Disk { folders: Rc::new(RefCell::new(folders)), broken: Rc::default() }
    }

    /// That partition's folder cannot be opened any more.
    pub fn break_folder(&self, id: PartitionId) {
        self.broken.borrow_mut().insert(id);
    }

    /// The next sync in that partition's folder fails.
    pub fn fail_sync(&self, id: PartitionId) {
        let fault = Fault { op: Some(Op::Sync), after: 0, full: false, for_ever: false, short: false };
        self.folders.borrow()[&id].fail(fault);
    }
}

impl Folders for Disk {
    type Log = Log<MemIo>;

    fn open(&mut self, partition: PartitionId, _: &str, log: LogId) -> Result<Log<MemIo>, LogError> {
        if self.broken.borrow().contains(&partition) {
            return Err(LogError::Poisoned("the folder cannot be read".into()));
        }
        let mut folders = self.folders.borrow_mut();
        // A folder that lost its log before it was ever synced was never made.
        let folder = folders.entry(partition).or_default();
        Log::open(folder.clone(), OPTIONS, log).map_err(|error| LogError::Poisoned(error.to_string()))
    }
}
