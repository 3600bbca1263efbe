//! A hash of everything a database holds, equal on two replicas at equal offsets.
//!
//! In it: each object of the schema with its text; every row of every ordinary table with its rowid, shadow tables of virtual ones included; the values of
//! `sqlite_sequence`; `user_version` and `application_id`. Not in it, since it differs rightly between replicas: where pages lie, how far a replica has
//! applied and how often it was opened, and the statistics that ANALYZE gathers, which depend on SQLite's version. Nor the idempotency keys, which tell how the
//! content came about: the same content, loaded in two ways, has one hash.

use std::time::Instant;

use highwater_wire::Offset;
use sha2::{Digest, Sha256};

use crate::api::SqlError;
use crate::client::Client;
use crate::database::Database;
use crate::error::{error, from_failure};
use crate::ffi::{Step, Stmt, ValueRef};
use crate::names;
use crate::rowlog;
use crate::shape::{RowKey, Shape, ShapeError, quoted};

impl Database {
    /// The hash of the newest published state, and the offset at which it is. Takes time in proportion to the database.
    ///
    /// # Errors
    /// `DATABASE_DAMAGED` if the database file is not what was written, which is looked at first; `NOT_READY` before the first publication; what SQLite finds
    /// wrong.
    pub fn content_hash(&self) -> Result<(Offset, [u8; 32]), SqlError> {
        drop(self.enter()?);
        self.check_file()?;
        let no_deadline = Instant::now() + std::time::Duration::from_secs(24 * 3600);
        self.read(no_deadline, |client, (_, offset)| {
            let hash = client.hooks().internally(|| hash(client))?;
            Ok((offset, hash))
        })
        .result
    }

    /// Compares the database file with its checksums, a megabyte at a time: checkpoints come in between.
    fn check_file(&self) -> Result<(), SqlError> {
        let path = self.files.database();
        let mut at = 0;
        loop {
            let sums = self.sums.lock().expect("nothing under this lock panics");
            if at >= sums.count() {
                return Ok(());
            }
            let (next, damage) =
                sums.check_some(at).map_err(|failed| error("SQLITE_IOERR", format!("{}: {failed}", path.display())))?;
            drop(sums);
            if let Some(damage) = damage {
                tracing::error!(file = %path.display(), %damage, "the database file is damaged");
                let message = format!(
                    "{} is damaged: {damage}. Restart this node: it then makes the database anew from the log",
                    path.display()
                );
                return Err(error("DATABASE_DAMAGED", message));
            }
            at = next;
        }
    }
}

/// Tables of rows, in an order that both replicas have. Virtual tables and statistics are left out.
pub(crate) fn tables(client: &Client) -> Result<Vec<String>, SqlError> {
    let mut tables = Vec::new();
    client
        .query(
            "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND rootpage > 0 AND name NOT LIKE 'sqlite\\_stat%' ESCAPE '\\' ORDER BY name",
            |_| Ok(()),
            |row| {
                tables.push(row.string(0));
                Ok(())
            },
        )
        .map_err(from_failure)?;
    tables.retain(|table| table != names::STATE);
    Ok(tables)
}

fn hash(client: &Client) -> Result<[u8; 32], SqlError> {
    let mut hash = Hasher { hash: Sha256::new(), buffer: Vec::new() };
    for pragma in ["user_version", "application_id"] {
        let value = client.query_integer(&format!("PRAGMA main.{pragma}")).map_err(from_failure)?;
        hash.value(ValueRef::Integer(value.unwrap_or_default()));
    }
    hash.rows(client, "SELECT type, name, tbl_name, sql FROM main.sqlite_schema WHERE name NOT LIKE 'sqlite\\_stat%' ESCAPE '\\' ORDER BY type, name")?;
    for table in tables(client)?.into_iter().filter(|table| !names::is_ours(table)) {
        let shape = Shape::of_table(client, &table).map_err(|failed| match failed {
            ShapeError::Sqlite(failure) => from_failure(failure),
            other => error("SQLITE_ERROR", other.to_string()),
        })?;
        hash.value(ValueRef::Text(table.as_bytes()));
        hash.rows(client, &select_all(&shape))?;
    }
    hash.flush();
    Ok(hash.hash.finalize().into())
}

/// A query for all rows of a table by key: the rowid first, if it has one, then the shipped columns.
pub(crate) fn select_all(shape: &Shape) -> String {
    let column = |position: &usize| quoted(&shape.columns[*position].1);
    let (mut columns, order) = match &shape.key {
        RowKey::Rowid(name) => (vec![quoted(name)], quoted(name)),
        RowKey::Columns(positions) => (Vec::new(), positions.iter().map(column).collect::<Vec<_>>().join(",")),
    };
    columns.extend(shape.columns.iter().map(|(_, name)| quoted(name)));
    format!("SELECT {} FROM main.{} ORDER BY {order}", columns.join(","), quoted(&shape.table))
}

struct Hasher {
    hash: Sha256,
    buffer: Vec<u8>,
}

impl Hasher {
    fn value(&mut self, value: ValueRef<'_>) {
        rowlog::put_value(&mut self.buffer, value);
        if self.buffer.len() > 1 << 16 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.hash.update(&self.buffer);
        self.buffer.clear();
    }

    fn rows(&mut self, client: &Client, query: &str) -> Result<(), SqlError> {
        let (stmt, _) = client.prepare(query, false).map_err(from_failure)?;
        let mut stmt: Stmt = stmt.expect("statements of our own are not empty");
        let mut count = 0;
        while stmt.step().map_err(from_failure)? == Step::Row {
            for column in 0..stmt.column_count() {
                self.value(stmt.value(column));
            }
            count += 1;
        }
        // The count keeps one table's last row apart from the next one's first.
        self.value(ValueRef::Integer(count));
        Ok(())
    }
}
