//! Reading: the newest entries from memory, older ones from their files, checked.

use bytes::{Bytes, BytesMut};
use highwater_wire::Offset;

use crate::frame::{CHUNK_BYTES, HEADER_BYTES, Reader, Slot};
use crate::io::Io;
use crate::log::Log;
use crate::segment;
use crate::store::LogError;

/// The most that is read from a file at once.
const READ_BYTES_MAX: usize = 4 << 20;

impl<I: Io> Log<I> {
    pub(crate) fn read_batches(&self, from: Offset, max_bytes: usize) -> Result<Bytes, LogError> {
        assert!(
            self.shape.start <= from && from <= self.shape.end,
            "a read at {from} outside {}..={}",
            self.shape.start,
            self.shape.end
        );
        self.healthy()?;
        if from == self.shape.end {
            return Ok(Bytes::new());
        }
        if let Some(bytes) = self.cache.read(from, max_bytes) {
            return Ok(bytes);
        }
        self.read_files(from, max_bytes).map_err(|damage| self.poison(damage))
    }

    /// From the segment that holds `from`, never beyond it: at least one batch.
    fn read_files(&self, from: Offset, max_bytes: usize) -> Result<Bytes, String> {
        let at = self.segments.partition_point(|segment| segment.base <= from);
        let segment = &self.segments[at.checked_sub(1).expect("the first segment holds the start")];
        let name = segment::name(segment.base);
        let (mut position, first) = segment.locate(from)?.expect("an offset below the end lies in a frame");
        let failed = |error: std::io::Error| format!("{name} could not be read: {error}");
        let chunk = max_bytes.saturating_add(HEADER_BYTES).clamp(CHUNK_BYTES / 4, READ_BYTES_MAX);
        let mut reader = Reader::new(&*segment.file, chunk).map_err(failed)?;
        let (mut next, mut chosen, mut size) = (first.offset, Vec::new(), 0);
        while position < segment.position {
            let damaged = |what: String| {
                format!("{name} is damaged at byte {position}, offset {next}, which was written or read before: {what}")
            };
            let batch = match reader.slot(position).map_err(failed)? {
                Slot::Frame(frame, batch) if frame.offset == next && frame.log_id == self.log_id() => batch,
                other => return Err(damaged(format!("{other:?}"))),
            };
            if !chosen.is_empty() && size + batch.len() > max_bytes {
                break;
            }
            let header = highwater_wire::batch::header(&batch).map_err(|error| damaged(error.to_string()))?;
            position += crate::frame::frame_size(batch.len());
            next += header.count;
            size += batch.len();
            chosen.push(batch);
        }
        let mut out = match chosen.as_slice() {
            [one] => return Ok(one.clone()),
            _ => BytesMut::with_capacity(size),
        };
        chosen.iter().for_each(|batch| out.extend_from_slice(batch));
        assert!(!out.is_empty(), "a read below the end finds a batch");
        Ok(out.freeze())
    }
}
