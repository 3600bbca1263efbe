//! What a checkpoint will make of the database file's pages, told from SQLite's log before it is made.
//!
//! SQLite checks the frames of its log when it opens it and not when it writes them back, so this does: a byte that changed on the disk meanwhile must not go
//! into the database file with a checksum that makes it right. The format is that of <https://www.sqlite.org/fileformat2.html#the_write_ahead_log>.

use std::collections::BTreeSet;
use std::io;

use crate::folder;
use crate::sums::sum_of;
use crate::wal::{FRAME_HEADER_BYTES, Files, Marker, PAGE_BYTES, WAL, WAL_HEADER_BYTES, wal_bytes};

/// The first word of the log's header; its last bit says in which byte order words are summed.
const MAGIC: u32 = 0x377f_0682;
const FRAME_BYTES: usize = (FRAME_HEADER_BYTES + PAGE_BYTES) as usize;
/// How many frames are read at once: a quarter of a megabyte.
const FRAMES_AT_ONCE: u32 = 64;

/// How far a log has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) salts: [u8; 8],
    pub(crate) frames: u32,
    /// SQLite's checksum up to there.
    chain: (u32, u32),
}

/// Puts the sums of the pages in the frames that a marker counts in place of those before, and notes the pages; frames up to `from` have been seen to already.
/// Makes the log durable: it is what the checkpoint can be made from again.
pub(crate) fn add_frames(
    files: &Files,
    marker: &Marker,
    from: Option<Progress>,
    pages: &mut Vec<u32>,
    touched: &mut BTreeSet<u32>,
) -> io::Result<Progress> {
    let path = files.wal();
    let damaged = |what: String| {
        let message = format!("{}: {what}; restart the node: it goes on without this file", path.display());
        io::Error::new(io::ErrorKind::InvalidData, message)
    };
    let file = files.folder().open(WAL)?;
    file.sync_data()?;
    let mut header = [0; WAL_HEADER_BYTES as usize];
    folder::read_exact(&*file, 0, &mut header)?;
    let big_endian = word(&header, 0) & 1 == 1;
    let chain = sum(big_endian, (0, 0), &header[..24]);
    if word(&header, 0) & !1 != MAGIC || chain != (word(&header, 24), word(&header, 28)) {
        return Err(damaged("its header is not what SQLite wrote".to_string()));
    }
    if header[16..24] != marker.salts {
        return Err(damaged("it is not the log that SQLite uses".to_string()));
    }
    let mut progress = from.unwrap_or(Progress { salts: marker.salts, frames: 0, chain });
    assert!(progress.salts == marker.salts && progress.frames <= marker.frames, "{progress:?} goes on to {marker:?}");
    let mut some = vec![0; FRAMES_AT_ONCE as usize * FRAME_BYTES];
    let mut size = None;
    while progress.frames < marker.frames {
        let count = (marker.frames - progress.frames).min(FRAMES_AT_ONCE);
        let some = &mut some[..count as usize * FRAME_BYTES];
        folder::read_exact(&*file, wal_bytes(progress.frames), some)?;
        for frame in some.chunks_exact(FRAME_BYTES) {
            let (head, page) = frame.split_at(FRAME_HEADER_BYTES as usize);
            progress.chain = sum(big_endian, sum(big_endian, progress.chain, &head[..8]), page);
            progress.frames += 1;
            let number = word(head, 0);
            if number == 0 || head[8..16] != marker.salts || progress.chain != (word(head, 16), word(head, 20)) {
                return Err(damaged(format!("frame {} is not what SQLite wrote", progress.frames)));
            }
            if pages.len() < number as usize {
                pages.resize(number as usize, 0);
            }
            pages[number as usize - 1] = sum_of(page);
            touched.insert(number);
            size = Some(word(head, 4));
        }
    }
    match size {
        // The frame that ends a transaction says how large the database is after it.
        Some(size) if size > 0 => pages.resize(size as usize, 0),
        Some(_) => return Err(damaged(format!("frame {} does not end a transaction", progress.frames))),
        None => {}
    }
    Ok(progress)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// SQLite's checksum of its log, gone on with.
fn sum(big_endian: bool, (mut first, mut second): (u32, u32), bytes: &[u8]) -> (u32, u32) {
    assert_eq!(bytes.len() % 8, 0, "words are summed in pairs");
    for pair in bytes.chunks_exact(8) {
        let one = |at: usize| {
            let word: [u8; 4] = pair[at..at + 4].try_into().expect("four bytes");
            if big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
        };
        first = first.wrapping_add(one(0)).wrapping_add(second);
        second = second.wrapping_add(one(4)).wrapping_add(first);
    }
    (first, second)
}
