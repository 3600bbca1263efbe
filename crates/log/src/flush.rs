//! Group commit: one flush covers everything appended while the last one ran.
//!
//! 1. `begin_flush` notes the end and takes the files written since the last began. Nothing else may begin until it is finished.
//! 2. The job syncs them, on any thread.
//! 3. `finish_flush` moves `flushed` to the end noted in 1, or to the lowest cut made since: entries appended in place of cut ones are not covered.
//!
//! A failed sync is never tried again: the kernel may have marked the lost pages clean, and a second sync would report success.

use std::sync::Arc;

use highwater_wire::Offset;

use crate::io::{Io, IoFile};
use crate::log::Log;
use crate::segment::Segment;
use crate::store::{FlushDone, LogError};

/// A flush that may run on another thread.
#[derive(Debug)]
pub struct FlushJob<F> {
    files: Vec<Arc<F>>,
    end: Offset,
    generation: u64,
}

impl<F: IoFile> FlushJob<F> {
    /// Syncs, blocking, and says how it went.
    pub fn run(self) -> FlushDone {
        let result = self.files.iter().try_for_each(|file| file.sync_data());
        let result = result.map_err(|error| LogError::Poisoned(format!("the log could not be flushed: {error}")));
        FlushDone { end: self.end, generation: self.generation, result }
    }
}

/// What is remembered of the job that runs.
pub(crate) struct Running {
    end: Offset,
    generation: u64,
    /// Up to where its result counts: its end, or the lowest cut made since.
    counts_to: Offset,
    /// The base of the first segment it covers.
    from_segment: Offset,
}

impl Running {
    /// A cut was made while the job runs.
    pub(crate) fn cut(&mut self, to: Offset) {
        self.counts_to = self.counts_to.min(to);
    }

    /// The files the job covers, as far as they are still part of the log.
    pub(crate) fn files<'a, F>(&self, segments: &'a [Segment<F>]) -> impl Iterator<Item = &'a Arc<F>> + use<'a, F> {
        let from = self.from_segment;
        segments.iter().filter(move |segment| segment.base >= from).map(|segment| &segment.file)
    }
}

impl<I: Io> Log<I> {
    pub(crate) fn start_flush(&mut self) -> Option<FlushJob<I::File>> {
        if self.running.is_some() || self.shape.flushed == self.shape.end || self.poisoned().is_some() {
            return None;
        }
        let (end, generation) = (self.shape.end, self.generation());
        let files = std::mem::take(&mut self.dirty);
        let from_segment =
            self.segments.iter().find(|segment| files.iter().any(|file| Arc::ptr_eq(file, &segment.file)));
        let from_segment = from_segment.map_or(end, |segment| segment.base);
        self.running = Some(Running { end, generation, counts_to: end, from_segment });
        Some(FlushJob { files, end, generation })
    }

    pub(crate) fn end_flush(&mut self, done: FlushDone) -> Result<Offset, LogError> {
        let running = self.running.take().expect("a flush that ends has begun");
        assert_eq!((done.end, done.generation), (running.end, running.generation), "it is the flush that runs");
        if let Err(LogError::Full(reason) | LogError::Poisoned(reason)) = done.result {
            return Err(self.poison(reason));
        }
        self.healthy()?;
        assert!(running.counts_to <= self.shape.end, "what a flush counts for is still there");
        self.shape.flushed = self.shape.flushed.max(running.counts_to);
        Ok(self.shape.flushed)
    }
}
