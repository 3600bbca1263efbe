//! A connection that runs what clients ask: hooked, closed to what is not theirs, its prepared statements kept.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rusqlite::ffi;

use crate::api::SqlError;
use crate::capture::Capture;
use crate::classify::{self, Class, Facts};
use crate::error::{error, from_failure};
use crate::ffi::{BUSY_TIMEOUT_MS, Conn, Failure, Hooks, Location, OpenMode, Stmt};
use crate::options::Options;
use crate::run::interrupted;
use crate::text;

/// The most arguments that a function may be given: each may cost as much as the largest value does.
const FUNCTION_ARGUMENTS_MAX: i32 = 127;

/// Clients' statements kept for each connection, as for our own...
const STATEMENTS_MAX: usize = 256;
/// ...with so many bytes of memory in all...
const STATEMENTS_MAX_BYTES: usize = 2 << 20;
/// ...and each of at most so many: a statement of megabytes is prepared anew each time.
const STATEMENT_MAX_BYTES: usize = 256 << 10;

/// A statement of a client's, ready to run.
pub(crate) struct Prepared {
    pub(crate) stmt: Stmt,
    pub(crate) class: Class,
    pub(crate) facts: Facts,
}

/// Statements that are kept, with the memory that each takes.
#[derive(Default)]
struct Kept {
    statements: BTreeMap<String, (Prepared, usize)>,
    bytes: usize,
}

impl Kept {
    fn take(&mut self, sql: &str) -> Option<Prepared> {
        let (prepared, bytes) = self.statements.remove(sql)?;
        self.bytes -= bytes;
        Some(prepared)
    }

    fn keep(&mut self, sql: &str, prepared: Prepared) {
        let bytes = prepared.stmt.memory() + sql.len();
        if bytes > STATEMENT_MAX_BYTES {
            return;
        }
        if self.statements.len() >= STATEMENTS_MAX || self.bytes + bytes > STATEMENTS_MAX_BYTES {
            self.clear();
        }
        self.bytes += bytes;
        if let Some((_, replaced)) = self.statements.insert(sql.to_string(), (prepared, bytes)) {
            self.bytes -= replaced;
        }
    }

    fn clear(&mut self) {
        self.statements.clear();
        self.bytes = 0;
    }
}

/// The connection. Statements are declared before it, so that they are finalised first.
pub(crate) struct Client {
    statements: RefCell<Kept>,
    conn: Conn,
    schema_version: Cell<i64>,
    /// Whether the schema says FAIL anywhere: a constraint or trigger that keeps what a failed statement did before.
    schema_fails: Cell<bool>,
    /// The tables with AUTOINCREMENT.
    sequenced: RefCell<BTreeSet<String>>,
    /// Whether there are virtual tables, which may hold back what they write until they are told to flush.
    has_virtual: Cell<bool>,
    /// Whether LIKE tells cases apart here, which a PRAGMA has asked for.
    case_sensitive_like: Cell<bool>,
    /// The tables, in lower case, in whose definition or indexes LIKE is used.
    liked: RefCell<BTreeSet<String>>,
    /// Whether any statement was prepared on it that concerns temporary objects, so that there may be some.
    touched_temporary: Cell<bool>,
}

impl std::ops::Deref for Client {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        &self.conn
    }
}

/// What every connection of ours is set to: the log is the source of durability, and checkpoints are made by one procedure alone.
pub(crate) fn set_up(conn: &Conn) -> Result<(), Failure> {
    conn.set_busy_timeout(BUSY_TIMEOUT_MS);
    conn.set_switch(ffi::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.hooks()
        .internally(|| conn.exec("PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=0; PRAGMA main.schema_version"))
}

impl Client {
    pub(crate) fn open(location: Location, options: &Options, stop: &Arc<AtomicBool>) -> Result<Client, Failure> {
        let hooks = Hooks::client(Capture::new(options.transaction_bytes_max), stop.clone());
        let conn = Conn::open(location, OpenMode::Existing, hooks)?;
        set_up(&conn)?;
        conn.set_switch(ffi::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        conn.set_switch(ffi::SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, false)?;
        let bytes_max = i32::try_from(options.value_bytes_max).unwrap_or(i32::MAX);
        conn.set_limit(ffi::SQLITE_LIMIT_LENGTH, bytes_max);
        conn.set_limit(ffi::SQLITE_LIMIT_SQL_LENGTH, bytes_max);
        conn.set_limit(ffi::SQLITE_LIMIT_FUNCTION_ARG, FUNCTION_ARGUMENTS_MAX);
        Ok(Client {
            statements: RefCell::default(),
            conn,
            schema_version: Cell::new(-1),
            schema_fails: Cell::new(false),
            sequenced: RefCell::new(BTreeSet::new()),
            has_virtual: Cell::new(false),
            case_sensitive_like: Cell::new(false),
            liked: RefCell::default(),
            touched_temporary: Cell::new(false),
        })
    }

    /// Called after a transaction has begun: if the schema is another than last time, forgets what was derived from it. Returns its version.
    pub(crate) fn refresh(&self) -> Result<i64, Failure> {
        self.hooks().internally(|| {
            let version = self.query_integer("PRAGMA main.schema_version")?.unwrap_or_default();
            if version != self.schema_version.get() {
                self.statements.borrow_mut().clear();
                self.hooks().capture.borrow_mut().forget_shapes();
                self.read_schema()?;
                self.schema_version.set(version);
            }
            Ok(version)
        })
    }

    /// Called after the schema was changed, or such a change was undone, within a transaction.
    pub(crate) fn schema_changed(&self) -> Result<(), Failure> {
        self.schema_version.set(-1);
        self.refresh().map(|_| ())
    }

    fn read_schema(&self) -> Result<(), Failure> {
        // LIKE would be the stream's own.
        let fails = "SELECT count(*) FROM main.sqlite_schema WHERE instr(lower(sql), 'fail') > 0";
        self.schema_fails.set(self.query_integer(fails)?.unwrap_or_default() > 0);
        let mut sequenced = BTreeSet::new();
        let query =
            "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND instr(lower(sql), 'autoincrement') > 0
            AND EXISTS (SELECT 1 FROM main.sqlite_schema WHERE name = 'sqlite_sequence')";
        self.query(
            query,
            |_| Ok(()),
            |row| {
                sequenced.insert(row.string(0));
                Ok(())
            },
        )?;
        *self.sequenced.borrow_mut() = sequenced;
        let mut liked = BTreeSet::new();
        let query = "SELECT tbl_name, sql FROM main.sqlite_schema WHERE type IN ('table', 'index') AND instr(lower(sql), 'like') > 0";
        self.query(
            query,
            |_| Ok(()),
            |row| {
                if text::has_word(&row.string(1), "like") {
                    liked.insert(row.string(0).to_ascii_lowercase());
                }
                Ok(())
            },
        )?;
        *self.liked.borrow_mut() = liked;
        let virtuals = "SELECT count(*) FROM main.sqlite_schema WHERE type = 'table' AND rootpage = 0";
        self.has_virtual.set(self.query_integer(virtuals)?.unwrap_or_default() > 0);
        Ok(())
    }

    /// Whether there may be temporary objects on it, which must not be left to another client: they hide what has the same name in `main`.
    pub(crate) fn touched_temporary(&self) -> bool {
        self.touched_temporary.get()
    }

    pub(crate) fn has_virtual(&self) -> bool {
        self.has_virtual.get()
    }

    /// Makes virtual tables write what they hold back, so that it is taken down now. They do so when a savepoint begins, and otherwise only at a commit.
    pub(crate) fn flush(&self) -> Result<(), Failure> {
        if !self.has_virtual() {
            return Ok(());
        }
        self.hooks().internally(|| {
            self.run("SAVEPOINT highwater_flush", |_| Ok(()))?;
            self.run("RELEASE highwater_flush", |_| Ok(()))
        })
    }

    pub(crate) fn schema_fails(&self) -> bool {
        self.schema_fails.get()
    }

    /// Whether a table has AUTOINCREMENT. A comment that says so is taken for it, which does no harm.
    pub(crate) fn is_sequenced(&self, table: &str) -> bool {
        self.sequenced.borrow().contains(table)
    }

    /// Takes a statement out of the cache or prepares it. It must be the only one in its text.
    pub(crate) fn prepare_one(&self, sql: &str) -> Result<Prepared, SqlError> {
        if let Some(prepared) = self.statements.borrow_mut().take(sql) {
            return Ok(prepared);
        }
        let (prepared, used) = self.prepare_next(sql)?;
        let Some(prepared) = prepared else {
            return Err(error("SQL_NO_STATEMENT", "the text holds no statement"));
        };
        if !text::skip_blanks(&sql[used..]).is_empty() {
            return Err(error("SQL_MANY_STATEMENTS", "the text holds more than one statement, where one is wanted"));
        }
        Ok(prepared)
    }

    /// Prepares the first statement of a text, and tells how many bytes it took. `None`: only blanks and comments are left.
    pub(crate) fn prepare_next(&self, sql: &str) -> Result<(Option<Prepared>, usize), SqlError> {
        // Some texts stand for others: SQLite would not take the first, and would tell the second where its files lie.
        let (sent, is_other) = if text::readonly_begin(sql) {
            ("BEGIN TRANSACTION READONLY", true)
        } else if text::is_database_list(sql) {
            ("SELECT seq, name, '' AS file FROM pragma_database_list", true)
        } else {
            (sql, false)
        };
        let hooks = self.hooks();
        hooks.collector.borrow_mut().begin();
        let prepared = self.conn.prepare(sent, true);
        let facts = hooks.collector.borrow_mut().finish();
        if facts.temporary {
            self.touched_temporary.set(true);
        }
        let (stmt, used) = prepared.map_err(|failure| match &facts.refused {
            Some(reason) => error("SQLITE_AUTH", reason.clone()),
            None => interrupted(self, failure),
        })?;
        if facts.pragma.as_ref().is_some_and(|(name, argument)| name == "case_sensitive_like" && argument.is_some()) {
            // It has taken effect by being prepared.
            self.follow_like().map_err(from_failure)?;
        }
        let Some(stmt) = stmt else { return Ok((None, used)) };
        let class = classify::classify(&sent[..used], &facts, stmt.readonly(), stmt.is_explain())
            .and_then(|class| self.check_like(&class, &facts).map(|()| class))
            .map_err(|reason| error("SQLITE_AUTH", reason))?;
        let used = if is_other { sql.len() } else { used };
        Ok((Some(Prepared { stmt, class, facts }), used))
    }

    /// Puts our LIKE in place of SQLite's, which a PRAGMA may have put there, and notes whether it now tells cases apart.
    pub(crate) fn follow_like(&self) -> Result<(), Failure> {
        self.keep_like()?;
        let sensitive = self.hooks().undisturbed(|| self.query_integer("SELECT 'a' NOT LIKE 'A'"))? == Some(1);
        self.case_sensitive_like.set(sensitive);
        // They were looked at under the other setting.
        self.statements.borrow_mut().clear();
        Ok(())
    }

    /// Whether a statement may run while LIKE is as it is here. What belongs to the schema holds for everybody, and uses the LIKE that ignores case: so with the
    /// other nothing is written, and no table is read whose indexes or generated columns were made with the first.
    fn check_like(&self, class: &Class, facts: &Facts) -> Result<(), String> {
        if !self.case_sensitive_like.get() {
            return Ok(());
        }
        if matches!(class, Class::Rows | Class::Schema) {
            return Err("case_sensitive_like holds for reading: switch it off to write".to_string());
        }
        let liked = self.liked.borrow();
        match facts.reads.iter().find(|table| liked.contains(&table.to_ascii_lowercase())) {
            Some(table) => Err(format!(
                "the table {table} has LIKE in its definition or an index, which ignores case for everybody, so that a query might miss rows: switch case_sensitive_like off to read it"
            )),
            None => Ok(()),
        }
    }

    /// Keeps a statement for the next time; not one that has changed the schema, which may be a statement of another kind now (`IF NOT EXISTS`).
    pub(crate) fn keep(&self, sql: &str, mut prepared: Prepared) {
        if prepared.class == Class::Schema {
            return;
        }
        prepared.stmt.reset();
        prepared.stmt.clear_bindings();
        self.statements.borrow_mut().keep(sql, prepared);
    }

    /// Closes the connection for good, whatever is open on it.
    pub(crate) fn close(self) -> Result<(), Failure> {
        self.statements.borrow_mut().clear();
        self.conn.close()
    }
}
