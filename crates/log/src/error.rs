//! Why a log folder cannot be opened. Each names the thing, what was expected, what was found, and what to do.

use std::io;

use highwater_wire::{LogId, Offset};

use crate::control::SealError;
use crate::replace::{ReplaceError, is_full};

/// Why a log was not opened. Nothing was changed in its folder, except where an [`OpenError::Io`] or [`OpenError::Replace`] came in the middle of
/// what recovery had decided; it decides the same when it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk refused an operation.
    #[error("the log could not {doing} {name}: {error}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        name: String,
        /// What the disk answered.
        error: io::Error,
    },
    /// The control file could not be replaced.
    #[error(transparent)]
    Replace(#[from] ReplaceError),
    /// The folder is empty, and was to be there already.
    #[error(
        "there is no log in this folder, and there should be: {log_id} was made here. If its disk was replaced, this node must join as a new member"
    )]
    Missing {
        /// The log expected.
        log_id: LogId,
    },
    /// There are files, but no control file.
    #[error(
        "the log's control file `control` is missing beside {beside}: the promises it held are lost. Restore it, or move the folder away and let this node join as a new member"
    )]
    ControlMissing {
        /// A file that is there.
        beside: String,
    },
    /// There are files that a log does not have.
    #[error("this folder holds {found}, which is no file of a log: give the log an empty folder of its own")]
    NotALog {
        /// One of them.
        found: String,
    },
    /// The control file does not read.
    #[error(
        "the log's control file `control` is damaged ({error}): the promises it held are lost. Move the folder away and let this node join as a new member"
    )]
    ControlDamaged {
        /// What is wrong.
        error: SealError,
    },
    /// The folder, or a file in it, belongs to another log.
    #[error(
        "{name} belongs to log {found}, where log {wanted} was expected: a folder or file of another replica was put here; put the right one back"
    )]
    OtherLog {
        /// The file.
        name: String,
        /// Asked for.
        wanted: LogId,
        /// Found in it.
        found: LogId,
    },
    /// A segment is not there.
    #[error(
        "segment {name} is missing: {named_by} says that it is there. Put it back, or move the folder away and let this replica fetch its log from a peer"
    )]
    SegmentMissing {
        /// The missing file.
        name: String,
        /// The file that names it.
        named_by: String,
    },
    /// A segment's header, or its place in the chain, is wrong.
    #[error("segment {name} is damaged: {what}. Move the folder away and let this replica fetch its log from a peer")]
    SegmentDamaged {
        /// The file.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// Entries that had been flushed are lost or damaged, or the files contradict each other.
    #[error(
        "{name}, byte {position}, offset {offset}: {why} ({what}; flushed up to offset {flushed}). Nothing was changed. \
         Keep a copy of the folder, then move it away and let this replica fetch its log from a peer"
    )]
    Corrupt {
        /// The file.
        name: String,
        /// The byte at which a frame was expected.
        position: u64,
        /// The offset expected there.
        offset: Offset,
        /// What had been durable, as far as is known.
        flushed: Offset,
        /// The row of the recovery table.
        why: &'static str,
        /// What lies there.
        what: String,
    },
}

impl OpenError {
    pub(crate) fn io(doing: &'static str, name: &str) -> impl FnOnce(io::Error) -> OpenError {
        move |error| OpenError::Io { doing, name: name.to_owned(), error }
    }
}

impl OpenError {
    /// Whether the disk is merely full: nothing is wrong with the folder, and it may be opened once there is room.
    pub fn is_full(&self) -> bool {
        match self {
            OpenError::Io { error, .. } => is_full(error),
            OpenError::Replace(error) => error.harmless,
            _ => false,
        }
    }
}
