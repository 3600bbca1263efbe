//! Taking in a SQLite file: its schema and rows become replicated transactions like any others.
//!
//! In this order, so that nothing fires on what was there already: ordinary tables, their rows with their rowids, virtual tables, the rows of their shadow
//! tables, indexes, views and triggers, the values of AUTOINCREMENT, `user_version` and `application_id`. Statistics are not taken: ANALYZE gathers them anew.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::ffi;

use crate::allowance::Allowance;
use crate::api::{Answer, Hold, SqlError};
use crate::captured::check_references;
use crate::classify::Class;
use crate::client::Client;
use crate::core::Core;
use crate::database::Database;
use crate::error::{cancelled, error, from_failure};
use crate::ffi::{Conn, Failure, Hooks, OpenMode, Step};
use crate::hash::Rows;
use crate::replicated::{self, Refused};
use crate::shape::{RowKey, Shape, quoted};
use crate::text;

/// A transaction is committed once it has about so many bytes.
const CHUNK_BYTES: usize = 8 << 20;
/// How long an import waits for what it has executed to be committed before it goes on.
const COMMIT_WAIT: Duration = Duration::from_secs(30);

/// What a file holds, by kind.
struct Contents {
    tables: Vec<(String, String)>,
    virtual_tables: Vec<String>,
    shadows: Vec<String>,
    others: Vec<String>,
    has_sequence: bool,
}

/// An import under way.
struct Import<'a> {
    database: &'a Database,
    core: &'a mut Core,
    client: &'a Client,
    source: &'a Conn,
    schema: i64,
    allowance: &'a Allowance,
}

impl Database {
    /// Takes in a SQLite file. The database must be empty. Other writers wait meanwhile. A large file becomes several transactions: if the import fails, some
    /// of them may stay.
    ///
    /// # Errors
    /// `NOT_EMPTY` if there are tables already; `NOT_LEADER`; `TRANSACTION_TIMEOUT` and `CANCELLED` when the allowance ends; `SQLITE_CANTOPEN`, `SQLITE_NOTADB` and the like about the file; what SQLite finds wrong.
    pub fn import(&self, from: &Path, allowance: impl Into<Allowance>) -> Answer<Result<(), SqlError>> {
        let allowance = &allowance.into();
        let refused = |failed| Answer { result: Err(failed), hold: None, seen: (None, 0) };
        let _gate = match self.enter() {
            Ok(gate) => gate,
            Err(failed) => return refused(failed),
        };
        let source = match open_source(from, self.options.value_bytes_max) {
            Ok(source) => source,
            Err(failed) => return refused(failed),
        };
        let mut held = match self.acquire(allowance) {
            Ok(held) => held,
            Err(failed) => return refused(failed),
        };
        let core = &mut *held;
        let before = self.hold(core);
        let began = core.end;
        source.hooks().allow(allowance);
        let result = self.import_from(core, &source, allowance);
        let hold = Hold { wrote: core.end > began, ..self.hold(core) };
        let hold = if result.is_err() && !hold.wrote { before } else { hold };
        Answer { result, hold: Some(hold), seen: (core.epoch, core.end) }
    }

    fn import_from(&self, core: &mut Core, source: &Conn, allowance: &Allowance) -> Result<(), SqlError> {
        let client = self.open_client().map_err(from_failure)?;
        client.hooks().allow(allowance);
        let outcome = client.hooks().internally(|| {
            let set = || -> Result<(), Failure> {
                client.set_switch(ffi::SQLITE_DBCONFIG_DEFENSIVE, false)?;
                client.set_switch(ffi::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
                client.exec("PRAGMA foreign_keys=OFF; PRAGMA ignore_check_constraints=ON; BEGIN IMMEDIATE")
            };
            set().map_err(from_failure)?;
            let schema = client.refresh().map_err(from_failure)?;
            let there = client
                .query_integer("SELECT count(*) FROM main.sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'");
            if there.map_err(from_failure)? != Some(0) {
                return Err(error(
                    "NOT_EMPTY",
                    "a file is taken into an empty database only, and this one has tables: drop them, or take another",
                ));
            }
            Import { database: self, core, client: &client, source, schema, allowance }.run()
        });
        client.hooks().end_allowance();
        let outcome = outcome.map_err(|failed| match failed.code.as_str() {
            "SQLITE_INTERRUPT" if allowance.cancel.is_cancelled() => cancelled(),
            "SQLITE_INTERRUPT" => {
                error("TRANSACTION_TIMEOUT", "the import ran for longer than it may and was interrupted")
            }
            _ => failed,
        });
        if !client.autocommit() {
            let rolled_back = client.hooks().internally(|| client.exec("ROLLBACK"));
            rolled_back.map_err(from_failure)?;
        }
        outcome
    }
}

/// Opens the file, which somebody else made: nothing that its schema says is trusted, and nothing is made beside it.
fn open_source(from: &Path, value_bytes_max: usize) -> Result<Conn, SqlError> {
    let source = Conn::open(from, OpenMode::Immutable, Hooks::own()).map_err(from_failure)?;
    let set = || -> Result<(), Failure> {
        source.set_switch(ffi::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        source.set_switch(ffi::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        source.exec("PRAGMA cell_size_check=ON")
    };
    set().map_err(from_failure)?;
    source.set_limit(ffi::SQLITE_LIMIT_LENGTH, i32::try_from(value_bytes_max).unwrap_or(i32::MAX));
    let mut encoding = String::new();
    source
        .query(
            "PRAGMA encoding",
            |_| Ok(()),
            |row| {
                encoding = row.string(0);
                Ok(())
            },
        )
        .map_err(from_failure)?;
    if encoding != "UTF-8" {
        return Err(error(
            "SQLITE_ERROR",
            format!("the file's text is {encoding}, and only UTF-8 is taken in: convert it first"),
        ));
    }
    source.exec("BEGIN").map_err(from_failure)?;
    Ok(source)
}

impl Import<'_> {
    fn run(mut self) -> Result<(), SqlError> {
        let contents = self.contents()?;
        for (table, sql) in &contents.tables {
            self.statement(sql)?;
            check_references(self.client, table)?;
        }
        for (table, _) in &contents.tables {
            self.rows(table)?;
        }
        for sql in &contents.virtual_tables {
            self.statement(sql)?;
        }
        for table in &contents.shadows {
            self.own(&format!("DELETE FROM main.{}", quoted(table)))?;
            self.rows(table)?;
        }
        for sql in &contents.others {
            self.statement(sql)?;
        }
        if contents.has_sequence {
            self.own("DELETE FROM main.sqlite_sequence")?;
            self.rows("sqlite_sequence")?;
        }
        for pragma in ["user_version", "application_id"] {
            let value =
                self.source.query_integer(&format!("PRAGMA {pragma}")).map_err(from_failure)?.unwrap_or_default();
            if value != 0 {
                self.statement(&format!("PRAGMA {pragma}={value}"))?;
            }
        }
        self.commit()
    }

    fn contents(&self) -> Result<Contents, SqlError> {
        let mut shadows = Vec::new();
        let kinds = self.source.query(
            "PRAGMA main.table_list",
            |_| Ok(()),
            |row| {
                if row.string(2) == "shadow" {
                    shadows.push(row.string(1));
                }
                Ok(())
            },
        );
        kinds.map_err(from_failure)?;
        let mut contents = Contents {
            tables: Vec::new(),
            virtual_tables: Vec::new(),
            shadows: Vec::new(),
            others: Vec::new(),
            has_sequence: false,
        };
        let query = "SELECT type, name, sql FROM main.sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid";
        let objects = self.source.query(
            query,
            |_| Ok(()),
            |row| {
                let (kind, name, sql) = (row.string(0), row.string(1), row.string(2));
                let is_virtual = text::words(&sql, 2).get(1).is_some_and(|word| word == "VIRTUAL");
                match kind.as_str() {
                    "table" if name == "sqlite_sequence" => contents.has_sequence = true,
                    _ if name.starts_with("sqlite_") => {}
                    "table" if shadows.contains(&name) => contents.shadows.push(name),
                    "table" if is_virtual => contents.virtual_tables.push(sql),
                    "table" => contents.tables.push((name, sql)),
                    _ => contents.others.push(sql),
                }
                Ok(())
            },
        );
        objects.map_err(from_failure)?;
        Ok(contents)
    }

    fn own(&mut self, sql: &str) -> Result<(), SqlError> {
        self.client.exec(sql).map_err(from_failure)?;
        self.go_on()
    }

    /// Runs a schema statement here and takes it down for the others, without the rows it makes.
    fn statement(&mut self, sql: &str) -> Result<(), SqlError> {
        let mark = self.client.hooks().capture.borrow().mark();
        replicated::run(self.client, sql, &Class::Schema).map_err(|refused| match refused {
            Refused::Sqlite(failure) => from_failure(failure),
            Refused::Text(reason) => {
                error("SQLITE_ERROR", format!("the schema of the file has what is not taken in, {sql:?}: {reason}"))
            }
        })?;
        {
            let mut capture = self.client.hooks().capture.borrow_mut();
            capture.truncate(mark);
            capture.statement(0, sql);
        }
        self.go_on()
    }

    /// Copies a table's rows.
    fn rows(&mut self, table: &str) -> Result<(), SqlError> {
        let shape =
            |conn: &Conn| Shape::of_table(conn, table).map_err(|failed| error("SQLITE_ERROR", failed.to_string()));
        let (theirs, ours) = (shape(self.source)?, shape(self.client)?);
        if theirs.columns != ours.columns || theirs.key != ours.key {
            return Err(error(
                "SQLITE_ERROR",
                format!("the table {table:?} of the file has other columns than this version of SQLite makes for it"),
            ));
        }
        let mut columns: Vec<String> = match &ours.key {
            RowKey::Rowid(name) => vec![quoted(name)],
            RowKey::Columns(_) => Vec::new(),
        };
        columns.extend(ours.columns.iter().map(|(_, name)| quoted(name)));
        let marks = vec!["?"; columns.len()].join(",");
        let insert = format!("INSERT INTO main.{}({}) VALUES({marks})", quoted(table), columns.join(","));
        let mut select = Rows::of_table(self.source, &theirs).map_err(from_failure)?;
        while select.step().map_err(from_failure)? == Step::Row {
            self.client
                .run(&insert, |stmt| {
                    select.values().enumerate().try_for_each(|(column, value)| stmt.bind(column + 1, value))
                })
                .map_err(from_failure)?;
            self.go_on()?;
        }
        Ok(())
    }

    /// Commits if the transaction has grown large.
    fn go_on(&mut self) -> Result<(), SqlError> {
        self.allowance.check()?;
        if let Some(reason) = self.client.hooks().capture.borrow().failure() {
            return Err(error("TRANSACTION_TOO_LARGE", reason));
        }
        if self.client.hooks().capture.borrow().size_bytes() < CHUNK_BYTES {
            return Ok(());
        }
        self.commit()?;
        // What is left of the allowance ended with the commit.
        self.client.hooks().allow(self.allowance);
        let until = self.allowance.deadline.min(Instant::now() + COMMIT_WAIT);
        let cancel = &self.allowance.cancel;
        let stop = || self.database.stop.load(std::sync::atomic::Ordering::Acquire) || cancel.is_cancelled();
        if !self.database.snapshots.wait_published(self.core.end, until, &stop) {
            if cancel.is_cancelled() {
                return Err(cancelled());
            }
            return Err(error(
                "OVERLOADED",
                "what was taken in so far is not committed in time: find out what the other replicas wait for",
            ));
        }
        self.database.make_room(self.core)?;
        self.client.exec("BEGIN IMMEDIATE").map_err(from_failure)?;
        self.schema = self.client.refresh().map_err(from_failure)?;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), SqlError> {
        self.database.check_captured(self.client, self.schema)?;
        self.database.commit(self.core, self.client).map_err(from_failure)?;
        Ok(())
    }
}
