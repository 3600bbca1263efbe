//! Running a statement that changes something, so that what it did is taken down exactly.
//!
//! A statement that fails leaves nothing, or what it did before it failed (`OR FAIL`), or has ended the whole transaction; SQLite tells which. Schema
//! statements are shipped as text, without the rows they made themselves; a table made from a query as its schema and its rows; the values of AUTOINCREMENT,
//! of which SQLite tells nothing, are looked up after every statement that may have moved them.

use crate::api::{ResultSet, SqlError, Statement};
use crate::classify::Class;
use crate::client::{Client, Prepared};
use crate::error::{error, from_failure};
use crate::ffi::{Conn, Step, ValueRef};
use crate::names;
use crate::options::Options;
use crate::rowlog::{self, Sequence};
use crate::run::fetch;
use crate::shape::{RowKey, Shape, ShapeError, quoted};

/// A savepoint of ours around a statement that might fail and keep what it did.
const GUARD: &str = "highwater_statement";

/// Runs it, and leaves in the records what the database holds afterwards.
pub(crate) fn captured(
    client: &Client,
    sql: &str,
    prepared: &mut Prepared,
    statement: &Statement,
    options: &Options,
) -> Result<ResultSet, SqlError> {
    let hooks = client.hooks();
    // Only FAIL leaves a part of a failed statement; what returns rows may fail after it has changed rows, if they are too many. The savepoint makes virtual
    // tables write what earlier statements left with them, which must not be taken for this one's: so the mark comes after it.
    let guarded =
        client.schema_fails() || client.has_virtual() || prepared.stmt.column_count() > 0 || contains_fail(sql);
    let guard = |command: &str| hooks.undisturbed(|| client.run(command, |_| Ok(()))).map_err(from_failure);
    if guarded {
        guard(&format!("SAVEPOINT {GUARD}"))?;
    }
    let mark = hooks.capture.borrow().mark();
    let existed = match &prepared.facts.creates_table {
        Some(table) if prepared.facts.selects => table_exists(client, table)?,
        _ => false,
    };
    let ran = fetch(client, prepared, statement, options).and_then(|result| {
        if prepared.class == Class::Schema {
            schema_statement(client, sql, prepared, mark, existed)?;
        } else {
            sequences(client, prepared)?;
        }
        match hooks.capture.borrow().failure() {
            Some(reason) => Err(error("TRANSACTION_TOO_LARGE", reason)),
            None => Ok(result),
        }
    });
    let failed = match ran {
        Ok(result) => {
            if guarded {
                guard(&format!("RELEASE {GUARD}"))?;
            }
            return Ok(result);
        }
        Err(failed) => failed,
    };
    if client.autocommit() {
        hooks.capture.borrow_mut().clear();
        client.schema_changed().map_err(from_failure)?;
        return Err(failed);
    }
    // SQLite counts no changes of a statement that it rolled back; if it counts some, FAIL kept them. It counts none either if only triggers had changed rows
    // when FAIL struck the first row; those are then rolled back, where SQLite would keep them: all replicas hold the same, which matters more.
    let kept = guarded
        && failed.code == "SQLITE_CONSTRAINT"
        && prepared.class == Class::Rows
        && client.changes() > 0
        && hooks.capture.borrow().mark() != mark;
    if kept {
        sequences(client, prepared)?;
        guard(&format!("RELEASE {GUARD}"))?;
        return Err(failed);
    }
    if guarded {
        guard(&format!("ROLLBACK TO {GUARD}"))?;
        guard(&format!("RELEASE {GUARD}"))?;
    }
    hooks.capture.borrow_mut().truncate(mark);
    if prepared.class == Class::Schema {
        client.schema_changed().map_err(from_failure)?;
    }
    Err(failed)
}

fn contains_fail(sql: &str) -> bool {
    sql.as_bytes().windows(4).any(|window| window.eq_ignore_ascii_case(b"fail"))
}

fn table_exists(client: &Client, table: &str) -> Result<bool, SqlError> {
    let mut found = false;
    client
        .hooks()
        .internally(|| {
            client.query(
                "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = ?1 COLLATE NOCASE",
                |stmt| stmt.bind(1, ValueRef::Text(table.as_bytes())),
                |_| {
                    found = true;
                    Ok(())
                },
            )
        })
        .map_err(from_failure)?;
    Ok(found)
}

/// Takes down a schema statement that has succeeded.
fn schema_statement(
    client: &Client,
    sql: &str,
    prepared: &Prepared,
    mark: crate::capture::Mark,
    existed: bool,
) -> Result<(), SqlError> {
    let hooks = client.hooks();
    // Rows that the statement itself makes (of shadow tables, of statistics) whoever runs it makes too. But a dropped table's children are deleted by the
    // rules of the leader's connection, and before.
    if crate::text::words(sql, 1).first().is_none_or(|word| word != "DROP") {
        hooks.capture.borrow_mut().truncate(mark);
    }
    for table in [&prepared.facts.creates_table, &prepared.facts.alters_table].into_iter().flatten() {
        if let Err(unreachable @ ShapeError::Unreachable(_)) = hooks.internally(|| Shape::of_table(client, table)) {
            return Err(error("SQLITE_ERROR", unreachable.to_string()));
        }
        check_references(client, table)?;
    }
    match &prepared.facts.creates_table {
        // Replicas might find other rows: they are given the table and then its rows.
        Some(table) if prepared.facts.selects && !prepared.facts.creates_virtual => {
            if !existed {
                table_with_rows(client, table)?;
            }
        }
        _ => {
            let mut flags = 0;
            let set = |name: &str| hooks.internally(|| client.query_integer(&format!("PRAGMA {name}")));
            if crate::text::words(sql, 1).first().is_some_and(|word| word == "ALTER")
                && set("legacy_alter_table").map_err(from_failure)? == Some(1)
            {
                flags |= rowlog::LEGACY_ALTER_TABLE;
                if set("foreign_keys").map_err(from_failure)? == Some(1) {
                    flags |= rowlog::LEGACY_WITH_FOREIGN_KEYS;
                }
            }
            hooks.capture.borrow_mut().statement(flags, crate::text::skip_blanks(sql));
        }
    }
    client.schema_changed().map_err(from_failure)
}

/// Checks that a table's foreign keys refer to no table of ours: SQLite would look for its rows whenever we change ours, and fail everybody's writes.
pub(crate) fn check_references(conn: &Conn, table: &str) -> Result<(), SqlError> {
    let mut refused = None;
    let find = || {
        conn.query(
            "SELECT \"table\" FROM pragma_foreign_key_list(?1, 'main')",
            |stmt| stmt.bind(1, ValueRef::Text(table.as_bytes())),
            |row| {
                let parent = row.string(0);
                if names::is_ours(&parent) {
                    refused = Some(parent);
                }
                Ok(())
            },
        )
    };
    conn.hooks().internally(find).map_err(from_failure)?;
    match refused {
        None => Ok(()),
        Some(parent) => Err(error(
            "SQLITE_AUTH",
            format!(
                "a foreign key of {table} refers to {parent}, which is not for clients: refer to a table of your own"
            ),
        )),
    }
}

/// Takes down a table that was made from a query: its schema, then its rows as they are.
fn table_with_rows(client: &Client, table: &str) -> Result<(), SqlError> {
    client.hooks().internally(|| {
        let mut schema = String::new();
        client
            .query(
                "SELECT sql FROM main.sqlite_schema WHERE type = 'table' AND name = ?1 COLLATE NOCASE",
                |stmt| stmt.bind(1, ValueRef::Text(table.as_bytes())),
                |row| {
                    schema = row.string(0);
                    Ok(())
                },
            )
            .map_err(from_failure)?;
        client.hooks().capture.borrow_mut().statement(0, &schema);
        let shape = Shape::of_table(client, table).map_err(|failed| error("SQLITE_ERROR", failed.to_string()))?;
        let RowKey::Rowid(rowid) = &shape.key else { unreachable!("a table made from a query has rowids") };
        let mut columns = vec![quoted(rowid)];
        columns.extend(shape.columns.iter().map(|(_, name)| quoted(name)));
        let select = format!("SELECT {} FROM main.{}", columns.join(","), quoted(table));
        let (stmt, _) = client.prepare(&select, false).map_err(from_failure)?;
        let mut stmt = stmt.expect("statements of our own are not empty");
        while stmt.step().map_err(from_failure)? == Step::Row {
            let values = (1..stmt.column_count()).map(|column| stmt.value(column)).collect();
            client.hooks().capture.borrow_mut().inserted(&shape.table, Some(stmt.integer(0)), values);
        }
        Ok(())
    })
}

/// Takes down the values of `sqlite_sequence` that a statement may have moved, of which SQLite tells nothing. A statement that failed and kept its rows has
/// left them as they were, so that there may be none.
fn sequences(client: &Client, prepared: &Prepared) -> Result<(), SqlError> {
    for table in prepared.facts.inserts_into.iter().filter(|table| client.is_sequenced(table)) {
        let mut found = false;
        let query = || {
            client.query(
                "SELECT rowid, seq FROM main.sqlite_sequence WHERE name = ?1",
                |stmt| stmt.bind(1, ValueRef::Text(table.as_bytes())),
                |row| {
                    let row_found = (row.integer(0), row.value(1));
                    // Clients may have made several of one name.
                    let sequence = if found { Sequence::Another(row_found) } else { Sequence::Row(row_found) };
                    found = true;
                    client.hooks().capture.borrow_mut().sequence(table, sequence);
                    Ok(())
                },
            )
        };
        client.hooks().internally(query).map_err(from_failure)?;
        if !found {
            client.hooks().capture.borrow_mut().sequence(table, Sequence::None);
        }
    }
    Ok(())
}
