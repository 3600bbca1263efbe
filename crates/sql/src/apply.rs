//! Carrying out what a leader did: one row operation, statement or sequence value after the other, each checked to hit exactly what it should.
//!
//! The connection fires no triggers and enforces no foreign keys: their effects are row operations of their own. Checks were made by the leader. An
//! update or delete names the old values in its condition, so that a row that differs is an error and not a silent difference.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use highwater_wire::record::Kind;
use rusqlite::ffi;

use crate::client::set_up;
use crate::ffi::{Conn, Failure, Hooks, OpenMode, Stmt, ValueRef};
use crate::rowlog::{self, Reader, RowChange, RowRecord, UpdateKey};
use crate::shape::{RowKey, Shape, quoted};

/// Statements kept; beyond it all are dropped.
const PLANS_MAX: usize = 512;

/// The connection that applies. Statements are declared before it, so that they are finalised first.
pub(crate) struct Applier {
    plans: BTreeMap<String, Stmt>,
    shapes: BTreeMap<String, Arc<Shape>>,
    pub(crate) conn: Conn,
}

impl Applier {
    pub(crate) fn open(path: &Path) -> Result<Applier, Failure> {
        let conn = Conn::open(path, OpenMode::Existing, Hooks::own())?;
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
    pub(crate) fn record(&mut self, kind: Kind, payload: &[u8]) -> Result<(), String> {
        match kind {
            Kind::Row => {
                let record = Reader(payload).row().map_err(|error| error.to_string())?;
                self.row(&record)
            }
            Kind::Statement => {
                let (flags, sql) = Reader(payload).statement().map_err(|error| error.to_string())?;
                assert_eq!(
                    flags & rowlog::OUTSIDE_TRANSACTION,
                    0,
                    "a statement outside a transaction is not applied within one"
                );
                self.statement(flags, sql)
            }
            Kind::Meta => {
                let (name, row) = Reader(payload).sequence().map_err(|error| error.to_string())?;
                self.sequence(name, row).map_err(|failure| format!("sqlite_sequence of {name:?}: {failure}"))
            }
            kind @ (Kind::Pages | Kind::Idempotency) => {
                Err(format!("a record of kind {kind:?} in a log of row operations"))
            }
        }
    }

    /// Runs a statement that changes the schema.
    pub(crate) fn statement(&mut self, flags: u8, sql: &str) -> Result<(), String> {
        self.forget();
        let legacy = flags & rowlog::LEGACY_ALTER_TABLE != 0;
        let keys = flags & rowlog::LEGACY_WITH_FOREIGN_KEYS != 0;
        let set = |conn: &Conn, on: bool| -> Result<(), Failure> {
            conn.set_switch(ffi::SQLITE_DBCONFIG_LEGACY_ALTER_TABLE, on && legacy)?;
            conn.set_switch(ffi::SQLITE_DBCONFIG_ENABLE_FKEY, on && keys)
        };
        let run = || {
            set(&self.conn, true)?;
            let ran = self.conn.exec(sql);
            set(&self.conn, false)?;
            ran
        };
        run().map_err(|failure| format!("the statement {sql:?} failed here: {failure}"))
    }

    fn sequence(&mut self, name: &str, row: Option<(i64, ValueRef<'_>)>) -> Result<(), Failure> {
        let name = ValueRef::Text(name.as_bytes());
        self.conn.run("DELETE FROM main.sqlite_sequence WHERE name IS ?1", |stmt| stmt.bind(1, name))?;
        let Some((rowid, value)) = row else { return Ok(()) };
        self.conn.run("INSERT OR REPLACE INTO main.sqlite_sequence(rowid, name, seq) VALUES(?1, ?2, ?3)", |stmt| {
            stmt.bind(1, ValueRef::Integer(rowid))?;
            stmt.bind(2, name)?;
            stmt.bind(3, value)
        })
    }

    fn shape(&mut self, table: &str) -> Result<Arc<Shape>, String> {
        if let Some(shape) = self.shapes.get(table) {
            return Ok(shape.clone());
        }
        let shape = Arc::new(Shape::of_table(&self.conn, table).map_err(|error| error.to_string())?);
        self.shapes.insert(table.to_string(), shape.clone());
        Ok(shape)
    }

    fn row(&mut self, record: &RowRecord<'_>) -> Result<(), String> {
        let shape = self.shape(record.table)?;
        check_fits(record, &shape)?;
        let (plan, sql) = plan(record, &shape);
        let mut stmt = match self.plans.remove(&plan) {
            Some(stmt) => stmt,
            None => {
                let prepared = self.conn.prepare(&sql(), true).map_err(|failure| format!("{:?}: {failure}", sql()))?;
                prepared.0.expect("statements of our own are not empty")
            }
        };
        let failed = |failure: Failure| format!("a row of {:?}: {failure}", record.table);
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
        Err(format!(
            "{} of the table {:?}: {changed} rows have the old values that the leader had, where one was expected",
            describe(record),
            record.table
        ))
    }
}

fn describe(record: &RowRecord<'_>) -> String {
    match &record.change {
        RowChange::Insert { rowid: Some(rowid), .. } => format!("inserting row {rowid}"),
        RowChange::Delete { rowid: Some(rowid), .. } => format!("deleting row {rowid}"),
        RowChange::Update { key: UpdateKey::Rowid { old, .. }, .. } => format!("updating row {old}"),
        RowChange::Insert { .. } => "inserting a row".to_string(),
        RowChange::Delete { .. } => "deleting a row".to_string(),
        RowChange::Update { .. } => "updating a row".to_string(),
    }
}

/// Checks that the record was made on a table like this one.
fn check_fits(record: &RowRecord<'_>, shape: &Shape) -> Result<(), String> {
    let wants_rowid = matches!(shape.key, RowKey::Rowid(_));
    let fits = match &record.change {
        RowChange::Insert { rowid, values } | RowChange::Delete { rowid, values } => {
            rowid.is_some() == wants_rowid && values.len() == shape.columns.len()
        }
        RowChange::Update { key, changes } => {
            let key_fits = match (key, &shape.key) {
                (UpdateKey::Rowid { .. }, RowKey::Rowid(_)) => true,
                (UpdateKey::Columns(values), RowKey::Columns(positions)) => values.len() == positions.len(),
                _ => false,
            };
            key_fits && changes.iter().all(|(position, ..)| *position < shape.columns.len())
        }
    };
    if fits {
        Ok(())
    } else {
        Err(format!("{} of the table {:?}, which has other columns here", describe(record), record.table))
    }
}

/// The name under which a record's statement is kept, and its text.
fn plan<'a>(record: &'a RowRecord<'_>, shape: &'a Shape) -> (String, impl Fn() -> String + 'a) {
    let name = match &record.change {
        RowChange::Insert { .. } => format!("+{}", record.table),
        RowChange::Delete { .. } => format!("-{}", record.table),
        RowChange::Update { changes, .. } => {
            let mut name = format!("={}", record.table);
            for (position, ..) in changes {
                name.push(' ');
                name.push_str(&position.to_string());
            }
            name
        }
    };
    (name, move || sql(record, shape))
}

fn sql(record: &RowRecord<'_>, shape: &Shape) -> String {
    let table = format!("main.{}", quoted(&shape.table));
    let column = |position: usize| quoted(&shape.columns[position].1);
    let all = || (0..shape.columns.len()).map(column);
    match &record.change {
        RowChange::Insert { .. } => {
            let mut names: Vec<String> = match &shape.key {
                RowKey::Rowid(name) => vec![quoted(name)],
                RowKey::Columns(_) => Vec::new(),
            };
            names.extend(all());
            let marks: Vec<String> = (1..=names.len()).map(|at| format!("?{at}")).collect();
            format!("INSERT OR ABORT INTO {table}({}) VALUES({})", names.join(","), marks.join(","))
        }
        RowChange::Delete { .. } => {
            let mut conditions: Vec<String> = match &shape.key {
                RowKey::Rowid(name) => vec![format!("{} = ?1", quoted(name))],
                // Equality finds the row by its key; IS on every column makes sure that it is the row.
                RowKey::Columns(positions) => {
                    positions.iter().map(|at| format!("{} = ?{}", column(*at), at + 1)).collect()
                }
            };
            let first = if matches!(shape.key, RowKey::Rowid(_)) { 2 } else { 1 };
            conditions.extend(all().enumerate().map(|(at, name)| format!("{name} IS ?{}", at + first)));
            format!("DELETE FROM {table} WHERE {}", conditions.join(" AND "))
        }
        RowChange::Update { changes, .. } => {
            let (mut sets, mut conditions, mut next) = (Vec::new(), Vec::new(), 1);
            match &shape.key {
                RowKey::Rowid(name) => {
                    conditions.push(format!("{} = ?1", quoted(name)));
                    sets.push(format!("{} = ?2", quoted(name)));
                    next = 3;
                }
                RowKey::Columns(positions) => {
                    for at in positions {
                        conditions.push(format!("{} = ?{next}", column(*at)));
                        next += 1;
                    }
                }
            }
            for (position, ..) in changes {
                conditions.push(format!("{} IS ?{next}", column(*position)));
                sets.push(format!("{} = ?{}", column(*position), next + 1));
                next += 2;
            }
            if sets.is_empty() {
                // An update that changed nothing; the row must be there all the same.
                let RowKey::Columns(positions) = &shape.key else { unreachable!("a rowid is always set") };
                sets.push(format!("{0} = {0}", column(positions[0])));
            }
            format!("UPDATE OR ABORT {table} SET {} WHERE {}", sets.join(","), conditions.join(" AND "))
        }
    }
}

fn bind(stmt: &mut Stmt, record: &RowRecord<'_>, shape: &Shape) -> Result<(), Failure> {
    let mut next = 1;
    let mut put = |stmt: &mut Stmt, value: ValueRef<'_>| {
        next += 1;
        stmt.bind(next - 1, value)
    };
    match &record.change {
        RowChange::Insert { rowid, values } | RowChange::Delete { rowid, values } => {
            if let Some(rowid) = rowid {
                put(stmt, ValueRef::Integer(*rowid))?;
            }
            assert_eq!(values.len(), shape.columns.len(), "checked before");
            for value in values {
                put(stmt, *value)?;
            }
        }
        RowChange::Update { key, changes } => {
            match key {
                UpdateKey::Rowid { old, new } => {
                    put(stmt, ValueRef::Integer(*old))?;
                    put(stmt, ValueRef::Integer(*new))?;
                }
                UpdateKey::Columns(values) => {
                    for value in values {
                        put(stmt, *value)?;
                    }
                }
            }
            for (_, old, new) in changes {
                put(stmt, *old)?;
                put(stmt, *new)?;
            }
        }
    }
    Ok(())
}
