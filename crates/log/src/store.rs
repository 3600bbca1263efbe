//! The log as a partition needs it. [`crate::Log`] implements it over files; checkers implement it in memory.

use bytes::Bytes;
use highwater_wire::{HardState, LogShape, Offset};

/// Why a log could not do something. After any of these the log is poisoned: it does nothing more until the process restarts, and keeps
/// giving the first reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The disk is full. Nothing was changed, and the log is *not* poisoned.
    #[error("the disk is full: {0}")]
    Full(String),
    /// A write or a flush failed, or something read back is damaged. The log is poisoned.
    #[error("the log stopped: {0}")]
    Poisoned(String),
}

/// The result of a flush job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushDone {
    /// The log's end when the job began.
    pub end: Offset,
    /// The log's generation when the job began: entries cut since are not counted.
    pub generation: u64,
    /// What the disk answered.
    pub result: Result<(), LogError>,
}

/// One log. Calls block only as long as their disk writes do; those that say *durable* sync before they return.
pub trait LogStore {
    /// A flush that may run on another thread.
    type FlushJob;

    /// The outline: start, end, flushed, epochs.
    fn shape(&self) -> &LogShape;

    /// The durable promises.
    fn hard_state(&self) -> &HardState;

    /// Replaces the promises, durable.
    fn persist(&mut self, hard: &HardState) -> Result<(), LogError>;

    /// Makes room for that many more bytes of batches, so that appending them cannot meet a full disk. [`LogError::Full`] changes nothing: ask again
    /// when there is space.
    fn reserve(&mut self, bytes: usize) -> Result<(), LogError>;

    /// Appends stamped batches at the end, not durable.
    ///
    /// # Panics
    /// If their base is not the end.
    fn append(&mut self, batches: &Bytes) -> Result<(), LogError>;

    /// Writes the entries at and above `to` to the lost tail, then cuts there; both durable.
    ///
    /// # Panics
    /// If `to` is outside `[start, end]`.
    fn cut(&mut self, to: Offset) -> Result<(), LogError>;

    /// Whole batches from exactly `from` (a batch's base, or its middle: then from that batch's base) on: at least one, and no more than `max_bytes` otherwise. Empty at
    /// the end.
    fn read(&self, from: Offset, max_bytes: usize) -> Result<Bytes, LogError>;

    /// A job that makes everything appended so far durable; `None` if it is already, or if a job is running: one at a time, so that everything
    /// appended meanwhile shares the next.
    fn begin_flush(&mut self) -> Option<Self::FlushJob>;

    /// Takes a job's result in; returns the offset up to which the log is durable now.
    fn finish_flush(&mut self, done: FlushDone) -> Result<Offset, LogError>;
}
