//! The log itself: what it keeps in memory, and what its procedures share.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use highwater_wire::{HardState, LogId, LogShape, Offset};

use crate::cache::Cache;
use crate::control::{self, Control};
use crate::flush::{FlushJob, Running};
use crate::io::Io;
use crate::open::Recovered;
use crate::replace::{ReplaceError, durable_replace, is_full};
use crate::segment::Segment;
use crate::store::{FlushDone, LogError, LogStore};

/// How a log is kept.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A new segment begins where the present one would grow beyond this. A single append that is larger gets a larger segment.
    pub segment_bytes: u64,
    /// Space is filled with zeros in pieces of this size, ahead of the writer.
    pub zero_bytes: u64,
    /// How much of what was appended last is kept in memory for reading.
    pub cache_bytes: usize,
    /// Whether an empty folder becomes a new log. Where one was made before, it must not: its promises would be forgotten.
    pub create: bool,
}

impl Default for Options {
    /// 64 MiB, 1 MiB, 8 MiB, and empty folders become logs.
    fn default() -> Options {
        Options { segment_bytes: 64 << 20, zero_bytes: 1 << 20, cache_bytes: 8 << 20, create: true }
    }
}

/// A log in a folder.
pub struct Log<I: Io> {
    pub(crate) io: I,
    pub(crate) options: Options,
    /// As it lies on the disk, but for `flushed`, which moves on in memory.
    pub(crate) control: Control,
    pub(crate) shape: LogShape,
    /// The checksum in the header of the last frame; 0 if there is none.
    pub(crate) last_checksum: u32,
    /// From the first to the one that is written.
    pub(crate) segments: Vec<Segment<I::File>>,
    pub(crate) cache: Cache,
    /// Files written since the last flush began.
    pub(crate) dirty: Vec<Arc<I::File>>,
    pub(crate) running: Option<Running>,
    /// An append was given up in the middle: what it left behind the end must be declared dead before the next.
    pub(crate) debris: bool,
    pub(crate) recovered: Recovered,
    /// The first reason, for ever.
    poison: OnceLock<String>,
}

impl<I: Io> std::fmt::Debug for Log<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("Log");
        out.field("log_id", &self.log_id()).field("generation", &self.generation()).field("shape", &self.shape);
        out.field("poisoned", &self.poisoned()).finish_non_exhaustive()
    }
}

impl<I: Io> Log<I> {
    pub(crate) fn assemble(
        io: I,
        options: Options,
        control: Control,
        shape: LogShape,
        segments: Vec<Segment<I::File>>,
        recovered: Recovered,
    ) -> Log<I> {
        assert!(!segments.is_empty(), "a log has a segment to write to");
        assert!(control.clean.is_none(), "an open log is not marked as closed");
        assert_eq!(control.cut.offset, shape.end, "opening is recorded as a cut at the end");
        shape.check();
        Log {
            io,
            options,
            last_checksum: control.cut.before,
            control,
            shape,
            segments,
            cache: Cache::new(options.cache_bytes),
            dirty: Vec::new(),
            running: None,
            debris: false,
            recovered,
            poison: OnceLock::new(),
        }
    }

    /// The id that was made together with the folder.
    pub fn log_id(&self) -> LogId {
        self.control.log_id
    }

    /// What opening found.
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// The generation: raised by every cut and every opening.
    pub fn generation(&self) -> u64 {
        self.control.cut.generation
    }

    /// The first reason the log was poisoned for, if it was.
    pub fn poisoned(&self) -> Option<&str> {
        self.poison.get().map(String::as_str)
    }

    /// Poisons the log, unless it is already; the answer carries the first reason.
    pub(crate) fn poison(&self, reason: String) -> LogError {
        LogError::Poisoned(self.poison.get_or_init(|| reason).clone())
    }

    pub(crate) fn healthy(&self) -> Result<(), LogError> {
        match self.poison.get() {
            Some(reason) => Err(LogError::Poisoned(reason.clone())),
            None => Ok(()),
        }
    }

    /// Replaces the control file and takes it over. A full disk leaves the old one in force; any other failure poisons.
    pub(crate) fn write_control(&mut self, control: Control) -> Result<(), LogError> {
        assert_eq!(control.log_id, self.control.log_id, "a log keeps its id");
        assert!(control.cut.generation >= self.control.cut.generation, "generations never go down");
        match durable_replace(&self.io, control::NAME, &control.encode()) {
            Ok(()) => {
                self.control = control;
                Ok(())
            }
            Err(error @ ReplaceError { harmless: true, .. }) => Err(LogError::Full(error.to_string())),
            Err(error) => Err(self.poison(error.to_string())),
        }
    }

    /// What the control file should say now, the newest cut and the promises unchanged.
    pub(crate) fn present_control(&self) -> Control {
        Control { flushed: self.shape.flushed, ..self.control.clone() }
    }

    /// The answer to a failed write: a full disk where that leaves nothing behind that counts, poison otherwise.
    pub(crate) fn write_failed(&self, what: &str, error: std::io::Error) -> LogError {
        if is_full(&error) {
            LogError::Full(format!("{what}: {error}"))
        } else {
            self.poison(format!("{what}: {error}"))
        }
    }

    /// Makes everything written durable, here and now. What it makes durable is not counted as flushed until a flush job says so.
    pub(crate) fn sync_now(&mut self) -> Result<(), LogError> {
        for file in self.dirty.iter().chain(self.running.iter().flat_map(|running| running.files(&self.segments))) {
            if let Err(error) = crate::io::IoFile::sync_data(&**file) {
                return Err(self.poison(format!("the log could not be flushed: {error}")));
            }
        }
        Ok(())
    }

    /// Closes the log in good order: flushes it and marks the control file. Without it, the next opening takes the log for one that crashed.
    pub fn close(mut self) -> Result<(), LogError> {
        self.healthy()?;
        self.clear_debris()?;
        self.sync_now()?;
        let end = self.shape.end;
        self.shape.flushed = end;
        let control = Control { clean: Some(end), ..self.present_control() };
        self.write_control(control)
    }
}

impl<I: Io> LogStore for Log<I> {
    type FlushJob = FlushJob<I::File>;

    fn shape(&self) -> &LogShape {
        &self.shape
    }

    fn hard_state(&self) -> &HardState {
        &self.control.hard
    }

    fn persist(&mut self, hard: &HardState) -> Result<(), LogError> {
        self.healthy()?;
        let control = Control { hard: hard.clone(), ..self.present_control() };
        self.write_control(control)
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), LogError> {
        self.reserve_space(bytes)
    }

    fn append(&mut self, batches: &Bytes) -> Result<(), LogError> {
        self.append_batches(batches)
    }

    fn cut(&mut self, to: Offset) -> Result<(), LogError> {
        self.cut_to(to)
    }

    fn read(&self, from: Offset, max_bytes: usize) -> Result<Bytes, LogError> {
        self.read_batches(from, max_bytes)
    }

    fn begin_flush(&mut self) -> Option<FlushJob<I::File>> {
        self.start_flush()
    }

    fn finish_flush(&mut self, done: FlushDone) -> Result<Offset, LogError> {
        self.end_flush(done)
    }
}
