//! Errors, and the codes that clients know them by.

use std::path::PathBuf;

use rusqlite::ffi;

use crate::api::SqlError;
use crate::ffi::{Failure, TEMPORARY_FULL, memory, temporary_bytes};

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// SQLite was built without something that is needed.
    #[error("SQLite was compiled without {0}: build with the LIBSQLITE3_FLAGS of .cargo/config.toml")]
    Build(&'static str),
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// A file of ours holds something else.
    #[error("{path} is not what this version writes: {found}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        found: String,
    },
    /// SQLite failed.
    #[error("SQLite, opening {path}: {message}")]
    Sqlite {
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        message: String,
    },
}

/// Why the state machine stopped. It serves no more until it is opened again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// What the log holds does not fit what the database holds: this replica differs from its leader.
    #[error("this replica has diverged at offset {offset}: {reason}; it must be rebuilt")]
    Diverged {
        /// The end of the transaction that did not fit.
        offset: u64,
        /// What was expected and what was found.
        reason: String,
    },
    /// A batch or record cannot be read.
    #[error("the log cannot be read at offset {offset}: {reason}")]
    Unreadable {
        /// Where.
        offset: u64,
        /// Why.
        reason: String,
    },
    /// A rewind to before the last checkpoint.
    #[error("offset {to} was asked for, and nothing before {oldest} is kept here: this replica must be rebuilt")]
    Forgotten {
        /// What was asked for.
        to: u64,
        /// The oldest state there is.
        oldest: u64,
    },
    /// The disk is full. While applying this is waited out; where it is told, nothing was changed.
    #[error("the disk is full: {0}")]
    Full(String),
    /// Somebody held a lock of SQLite's for as long as it was waited for. While applying it is tried again; where it is told, nothing was changed.
    #[error("the database file was locked: {0}")]
    Busy(String),
    /// SQLite or the file system failed.
    #[error("{0}")]
    Failed(String),
}

impl From<Failure> for MachineError {
    fn from(failure: Failure) -> MachineError {
        match failure.primary() {
            ffi::SQLITE_FULL => MachineError::Full(failure.to_string()),
            ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED => MachineError::Busy(failure.to_string()),
            _ => MachineError::Failed(format!("SQLite failed: {failure}")),
        }
    }
}

/// An error with a code.
pub(crate) fn error(code: &str, message: impl Into<String>) -> SqlError {
    SqlError { code: code.to_string(), message: message.into(), offset: None }
}

/// What is said where whoever asked has left: mostly to nobody.
pub(crate) fn cancelled() -> SqlError {
    error("CANCELLED", "whoever asked has left, so the statement was interrupted: it had no effect")
}

/// The code of a failure of SQLite's: its own name, or ours where it is about a limit or the text.
pub(crate) fn from_failure(failure: Failure) -> SqlError {
    if failure.code == TEMPORARY_FULL {
        let (used, most) = temporary_bytes();
        return error(
            "TEMPORARY_SPACE_FULL",
            format!(
                "the temporary files of all statements on this node may have {most} bytes together, they have {used}, and the statement needed more: sort or keep less in temporary tables, or try again later"
            ),
        );
    }
    if failure.primary() == ffi::SQLITE_NOMEM {
        match memory::refusal() {
            Some(memory::Refusal::Full(refusal)) => return error("OVERLOADED", refusal),
            Some(memory::Refusal::TooMuch) => {
                let most = memory::REQUEST_MAX_BYTES;
                return error(
                    "STATEMENT_TOO_LARGE",
                    format!(
                        "the statement needs more than {most} bytes of memory while it runs, the most that one may: ask for fewer or smaller values at a time"
                    ),
                );
            }
            None => {}
        }
    }
    let code = match failure.primary() {
        ffi::SQLITE_ERROR if is_parse_error(&failure.message) => "SQL_PARSE_ERROR",
        ffi::SQLITE_ERROR => "SQLITE_ERROR",
        ffi::SQLITE_INTERNAL => "SQLITE_INTERNAL",
        ffi::SQLITE_PERM => "SQLITE_PERM",
        ffi::SQLITE_ABORT => "SQLITE_ABORT",
        ffi::SQLITE_BUSY => "SQLITE_BUSY",
        ffi::SQLITE_LOCKED => "SQLITE_LOCKED",
        ffi::SQLITE_NOMEM => "SQLITE_NOMEM",
        ffi::SQLITE_READONLY => "SQLITE_READONLY",
        ffi::SQLITE_INTERRUPT => "SQLITE_INTERRUPT",
        ffi::SQLITE_IOERR => "SQLITE_IOERR",
        ffi::SQLITE_CORRUPT => "SQLITE_CORRUPT",
        ffi::SQLITE_NOTFOUND => "SQLITE_NOTFOUND",
        ffi::SQLITE_FULL => "SQLITE_FULL",
        ffi::SQLITE_CANTOPEN => "SQLITE_CANTOPEN",
        ffi::SQLITE_SCHEMA => "SQLITE_SCHEMA",
        ffi::SQLITE_TOOBIG => "VALUE_TOO_LARGE",
        ffi::SQLITE_CONSTRAINT => "SQLITE_CONSTRAINT",
        ffi::SQLITE_MISMATCH => "SQLITE_MISMATCH",
        ffi::SQLITE_MISUSE => "SQLITE_MISUSE",
        ffi::SQLITE_AUTH => "SQLITE_AUTH",
        ffi::SQLITE_RANGE => "SQLITE_RANGE",
        ffi::SQLITE_NOTADB => "SQLITE_NOTADB",
        _ => "SQLITE_UNKNOWN",
    };
    SqlError { code: code.to_string(), message: failure.message, offset: failure.offset }
}

fn is_parse_error(message: &str) -> bool {
    message.contains("syntax error") || message.contains("incomplete input") || message.contains("unrecognized token")
}
