//! A frame: one batch with what protects it on this disk. Kafka's checksum leaves out base offset and epoch, and says nothing of which log, which
//! place, or whether it was cut; the frame's header does.
//!
//! ```text
//! 0    magic           4 bytes  "HWLF"
//! 4    version         u8       1
//! 5    zero            3 bytes
//! 8    log id          u64
//! 16   generation      u64      of the log when it was written; every cut raises it
//! 24   offset          u64      of its first entry
//! 32   count           u32      entries
//! 36   epoch           u32
//! 40   length          u32      bytes of the batch
//! 44   batch checksum  u32      as in the batch's header, so that header and batch belong together
//! 48   flushed before  u64      everything below was durable when this was written
//! 56   previous        u32      the checksum in the header of the frame before it; 0 in the log's first
//! 60   checksum        u32      CRC-32C of bytes 0 to 59
//! 64   the batch, then zeros up to a multiple of 8 bytes
//! ```
//!
//! All numbers are big endian. Frames begin at multiples of 8, so that a search for fragments behind damage need not look at every byte.

use std::io;

use bytes::Bytes;
use highwater_wire::batch::{self, BatchHeader};
use highwater_wire::{Epoch, LogId, Offset};

use crate::io::IoFile;

/// The size of a frame's header.
pub(crate) const HEADER_BYTES: usize = 64;
/// Frames begin at multiples of this.
pub(crate) const ALIGN: u64 = 8;
const MAGIC: [u8; 4] = *b"HWLF";
const VERSION: u8 = 1;
/// How much is read at once when walking over frames.
pub(crate) const CHUNK_BYTES: usize = 256 * 1024;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) log_id: LogId,
    pub(crate) generation: u64,
    pub(crate) offset: Offset,
    pub(crate) count: u32,
    pub(crate) epoch: Epoch,
    pub(crate) length: u32,
    pub(crate) batch_crc: u32,
    pub(crate) flushed_before: Offset,
    pub(crate) previous: u32,
}

/// What lies at a place where a frame may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Zeros, or the end of the file.
    Nothing,
    /// Neither zeros nor a frame; says what is wrong.
    Damaged(String),
    /// A whole frame of a format that this build does not know.
    Newer(u8),
    /// A whole frame, its checksums right.
    Frame(FrameHeader, Bytes),
}

impl FrameHeader {
    /// The offset after its last entry.
    pub(crate) fn end(&self) -> Offset {
        self.offset.saturating_add(u64::from(self.count))
    }

    /// The bytes the whole frame takes, padding included.
    pub(crate) fn size(&self) -> u64 {
        frame_size(self.length as usize)
    }

    /// The header's checksum, by which the frame behind it names this one.
    pub(crate) fn checksum(&self) -> u32 {
        let bytes = self.encode();
        u32::from_be_bytes([bytes[60], bytes[61], bytes[62], bytes[63]])
    }

    /// The bytes of the header.
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        assert!(self.count > 0 && self.length > 0, "a frame holds a batch: {self:?}");
        assert!(self.flushed_before <= self.offset, "what is durable was written before: {self:?}");
        let mut out = [0; HEADER_BYTES];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(4, &[VERSION]);
        put(8, &self.log_id.0.to_be_bytes());
        put(16, &self.generation.to_be_bytes());
        put(24, &self.offset.to_be_bytes());
        put(32, &self.count.to_be_bytes());
        put(36, &self.epoch.0.to_be_bytes());
        put(40, &self.length.to_be_bytes());
        put(44, &self.batch_crc.to_be_bytes());
        put(48, &self.flushed_before.to_be_bytes());
        put(56, &self.previous.to_be_bytes());
        let crc = crc32c::crc32c(&out[..60]);
        out[60..].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// Reads a header whose magic, version and checksum are right; otherwise says what is wrong.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<FrameHeader, Slot> {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(Slot::Nothing);
        }
        if bytes[..4] != MAGIC {
            return Err(Slot::Damaged("no frame begins here".to_owned()));
        }
        let (wanted, found) = (crc32c::crc32c(&bytes[..60]), word(60));
        if wanted != found {
            let what = format!("a frame header's checksum is {found:#010x} where its bytes give {wanted:#010x}");
            return Err(Slot::Damaged(what));
        }
        if bytes[4] != VERSION {
            return Err(Slot::Newer(bytes[4]));
        }
        Ok(FrameHeader {
            log_id: LogId(long(8)),
            generation: long(16),
            offset: long(24),
            count: word(32),
            epoch: Epoch(word(36)),
            length: word(40),
            batch_crc: word(44),
            flushed_before: long(48),
            previous: word(56),
        })
    }

    /// Why `batch` is not the one this header was written for; `None` if it is.
    fn mismatch(&self, batch: &[u8]) -> Option<String> {
        match batch::check(batch) {
            Err(error) => Some(error.to_string()),
            Ok(BatchHeader { base, epoch, count, size_bytes, .. }) => {
                let same = base == self.offset
                    && epoch == self.epoch
                    && count == u64::from(self.count)
                    && size_bytes == self.length as usize
                    && batch_crc(batch) == self.batch_crc;
                (!same).then(|| "the batch is not the one its frame was written for".to_owned())
            }
        }
    }
}

/// The checksum in a batch's header.
pub(crate) fn batch_crc(batch: &[u8]) -> u32 {
    u32::from_be_bytes([batch[17], batch[18], batch[19], batch[20]])
}

/// The bytes that the frame of a batch of that length takes.
pub(crate) fn frame_size(batch_bytes: usize) -> u64 {
    ((HEADER_BYTES + batch_bytes) as u64).next_multiple_of(ALIGN)
}

/// Reads a file in chunks, front to back.
pub(crate) struct Reader<'a, F> {
    file: &'a F,
    len: u64,
    chunk: usize,
    buffer: Bytes,
    at: u64,
}

impl<'a, F: IoFile> Reader<'a, F> {
    pub(crate) fn new(file: &'a F, chunk: usize) -> io::Result<Reader<'a, F>> {
        Ok(Reader { file, len: file.len()?, chunk, buffer: Bytes::new(), at: 0 })
    }

    /// The file's length when the reader was made.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Up to `want` bytes from `position` on; fewer only at the end of the file.
    pub(crate) fn bytes(&mut self, position: u64, want: usize) -> io::Result<Bytes> {
        // A place behind the end of a file that was shortened has no bytes.
        let room = usize::try_from(self.len.saturating_sub(position)).unwrap_or(usize::MAX);
        let want = want.min(room);
        let inside = position >= self.at && position + want as u64 <= self.at + self.buffer.len() as u64;
        if !inside {
            let mut buffer = vec![0; want.max(self.chunk).min(room)];
            let mut filled = 0;
            while filled < buffer.len() {
                match self.file.read_at(position + filled as u64, &mut buffer[filled..])? {
                    0 => break,
                    read => filled += read,
                }
            }
            buffer.truncate(filled);
            (self.buffer, self.at) = (buffer.into(), position);
        }
        let from = (position - self.at) as usize;
        Ok(self.buffer.slice(from..self.buffer.len().min(from + want)))
    }

    /// The header at `position`, whose batch is not looked at.
    pub(crate) fn header(&mut self, position: u64) -> io::Result<Result<FrameHeader, Slot>> {
        let bytes = self.bytes(position, HEADER_BYTES)?;
        Ok(match bytes.first_chunk::<HEADER_BYTES>() {
            Some(bytes) => FrameHeader::decode(bytes),
            None if bytes.iter().all(|byte| *byte == 0) => Err(Slot::Nothing),
            None => Err(Slot::Damaged("the file ends within a frame's header".to_owned())),
        })
    }

    /// What lies at `position`.
    pub(crate) fn slot(&mut self, position: u64) -> io::Result<Slot> {
        let header = match self.header(position)? {
            Ok(header) => header,
            Err(slot) => return Ok(slot),
        };
        let batch = self.bytes(position + HEADER_BYTES as u64, header.length as usize)?;
        if batch.len() < header.length as usize {
            let what = format!("the file ends {} bytes into a batch of {}", batch.len(), header.length);
            return Ok(Slot::Damaged(what));
        }
        Ok(match header.mismatch(&batch) {
            Some(what) => Slot::Damaged(what),
            None => Slot::Frame(header, batch),
        })
    }

    /// The next place at or after `from` where a frame header with a right checksum lies, and the header: what follows damage is found so.
    pub(crate) fn find_header(&mut self, from: u64) -> io::Result<Option<(u64, FrameHeader)>> {
        let mut position = from.next_multiple_of(ALIGN);
        while position + HEADER_BYTES as u64 <= self.len {
            if self.bytes(position, HEADER_BYTES)?.len() < HEADER_BYTES {
                return Ok(None);
            }
            // Whatever was read with it is looked through; only at its end is read again, or a search from one frame to the next would read every byte as often as there
            // are frames in a chunk.
            let bytes = self.buffer.slice((position - self.at) as usize..);
            for step in (0..=bytes.len() - HEADER_BYTES).step_by(ALIGN as usize) {
                let candidate = bytes[step..].first_chunk::<HEADER_BYTES>().expect("the loop ends that far before");
                if candidate[..4] == MAGIC
                    && let Ok(header) = FrameHeader::decode(candidate)
                {
                    return Ok(Some((position + step as u64, header)));
                }
            }
            // The last places of this chunk had no room for a header: they come first in the next.
            position += ((bytes.len() - HEADER_BYTES) as u64 / ALIGN + 1) * ALIGN;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FrameHeader {
        FrameHeader {
            log_id: LogId(0x1112_1314_1516_1718),
            generation: 2,
            offset: 300,
            count: 4,
            epoch: Epoch(5),
            length: 99,
            batch_crc: 0xa1a2_a3a4,
            flushed_before: 298,
            previous: 0xb1b2_b3b4,
        }
    }

    #[test]
    fn version_one_is_these_bytes() {
        let mut wanted = b"HWLF\x01\0\0\0".to_vec();
        wanted.extend([0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
        wanted.extend([0, 0, 0, 0, 0, 0, 0, 2]);
        wanted.extend([0, 0, 0, 0, 0, 0, 1, 44]);
        wanted.extend([0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 99, 0xa1, 0xa2, 0xa3, 0xa4]);
        wanted.extend([0, 0, 0, 0, 0, 0, 1, 42, 0xb1, 0xb2, 0xb3, 0xb4]);
        wanted.extend(crc32c::crc32c(&wanted).to_be_bytes());
        assert_eq!(header().encode()[..], wanted);
        assert_eq!(FrameHeader::decode(&header().encode()), Ok(header()));
    }

    #[test]
    fn any_changed_byte_is_damage_and_a_newer_format_is_told_apart() {
        for place in 0..HEADER_BYTES {
            let mut bytes = header().encode();
            bytes[place] ^= 0x40;
            assert!(matches!(FrameHeader::decode(&bytes), Err(Slot::Damaged(_))), "byte {place}");
        }
        let mut newer = header().encode();
        newer[4] = 2;
        let crc = crc32c::crc32c(&newer[..60]).to_be_bytes();
        newer[60..].copy_from_slice(&crc);
        assert_eq!(FrameHeader::decode(&newer), Err(Slot::Newer(2)));
        assert_eq!(FrameHeader::decode(&[0; HEADER_BYTES]), Err(Slot::Nothing));
    }

    /// Wherever a header lies, also over the border of two chunks.
    #[test]
    fn a_search_finds_the_next_header_at_every_place() {
        let io = crate::mem::MemIo::new();
        for place in (0..400u64).step_by(8) {
            let mut bytes = vec![0x48; 600];
            bytes[place as usize..place as usize + HEADER_BYTES].copy_from_slice(&header().encode());
            io.put("f", &bytes);
            let file = crate::io::Io::open(&io, "f").expect("it was put there");
            let mut reader = Reader::new(&*file, 100).expect("nothing fails");
            assert_eq!(reader.find_header(0).expect("nothing fails"), Some((place, header())), "from the start");
            assert_eq!(reader.find_header(place).expect("nothing fails"), Some((place, header())), "from there");
            assert_eq!(reader.find_header(place + 1).expect("nothing fails"), None, "behind it");
        }
    }

    #[test]
    fn a_search_from_frame_to_frame_reads_every_chunk_once() {
        let io = crate::mem::MemIo::new();
        io.put("f", &header().encode().repeat(200));
        let file = crate::io::Io::open(&io, "f").expect("it was put there");
        let mut reader = Reader::new(&*file, 1_024).expect("nothing fails");
        let before = io.count(crate::mem::Op::Read);
        let (mut from, mut found) = (0, 0);
        while let Some((position, _)) = reader.find_header(from).expect("nothing fails") {
            (from, found) = (position + ALIGN, found + 1);
        }
        let reads = io.count(crate::mem::Op::Read) - before;
        assert_eq!(found, 200);
        assert!(reads <= 200 * HEADER_BYTES as u64 / (1_024 - HEADER_BYTES as u64) + 2, "{reads} reads of a chunk");
    }

    #[test]
    fn frames_are_padded_to_eight_bytes() {
        assert_eq!(frame_size(64), 128);
        assert_eq!(frame_size(65), 136);
        assert_eq!(header().size(), 168);
    }
}
