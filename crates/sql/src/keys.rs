//! Idempotency keys: the key, a hash of the request, its result and its position are a row written in the transaction it names, and replicated with it.

use crate::api::{Column, Key, ResultSet, SqlError};
use crate::client::Client;
use crate::core::Core;
use crate::error::{error, from_failure};
use crate::ffi::{Failure, ValueRef};
use crate::options::Options;
use crate::rowlog::{self, Reader};
use crate::value::Value;

/// Keys that are too old are removed with every new one, so many at most: more than come in, so that they never pile up.
const PURGED_AT_ONCE: i64 = 8;
const KEY_BYTES_MAX: usize = 255;

/// What a key's transaction gave.
pub(crate) struct Kept {
    pub(crate) results: Vec<ResultSet>,
    /// The offset after its last entry.
    pub(crate) position: u64,
}

fn now_ms(core: &Core, options: &Options) -> i64 {
    core.log_time_ms.max((options.clock)())
}

fn oldest_ms(core: &Core, options: &Options) -> i64 {
    now_ms(core, options) - i64::try_from(options.key_retention.as_millis()).unwrap_or(i64::MAX)
}

/// Looks a key up, within the open transaction.
pub(crate) fn find(client: &Client, key: &Key, core: &Core, options: &Options) -> Result<Option<Kept>, SqlError> {
    if key.key.is_empty() || key.key.len() > KEY_BYTES_MAX {
        return Err(error(
            "ARGS_INVALID",
            format!("an idempotency key has 1 to {KEY_BYTES_MAX} bytes; found {}", key.key.len()),
        ));
    }
    let mut found: Option<(Vec<u8>, Vec<u8>, u64)> = None;
    let oldest = oldest_ms(core, options);
    let query =
        "SELECT request_hash, result, position FROM main.sqlite_highwater_keys WHERE key = ?1 AND log_time_ms >= ?2";
    let bytes = |value: ValueRef<'_>| match value {
        ValueRef::Blob(bytes) => bytes.to_vec(),
        _ => Vec::new(),
    };
    client
        .hooks()
        .internally(|| {
            client.query(
                query,
                |stmt| {
                    stmt.bind(1, ValueRef::Text(key.key.as_bytes()))?;
                    stmt.bind(2, ValueRef::Integer(oldest))
                },
                |row| {
                    found = Some((bytes(row.value(0)), bytes(row.value(1)), row.integer(2) as u64));
                    Ok(())
                },
            )
        })
        .map_err(from_failure)?;
    let Some((hash, result, position)) = found else { return Ok(None) };
    if hash != key.request_hash {
        return Err(error(
            "IDEMPOTENCY_MISMATCH",
            format!(
                "the idempotency key {:?} was used for another request less than a day ago: use a new one",
                key.key
            ),
        ));
    }
    let results = decode(&result).map_err(|malformed| {
        error("SQLITE_CORRUPT", format!("the kept result of the key {:?}: {malformed}", key.key))
    })?;
    Ok(Some(Kept { results, position }))
}

/// Keeps what a key's transaction gave, within the open transaction, as its last change.
pub(crate) fn keep(
    client: &Client,
    key: &Key,
    results: &[ResultSet],
    core: &Core,
    options: &Options,
) -> Result<(), SqlError> {
    let encoded = encode(results);
    if encoded.len() > options.kept_result_bytes_max {
        return Err(error(
            "RESPONSE_TOO_LARGE",
            format!(
                "the result to be kept for the idempotency key has {} bytes, where at most {} are: ask for less, or do without the key",
                encoded.len(),
                options.kept_result_bytes_max
            ),
        ));
    }
    let (now, oldest) = (now_ms(core, options), oldest_ms(core, options));
    let hooks = client.hooks();
    let run = || -> Result<(), Failure> {
        client.run(
            "DELETE FROM main.sqlite_highwater_keys WHERE id IN
             (SELECT id FROM main.sqlite_highwater_keys ORDER BY id LIMIT ?2) AND log_time_ms < ?1",
            |stmt| {
                stmt.bind(1, ValueRef::Integer(oldest))?;
                stmt.bind(2, ValueRef::Integer(PURGED_AT_ONCE))
            },
        )?;
        // A key that was too old to be found, and still there.
        client.run("DELETE FROM main.sqlite_highwater_keys WHERE key = ?1", |stmt| {
            stmt.bind(1, ValueRef::Text(key.key.as_bytes()))
        })?;
        let position = core.end + hooks.capture.borrow().len() as u64 + 1;
        client.run(
            "INSERT INTO main.sqlite_highwater_keys(key, request_hash, result, position, log_time_ms) VALUES(?1, ?2, ?3, ?4, ?5)",
            |stmt| {
                stmt.bind(1, ValueRef::Text(key.key.as_bytes()))?;
                stmt.bind(2, ValueRef::Blob(&key.request_hash))?;
                stmt.bind(3, ValueRef::Blob(&encoded))?;
                stmt.bind(4, ValueRef::Integer(position as i64))?;
                stmt.bind(5, ValueRef::Integer(now))
            },
        )
    };
    hooks.internally(run).map_err(from_failure)
}

fn encode(results: &[ResultSet]) -> Vec<u8> {
    let mut out = Vec::new();
    rowlog::put_varint(&mut out, results.len() as u64);
    for result in results {
        rowlog::put_value(&mut out, ValueRef::Integer(result.affected as i64));
        rowlog::put_value(&mut out, ValueRef::Integer(result.last_insert_rowid));
        rowlog::put_varint(&mut out, result.columns.len() as u64);
        for column in &result.columns {
            rowlog::put_value(&mut out, ValueRef::Text(column.name.as_bytes()));
            let decl_type = column.decl_type.as_ref().map_or(ValueRef::Null, |text| ValueRef::Text(text.as_bytes()));
            rowlog::put_value(&mut out, decl_type);
        }
        rowlog::put_varint(&mut out, result.rows.len() as u64);
        for value in result.rows.iter().flatten() {
            rowlog::put_value(&mut out, value.borrowed());
        }
    }
    out
}

fn decode(bytes: &[u8]) -> Result<Vec<ResultSet>, rowlog::Malformed> {
    let mut reader = Reader(bytes);
    let integer = |reader: &mut Reader<'_>| {
        Ok(match reader.value()? {
            ValueRef::Integer(value) => value,
            _ => 0,
        })
    };
    let text = |reader: &mut Reader<'_>| {
        Ok(match Value::of(reader.value()?) {
            Value::Text(text) => Some(text),
            _ => None,
        })
    };
    let mut results = Vec::new();
    for _ in 0..reader.varint()? {
        let affected = integer(&mut reader)? as u64;
        let last_insert_rowid = integer(&mut reader)?;
        let mut columns = Vec::new();
        for _ in 0..reader.varint()? {
            columns.push(Column { name: text(&mut reader)?.unwrap_or_default(), decl_type: text(&mut reader)? });
        }
        let mut rows = Vec::new();
        for _ in 0..reader.varint()? {
            let row: Result<Vec<Value>, _> = columns.iter().map(|_| reader.value().map(Value::of)).collect();
            rows.push(row?);
        }
        results.push(ResultSet { columns, rows, affected, last_insert_rowid, ..ResultSet::default() });
    }
    Ok(results)
}
