//! Carrying out what a leader did: one row operation, statement or sequence value after the other, each checked to hit exactly what it should.
//!
//! The connection fires no triggers and enforces no foreign keys: their effects are row operations of their own. Checks were made by the leader. An
//! update or delete names the old values in its condition, so that a row that differs is an error and not a silent difference.

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater_wire::record::Kind;
use rusqlite::ffi;

use crate::classify::Class;
use crate::client::set_up;
use crate::ffi::{Conn, Failure, Hooks, Location, OpenMode, Stmt, ValueRef};
use crate::names;
use crate::plan::{bind, check_fits, describe, plan};
use crate::replicated::{self, Refused};
use crate::rowlog::{self, Reader, RowRecord, Sequence};
use crate::shape::{Shape, ShapeError};

/// Statements kept; beyond it all are dropped.
const PLANS_MAX: usize = 512;

/// Why a record was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApplyError {
    /// It does not fit what is here.
    Differs(String),
    /// The disk is full, or the like: nothing is wrong with either.
    Failed(Failure),
}

impl ApplyError {
    /// Tells a failure of the machine from one of the data.
    fn of(what: &str, failure: Failure) -> ApplyError {
        match failure.primary() {
            ffi::SQLITE_FULL
            | ffi::SQLITE_IOERR
            | ffi::SQLITE_NOMEM
            | ffi::SQLITE_BUSY
            | ffi::SQLITE_LOCKED
            | ffi::SQLITE_CANTOPEN => ApplyError::Failed(failure),
            _ => ApplyError::Differs(format!("{what}: {failure}")),
        }
    }
}

impl From<rowlog::Malformed> for ApplyError {
    fn from(malformed: rowlog::Malformed) -> ApplyError {
        ApplyError::Differs(malformed.to_string())
    }
}

/// The connection that applies. Statements are declared before it, so that they are finalised first.
pub(crate) struct Applier {
    plans: BTreeMap<String, Stmt>,
    shapes: BTreeMap<String, Arc<Shape>>,
    pub(crate) conn: Conn,
}

impl Applier {
    pub(crate) fn open(location: Location) -> Result<Applier, Failure> {
        let conn = Conn::open(location, OpenMode::Existing, Hooks::applier())?;
        set_up(&conn)?;
        conn.set_switch(ffi::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        conn.exec("PRAGMA foreign_keys=OFF; PRAGMA ignore_check_constraints=ON")?;
        Ok(Applier { plans: BTreeMap::new(), shapes: BTreeMap::new(), conn })
    }

    /// Closes the connection for good.
    pub(crate) fn close(mut self) -> Result<(), Failure> {
        self.plans.clear();
        self.conn.close()
    }

    /// Forgets what was derived from the schema: somebody else may have changed it.
    pub(crate) fn forget(&mut self) {
        self.plans.clear();
        self.shapes.clear();
    }

    /// Carries out one record within the open transaction.
    pub(crate) fn record(&mut self, kind: Kind, payload: &[u8]) -> Result<(), ApplyError> {
        match kind {
            Kind::Row => {
                let record = Reader(payload).row()?;
                self.row(&record)
            }
            Kind::Statement => {
                let (flags, sql) = Reader(payload).statement()?;
                if flags & rowlog::OUTSIDE_TRANSACTION != 0 {
                    let reason = "a statement that runs outside a transaction lies within one";
                    return Err(ApplyError::Differs(reason.to_string()));
                }
                self.statement(flags, sql)
            }
            Kind::Meta => {
                let (name, sequence) = Reader(payload).sequence()?;
                self.sequence(name, sequence)
                    .map_err(|failure| ApplyError::of(&format!("the sqlite_sequence of {name:?}"), failure))
            }
            kind @ (Kind::Pages | Kind::Idempotency) => {
                Err(ApplyError::Differs(format!("a record of kind {kind:?} in a log of row operations")))
            }
        }
    }

    /// Runs a statement that changes the schema.
    pub(crate) fn statement(&mut self, flags: u8, sql: &str) -> Result<(), ApplyError> {
        self.forget();
        let legacy = flags & rowlog::LEGACY_ALTER_TABLE != 0;
        let keys = flags & rowlog::LEGACY_WITH_FOREIGN_KEYS != 0;
        let set = |conn: &Conn, on: bool| -> Result<(), Failure> {
            conn.set_switch(ffi::SQLITE_DBCONFIG_LEGACY_ALTER_TABLE, on && legacy)?;
            conn.set_switch(ffi::SQLITE_DBCONFIG_ENABLE_FKEY, on && keys)
        };
        let class = if flags & rowlog::OUTSIDE_TRANSACTION != 0 { &Class::Vacuum } else { &Class::Schema };
        let run = || {
            // What was prepared is looked at before it runs, and SQLite looks only then whether another connection has changed the schema that it knows.
            self.conn.query_integer("SELECT 1 FROM main.sqlite_schema LIMIT 1")?;
            set(&self.conn, true)?;
            let ran = replicated::run(&self.conn, sql, class);
            set(&self.conn, false)?;
            ran
        };
        run().map_err(|refused| match refused {
            Refused::Sqlite(failure) => ApplyError::of(&format!("the statement {sql:?} failed here"), failure),
            Refused::Text(reason) => {
                ApplyError::Differs(format!("no leader takes down the statement {sql:?}: {reason}"))
            }
        })
    }

    fn sequence(&mut self, name: &str, sequence: Sequence<'_>) -> Result<(), Failure> {
        let name = ValueRef::Text(name.as_bytes());
        let forget = || self.conn.run("DELETE FROM main.sqlite_sequence WHERE name IS ?1", |stmt| stmt.bind(1, name));
        let (rowid, value) = match sequence {
            Sequence::None => return forget(),
            Sequence::Row(row) => {
                forget()?;
                row
            }
            Sequence::Another(row) => row,
        };
        self.conn.run("INSERT OR REPLACE INTO main.sqlite_sequence(rowid, name, seq) VALUES(?1, ?2, ?3)", |stmt| {
            stmt.bind(1, ValueRef::Integer(rowid))?;
            stmt.bind(2, name)?;
            stmt.bind(3, value)
        })
    }

    fn shape(&mut self, table: &str) -> Result<Arc<Shape>, ApplyError> {
        if let Some(shape) = self.shapes.get(table) {
            return Ok(shape.clone());
        }
        let shape = Arc::new(Shape::of_table(&self.conn, table).map_err(|failed| match failed {
            ShapeError::Sqlite(failure) => ApplyError::of(table, failure),
            other => ApplyError::Differs(other.to_string()),
        })?);
        self.shapes.insert(table.to_string(), shape.clone());
        Ok(shape)
    }

    fn row(&mut self, record: &RowRecord<'_>) -> Result<(), ApplyError> {
        if !names::is_shipped(record.table) {
            return Err(ApplyError::Differs(format!("no leader takes down rows of the table {:?}", record.table)));
        }
        let shape = self.shape(record.table)?;
        check_fits(record, &shape).map_err(ApplyError::Differs)?;
        let (plan, sql) = plan(record, &shape);
        let mut stmt = match self.plans.remove(&plan) {
            Some(stmt) => stmt,
            None => {
                let prepared = self.conn.prepare(&sql(), true).map_err(|failure| ApplyError::of(&sql(), failure))?;
                prepared.0.expect("statements of our own are not empty")
            }
        };
        let failed = |failure: Failure| ApplyError::of(&format!("{} of {:?}", describe(record), record.table), failure);
        bind(&mut stmt, record, &shape).map_err(failed)?;
        stmt.step().map_err(failed)?;
        stmt.reset();
        let changed = self.conn.changes();
        if self.plans.len() >= PLANS_MAX {
            self.plans.clear();
        }
        self.plans.insert(plan, stmt);
        // Statistics may differ between versions of SQLite, so what somebody did to them by hand is applied as far as it goes.
        if changed == 1 || record.table.starts_with("sqlite_stat") {
            return Ok(());
        }
        Err(ApplyError::Differs(format!(
            "{} of the table {:?}: {changed} rows have the old values that the leader had, where one was expected",
            describe(record),
            record.table
        )))
    }
}
