//! A node's logs: real ones, over a simulated disk, with every call noted for the observer outside.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use highwater_host::Folders;
use highwater_log::{FlushDone, FlushJob, Log, LogError, LogStore, Options};
use highwater_wire::{HardState, Incarnation, LogId, LogShape, NodeId, Offset, PartitionId};

use super::disk::{Disk, DiskFile, DiskIo};
use crate::facts::{Attempt, Observation, Place};

/// What was seen and not yet looked at.
pub(super) type Notes = Rc<RefCell<Vec<Observation>>>;

/// Segments are small, so that a run sees many of them begin.
pub(super) const OPTIONS: Options =
    Options { segment_bytes: 24 << 10, zero_bytes: 4 << 10, cache_bytes: 16 << 10, create: true };

/// The folders of one process.
#[derive(Debug)]
pub(super) struct SimFolders {
    node: NodeId,
    incarnation: Incarnation,
    disk: Disk,
    notes: Notes,
}

impl SimFolders {
    pub(super) fn new(node: NodeId, incarnation: Incarnation, disk: Disk, notes: Notes) -> SimFolders {
        SimFolders { node, incarnation, disk, notes }
    }
}

impl Folders for SimFolders {
    type Log = SimLog;

    fn open(&mut self, partition: PartitionId, _: &str, log: LogId) -> Result<SimLog, LogError> {
        let place = Place { partition, node: self.node };
        // Where a log was made before, an empty folder is a loss, not a new log.
        let options = Options { create: !self.disk.was_made(partition), ..OPTIONS };
        let inner = Log::open(self.disk.folder(partition), options, log).map_err(|error| {
            if error.is_full() { LogError::Full(error.to_string()) } else { LogError::Poisoned(error.to_string()) }
        })?;
        self.disk.made(partition);
        let log = SimLog { place, inner, notes: Rc::clone(&self.notes) };
        let shape = log.inner.shape();
        let mut batches = Vec::new();
        let mut from = shape.start;
        while from < shape.end {
            let read = log.inner.read(from, 1 << 20)?;
            for part in highwater_wire::batch::split(&read) {
                let (header, _) = part.map_err(|error| LogError::Poisoned(error.to_string()))?;
                assert_eq!(header.base, from, "a log reads back without gaps");
                from = header.base + header.count;
            }
            batches.extend_from_slice(&read);
        }
        log.note(Observation::Opened {
            place,
            incarnation: self.incarnation,
            batches: Bytes::from(batches),
            hard: log.inner.hard_state().clone(),
        });
        if log.inner.recovered().torn.is_some() {
            log.note(Observation::Torn { place });
        }
        Ok(log)
    }
}

/// A log whose calls are noted.
pub(super) struct SimLog {
    place: Place,
    inner: Log<DiskIo>,
    notes: Notes,
}

impl SimLog {
    fn note(&self, seen: Observation) {
        self.notes.borrow_mut().push(seen);
    }

    /// Notes what was done, or what may have been done before it failed.
    fn noted<T>(&self, result: Result<T, LogError>, done: Observation, attempt: Attempt) -> Result<T, LogError> {
        match &result {
            Ok(_) => self.note(done),
            Err(LogError::Full(_)) => self.note(Observation::Full { place: self.place }),
            Err(LogError::Poisoned(_)) => self.note(Observation::Attempted { place: self.place, attempt }),
        }
        result
    }
}

impl LogStore for SimLog {
    type FlushJob = SimJob;

    fn shape(&self) -> &LogShape {
        self.inner.shape()
    }

    fn hard_state(&self) -> &HardState {
        self.inner.hard_state()
    }

    fn persist(&mut self, hard: &HardState) -> Result<(), LogError> {
        let result = self.inner.persist(hard);
        let place = self.place;
        self.noted(result, Observation::Persisted { place, hard: hard.clone() }, Attempt::Persist(hard.clone()))
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), LogError> {
        let result = self.inner.reserve(bytes);
        if let Err(LogError::Full(_)) = result {
            self.note(Observation::Full { place: self.place });
        }
        result
    }

    fn append(&mut self, batches: &Bytes) -> Result<(), LogError> {
        let result = self.inner.append(batches);
        let (place, batches) = (self.place, batches.clone());
        self.noted(result, Observation::Appended { place, batches: batches.clone() }, Attempt::Append(batches))
    }

    fn cut(&mut self, to: Offset) -> Result<(), LogError> {
        let result = self.inner.cut(to);
        let place = self.place;
        self.noted(result, Observation::Cut { place, to }, Attempt::Cut(to))
    }

    fn read(&self, from: Offset, max_bytes: usize) -> Result<Bytes, LogError> {
        self.inner.read(from, max_bytes)
    }

    fn begin_flush(&mut self) -> Option<SimJob> {
        let end = self.inner.shape().end;
        self.inner.begin_flush().map(|job| SimJob { end, job })
    }

    fn finish_flush(&mut self, done: FlushDone) -> Result<Offset, LogError> {
        self.inner.finish_flush(done)
    }
}

/// A flush, with the end that it makes durable as the observer outside noted it.
#[derive(Debug)]
pub(super) struct SimJob {
    end: Offset,
    job: FlushJob<DiskFile>,
}

impl SimJob {
    /// Syncs. What was cut and written anew since it began is synced along with the rest, and not counted by anybody.
    pub(super) fn run(self, place: Place, cuts: &BTreeMap<Place, Offset>) -> (FlushDone, Observation) {
        let done = self.job.run();
        let to = cuts.get(&place).map_or(self.end, |cut| self.end.min(*cut));
        let seen = match done.result {
            Ok(_) => Observation::Flushed { place, to },
            Err(_) => Observation::FlushFailed { place },
        };
        (done, seen)
    }
}
