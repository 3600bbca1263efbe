//! A log in memory, as a partition wants it: a list of entries, and the hard state beside it.
//!
//! A flush is under way whenever something is not durable, and covers what was appended until it ends: a later sync makes more durable. So a flush has
//! no state of its own, and its end is one event.

use std::cell::Cell;
use std::hash::{Hash, Hasher};

use bytes::{Bytes, BytesMut};
use highwater_log::{FlushDone, LogError, LogStore};
use highwater_wire::batch::{self, Control, Record};
use highwater_wire::{HardState, LogShape, Offset};

use super::world::Entry;

/// A log with its hard state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Disk {
    log: Vec<Entry>,
    shape: LogShape,
    hard: HardState,
    lowest_cut: Note,
}

/// A word to whoever drives the step, taken out at its end: no part of the state.
#[derive(Clone, Debug, Default)]
struct Note(Cell<Option<u64>>);

impl PartialEq for Note {
    fn eq(&self, _: &Note) -> bool {
        true
    }
}

impl Eq for Note {}

impl Hash for Note {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Disk {
    /// What a crash left: this log, whose first `durable` entries are known to be durable.
    pub(super) fn new(log: Vec<Entry>, durable: usize, hard: HardState) -> Disk {
        let mut shape = LogShape::default();
        log.iter().for_each(|entry| shape.append(entry.epoch, 1));
        shape.flushed = durable as u64;
        shape.check();
        Disk { log, shape, hard, lowest_cut: Note::default() }
    }

    /// What a crash leaves if the first `kept` entries survive it.
    pub(super) fn after_crash(&self, kept: usize) -> Disk {
        Disk::new(self.log[..kept].to_vec(), kept, self.hard.clone())
    }

    /// The log as it would be read now.
    pub(super) fn log(&self) -> &[Entry] {
        &self.log
    }

    /// How many entries of it are durable.
    pub(super) fn durable(&self) -> usize {
        self.shape.flushed as usize
    }

    /// The entries that a crash leaves at least.
    pub(super) fn durable_log(&self) -> &[Entry] {
        &self.log[..self.durable()]
    }

    /// Where the log was cut since this was last asked, at the lowest.
    pub(super) fn take_cut(&self) -> Option<u64> {
        self.lowest_cut.0.take()
    }
}

impl LogStore for Disk {
    type FlushJob = ();

    fn shape(&self) -> &LogShape {
        &self.shape
    }

    fn hard_state(&self) -> &HardState {
        &self.hard
    }

    fn persist(&mut self, hard: &HardState) -> Result<(), LogError> {
        self.hard = hard.clone();
        Ok(())
    }

    fn reserve(&mut self, _: usize) -> Result<(), LogError> {
        Ok(())
    }

    fn append(&mut self, batches: &Bytes) -> Result<(), LogError> {
        for (base, entry) in entries_of(batches) {
            assert_eq!(base, self.shape.end, "what is appended begins at the log's end");
            self.log.push(entry);
            self.shape.append(entry.epoch, 1);
        }
        Ok(())
    }

    fn cut(&mut self, to: Offset) -> Result<(), LogError> {
        self.shape.cut(to);
        self.log.truncate(to as usize);
        let lowest = self.lowest_cut.0.get().map_or(to, |lower| lower.min(to));
        self.lowest_cut.0.set(Some(lowest));
        Ok(())
    }

    fn read(&self, from: Offset, _: usize) -> Result<Bytes, LogError> {
        let mut all = BytesMut::new();
        for (offset, entry) in self.log.iter().enumerate().skip(from as usize) {
            let mut one = unstamped(entry.id);
            batch::stamp(&mut one, offset as u64, entry.epoch).expect("a batch built here");
            all.extend_from_slice(&one);
        }
        Ok(all.freeze())
    }

    fn begin_flush(&mut self) -> Option<()> {
        (self.shape.flushed < self.shape.end).then_some(())
    }

    fn finish_flush(&mut self, done: FlushDone) -> Result<Offset, LogError> {
        done.result?;
        self.shape.flushed = self.shape.end;
        Ok(self.shape.flushed)
    }
}

/// A flush job has ended.
pub(super) fn flushed() -> FlushDone {
    FlushDone { end: 0, generation: 0, result: Ok(()) }
}

/// The bytes of an entry that is not stamped yet: number 0 is a control entry.
pub(super) fn unstamped(id: u8) -> BytesMut {
    match id {
        0 => batch::build_control(&Control::EpochStart, 0),
        id => {
            let value = Bytes::copy_from_slice(&[id]);
            batch::build(&[Record { key: None, value: Some(value) }], 0)
        }
    }
}

/// The entries in these batches, each with its offset.
pub(super) fn entries_of(batches: &Bytes) -> Vec<(Offset, Entry)> {
    let entry = |item: Result<(batch::BatchHeader, Bytes), batch::BatchError>| {
        let (header, bytes) = item.expect("only whole batches are appended");
        assert_eq!(header.count, 1, "batches here have one entry");
        let id = match header.control {
            true => 0,
            false => batch::records(&bytes).expect("a batch built here")[0].value.as_ref().expect("a value")[0],
        };
        (header.base, Entry { epoch: header.epoch, id })
    };
    batch::split(batches).map(entry).collect()
}
