//! What a node's process asks of the kernel for itself, before anything else.
//!
//! - What it makes is its own: folders 0700, files 0600, whatever the umask was.
//! - It takes as many open files as it may.
//! - With secrets in its memory, it leaves no image of that memory behind.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask};

/// The most open files that are asked for. Where the hard limit is higher, as it is in some containers, a node has no use for more.
const OPEN_FILES_MAX: u64 = 1 << 20;

/// Takes away what others might do with what this process makes. Must be called before it has threads: the umask is the whole process's.
pub(crate) fn keep_files_private() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Raises the soft limit of open files to the hard one. Returns what it is then. A node goes on with less, so a refusal is only logged.
pub(crate) fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
    if limit.current.is_some_and(|current| current < wanted)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })
    {
        tracing::warn!(%error, "the limit of open files cannot be raised to {wanted}");
    }
    let files = open_files();
    tracing::info!("at most {files} files may be open");
    files
}

/// How many files this process may have open at one time, sockets included.
pub(crate) fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(OPEN_FILES_MAX)
}

/// Leaves no core dumps. Both of these are needed: the limit of 0 keeps the kernel from writing a file, but where dumps are piped to a program the limit does
/// not count; and a process that is not dumpable is neither dumped there, nor can another process of the same user read its memory.
pub(crate) fn leave_no_image() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::warn!(%error, "core dumps cannot be limited: one would hold tokens and secrets");
    }
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "core dumps cannot be switched off: one would hold tokens and secrets");
    }
}

/// Warns of a data folder that others than its owner may enter. One that is not there yet is made as it should be.
pub(crate) fn warn_of_open_folder(folder: &Path) {
    let Ok(metadata) = std::fs::metadata(folder) else { return };
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        let folder = folder.display();
        tracing::warn!("the data folder {folder} has mode {mode:03o}, which lets others in: run `chmod 700 {folder}`");
    }
}
