//! Cutting SQLite's write-ahead log, which is how a restart and a rewind get rid of what was executed and never committed.
//!
//! The protocol. A checkpoint is made only when everything in the log is committed. Before it, a marker is made durable: the log's salts, how many frames
//! it has, and how far they reach. At a start:
//! * the log bears the marker's salts: the checkpoint may have been under way. What the marker counts was committed and may lie in the database file
//!   already, so it stays; what came after is cut.
//! * it bears others: it was begun after that checkpoint ended, and nothing says what of it was committed. It is dropped; the replication log has it.
//! * there is no marker: the database was never finished being made, and is made anew.
//!
//! The marker also names the checksums that the database file must agree with once that checkpoint has ended: see `sums.rs`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::error::OpenError;
use crate::ffi::Location;
use crate::folder::{self, Folder};
use crate::sums;

/// SQLite's database file.
pub(crate) const DATABASE: &str = "database.sqlite";
/// SQLite's write-ahead log.
pub(crate) const WAL: &str = "database.sqlite-wal";
const SHM: &str = "database.sqlite-shm";
/// A copy that takes the database's place.
const NEW_DATABASE: &str = "database.sqlite.new";
const MARKER: &str = "checkpoint";
const NEW_MARKER: &str = "checkpoint.new";
const MAGIC: &[u8; 8] = b"HWCKPT\x00\x01";
const MARKER_BYTES: usize = 8 + 8 + 4 + 8 + 8;
pub(crate) const WAL_HEADER_BYTES: u64 = 32;
pub(crate) const FRAME_HEADER_BYTES: u64 = 24;
/// Every database has pages of this size.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// What is known of the log at the last checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) salts: [u8; 8],
    pub(crate) frames: u32,
    pub(crate) applied: u64,
}

/// The files of a database.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    dir: PathBuf,
    folder: Arc<dyn Folder>,
}

impl Files {
    /// Those in a folder; `dir` is the path by which SQLite's VFS knows it.
    pub(crate) fn new(dir: &Path, folder: Arc<dyn Folder>) -> Files {
        Files { dir: dir.to_path_buf(), folder }
    }

    pub(crate) fn folder(&self) -> &dyn Folder {
        &*self.folder
    }

    /// The path of SQLite's database file.
    pub(crate) fn database(&self) -> PathBuf {
        self.dir.join(DATABASE)
    }

    /// Where SQLite finds it.
    pub(crate) fn location(&self) -> Location {
        Location { path: self.database(), vfs: self.folder.vfs() }
    }

    /// The path of SQLite's write-ahead log.
    pub(crate) fn wal(&self) -> PathBuf {
        self.dir.join(WAL)
    }

    /// Whether the database file is there.
    pub(crate) fn database_exists(&self) -> bool {
        self.folder.open(DATABASE).is_ok()
    }

    /// Whether SQLite's log holds anything.
    pub(crate) fn wal_is_empty(&self) -> bool {
        self.folder.open(WAL).and_then(|wal| wal.len()).map_or(true, |bytes| bytes == 0)
    }

    fn marker(&self) -> PathBuf {
        self.dir.join(MARKER)
    }

    /// Reads the marker. `Ok(None)`: there is none.
    pub(crate) fn read_marker(&self) -> Result<Option<Marker>, OpenError> {
        let path = self.marker();
        let bytes = match folder::read(self.folder(), MARKER) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(OpenError::Io { path, error }),
        };
        let malformed = |found: &str| OpenError::Malformed { path: path.clone(), found: found.to_string() };
        if bytes.len() != MARKER_BYTES {
            return Err(malformed(&format!("{} bytes, where {MARKER_BYTES} are expected", bytes.len())));
        }
        if bytes[..8] != MAGIC[..] {
            return Err(malformed("it does not begin as it should, or another version wrote it"));
        }
        if bytes[28..] != Sha256::digest(&bytes[..28])[..8] {
            return Err(malformed("its checksum does not hold"));
        }
        Ok(Some(Marker {
            salts: bytes[8..16].try_into().expect("eight bytes"),
            frames: u32::from_be_bytes(bytes[16..20].try_into().expect("four bytes")),
            applied: u64::from_be_bytes(bytes[20..28].try_into().expect("eight bytes")),
        }))
    }

    /// Replaces the marker, durably.
    pub(crate) fn write_marker(&self, marker: &Marker) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(MARKER_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&marker.salts);
        bytes.extend_from_slice(&marker.frames.to_be_bytes());
        bytes.extend_from_slice(&marker.applied.to_be_bytes());
        let checksum = Sha256::digest(&bytes);
        bytes.extend_from_slice(&checksum[..8]);
        assert_eq!(bytes.len(), MARKER_BYTES);
        let file = folder::create_empty(self.folder(), NEW_MARKER)?;
        file.write_at(0, &bytes)?;
        file.sync_data()?;
        self.folder.rename(NEW_MARKER, MARKER)?;
        self.folder.sync_dir()
    }

    /// Cuts the log as the marker says (see above). No connection may be open.
    pub(crate) fn cut_to_marker(&self, marker: &Marker) -> io::Result<()> {
        let mut header = [0; WAL_HEADER_BYTES as usize];
        let known = match self.folder.open(WAL) {
            Ok(file) => folder::read_exact(&*file, 0, &mut header).is_ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        let keep = if known && header[16..24] == marker.salts { marker.frames } else { 0 };
        self.cut(keep)
    }

    /// Cuts the log behind that many frames. No connection may be open.
    pub(crate) fn cut(&self, frames: u32) -> io::Result<()> {
        let length =
            if frames == 0 { 0 } else { WAL_HEADER_BYTES + u64::from(frames) * (FRAME_HEADER_BYTES + PAGE_BYTES) };
        match self.folder.open(WAL) {
            Ok(file) => {
                if file.len()? > length {
                    file.set_len(length)?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        self.remove(SHM)
    }

    /// Puts a copy in the place of the database file, and a new index in place of the log's. Connections that cannot be closed keep the old ones, which nobody
    /// else sees any more: SQLite shares locks and the index among connections to one file, not to one name. No other connection may be open.
    pub(crate) fn renew(&self) -> io::Result<()> {
        let (from, to) = (self.folder.open(DATABASE)?, folder::create_empty(self.folder(), NEW_DATABASE)?);
        let (bytes, mut at) = (from.len()?, 0);
        let mut piece = vec![0; 1 << 20];
        while at < bytes {
            let count = from.read_at(at, &mut piece)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            to.write_at(at, &piece[..count])?;
            at += count as u64;
        }
        to.sync_data()?;
        self.folder.rename(NEW_DATABASE, DATABASE)?;
        self.remove(SHM)?;
        self.folder.sync_dir()
    }

    /// Removes what there is of a database that was never finished.
    pub(crate) fn remove_unfinished(&self) -> io::Result<()> {
        let [one, other] = sums::NAMES;
        [DATABASE, NEW_DATABASE, WAL, SHM, one, other].into_iter().try_for_each(|name| self.remove(name))
    }

    /// Renames the files of a damaged database to `*.damaged`, in place of the last ones that were. The marker goes first, durably: without it nobody takes the
    /// rest for a database.
    pub(crate) fn set_aside(&self) -> io::Result<()> {
        let aside = |name: &str| format!("{name}.damaged");
        let [one, other] = sums::NAMES;
        let rest = [DATABASE, WAL, one, other];
        for name in rest.iter().chain([&MARKER]) {
            self.remove(&aside(name))?;
        }
        self.folder.rename(MARKER, &aside(MARKER))?;
        self.folder.sync_dir()?;
        for name in rest {
            match self.folder.rename(name, &aside(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.remove(SHM)?;
        self.folder.sync_dir()
    }

    /// Makes a file that was written by SQLite durable, with its name.
    pub(crate) fn sync_database(&self) -> io::Result<()> {
        self.folder.open(DATABASE)?.sync_data()?;
        self.folder.sync_dir()
    }

    /// Whether the database file is there and begins like one.
    pub(crate) fn check_database(&self) -> Result<(), OpenError> {
        let path = self.database();
        let mut start = [0; 16];
        match self.folder.open(DATABASE).and_then(|file| folder::read_exact(&*file, 0, &mut start)) {
            Ok(()) if &start == b"SQLite format 3\0" => Ok(()),
            Ok(()) => {
                Err(OpenError::Malformed { path, found: "it does not begin as a SQLite database does".to_string() })
            }
            Err(error) => Err(OpenError::Io { path, error }),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match self.folder.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The size of a log of that many frames.
pub(crate) fn wal_bytes(frames: u32) -> u64 {
    WAL_HEADER_BYTES + u64::from(frames) * (FRAME_HEADER_BYTES + PAGE_BYTES)
}
