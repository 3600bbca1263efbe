//! A real folder.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};

use crate::io::{Io, IoFile};

/// A folder on a file system.
#[derive(Debug)]
pub struct FileIo {
    path: PathBuf,
    /// Open for syncing it, and for the lock.
    folder: File,
}

impl FileIo {
    /// Opens a folder for one process alone; makes it, durably, if it is not there. `WouldBlock` if another process has it.
    pub fn open(path: &Path) -> io::Result<FileIo> {
        make_folder(path)?;
        let io = FileIo::inspect(path)?;
        flock(&io.folder, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            let error = io::Error::from(error);
            let what = format!("{} is in use by another process: {error}", path.display());
            io::Error::new(error.kind(), what)
        })?;
        Ok(io)
    }

    /// Opens a folder that is there, without a lock: for looking at it while a node may be running.
    pub fn inspect(path: &Path) -> io::Result<FileIo> {
        Ok(FileIo { path: path.to_owned(), folder: File::open(path)? })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a folder and those above it that are not there, each durable in the one above.
fn make_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    make_folder(above)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    File::open(above)?.sync_all()
}

/// Fills the buffer from `offset` on; returns how many bytes, which are fewer only at the end of the file. A file system may give fewer at any call, and a signal
/// may interrupt one.
fn fill(
    offset: u64,
    buffer: &mut [u8],
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

impl Io for FileIo {
    type File = File;

    fn list(&self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn open(&self, name: &str) -> io::Result<Arc<File>> {
        let path = self.path.join(name);
        match File::options().read(true).write(true).open(&path) {
            // Whoever only looks may have no right to write; writes then fail by themselves.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => File::open(&path).map(Arc::new),
            opened => opened.map(Arc::new),
        }
    }

    fn create(&self, name: &str) -> io::Result<Arc<File>> {
        File::options().read(true).write(true).create_new(true).open(self.path.join(name)).map(Arc::new)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.folder.sync_all()
    }
}

impl IoFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        fill(offset, buffer, |rest, at| FileExt::read_at(self, rest, at))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `file` as `read(2)` may: at most `most` bytes at a time, and every other call is interrupted.
    fn in_pieces(file: &[u8], most: usize) -> impl FnMut(&mut [u8], u64) -> io::Result<usize> {
        let mut interrupted = false;
        move |buffer, at| {
            interrupted = !interrupted;
            if interrupted {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let rest = file.get(at as usize..).unwrap_or_default();
            let read = rest.len().min(buffer.len()).min(most);
            buffer[..read].copy_from_slice(&rest[..read]);
            Ok(read)
        }
    }

    #[test]
    fn short_and_interrupted_reads_are_continued_to_the_end_of_the_file() {
        let file: Vec<u8> = (0..100).collect();
        for most in [1, 3, 7, 99, 100, 1000] {
            for (offset, wanted, found) in [(0, 100, 100), (10, 50, 50), (90, 50, 10), (100, 5, 0), (400, 5, 0)] {
                let mut buffer = vec![0xff; wanted];
                let read = fill(offset, &mut buffer, in_pieces(&file, most)).expect("nothing fails for good");
                assert_eq!(read, found, "{wanted} bytes from {offset} on, {most} at a time");
                assert!(file.get(offset as usize..).unwrap_or_default().starts_with(&buffer[..read]));
                assert!(buffer[read..].iter().all(|byte| *byte == 0xff), "what was not read is left alone");
            }
        }
    }

    #[test]
    fn a_read_that_fails_after_a_short_one_is_an_error_and_no_short_result() {
        let mut calls = 0;
        let failed = fill(0, &mut [0; 8], |_, _| {
            calls += 1;
            if calls == 1 { Ok(3) } else { Err(io::Error::other("the sector cannot be read")) }
        });
        assert_eq!(failed.map_err(|error| error.to_string()), Err("the sector cannot be read".to_owned()));
        assert_eq!(calls, 2, "it is not tried again");
    }
}
