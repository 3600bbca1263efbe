//! What must be known of a table to take down its rows or to apply them.

use crate::ffi::{Conn, Failure, RowEvent, Stmt};

/// A table of rows, as its schema has it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Its name.
    pub(crate) table: String,
    /// The columns whose values are shipped, as (index in the table, name): all but generated ones and an alias of the rowid.
    pub(crate) columns: Vec<(usize, String)>,
    /// How rows are found.
    pub(crate) key: RowKey,
}

/// How a table's rows are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowKey {
    /// By rowid, under this name: its alias, or the first of SQLite's three names for it that no column has taken.
    Rowid(String),
    /// WITHOUT ROWID, by these columns: positions in [`Shape::columns`].
    Columns(Vec<usize>),
}

/// An identifier as it is written in SQL.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl Shape {
    /// Reads the shape of a table of `main`. `Ok(None)`: there is no such table.
    pub(crate) fn read(
        table: &str,
        prepare: impl Fn(&str) -> Result<Stmt, Failure>,
    ) -> Result<Option<Shape>, ShapeError> {
        let rows = |sql: String, row: &mut dyn FnMut(&Stmt)| -> Result<(), Failure> {
            let mut stmt = prepare(&sql)?;
            while stmt.step()? == crate::ffi::Step::Row {
                row(&stmt);
            }
            Ok(())
        };
        let name = quoted(table);
        let mut without_rowid = None;
        rows(format!("PRAGMA main.table_list({name})"), &mut |row| {
            if row.string(0) == "main" {
                without_rowid = Some(row.integer(4) != 0);
            }
        })?;
        let Some(without_rowid) = without_rowid else { return Ok(None) };

        let mut all = Vec::new();
        rows(format!("PRAGMA main.table_xinfo({name})"), &mut |row| {
            all.push((row.integer(0) as usize, row.string(1), row.integer(5) as usize, row.integer(6)));
        })?;
        // A primary key that has no index of its own in a table with rowids is an alias of the rowid.
        let mut key_has_index = false;
        rows(format!("PRAGMA main.index_list({name})"), &mut |row| key_has_index |= row.string(3) == "pk")?;
        let keys = all.iter().filter(|(_, _, pk, _)| *pk > 0).count();
        let alias = (!without_rowid && !key_has_index && keys == 1)
            .then(|| all.iter().find(|(_, _, pk, _)| *pk > 0).map(|(cid, name, ..)| (*cid, name.clone())))
            .flatten();

        let stored: Vec<_> = all
            .iter()
            .filter(|(cid, _, _, hidden)| {
                !matches!(hidden, 2 | 3) && alias.as_ref().is_none_or(|(alias, _)| alias != cid)
            })
            .collect();
        let key = if without_rowid {
            let mut key: Vec<_> = stored
                .iter()
                .enumerate()
                .filter(|(_, (_, _, pk, _))| *pk > 0)
                .map(|(at, (_, _, pk, _))| (*pk, at))
                .collect();
            key.sort_unstable();
            assert!(!key.is_empty(), "a table WITHOUT ROWID has a primary key");
            RowKey::Columns(key.into_iter().map(|(_, at)| at).collect())
        } else if let Some((_, name)) = alias {
            RowKey::Rowid(name)
        } else {
            let free = ["rowid", "_rowid_", "oid"]
                .into_iter()
                .find(|name| all.iter().all(|(_, column, ..)| !column.eq_ignore_ascii_case(name)));
            RowKey::Rowid(free.ok_or_else(|| ShapeError::Unreachable(table.to_string()))?.to_string())
        };
        let columns = stored.into_iter().map(|(cid, name, ..)| (*cid, name.clone())).collect();
        Ok(Some(Shape { table: table.to_string(), columns, key }))
    }

    /// The shape of a table whose row is being changed.
    pub(crate) fn of_event(event: &RowEvent<'_>) -> Result<Shape, ShapeError> {
        Shape::read(event.table, |sql| event.prepare(sql))?.ok_or_else(|| ShapeError::Missing(event.table.to_string()))
    }

    /// The shape of a table as a connection sees it.
    pub(crate) fn of_table(conn: &Conn, table: &str) -> Result<Shape, ShapeError> {
        let prepare = |sql: &str| Ok(conn.prepare(sql, false)?.0.expect("statements of our own are not empty"));
        Shape::read(table, prepare)?.ok_or_else(|| ShapeError::Missing(table.to_string()))
    }
}

/// Why a table's shape is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShapeError {
    /// There is no such table.
    #[error("there is no table {0:?}")]
    Missing(String),
    /// Its rows cannot be named.
    #[error(
        "the table {0:?} has columns named rowid, _rowid_ and oid and no INTEGER PRIMARY KEY, so its rows cannot be named: give it a primary key"
    )]
    Unreachable(String),
    /// SQLite failed.
    #[error("{0}")]
    Sqlite(Failure),
}

impl From<Failure> for ShapeError {
    fn from(failure: Failure) -> ShapeError {
        ShapeError::Sqlite(failure)
    }
}
