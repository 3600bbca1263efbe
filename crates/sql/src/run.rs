//! Running one statement of a client's on a connection, and taking down what it does.

use rusqlite::ffi;

use crate::api::{Column, ResultSet, SqlError, Statement};
use crate::captured::captured;
use crate::charge::Meter;
use crate::classify::{Class, SavepointOp};
use crate::client::{Client, Prepared};
use crate::error::{cancelled, error, from_failure};
use crate::ffi::{Failure, Step, Stmt};
use crate::options::Options;
use crate::value::Value;

/// Gives a statement its arguments.
pub(crate) fn bind(stmt: &mut Stmt, statement: &Statement) -> Result<(), SqlError> {
    // A name that is given without its first character stands for any of the three; one that is given with it goes first.
    let find = |name: &str| {
        let given = |wanted: &str| statement.named.iter().position(|(given, _)| given == wanted);
        given(name).or_else(|| given(&name[1..]))
    };
    let mut next = 0;
    let mut used = vec![false; statement.args.len()];
    let mut named_used = vec![false; statement.named.len()];
    for index in 1..=stmt.parameter_count() {
        let name = stmt.parameter_name(index);
        let value = match &name {
            Some(name) if !name.starts_with('?') => find(name).map(|at| {
                named_used[at] = true;
                &statement.named[at].1
            }),
            // `?NNN` is the NNN-th argument, and the next nameless one comes after it.
            Some(name) => {
                next = name[1..].parse::<usize>().unwrap_or(index) - 1;
                None
            }
            None => None,
        };
        let value = match value {
            Some(value) => value,
            None => {
                let at = next;
                next += 1;
                let Some(value) = statement.args.get(at) else {
                    let which = name.unwrap_or_else(|| format!("number {index}"));
                    return Err(error(
                        "ARGS_INVALID",
                        format!("the statement's parameter {which} was given no argument"),
                    ));
                };
                used[at] = true;
                value
            }
        };
        stmt.bind(index, value.borrowed()).map_err(from_failure)?;
    }
    if let Some(at) = named_used.iter().position(|used| !used) {
        return Err(error("ARGS_INVALID", format!("the statement has no parameter named {:?}", statement.named[at].0)));
    }
    // Numbers may leave gaps (`?1, ?3`), so only what lies beyond the last parameter is too many.
    let needed = used.iter().rposition(|used| *used).map_or(0, |at| at + 1);
    if statement.args.len() > needed.max(stmt.parameter_count()) {
        return Err(error(
            "ARGS_INVALID",
            format!("the statement takes {needed} arguments, and {} were given", statement.args.len()),
        ));
    }
    Ok(())
}

/// Runs a statement to its end and gives its rows.
pub(crate) fn fetch(
    client: &Client,
    prepared: &mut Prepared,
    statement: &Statement,
    options: &Options,
) -> Result<ResultSet, SqlError> {
    bind(&mut prepared.stmt, statement)?;
    client.hooks().abort.set(false);
    let stmt = &mut prepared.stmt;
    let mut rows: Vec<Vec<Value>> = Vec::new();
    let mut meter = Meter::new(options, client.hooks().room());
    let mut refused = None;
    loop {
        match stmt.step() {
            Ok(Step::Done) => break,
            Ok(Step::Row) => {
                if !statement.want_rows || refused.is_some() {
                    continue;
                }
                match take_row(stmt, &mut rows, &mut meter) {
                    Ok(()) => continue,
                    Err(reason) => refused = Some(reason),
                }
                // The room is for others from here on.
                rows = Vec::new();
                meter = Meter::new(options, None);
                // A query can be left; what writes is run to its end, so that it fails as a whole or not at all.
                if prepared.class == Class::Read {
                    break;
                }
            }
            Err(failure) => {
                let reason = client.hooks().capture.borrow().failure().map(str::to_string);
                return Err(match reason {
                    Some(reason) if failure.primary() == ffi::SQLITE_INTERRUPT => {
                        error("TRANSACTION_TOO_LARGE", reason)
                    }
                    _ => interrupted(client, failure),
                });
            }
        }
    }
    let columns: Vec<Column> = (0..stmt.column_count())
        .map(|column| Column { name: stmt.column_name(column), decl_type: stmt.column_decl_type(column) })
        .collect();
    stmt.reset();
    if refused.is_none() {
        refused = meter.columns(&columns).err();
    }
    if let Some(refused) = refused {
        return Err(refused);
    }
    // What changes no rows leaves SQLite's count as the statement before it did.
    let facts = &prepared.facts;
    let counts = prepared.class == Class::Rows
        || (facts.temporary && !facts.temporary_schema && !facts.schema_main && !prepared.stmt.is_explain());
    let affected = if counts { client.changes() } else { 0 };
    let last_insert_rowid = client.last_insert_rowid();
    Ok(ResultSet { columns, rows, affected, last_insert_rowid, charge: meter.charge() })
}

/// Copies the present row, each value after it was counted: a row of many large values may not be held even once.
fn take_row(stmt: &Stmt, rows: &mut Vec<Vec<Value>>, meter: &mut Meter<'_>) -> Result<(), SqlError> {
    let count = stmt.column_count();
    let mut row = Vec::with_capacity(count);
    for column in 0..count {
        let value = stmt.value(column);
        meter.value(value)?;
        row.push(Value::of(value));
    }
    let before = rows.capacity();
    rows.push(row);
    meter.row(rows.capacity() - before)
}

/// What is said of a statement that failed: if it was interrupted, why. One that is overdue is given no large pieces of memory any more, and fails of that.
pub(crate) fn interrupted(client: &Client, failure: Failure) -> SqlError {
    let hooks = client.hooks();
    let starved = failure.primary() == ffi::SQLITE_NOMEM && hooks.interrupted();
    if failure.primary() != ffi::SQLITE_INTERRUPT && !starved {
        return from_failure(failure);
    }
    if hooks.is_cancelled() {
        return cancelled();
    }
    if hooks.stopping() {
        return error(
            "NOT_READY",
            "the statement was interrupted, since this node's part in the database changes: it had no effect, try again",
        );
    }
    error("TRANSACTION_TIMEOUT", "the statement ran for longer than it may and was interrupted")
}

/// The marks that the savepoints of a transaction left in its records.
#[derive(Default)]
pub(crate) struct Savepoints(Vec<(String, crate::capture::Mark)>);

impl Savepoints {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether that name means the outermost savepoint.
    pub(crate) fn is_outermost(&self, name: &str) -> bool {
        self.0.iter().rposition(|(other, _)| other.eq_ignore_ascii_case(name)) == Some(0)
    }

    /// Follows a savepoint statement that has succeeded.
    pub(crate) fn follow(&mut self, client: &Client, op: SavepointOp, name: &str) -> Result<(), SqlError> {
        let mut capture = client.hooks().capture.borrow_mut();
        let found = self.0.iter().rposition(|(other, _)| other.eq_ignore_ascii_case(name));
        match op {
            SavepointOp::Begin => self.0.push((name.to_string(), capture.mark())),
            SavepointOp::Release => self.0.truncate(found.expect("SQLite found it too")),
            SavepointOp::RollbackTo => {
                let at = found.expect("SQLite found it too");
                self.0.truncate(at + 1);
                let before = capture.statements();
                capture.truncate(self.0[at].1);
                let schema_undone = capture.statements() < before;
                drop(capture);
                if schema_undone {
                    client.schema_changed().map_err(from_failure)?;
                }
            }
        }
        Ok(())
    }
}

/// Runs a statement within a write transaction. If it fails, the records are what the database holds: either the statement left nothing, or it kept what
/// it did before it failed (`OR FAIL`), or the whole transaction is gone, which [`Client::autocommit`] then tells.
pub(crate) fn run_in_write(
    client: &Client,
    sql: &str,
    prepared: &mut Prepared,
    statement: &Statement,
    options: &Options,
) -> Result<ResultSet, SqlError> {
    assert!(!client.autocommit(), "a transaction is open");
    match &prepared.class {
        Class::Read | Class::ConnectionPragma => fetch(client, prepared, statement, options),
        Class::IdlePragma(answer) => Ok(idle(prepared, answer.as_deref())),
        Class::Rows | Class::Schema => captured(client, sql, prepared, statement, options),
        other => unreachable!("{other:?} is not run within a write transaction"),
    }
}

/// Runs a statement that only reads, on the readers' side of HW. There are functions that write while they are read from (the `optimize` of the third
/// version of full-text search); what they did must not stay, since nobody hears of it.
pub(crate) fn read_only(
    client: &Client,
    prepared: &mut Prepared,
    statement: &Statement,
    options: &Options,
) -> Result<ResultSet, SqlError> {
    assert_eq!(prepared.class, Class::Read, "the caller looked");
    let result = fetch(client, prepared, statement, options);
    if !client.writes_main() {
        return result;
    }
    client.hooks().undisturbed(|| client.run("ROLLBACK", |_| Ok(()))).map_err(from_failure)?;
    client.hooks().capture.borrow_mut().clear();
    Err(error("SQLITE_READONLY", "the query calls a function that writes: run it within BEGIN IMMEDIATE"))
}

/// The answer of a PRAGMA that changes nothing.
pub(crate) fn idle(prepared: &Prepared, answer: Option<&str>) -> ResultSet {
    let Some(answer) = answer else { return ResultSet::default() };
    let name = prepared.facts.pragma.as_ref().map_or("", |(name, _)| name);
    let value = answer.parse().map_or_else(|_| Value::Text(answer.to_string()), Value::Integer);
    ResultSet {
        columns: vec![Column { name: name.to_string(), decl_type: None }],
        rows: vec![vec![value]],
        ..ResultSet::default()
    }
}
