//! Cutting: everything from an offset on is given up, and stays given up.
//!
//! 1. Write the frames from there on to the lost tail, durably: what is truncated is kept and can be looked at.
//! 2. Flush the rest. The control file remembers one cut; the frames written since an older one stand between it and the frames it killed.
//! 3. Write the control file, durably: newest cut (offset, generation + 1), and the segment that is the last now. **This is the cut.** A crash
//!    before it leaves the log as it was; after it, no frame of an older generation from that offset on is ever taken for one of the log's.
//! 4. Remove the segments behind, durably. Recovery does so too.
//! 5. Take note in memory. A flush that runs counts only for what lies below.

use highwater_wire::Offset;

use crate::control::{Control, Cut};
use crate::frame::{ALIGN, CHUNK_BYTES, Reader};
use crate::io::{Io, IoFile};
use crate::log::Log;
use crate::replace::replace_with;
use crate::segment;
use crate::store::LogError;

/// The name of the file that holds what a cut at `to`, made in `generation`, gave up.
pub(crate) fn lost_tail_name(to: Offset, generation: u64) -> String {
    format!("lost-tail-{to:020}-{generation:020}")
}

impl<I: Io> Log<I> {
    pub(crate) fn cut_to(&mut self, to: Offset) -> Result<(), LogError> {
        assert!(
            self.shape.start <= to && to <= self.shape.end,
            "a cut at {to} outside {}..={}",
            self.shape.start,
            self.shape.end
        );
        self.healthy()?;
        if to == self.shape.end {
            return Ok(());
        }
        let kept = self.segments.partition_point(|segment| segment.base <= to);
        assert!(kept > 0, "the first segment holds the start");
        let found = self.segments[kept - 1].locate(to).map_err(|damage| self.poison(damage))?;
        // At the very end of a segment that another follows, `kept` is already that one; so there is a frame.
        let (position, frame) = found.expect("an offset below the end lies in a frame");
        assert_eq!(frame.offset, to, "a cut goes between batches");

        let before = self.checksum_before(to)?;

        self.write_lost_tail(to, kept - 1, position)?;
        self.sync_now()?;
        let control = Control {
            cut: Cut { offset: to, generation: self.generation() + 1, before },
            flushed: to,
            last_segment: Some(self.segments[kept - 1].base),
            ..self.control.clone()
        };
        self.write_control(control)?;
        self.remove_from(kept)?;

        self.segments[kept - 1].forget(to, position);
        self.shape.cut(to);
        self.cache.cut(to);
        self.last_checksum = before;
        self.debris = false;
        self.dirty.retain(|dirty| self.segments.iter().any(|segment| std::sync::Arc::ptr_eq(dirty, &segment.file)));
        if let Some(running) = &mut self.running {
            running.cut(to);
        }
        self.shape.check();
        Ok(())
    }

    /// The checksum in the header of the frame that ends at `to`; 0 at the log's very beginning.
    fn checksum_before(&self, to: Offset) -> Result<u32, LogError> {
        assert_eq!(
            self.shape.start, 0,
            "with its head removed, a log would have to keep the checksum before its start"
        );
        let Some(last) = to.checked_sub(1) else { return Ok(0) };
        let holder = self.segments.partition_point(|segment| segment.base <= last);
        let found = self.segments[holder - 1].locate(last).map_err(|damage| self.poison(damage))?;
        let (_, frame) = found.expect("an offset below the end lies in a frame");
        assert_eq!(frame.end(), to, "a cut goes between batches");
        Ok(frame.checksum())
    }

    fn write_lost_tail(&self, to: Offset, first: usize, position: u64) -> Result<(), LogError> {
        let name = lost_tail_name(to, self.generation());
        let written = replace_with(&self.io, &name, |out| {
            let mut end = 0;
            for (index, segment) in self.segments.iter().enumerate().skip(first) {
                let mut reader = Reader::new(&*segment.file, CHUNK_BYTES)?;
                let mut at = if index == first { position } else { segment::FIRST_FRAME };
                while at < segment.position {
                    let want = (segment.position - at).min(CHUNK_BYTES as u64) as usize;
                    let bytes = reader.bytes(at, want)?;
                    // A loss of power may have left the file's end in the padding behind the last frame, which is zeros.
                    let padding = want - bytes.len();
                    if padding > 0 && (padding >= ALIGN as usize || at + want as u64 != segment.position) {
                        return Err(std::io::ErrorKind::UnexpectedEof.into());
                    }
                    out.write_at(end, &bytes)?;
                    if padding > 0 {
                        out.write_at(end + bytes.len() as u64, &[0; ALIGN as usize][..padding])?;
                    }
                    (at, end) = (at + want as u64, end + want as u64);
                }
            }
            assert!(end > 0, "a cut gives something up");
            Ok(())
        });
        match written {
            Ok(()) => Ok(()),
            Err(error) if error.harmless => Err(LogError::Full(error.to_string())),
            Err(error) => Err(self.poison(error.to_string())),
        }
    }

    /// Removes the segments from the `kept`-th on, durably.
    fn remove_from(&mut self, kept: usize) -> Result<(), LogError> {
        if kept == self.segments.len() {
            return Ok(());
        }
        for segment in self.segments.drain(kept..).collect::<Vec<_>>().iter().rev() {
            let name = segment::name(segment.base);
            if let Err(error) = self.io.remove(&name) {
                return Err(self.poison(format!("{name} could not be removed after a cut: {error}")));
            }
        }
        match self.io.sync_dir() {
            Ok(()) => Ok(()),
            Err(error) => Err(self.poison(format!("the folder could not be synced after a cut: {error}"))),
        }
    }
}
