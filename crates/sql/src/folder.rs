//! The folder that a database lies in, as this crate reads and writes it beside SQLite. SQLite reaches the same files through a VFS of its own, which is
//! the system's unless the folder names another: so a simulator can put both on a disk that loses what was not synced.

use std::ffi::CStr;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use highwater_log::{FileIo, Io, IoFile};

/// A folder of flat files. What is written is readable at once, and durable as [`Io`] and [`IoFile`] say.
pub trait Folder: Debug + Send + Sync {
    /// The name of the VFS through which SQLite reaches the files; `None` for its default.
    fn vfs(&self) -> Option<&'static CStr>;

    /// Opens a file for reading and writing; `NotFound` if there is none.
    fn open(&self, name: &str) -> io::Result<Arc<dyn IoFile>>;

    /// Makes a new, empty file; `AlreadyExists` if there is one.
    fn create(&self, name: &str) -> io::Result<Arc<dyn IoFile>>;

    /// Renames a file, replacing what bears the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file; `NotFound` if there is none.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes creations, renames and removals durable.
    fn sync_dir(&self) -> io::Result<()>;
}

/// A folder of the file system's.
impl Folder for FileIo {
    fn vfs(&self) -> Option<&'static CStr> {
        None
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn IoFile>> {
        Ok(Io::open(self, name)?)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn IoFile>> {
        Ok(Io::create(self, name)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Io::rename(self, from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Io::remove(self, name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        Io::sync_dir(self)
    }
}

/// Makes a file, or empties the one there is.
pub(crate) fn create_empty(folder: &dyn Folder, name: &str) -> io::Result<Arc<dyn IoFile>> {
    match folder.create(name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let file = folder.open(name)?;
            file.set_len(0)?;
            Ok(file)
        }
        made => made,
    }
}

/// Reads a whole file.
pub(crate) fn read(folder: &dyn Folder, name: &str) -> io::Result<Vec<u8>> {
    let file = folder.open(name)?;
    let mut bytes = vec![0; file.len()? as usize];
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Fills the buffer from there on; `UnexpectedEof` if the file ends before.
pub(crate) fn read_exact(file: &dyn IoFile, at: u64, buffer: &mut [u8]) -> io::Result<()> {
    match file.read_at(at, buffer)? {
        read if read == buffer.len() => Ok(()),
        read => {
            let what = format!("{read} bytes at {at}, where {} were expected", buffer.len());
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
        }
    }
}
