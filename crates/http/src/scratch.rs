//! Scratch files: copies on their way out and files on their way in, all together bounded.
//!
//! A scratch file is unlinked as soon as it is open where that is possible, so that even a process that is killed leaves nothing behind for long; what is left is
//! removed at the next start. All scratch files together have a limit, and none is begun that would leave the disk with less than
//! 1 GiB, or a tenth of it if it is small: the log needs that to take writes.

use std::path::{Path, PathBuf};

use axum::http::StatusCode;

use crate::app::App;
use crate::failure::Failure;
use crate::party::Party;
use crate::shares::Share;

/// A file that goes when this does, with the room it takes.
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
    room: Share,
}

impl Scratch {
    /// A new file, with room for so many bytes. The file is not made.
    ///
    /// # Errors
    /// `OVERLOADED` if the scratch files take all there is for them; `DISK_FULL` if the disk has too little space.
    pub(crate) fn new(app: &App, party: &Party, bytes: u64) -> Result<Scratch, Failure> {
        let mut scratch = Scratch { path: app.node.scratch_file(), room: app.scratch.nothing(party) };
        scratch.grow_to(bytes)?;
        Ok(scratch)
    }

    /// Room for so many bytes in all.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<(), Failure> {
        let mib = usize::try_from(bytes.div_ceil(1 << 20)).unwrap_or(usize::MAX);
        if self.room.amount() >= mib {
            return Ok(());
        }
        let more = (mib - self.room.amount()) as u64;
        check_disk(&self.path, more << 20)?;
        Ok(self.room.set(mib)?)
    }

    /// Gives back the room that the file turned out not to need.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let mib = usize::try_from(bytes.div_ceil(1 << 20)).unwrap_or(usize::MAX);
        self.room.shrink(self.room.amount().saturating_sub(mib));
    }

    /// Takes the file's name away; it lives as long as somebody has it open.
    pub(crate) fn unlink(&self) {
        // It may never have been made; one that stays is removed at the next start.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.unlink();
    }
}

/// What scratch files leave free on a disk, if a tenth of it is not less.
const LEFT_FREE_BYTES: u64 = 1 << 30;

/// Whether so many bytes more leave the disk enough.
fn check_disk(path: &Path, more: u64) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(path);
    let disk = rustix::fs::statvfs(folder).map_err(|error| failed("cannot look at the disk of", path, error.into()))?;
    let (free, all) = (disk.f_bavail.saturating_mul(disk.f_frsize), disk.f_blocks.saturating_mul(disk.f_frsize));
    let kept = LEFT_FREE_BYTES.min(all / 10);
    if free.saturating_sub(more) >= kept {
        return Ok(());
    }
    let message = format!(
        "the disk has {free} of {all} bytes free, and {more} bytes more for a scratch file would leave less than the {kept} that writes need; make space on it"
    );
    Err(Failure::new(StatusCode::INSUFFICIENT_STORAGE, "DISK_FULL", message))
}

/// What the file system says of a scratch file. The client is not told where it lies.
pub(crate) fn failed(what: &str, path: &Path, error: std::io::Error) -> Failure {
    tracing::warn!(path = %path.display(), %error, "{what} a scratch file");
    let full = matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
    let (status, code) = match full {
        true => (StatusCode::INSUFFICIENT_STORAGE, "DISK_FULL"),
        false => (StatusCode::INTERNAL_SERVER_ERROR, "SCRATCH_FILE"),
    };
    Failure::new(status, code, format!("{what} a scratch file: {error}"))
}
