//! Checksums of the pages of SQLite's database file, which has none of its own.
//!
//! The protocol. The database file changes only at checkpoints, and then into what can be told beforehand: each page that SQLite's log holds becomes what its
//! last frame says, every other page stays. So the sums of the file *after* a checkpoint are computed and made durable *before* it, from the sums before and the
//! log's frames, and bear the name of that checkpoint, which is its marker. There are two files of sums, written in turn: the marker that is in place names one of
//! them, and the other may be overwritten. Whenever the process ends,
//! * before the marker was replaced, the marker names the older sums, and the database file has not changed since;
//! * after it, the marker names the newer ones, and SQLite's log is still there to end the checkpoint with, or was emptied because it had ended.
//!
//! The sums are thus never taken from the database file, but when there are none to be had (a folder from before there were any; a damaged file of sums).
//!
//! The file, integers big-endian:
//!
//! ```text
//! 0    magic     8 bytes   "HWSUMS" 0 and the version, 1
//! 8    salts     8 bytes   of the checkpoint's marker, as are the next two
//! 16   frames    u32
//! 20   applied   u64
//! 28   pages     u32       how many pages the database has
//! 32   sums      u32 each  CRC-32C of the page, 1 for 0; 0 if nothing is known of it
//! ..   checksum  u32       CRC-32C of everything before it; nothing follows
//! ```
//!
//! Nothing is known of a page that was taken into use and given up again between two checkpoints: SQLite never wrote it and will not read it.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use highwater_log::IoFile;

use crate::folder;
use crate::wal::{DATABASE, Files, Marker, PAGE_BYTES};
use crate::wal_sums::{Progress, add_frames};

const MAGIC: &[u8; 8] = b"HWSUMS\x00\x01";
const HEADER_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 4;
/// The two files.
pub(crate) const NAMES: [&str; 2] = ["sums.a", "sums.b"];
/// How many pages are read at once: one megabyte.
const PAGES_AT_ONCE: usize = 256;
/// A page of which nothing is known.
const UNKNOWN: u32 = 0;

/// A page that is not what it should be, or a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Damage {
    /// The bytes of a page were changed.
    #[error("page {page} (bytes {} to {}) has the checksum {found:#010x}, and what was written there had {wanted:#010x}", bounds(*page).0, bounds(*page).1)]
    Page {
        /// Pages count from 1.
        page: u32,
        /// Kept.
        wanted: u32,
        /// Computed.
        found: u32,
    },
    /// The file is too short or too long.
    #[error("the file has {found} bytes where {wanted} were written")]
    Length {
        /// By the number of sums.
        wanted: u64,
        /// There are.
        found: u64,
    },
    /// The file is gone, cannot be read, or is nothing that SQLite could go on with.
    #[error("{0}")]
    Unusable(String),
}

fn bounds(page: u32) -> (u64, u64) {
    let start = u64::from(page - 1) * PAGE_BYTES;
    (start, start + PAGE_BYTES)
}

/// The sum of a page. Never [`UNKNOWN`].
pub(crate) fn sum_of(page: &[u8]) -> u32 {
    assert_eq!(page.len() as u64, PAGE_BYTES, "sums are of whole pages");
    crc32c::crc32c(page).max(1)
}

/// The sums of an open database.
pub(crate) struct Sums {
    /// The database file. It is kept open as long as the database is: closing any handle to it would take from the process the locks that SQLite holds on it.
    main: Arc<dyn IoFile>,
    /// The sum of each page as it is once the last checkpoint has ended.
    pages: Vec<u32>,
    /// Pages that the last checkpoint may not have written yet, since a reader kept it from ending.
    pending: BTreeSet<u32>,
    /// Which of the two files they are in.
    slot: usize,
    /// How much of SQLite's log is in them already.
    progress: Option<Progress>,
}

/// The sums after a checkpoint that is about to be made.
pub(crate) struct NextSums {
    pages: Vec<u32>,
    touched: BTreeSet<u32>,
    progress: Progress,
}

impl Sums {
    /// The sums that were found in a slot, or written to it.
    pub(crate) fn new(files: &Files, pages: Vec<u32>, slot: usize) -> io::Result<Sums> {
        assert!(slot < NAMES.len(), "there are two files of sums");
        Ok(Sums { main: files.folder().open(DATABASE)?, pages, pending: BTreeSet::new(), slot, progress: None })
    }

    /// Computes the sums as they will be after a checkpoint and makes them durable, and SQLite's log with them. Nothing else is changed: until
    /// [`Sums::adopt`] the sums before it hold.
    pub(crate) fn prepare(&self, files: &Files, marker: &Marker) -> io::Result<NextSums> {
        let mut pages = self.pages.clone();
        let mut touched = BTreeSet::new();
        let from = self.progress.filter(|progress| progress.salts == marker.salts);
        let progress = add_frames(files, marker, from, &mut pages, &mut touched)?;
        assert_eq!(progress.frames, marker.frames, "the sums are of what the marker counts");
        files.write_sums(1 - self.slot, marker, &pages)?;
        Ok(NextSums { pages, touched, progress })
    }

    /// The marker is in place: from here on the database file is on its way to what these sums say.
    pub(crate) fn adopt(&mut self, next: NextSums) {
        self.pages = next.pages;
        self.pending.extend(next.touched);
        self.progress = Some(next.progress);
        self.slot = 1 - self.slot;
    }

    /// The checkpoint has ended: the database file is what the sums say.
    pub(crate) fn settle(&mut self) {
        self.pending.clear();
    }

    /// How many pages the database file has, or will have.
    pub(crate) fn count(&self) -> usize {
        self.pages.len()
    }

    /// Looks at up to a megabyte of the database file from that page on, counted from 0. Returns the page to go on with and what was found.
    pub(crate) fn check_some(&self, from: usize) -> io::Result<(usize, Option<Damage>)> {
        let to = self.pages.len().min(from + PAGES_AT_ONCE);
        if self.pending.is_empty() {
            if let Some(damage) = check_length(&*self.main, &self.pages)? {
                return Ok((to, Some(damage)));
            }
            return Ok((to, check_range(&*self.main, &self.pages, from, to)?));
        }
        // Amid a checkpoint the pages to be written may be old or new, and the file has no definite length.
        for at in (from..to).filter(|at| !self.pending.contains(&(*at as u32 + 1))) {
            if let Some(damage) = check_range(&*self.main, &self.pages, at, at + 1)? {
                return Ok((to, Some(damage)));
            }
        }
        Ok((to, None))
    }
}

fn check_length(main: &dyn IoFile, pages: &[u32]) -> io::Result<Option<Damage>> {
    let (wanted, found) = (pages.len() as u64 * PAGE_BYTES, main.len()?);
    Ok((wanted != found).then_some(Damage::Length { wanted, found }))
}

/// Compares the pages `[from, to)`, counted from 0, with their sums.
fn check_range(main: &dyn IoFile, pages: &[u32], from: usize, to: usize) -> io::Result<Option<Damage>> {
    assert!(from <= to && to <= pages.len(), "pages {from} to {to} of {}", pages.len());
    let mut bytes = vec![0; (to - from) * PAGE_BYTES as usize];
    let start = from as u64 * PAGE_BYTES;
    match folder::read_exact(main, start, &mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            let (wanted, found) = (pages.len() as u64 * PAGE_BYTES, main.len()?);
            // A page never written may lie behind the end while a checkpoint is under way.
            let missed = pages[from..to].iter().any(|sum| *sum != UNKNOWN);
            return Ok(missed.then_some(Damage::Length { wanted, found }));
        }
        read => read?,
    }
    for (at, page) in (from..to).zip(bytes.chunks_exact(PAGE_BYTES as usize)) {
        let (wanted, found) = (pages[at], sum_of(page));
        if wanted != UNKNOWN && wanted != found {
            return Ok(Some(Damage::Page { page: at as u32 + 1, wanted, found }));
        }
    }
    Ok(None)
}

impl Files {
    /// Compares the whole database file with sums that are known to be of its present state.
    pub(crate) fn check_pages(&self, pages: &[u32]) -> io::Result<Option<Damage>> {
        let main = self.folder().open(DATABASE)?;
        if let Some(damage) = check_length(&*main, pages)? {
            return Ok(Some(damage));
        }
        for from in (0..pages.len()).step_by(PAGES_AT_ONCE) {
            let to = pages.len().min(from + PAGES_AT_ONCE);
            if let Some(damage) = check_range(&*main, pages, from, to)? {
                return Ok(Some(damage));
            }
        }
        Ok(None)
    }

    /// Computes sums from the database file as it is. For a database that was just made, and where there are none.
    pub(crate) fn sums_of_database(&self) -> io::Result<Vec<u32>> {
        let main = self.folder().open(DATABASE)?;
        let length = main.len()?;
        if length % PAGE_BYTES != 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{length} bytes are not a number of whole pages"),
            ));
        }
        let mut page = vec![0; PAGE_BYTES as usize];
        (0..length / PAGE_BYTES)
            .map(|at| folder::read_exact(&*main, at * PAGE_BYTES, &mut page).map(|()| sum_of(&page)))
            .collect()
    }

    /// The sums that a marker names, and which file they are in; or why there are none.
    pub(crate) fn read_sums(&self, marker: &Marker) -> Result<(usize, Vec<u32>), String> {
        let mut reasons = Vec::new();
        for (slot, name) in NAMES.into_iter().enumerate() {
            let read = folder::read(self.folder(), name).map_err(|error| error.to_string());
            match read.and_then(|bytes| decode(&bytes)) {
                Ok((id, pages)) if id == *marker => return Ok((slot, pages)),
                Ok(_) => reasons.push(format!("{name} speaks of another checkpoint")),
                Err(reason) => reasons.push(format!("{name}: {reason}")),
            }
        }
        Err(reasons.join("; "))
    }

    /// Replaces one file of sums, which the marker in place must not name, durably.
    pub(crate) fn write_sums(&self, slot: usize, marker: &Marker, pages: &[u32]) -> io::Result<()> {
        let file = folder::create_empty(self.folder(), NAMES[slot])?;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&marker.salts);
        header.extend_from_slice(&marker.frames.to_be_bytes());
        header.extend_from_slice(&marker.applied.to_be_bytes());
        header.extend_from_slice(&u32::try_from(pages.len()).expect("SQLite counts pages in 32 bits").to_be_bytes());
        assert_eq!(header.len(), HEADER_BYTES, "the layout above");
        let mut checksum = crc32c::crc32c(&header);
        file.write_at(0, &header)?;
        let mut at = header.len() as u64;
        for some in pages.chunks(1 << 14) {
            let bytes: Vec<u8> = some.iter().flat_map(|sum| sum.to_be_bytes()).collect();
            checksum = crc32c::crc32c_append(checksum, &bytes);
            file.write_at(at, &bytes)?;
            at += bytes.len() as u64;
        }
        file.write_at(at, &checksum.to_be_bytes())?;
        file.sync_data()?;
        self.folder().sync_dir()
    }
}

pub(crate) fn decode(bytes: &[u8]) -> Result<(Marker, Vec<u32>), String> {
    if bytes.len() < HEADER_BYTES + CHECKSUM_BYTES || bytes[..8] != MAGIC[..] {
        return Err("it does not begin as it should, or another version wrote it".to_string());
    }
    let (covered, checksum) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
    if crc32c::crc32c(covered).to_be_bytes() != checksum {
        return Err("its checksum does not hold".to_string());
    }
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let sums = &covered[HEADER_BYTES..];
    if sums.len() as u64 != u64::from(word(28)) * 4 {
        return Err(format!("it has {} bytes of sums for {} pages", sums.len(), word(28)));
    }
    let id = Marker {
        salts: bytes[8..16].try_into().expect("eight bytes"),
        frames: word(16),
        applied: u64::from_be_bytes(bytes[20..28].try_into().expect("eight bytes")),
    };
    Ok((id, sums.chunks_exact(4).map(|sum| u32::from_be_bytes(sum.try_into().expect("four bytes"))).collect()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use highwater_log::FileIo;

    use super::*;

    fn files(dir: &std::path::Path) -> Files {
        Files::new(dir, Arc::new(FileIo::inspect(dir).unwrap()))
    }

    fn marker(frames: u32) -> Marker {
        Marker { salts: *b"saltsalt", frames, applied: 9 }
    }

    #[test]
    fn sums_are_read_as_they_were_written_and_no_changed_byte_passes() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path());
        let pages: Vec<u32> = (0..10_000).map(|n| n * 7).collect();
        files.write_sums(0, &marker(2), &pages[..3]).unwrap();
        files.write_sums(1, &marker(3), &pages).unwrap();
        assert_eq!(files.read_sums(&marker(2)), Ok((0, pages[..3].to_vec())));
        assert_eq!(files.read_sums(&marker(3)), Ok((1, pages)));
        assert!(files.read_sums(&marker(4)).unwrap_err().contains("another checkpoint"));
        let path = &dir.path().join(NAMES[0]);
        let bytes = fs::read(path).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            fs::write(path, damaged).unwrap();
            files.read_sums(&marker(2)).unwrap_err();
            fs::write(path, &bytes[..at]).unwrap();
            files.read_sums(&marker(2)).unwrap_err();
        }
    }

    #[test]
    fn a_changed_page_and_a_changed_length_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path());
        let mut bytes = vec![3; 300 * PAGE_BYTES as usize];
        fs::write(files.database(), &bytes).unwrap();
        let mut pages = files.sums_of_database().unwrap();
        assert_eq!(files.check_pages(&pages).unwrap(), None);
        bytes[299 * PAGE_BYTES as usize] ^= 1;
        fs::write(files.database(), &bytes).unwrap();
        assert!(matches!(files.check_pages(&pages).unwrap(), Some(Damage::Page { page: 300, .. })));
        pages[299] = UNKNOWN;
        assert_eq!(files.check_pages(&pages).unwrap(), None, "nothing is known of that page");
        bytes.truncate(298 * PAGE_BYTES as usize);
        fs::write(files.database(), &bytes).unwrap();
        assert!(matches!(files.check_pages(&pages).unwrap(), Some(Damage::Length { .. })));
    }
}
