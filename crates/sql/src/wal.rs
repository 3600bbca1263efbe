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

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::OpenError;

const MARKER: &str = "checkpoint";
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
}

impl Files {
    pub(crate) fn new(dir: &Path) -> Files {
        Files { dir: dir.to_path_buf() }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// SQLite's database file.
    pub(crate) fn database(&self) -> PathBuf {
        self.dir.join("database.sqlite")
    }

    /// SQLite's write-ahead log.
    pub(crate) fn wal(&self) -> PathBuf {
        self.dir.join("database.sqlite-wal")
    }

    fn shm(&self) -> PathBuf {
        self.dir.join("database.sqlite-shm")
    }

    fn marker(&self) -> PathBuf {
        self.dir.join(MARKER)
    }

    /// Reads the marker. `Ok(None)`: there is none.
    pub(crate) fn read_marker(&self) -> Result<Option<Marker>, OpenError> {
        let path = self.marker();
        let bytes = match fs::read(&path) {
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
        let new = self.dir.join("checkpoint.new");
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, self.marker())?;
        File::open(&self.dir)?.sync_all()
    }

    /// Cuts the log as the marker says (see above). No connection may be open.
    pub(crate) fn cut_to_marker(&self, marker: &Marker) -> io::Result<()> {
        let mut header = [0; WAL_HEADER_BYTES as usize];
        let known = match File::open(self.wal()) {
            Ok(file) => file.read_exact_at(&mut header, 0).is_ok(),
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
        match OpenOptions::new().write(true).open(self.wal()) {
            Ok(file) => {
                if file.metadata()?.len() > length {
                    file.set_len(length)?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        remove(&self.shm())
    }

    /// Removes what there is of a database that was never finished.
    pub(crate) fn remove_unfinished(&self) -> io::Result<()> {
        let [one, other] = self.sums();
        for path in [self.database(), self.wal(), self.shm(), one, other] {
            remove(&path)?;
        }
        Ok(())
    }

    /// Renames the files of a damaged database to `*.damaged`, in place of the last ones that were. The marker goes first, durably: without it nobody takes the
    /// rest for a database.
    pub(crate) fn set_aside(&self) -> io::Result<()> {
        let aside = |path: &Path| {
            let mut name = path.as_os_str().to_owned();
            name.push(".damaged");
            PathBuf::from(name)
        };
        let [one, other] = self.sums();
        let rest = [self.database(), self.wal(), one, other];
        for path in rest.iter().chain([&self.marker()]) {
            remove(&aside(path))?;
        }
        fs::rename(self.marker(), aside(&self.marker()))?;
        File::open(&self.dir)?.sync_all()?;
        for path in &rest {
            match fs::rename(path, aside(path)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        remove(&self.shm())?;
        File::open(&self.dir)?.sync_all()
    }

    /// Makes a file that was written by SQLite durable, with its name.
    pub(crate) fn sync_database(&self) -> io::Result<()> {
        File::open(self.database())?.sync_all()?;
        File::open(&self.dir)?.sync_all()
    }

    /// Whether the database file is there and begins like one.
    pub(crate) fn check_database(&self) -> Result<(), OpenError> {
        let path = self.database();
        let mut start = [0; 16];
        match File::open(&path).and_then(|mut file| file.read_exact(&mut start)) {
            Ok(()) if &start == b"SQLite format 3\0" => Ok(()),
            Ok(()) => {
                Err(OpenError::Malformed { path, found: "it does not begin as a SQLite database does".to_string() })
            }
            Err(error) => Err(OpenError::Io { path, error }),
        }
    }
}

/// The size of a log of that many frames.
pub(crate) fn wal_bytes(frames: u32) -> u64 {
    WAL_HEADER_BYTES + u64::from(frames) * (FRAME_HEADER_BYTES + PAGE_BYTES)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
