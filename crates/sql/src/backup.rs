//! A consistent copy as an ordinary SQLite file, without stopping anybody.

use std::path::Path;

use highwater_wire::Offset;

use crate::allowance::Allowance;
use crate::api::SqlError;
use crate::database::Database;
use crate::error::error;
use crate::ffi::{Conn, Failure, Hooks, OpenMode};
use crate::run::interrupted;

impl Database {
    /// Writes the newest published state into a new SQLite file, our own tables left out, and returns the offset it is at. The file is not synced.
    ///
    /// # Errors
    /// `SQLITE_CANTOPEN` if the file exists or cannot be made; `NOT_READY` before the first publication; `TRANSACTION_TIMEOUT` and `CANCELLED` when the allowance ends; what SQLite finds wrong. A file begun is removed.
    pub fn backup(&self, to: &Path, allowance: impl Into<Allowance>) -> Result<Offset, SqlError> {
        if to.exists() {
            return Err(error("SQLITE_CANTOPEN", format!("{} exists already: name a new file", to.display())));
        }
        let copied = self.read(&allowance.into(), |client, (_, offset)| {
            let copy = || -> Result<(), Failure> {
                let target = Conn::open(to, OpenMode::Create, Hooks::own())?;
                client.copy_into(&target, &|| !client.hooks().interrupted())?;
                target.close()?;
                tidy(to, client.hooks())
            };
            copy().map_err(|failure| interrupted(client, failure))?;
            Ok(offset)
        });
        if copied.result.is_err() {
            // What was begun is of no use; that it may not be there either is no matter.
            let _ = std::fs::remove_file(to);
        }
        copied.result
    }
}

/// Makes an ordinary file of a copy: no write-ahead log, none of our tables. As far as the allowance goes that the reader's connection was given.
fn tidy(path: &Path, reader: &Hooks) -> Result<(), Failure> {
    let conn = Conn::open(path, OpenMode::Existing, Hooks::own())?;
    conn.hooks().allow_as(reader);
    conn.exec("PRAGMA journal_mode=DELETE")?;
    conn.exec(
        "PRAGMA writable_schema=ON; DELETE FROM sqlite_schema WHERE tbl_name LIKE 'sqlite\\_highwater\\_%' ESCAPE '\\'",
    )?;
    conn.close()?;
    // Opened anew, SQLite knows nothing of the tables; rebuilding the file frees their pages.
    let conn = Conn::open(path, OpenMode::Existing, Hooks::own())?;
    conn.hooks().allow_as(reader);
    conn.exec("VACUUM")?;
    conn.close()
}
