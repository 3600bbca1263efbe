//! Appending, all or nothing.
//!
//! 1. Check every batch: bytes that are not what their checksum says never reach the disk as if they were.
//! 2. Declare dead what an append that was given up has left behind (below).
//! 3. Begin a new segment if the present one has no room: make it, durably, then name it in the control file, then use it.
//! 4. See to the space. A full disk shows here, before anything of the entries is written.
//! 5. Write everything but the first frame's header, then that. Until it is there, recovery sees nothing of the append.
//! 6. Take note in memory.
//!
//! A disk that is full only in step 5 (file systems that copy on write) leaves fragments behind the end. They must not come to life when a later
//! append happens to end where one of them begins, so the next append first raises the generation by a cut at the end. Any other failure
//! poisons the log.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use highwater_wire::batch::{self, BatchHeader};

use crate::control::{Control, Cut};
use crate::frame::{ALIGN, FrameHeader, HEADER_BYTES, batch_crc, frame_size};
use crate::io::{Io, IoFile};
use crate::log::{Log, Options};
use crate::replace::is_full;
use crate::segment::{self, FIRST_FRAME, Segment, SegmentHeader};
use crate::store::LogError;

impl<I: Io> Log<I> {
    pub(crate) fn append_batches(&mut self, batches: &Bytes) -> Result<(), LogError> {
        self.healthy()?;
        let parts = self.check_batches(batches)?;
        self.clear_debris()?;
        let size: u64 = parts.iter().map(|(_, batch)| frame_size(batch.len())).sum();
        self.make_room(size, size)?;
        self.last_checksum = self.write_frames(&parts)?;

        for (header, batch) in &parts {
            let segment = self.segments.last_mut().expect("a log has a segment to write to");
            segment.note(header.base, frame_size(batch.len()));
            self.shape.append(header.epoch, header.count);
        }
        self.cache.push(parts[0].0.base, batches);
        self.mark_dirty();
        self.shape.check();
        Ok(())
    }

    /// Splits and checks. Bytes that are not batches were damaged on their way here, in this process: it stops.
    fn check_batches(&self, batches: &Bytes) -> Result<Vec<(BatchHeader, Bytes)>, LogError> {
        assert!(!batches.is_empty(), "an append has a batch");
        let mut parts = Vec::new();
        let (mut next, mut epoch) = (self.shape.end, self.shape.last_epoch());
        for part in batch::split(batches) {
            let (header, bytes) = part
                .and_then(|(_, bytes)| batch::check(&bytes).map(|header| (header, bytes)))
                .map_err(|error| self.poison(format!("a batch to be appended at offset {next} is damaged: {error}")))?;
            assert_eq!(header.base, next, "an append begins at the log's end, and its batches follow each other");
            assert!(Some(header.epoch) >= epoch, "an append of {:?} behind {epoch:?}", header.epoch);
            (next, epoch) = (next + header.count, Some(header.epoch));
            parts.push((header, bytes));
        }
        Ok(parts)
    }

    /// Declares dead what lies behind the end, if an append was given up there.
    pub(crate) fn clear_debris(&mut self) -> Result<(), LogError> {
        if !self.debris {
            return Ok(());
        }
        // The frames below the cut must outlive it, since an older cut is forgotten with it.
        self.sync_now()?;
        let generation = self.generation() + 1;
        let cut = Cut { offset: self.shape.end, generation, before: self.last_checksum };
        let control = Control { cut, ..self.present_control() };
        self.write_control(control)?;
        self.debris = false;
        Ok(())
    }

    /// See [`crate::LogStore::reserve`].
    pub(crate) fn reserve_space(&mut self, bytes: usize) -> Result<(), LogError> {
        self.healthy()?;
        self.clear_debris()?;
        // How many batches there will be is not known; at worst they are the smallest there can be, each with its own frame.
        let frames = bytes / batch::HEADER_BYTES + 1;
        let overhead = frames * (HEADER_BYTES + ALIGN as usize);
        self.make_room(frame_size(bytes), (bytes + overhead) as u64)
    }

    /// Sees to space for `most` bytes, in a new segment if `likely` bytes are too many for the present one.
    fn make_room(&mut self, likely: u64, most: u64) -> Result<(), LogError> {
        let segment = self.segments.last().expect("a log has a segment to write to");
        if segment.position + most <= segment.allocated {
            return Ok(());
        }
        if segment.position > FIRST_FRAME && segment.position + likely > self.options.segment_bytes {
            self.roll()?;
        }
        let Options { segment_bytes, zero_bytes, .. } = self.options;
        let segment = self.segments.last_mut().expect("a log has a segment to write to");
        let end = segment.position + most;
        let name = segment::name(segment.base);
        match segment.allocate(end, zero_bytes, segment_bytes) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.write_failed(&format!("{name} could not be extended"), error)),
        }
    }

    fn roll(&mut self) -> Result<(), LogError> {
        let base = self.shape.end;
        let previous = self.segments.last().map(|segment| segment.base);
        let header = SegmentHeader { log_id: self.log_id(), base, previous };
        let name = segment::name(base);
        let segment = match Segment::create(&self.io, header, &self.options) {
            Ok(segment) => segment,
            // Nothing names the file yet; the next attempt makes it anew, and so does recovery.
            Err(error) => return Err(self.write_failed(&format!("{name} could not be made"), error)),
        };
        let control = Control { last_segment: Some(base), ..self.present_control() };
        self.write_control(control)?;
        self.segments.push(segment);
        Ok(())
    }

    /// Returns the checksum in the last frame's header.
    fn write_frames(&mut self, parts: &[(BatchHeader, Bytes)]) -> Result<u32, LogError> {
        let segment = self.segments.last().expect("a log has a segment to write to");
        let (file, position, name) = (Arc::clone(&segment.file), segment.position, segment::name(segment.base));
        let mut last = self.last_checksum;
        let mut headers = Vec::with_capacity(parts.len());
        for (header, batch) in parts {
            let frame = self.frame_header(header, batch, last);
            last = frame.checksum();
            headers.push(frame.encode());
        }
        let behind = position + HEADER_BYTES as u64;
        // One batch goes out as it is. Several are joined, since a write for each would cost more than the copy.
        let written = match parts {
            [(_, batch)] => file.write_at(behind, batch),
            _ => file.write_at(behind, &joined(&headers, parts)),
        };
        if let Err(error) = written {
            self.debris = true;
            return Err(self.write_failed(&format!("{name} could not be written"), error));
        }
        let Err(error) = file.write_at(position, &headers[0]) else { return Ok(last) };
        // Of this write, anything may have reached the file, even all: then the append would be there after a crash, though it was refused.
        // It is erased, durably, or the log stops.
        self.debris = true;
        let erased = file.write_at(position, &[0; HEADER_BYTES]).and_then(|()| file.sync_data());
        match erased {
            Ok(()) if is_full(&error) => Err(LogError::Full(format!("{name} could not be written: {error}"))),
            _ => Err(self.poison(format!("{name} could not be written: {error}"))),
        }
    }

    fn frame_header(&self, header: &BatchHeader, batch: &Bytes, previous: u32) -> FrameHeader {
        FrameHeader {
            log_id: self.log_id(),
            generation: self.generation(),
            offset: header.base,
            count: u32::try_from(header.count).expect("a batch has at most i32::MAX entries"),
            epoch: header.epoch,
            length: batch.len() as u32,
            batch_crc: batch_crc(batch),
            flushed_before: self.shape.flushed,
            previous,
        }
    }

    pub(crate) fn mark_dirty(&mut self) {
        let file = &self.segments.last().expect("a log has a segment to write to").file;
        if !self.dirty.iter().any(|dirty| Arc::ptr_eq(dirty, file)) {
            self.dirty.push(Arc::clone(file));
        }
    }
}

/// Everything of the frames but the first header.
fn joined(headers: &[[u8; HEADER_BYTES]], parts: &[(BatchHeader, Bytes)]) -> Bytes {
    assert_eq!(headers.len(), parts.len(), "each batch has its header");
    let mut out = BytesMut::with_capacity(parts.iter().map(|(_, batch)| HEADER_BYTES + batch.len() + 8).sum());
    for (index, (header, (_, batch))) in headers.iter().zip(parts).enumerate() {
        if index > 0 {
            out.extend_from_slice(header);
        }
        out.extend_from_slice(batch);
        if index + 1 < parts.len() {
            let padding = frame_size(batch.len()) as usize - HEADER_BYTES - batch.len();
            out.resize(out.len() + padding, 0);
        }
    }
    out.freeze()
}
