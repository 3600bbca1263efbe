//! The statement that carries out a row operation, and its arguments.
//!
//! An update or delete names the old values in its condition, so that a row that differs is an error and not a silent difference.

use crate::ffi::{Failure, Stmt, ValueRef};
use crate::rowlog::{RowChange, RowRecord, UpdateKey};
use crate::shape::{RowKey, Shape, quoted};

pub(crate) fn describe(record: &RowRecord<'_>) -> String {
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
pub(crate) fn check_fits(record: &RowRecord<'_>, shape: &Shape) -> Result<(), String> {
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
pub(crate) fn plan<'a>(record: &'a RowRecord<'_>, shape: &'a Shape) -> (String, impl Fn() -> String + 'a) {
    let name = match &record.change {
        RowChange::Insert { .. } => format!("+{}", record.table),
        RowChange::Delete { .. } => format!("-{}", record.table),
        RowChange::Update { changes, .. } => {
            let mut name = format!("={}", record.table);
            if moves(record) {
                name.push_str(" moves");
            }
            for (position, ..) in changes {
                name.push(' ');
                name.push_str(&position.to_string());
            }
            name
        }
    };
    (name, move || sql(record, shape))
}

/// Whether an update gives a row another rowid.
fn moves(record: &RowRecord<'_>) -> bool {
    matches!(record.change, RowChange::Update { key: UpdateKey::Rowid { old, new }, .. } if old != new)
}

pub(crate) fn sql(record: &RowRecord<'_>, shape: &Shape) -> String {
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
            format!("DELETE FROM {table} WHERE {}", all_of(&conditions))
        }
        RowChange::Update { changes, .. } => {
            let (mut sets, mut conditions, mut next) = (Vec::new(), Vec::new(), 1);
            match &shape.key {
                RowKey::Rowid(name) => {
                    conditions.push(format!("{} = ?1", quoted(name)));
                    // A list of assignments may be as long as a table has columns, and the rowid would be one more.
                    if moves(record) || changes.is_empty() {
                        sets.push(format!("{} = ?2", quoted(name)));
                    }
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
            format!("UPDATE OR ABORT {table} SET {} WHERE {}", sets.join(","), all_of(&conditions))
        }
    }
}

/// Conditions that must all hold, in groups: SQLite limits how deep an expression is, and a chain of so many as a table may have columns is too deep.
fn all_of(conditions: &[String]) -> String {
    let groups: Vec<String> = conditions.chunks(100).map(|group| format!("({})", group.join(" AND "))).collect();
    groups.join(" AND ")
}

pub(crate) fn bind(stmt: &mut Stmt, record: &RowRecord<'_>, shape: &Shape) -> Result<(), Failure> {
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
