//! The one way in which a small file is replaced: write a temporary one, sync it, rename it over the old one, sync the folder. After a crash the
//! file is the old one or the new one, whole.

use std::io;

use crate::io::{Io, IoFile};

/// What the names of temporary files end with. One that a crash left behind means nothing.
pub(crate) const TEMPORARY: &str = ".tmp";

/// A file was not replaced, or may have been.
#[derive(Debug, thiserror::Error)]
#[error("{name} could not be replaced, at step {step}: {error}")]
pub struct ReplaceError {
    /// The file.
    pub name: String,
    /// What was being done.
    pub step: &'static str,
    /// The old file certainly still stands, and the disk is merely full: it may be tried again.
    pub harmless: bool,
    /// What the disk answered.
    pub error: io::Error,
}

/// Replaces the file `name`, durably, with one that holds `bytes`. Makes it if there is none.
pub fn durable_replace<I: Io>(io: &I, name: &str, bytes: &[u8]) -> Result<(), ReplaceError> {
    replace_with(io, name, |file| file.write_at(0, bytes))
}

/// Like [`durable_replace`], with the contents written by `write` into the new, empty file.
pub(crate) fn replace_with<I: Io>(
    io: &I,
    name: &str,
    write: impl FnOnce(&I::File) -> io::Result<()>,
) -> Result<(), ReplaceError> {
    assert!(!name.is_empty() && !name.ends_with(TEMPORARY), "{name} is the name of a file that stays");
    let failed = |step, error: io::Error| ReplaceError {
        name: name.to_owned(),
        step,
        harmless: step == "write" && is_full(&error),
        error,
    };
    let temporary = format!("{name}{TEMPORARY}");
    match io.remove(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove the old temporary", error)),
        _ => {}
    }
    // A full disk may show itself at the creation, or at the write.
    let file = io.create(&temporary).map_err(|error| failed("write", error))?;
    if let Err(error) = write(&file) {
        // The space is given back where that is possible; what is left behind is removed by the next attempt or by recovery.
        let _ = io.remove(&temporary);
        return Err(failed("write", error));
    }
    file.sync_data().map_err(|error| failed("sync", error))?;
    io.rename(&temporary, name).map_err(|error| failed("rename", error))?;
    io.sync_dir().map_err(|error| failed("sync the folder", error))
}

/// Whether an error says that there is no space left.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
