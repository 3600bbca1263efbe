//! The disk as the log needs it: one folder of flat files.
//!
//! What is written is readable at once; it is durable only after [`IoFile::sync_data`] of that file, and a file's name only after
//! [`Io::sync_dir`] of the folder. The simulator's disk keeps pending and synced bytes apart and may lose any part of what is pending.

use std::io;
use std::sync::Arc;

/// A folder.
pub trait Io {
    /// Its files.
    type File: IoFile;

    /// The names of the files in it, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file for reading and writing; `NotFound` if there is none.
    fn open(&self, name: &str) -> io::Result<Arc<Self::File>>;

    /// Makes a new, empty file; `AlreadyExists` if there is one.
    fn create(&self, name: &str) -> io::Result<Arc<Self::File>>;

    /// Renames a file, replacing what bears the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes creations, renames and removals durable.
    fn sync_dir(&self) -> io::Result<()>;
}

/// An open file. Reads and writes name their offset; several threads may hold it.
pub trait IoFile: Send + Sync {
    /// Its length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file. Returns how many.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all bytes, extending the file where needed. On an error any part of them may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Sets the length; new bytes are zero.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes the contents and the length durable.
    fn sync_data(&self) -> io::Result<()>;
}
