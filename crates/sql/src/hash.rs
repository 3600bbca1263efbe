//! A hash of everything a database holds, equal on two replicas at equal offsets.
//!
//! In it: each object of the schema with its text; every row of every ordinary table with its rowid, shadow tables of virtual ones included; the values of
//! `sqlite_sequence`; `user_version` and `application_id`. Not in it, since it differs rightly between replicas: where pages lie, how far a replica has
//! applied and how often it was opened, and the statistics that ANALYZE gathers, which depend on SQLite's version. Nor the idempotency keys, which tell how the
//! content came about: the same content, loaded in two ways, has one hash.

use std::time::{Duration, Instant};

use highwater_wire::Offset;
use sha2::{Digest, Sha256};

use crate::allowance::Allowance;
use crate::api::SqlError;
use crate::client::Client;
use crate::database::Database;
use crate::error::{error, from_failure};
use crate::ffi::{Conn, Failure, Step, Stmt, ValueRef};
use crate::names;
use crate::rowlog;
use crate::run::interrupted;
use crate::shape::{RowKey, Shape, ShapeError, quoted};

impl Database {
    /// The hash of the newest published state, and the offset at which it is. Takes time in proportion to the database.
    ///
    /// # Errors
    /// `DATABASE_DAMAGED` if the database file is not what was written, which is looked at first; `NOT_READY` before the first publication; what SQLite finds
    /// wrong.
    pub fn content_hash(&self) -> Result<(Offset, [u8; 32]), SqlError> {
        self.content_hash_within(Instant::now() + Duration::from_secs(24 * 3600))
    }

    /// The same, as far as the allowance goes.
    ///
    /// # Errors
    /// As above; `TRANSACTION_TIMEOUT` and `CANCELLED` when the allowance ends.
    pub fn content_hash_within(&self, allowance: impl Into<Allowance>) -> Result<(Offset, [u8; 32]), SqlError> {
        let allowance = &allowance.into();
        drop(self.enter()?);
        self.check_file(allowance)?;
        self.read(allowance, |client, (_, offset)| {
            let hash = client.hooks().internally(|| hash(client))?;
            Ok((offset, hash))
        })
        .result
    }

    /// Compares the database file with its checksums, a megabyte at a time: checkpoints come in between.
    fn check_file(&self, allowance: &Allowance) -> Result<(), SqlError> {
        let path = self.files.database();
        let mut at = 0;
        loop {
            allowance.check()?;
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
    hash.rows(client, Rows::of_query(client, "SELECT type, name, tbl_name, sql FROM main.sqlite_schema WHERE name NOT LIKE 'sqlite\\_stat%' ESCAPE '\\' ORDER BY type, name").map_err(from_failure)?)?;
    for table in tables(client)?.into_iter().filter(|table| !names::is_ours(table)) {
        let shape = Shape::of_table(client, &table).map_err(|failed| match failed {
            ShapeError::Sqlite(failure) => from_failure(failure),
            other => error("SQLITE_ERROR", other.to_string()),
        })?;
        hash.value(ValueRef::Text(table.as_bytes()));
        hash.rows(client, Rows::of_table(client, &shape).map_err(from_failure)?)?;
    }
    hash.flush();
    Ok(hash.hash.finalize().into())
}

/// The most columns that SQLite gives in one result, which is also the most that a table has: the rowid may be one more.
const RESULT_COLUMNS_MAX: usize = 2000;

/// Rows that are being read. Several queries that give the same rows in the same order, each some of the columns, are read side by side.
pub(crate) struct Rows(Vec<Stmt>);

impl Rows {
    fn of_query(conn: &Conn, query: &str) -> Result<Rows, Failure> {
        Ok(Rows(vec![conn.prepare(query, false)?.0.expect("statements of our own are not empty")]))
    }

    /// All rows of a table by key: the rowid first, if it has one, then the shipped columns. A transaction must be open.
    pub(crate) fn of_table(conn: &Conn, shape: &Shape) -> Result<Rows, Failure> {
        let column = |position: &usize| quoted(&shape.columns[*position].1);
        let (mut columns, order) = match &shape.key {
            RowKey::Rowid(name) => (vec![quoted(name)], quoted(name)),
            RowKey::Columns(positions) => (Vec::new(), positions.iter().map(column).collect::<Vec<_>>().join(",")),
        };
        columns.extend(shape.columns.iter().map(|(_, name)| quoted(name)));
        let table = quoted(&shape.table);
        let mut rows = Rows(Vec::new());
        for columns in columns.chunks(RESULT_COLUMNS_MAX) {
            let query = format!("SELECT {} FROM main.{table} ORDER BY {order}", columns.join(","));
            rows.0.append(&mut Rows::of_query(conn, &query)?.0);
        }
        Ok(rows)
    }

    pub(crate) fn step(&mut self) -> Result<Step, Failure> {
        let mut there = 0;
        for stmt in &mut self.0 {
            there += usize::from(stmt.step()? == Step::Row);
        }
        match there {
            0 => Ok(Step::Done),
            all if all == self.0.len() => Ok(Step::Row),
            _ => Err(Failure {
                code: rusqlite::ffi::SQLITE_CORRUPT,
                message: "two queries of one table give different numbers of rows".to_string(),
                offset: None,
            }),
        }
    }

    /// The values of the present row.
    pub(crate) fn values(&self) -> impl Iterator<Item = ValueRef<'_>> {
        self.0.iter().flat_map(|stmt| (0..stmt.column_count()).map(|column| stmt.value(column)))
    }
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

    fn rows(&mut self, client: &Client, mut rows: Rows) -> Result<(), SqlError> {
        let mut count = 0;
        while rows.step().map_err(|failure| interrupted(client, failure))? == Step::Row {
            for value in rows.values() {
                self.value(value);
            }
            count += 1;
        }
        // The count keeps one table's last row apart from the next one's first.
        self.value(ValueRef::Integer(count));
        Ok(())
    }
}
