//! A segment: one file of frames. It begins with a header in a page of its own, written and synced before the control file names the segment, and
//! never again:
//!
//! ```text
//! 0    magic     8 bytes  "HWSEGMT\n"
//! 8    version   u32      1
//! 12   zero      4 bytes
//! 16   log id    u64
//! 24   base      u64      the offset of its first frame; also its name, in 20 digits
//! 32   previous  u64      the base of the segment before it; its own in the first
//! 40   checksum  u32      CRC-32C of bytes 0 to 39
//! 44   zeros up to 4096, where the first frame begins
//! ```
//!
//! Since each names the one before it and the control file names the last, a missing one is noticed. Space is filled with zeros in pieces ahead of
//! the writer, so that a flush overwrites space the file already has.

use std::io;
use std::sync::Arc;

use highwater_wire::{LogId, Offset};

use crate::frame::{CHUNK_BYTES, FrameHeader, Reader};
use crate::io::{Io, IoFile};
use crate::log::Options;

/// Where the first frame begins.
pub(crate) const FIRST_FRAME: u64 = 4096;
const MAGIC: [u8; 8] = *b"HWSEGMT\n";
const VERSION: u32 = 1;
const COVERED_BYTES: usize = 40;
/// At least this many bytes lie between two places in the index.
const INDEX_BYTES: u64 = 16 * 1024;

/// The name of the segment with that base.
pub(crate) fn name(base: Offset) -> String {
    format!("{base:020}.log")
}

/// The base in a segment's name; `None` for any other file's.
pub(crate) fn base_of(file: &str) -> Option<Offset> {
    let digits = file.strip_suffix(".log")?;
    (digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) log_id: LogId,
    pub(crate) base: Offset,
    /// `None` in the first.
    pub(crate) previous: Option<Offset>,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        assert!(self.previous.is_none_or(|previous| previous < self.base), "segments rise: {self:?}");
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_be_bytes());
        out.extend([0; 4]);
        out.extend(self.log_id.0.to_be_bytes());
        out.extend(self.base.to_be_bytes());
        out.extend(self.previous.unwrap_or(self.base).to_be_bytes());
        assert_eq!(out.len(), COVERED_BYTES, "the layout above");
        out.extend(crc32c::crc32c(&out).to_be_bytes());
        out.resize(FIRST_FRAME as usize, 0);
        out
    }

    /// Reads a header, or says what is wrong with it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<SegmentHeader, String> {
        if bytes.len() < COVERED_BYTES + 4 {
            return Err(format!("the file ends after {} bytes, within its header", bytes.len()));
        }
        let long = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if bytes[..8] != MAGIC {
            return Err("it does not begin with a segment's magic".to_owned());
        }
        let (wanted, found) = (crc32c::crc32c(&bytes[..COVERED_BYTES]), word(COVERED_BYTES));
        if wanted != found {
            return Err(format!("its header's checksum is {found:#010x} where its bytes give {wanted:#010x}"));
        }
        if word(8) != VERSION {
            return Err(format!("it is of format {}, and this build knows {VERSION}: use a newer build", word(8)));
        }
        let (base, previous) = (long(24), long(32));
        if previous > base {
            return Err(format!("its header says that it follows segment {previous}, which comes later"));
        }
        Ok(SegmentHeader { log_id: LogId(long(16)), base, previous: (previous < base).then_some(previous) })
    }
}

/// An open segment.
pub(crate) struct Segment<F> {
    pub(crate) base: Offset,
    pub(crate) file: Arc<F>,
    /// Where the next frame goes.
    pub(crate) position: u64,
    /// Up to where the file has space.
    pub(crate) allocated: u64,
    /// Some (offset, position) pairs, rising: where frames begin.
    index: Vec<(Offset, u64)>,
}

impl<F: IoFile> Segment<F> {
    /// A segment with no frames noted yet.
    pub(crate) fn new(base: Offset, file: Arc<F>, allocated: u64) -> Segment<F> {
        Segment { base, file, position: FIRST_FRAME, allocated, index: Vec::new() }
    }

    /// Makes the file, durable, name included. One that was left behind by an earlier attempt is made anew.
    pub(crate) fn create<I: Io<File = F>>(io: &I, header: SegmentHeader, options: &Options) -> io::Result<Segment<F>> {
        let name = name(header.base);
        match io.remove(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = io.create(&name)?;
        file.write_at(0, &header.encode())?;
        let mut segment = Segment::new(header.base, file, FIRST_FRAME);
        segment.allocate(FIRST_FRAME + 1, options.zero_bytes, options.segment_bytes)?;
        // A full disk is no excuse for a sync that failed.
        segment.file.sync_data().and_then(|()| io.sync_dir()).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(segment)
    }

    /// Sees to it that the file has space up to `end`, in whole pieces of `zero_bytes`, but for the last one before `segment_bytes`.
    pub(crate) fn allocate(&mut self, end: u64, zero_bytes: u64, segment_bytes: u64) -> io::Result<()> {
        assert!(zero_bytes > 0 && self.position <= self.allocated, "space lies behind what was written");
        static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
        let target = if end <= self.allocated {
            self.allocated
        } else {
            end.next_multiple_of(zero_bytes).min(segment_bytes.max(end))
        };
        while self.allocated < target {
            let piece = (target - self.allocated).min(ZEROS.len() as u64);
            self.file.write_at(self.allocated, &ZEROS[..piece as usize])?;
            self.allocated += piece;
        }
        assert!(self.allocated >= end, "there is space now");
        Ok(())
    }

    /// Notes that a frame lies at the end.
    pub(crate) fn note(&mut self, offset: Offset, size: u64) {
        assert!(offset >= self.base, "frame {offset} lies before segment {}", self.base);
        if self.index.last().is_none_or(|(_, at)| self.position >= at + INDEX_BYTES) {
            self.index.push((offset, self.position));
        }
        self.position += size;
        self.allocated = self.allocated.max(self.position);
    }

    /// Forgets the frames from `offset` on, the first of which lies at `position`.
    pub(crate) fn forget(&mut self, offset: Offset, position: u64) {
        assert!(FIRST_FRAME <= position && position <= self.position, "a cut within the segment");
        self.index.retain(|(first, _)| *first < offset);
        self.position = position;
    }

    /// The beginning of some frame at or before the one that holds `offset`, from memory alone.
    pub(crate) fn position_before(&self, offset: Offset) -> u64 {
        let entry = self.index.partition_point(|(first, _)| *first <= offset);
        entry.checked_sub(1).map_or(FIRST_FRAME, |entry| self.index[entry].1)
    }

    /// Where the frame that holds `offset` begins, with its header; `None` at the segment's end. An error is damage or a failed read.
    pub(crate) fn locate(&self, offset: Offset) -> Result<Option<(u64, FrameHeader)>, String> {
        let mut position = self.position_before(offset);
        let failed = |error: io::Error| format!("{} could not be read: {error}", name(self.base));
        let mut reader = Reader::new(&*self.file, CHUNK_BYTES / 16).map_err(failed)?;
        while position < self.position {
            let header = reader.header(position).map_err(failed)?.map_err(|slot| {
                format!("{} is damaged at byte {position}, which was read or written before: {slot:?}", name(self.base))
            })?;
            if offset < header.end() {
                return Ok(Some((position, header)));
            }
            position += header.size();
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bases_in_twenty_digits() {
        assert_eq!(name(42), "00000000000000000042.log");
        assert_eq!(base_of(&name(u64::MAX)), Some(u64::MAX));
        for other in ["control", "42.log", "0000000000000000004x.log", "00000000000000000042.log.tmp"] {
            assert_eq!(base_of(other), None, "{other}");
        }
    }

    #[test]
    fn headers_read_back_and_any_changed_byte_is_found() {
        for previous in [None, Some(3)] {
            let header = SegmentHeader { log_id: LogId(9), base: 40, previous };
            let bytes = header.encode();
            assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
            for place in 0..COVERED_BYTES + 4 {
                let mut changed = bytes.clone();
                changed[place] ^= 1;
                assert!(SegmentHeader::decode(&changed).is_err(), "byte {place}");
            }
            assert!(SegmentHeader::decode(&bytes[..30]).is_err());
        }
    }
}
