//! What is found in a database's folder at a start, and what is done about it.
//!
//! | marker | sums that it names | database file | what is done |
//! |---|---|---|---|
//! | none | | | what is there was never finished: removed, and made anew |
//! | damaged | | | refused |
//! | whole | whole | as they say, once a checkpoint that was under way is ended | it is used |
//! | whole | whole | otherwise, or gone | said, set aside, and made anew |
//! | whole | none, damaged, or of another checkpoint | begins as a database does | said, and sums are made from it |
//! | whole | none, damaged, or of another checkpoint | otherwise, or gone | refused |
//!
//! A database made anew has applied nothing, so that everything is applied again from the replication log, which is checksummed and holds the truth.

use std::io;

use crate::client::set_up;
use crate::database::create;
use crate::error::OpenError;
use crate::ffi::{Conn, Failure, Hooks, OpenMode, WrittenBack};
use crate::sums::{Damage, Sums};
use crate::wal::{Files, Marker};

/// Makes the folder hold a database file that is what its sums say, at the state of its last checkpoint, and no log of SQLite's.
pub(crate) fn prepare(files: &Files) -> Result<Sums, OpenError> {
    let Some(marker) = files.read_marker()? else { return make_anew(files) };
    let io = |error| OpenError::Io { path: files.database(), error };
    let (slot, pages) = match files.read_sums(&marker) {
        Ok(found) => found,
        Err(reason) => return without_sums(files, &marker, &reason),
    };
    match examine(files, &marker, &pages)? {
        None => Sums::new(files, pages, slot).map_err(io),
        Some(damage) => {
            tracing::error!(
                file = %files.database().display(),
                %damage,
                "the database file is damaged: it is set aside as database.sqlite.damaged, and the database is made anew from the log"
            );
            files.set_aside().map_err(io)?;
            make_anew(files)
        }
    }
}

/// Makes an empty database that has applied nothing.
fn make_anew(files: &Files) -> Result<Sums, OpenError> {
    let io = |error| OpenError::Io { path: files.database(), error };
    // That there is no marker must be durable before there are other files for it.
    files.folder().sync_dir().map_err(io)?;
    files.remove_unfinished().map_err(io)?;
    let marker = create(files).map_err(|failure| sqlite(files, failure))?;
    files.sync_database().map_err(io)?;
    let pages = files.sums_of_database().map_err(io)?;
    files.write_sums(0, &marker, &pages).map_err(io)?;
    files.write_marker(&marker).map_err(io)?;
    Sums::new(files, pages, 0).map_err(io)
}

/// Ends a checkpoint that was under way, and compares the database file with its sums.
fn examine(files: &Files, marker: &Marker, pages: &[u32]) -> Result<Option<Damage>, OpenError> {
    files.cut_to_marker(marker).map_err(|error| OpenError::Io { path: files.wal(), error })?;
    if let Err(failure) = end_checkpoint(files, marker)? {
        return match failure {
            // Nothing that damage to the file would bring about.
            Ended::Failed(failure) => Err(sqlite(files, failure)),
            Ended::Unusable(failure) => Ok(Some(Damage::Unusable(failure.to_string()))),
        };
    }
    match files.check_pages(pages) {
        Ok(found) => Ok(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Damage::Unusable("it is gone".to_string()))),
        // EIO: the disk cannot read a part of it.
        Err(error) if error.raw_os_error() == Some(5) => Ok(Some(Damage::Unusable(error.to_string()))),
        Err(error) => Err(OpenError::Io { path: files.database(), error }),
    }
}

/// Takes the database file as it is, since nothing says what it should be, and makes sums from it.
fn without_sums(files: &Files, marker: &Marker, reason: &str) -> Result<Sums, OpenError> {
    let io = |error| OpenError::Io { path: files.database(), error };
    files.check_database()?;
    files.cut_to_marker(marker).map_err(io)?;
    end_checkpoint(files, marker)?.map_err(|failure| match failure {
        Ended::Failed(failure) | Ended::Unusable(failure) => sqlite(files, failure),
    })?;
    tracing::warn!(
        file = %files.database().display(),
        %reason,
        "there are no checksums to compare the database file with: it is taken as it is, and they are made from it"
    );
    let pages = files.sums_of_database().map_err(io)?;
    files.write_sums(0, marker, &pages).map_err(io)?;
    Sums::new(files, pages, 0).map_err(io)
}

/// Why a checkpoint could not be ended.
enum Ended {
    /// Something is wrong with the disk, the memory or another process.
    Failed(Failure),
    /// Something is wrong with the file.
    Unusable(Failure),
}

/// Writes back what is left of SQLite's log, if anything is. The marker is made durable anew before it: the process that put it in place may have failed to,
/// and once the database file is what this marker says, an older one that a power loss brings back would call it damaged.
fn end_checkpoint(files: &Files, marker: &Marker) -> Result<Result<(), Ended>, OpenError> {
    if files.wal_is_empty() {
        return Ok(Ok(()));
    }
    files.write_marker(marker).map_err(|error| OpenError::Io { path: files.database(), error })?;
    Ok(write_back(files))
}

fn write_back(files: &Files) -> Result<(), Ended> {
    let run = || -> Result<bool, Failure> {
        let conn = Conn::open(files.location(), OpenMode::Existing, Hooks::own())?;
        set_up(&conn)?;
        let emptied = conn.checkpoint_truncate()?;
        conn.close()?;
        Ok(emptied == WrittenBack::Emptied)
    };
    match run() {
        Ok(true) => Ok(()),
        Ok(false) => Err(Ended::Failed(Failure {
            code: rusqlite::ffi::SQLITE_BUSY,
            message: "another process reads it: end that process, and start the node again".to_string(),
            offset: None,
        })),
        Err(failure) => Err(match failure.primary() {
            rusqlite::ffi::SQLITE_CANTOPEN if !files.database_exists() => Ended::Unusable(failure),
            rusqlite::ffi::SQLITE_FULL
            | rusqlite::ffi::SQLITE_IOERR
            | rusqlite::ffi::SQLITE_NOMEM
            | rusqlite::ffi::SQLITE_CANTOPEN
            | rusqlite::ffi::SQLITE_BUSY
            | rusqlite::ffi::SQLITE_LOCKED
            | rusqlite::ffi::SQLITE_PERM => Ended::Failed(failure),
            _ => Ended::Unusable(failure),
        }),
    }
}

fn sqlite(files: &Files, failure: Failure) -> OpenError {
    OpenError::Sqlite { path: files.database(), message: failure.to_string() }
}
