//! The payload of a record: one row operation, one statement, or one value of `sqlite_sequence`.
//!
//! ```text
//! Row        op u8 (1 insert, 2 update, 3 delete; + 0x80: by primary key), table, then
//!            insert: key, values of all shipped columns
//!            delete: key, values of all shipped columns as they were
//!            update: key as it was, flag u8 (1: the rowid changes) [new rowid], count, (position, old, new) for each column that changed
//!            key: the rowid, or nothing on insert and delete, or the primary key's values on update
//! Statement  flags u8 (1 outside a transaction, 2 legacy_alter_table, 4 and foreign_keys), the text
//! Meta       1 u8, table, rowid, value: the table's row of sqlite_sequence; or 2 u8, table: it has none; or 3 u8, table,
//!            rowid, value: another row of that name, which clients may have made
//! ```
//!
//! Numbers are LEB128 varints, signed ones zigzag; names and texts are a length and bytes; a value is a tag (0 NULL, 1 integer, 2 real in eight bytes big
//! end first, 3 text, 4 blob) and its bytes. Columns are told by position among the shipped ones, and an insert or delete tells how many there are, so that
//! another schema is noticed.

use crate::ffi::{RowOp, ValueRef};

const BY_KEY: u8 = 0x80;
const META_SEQUENCE: u8 = 1;
const META_NO_SEQUENCE: u8 = 2;
const META_ANOTHER_SEQUENCE: u8 = 3;
/// The flag of a statement that runs outside a transaction.
pub(crate) const OUTSIDE_TRANSACTION: u8 = 1;
/// The flag of a statement that was run with `PRAGMA legacy_alter_table=on`.
pub(crate) const LEGACY_ALTER_TABLE: u8 = 2;

/// The flag beside it of a connection that enforced foreign keys, without which SQLite then leaves references to a renamed table as they are.
pub(crate) const LEGACY_WITH_FOREIGN_KEYS: u8 = 4;

/// A column that an update changed: its position, its value before and after.
pub(crate) type Change<'a> = (usize, ValueRef<'a>, ValueRef<'a>);

/// A row of `sqlite_sequence`: its rowid and its value.
pub(crate) type SequenceRow<'a> = (i64, ValueRef<'a>);

/// What `sqlite_sequence` holds of a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sequence<'a> {
    /// Nothing.
    None,
    /// This row, and no other but those that follow.
    Row(SequenceRow<'a>),
    /// This row as well.
    Another(SequenceRow<'a>),
}

/// One row operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RowRecord<'a> {
    pub(crate) table: &'a str,
    pub(crate) change: RowChange<'a>,
}

/// What happened to a row. `rowid` is `None` in tables WITHOUT ROWID.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RowChange<'a> {
    Insert { rowid: Option<i64>, values: Vec<ValueRef<'a>> },
    Delete { rowid: Option<i64>, values: Vec<ValueRef<'a>> },
    Update { key: UpdateKey<'a>, changes: Vec<Change<'a>> },
}

/// Which row an update changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum UpdateKey<'a> {
    Rowid { old: i64, new: i64 },
    Columns(Vec<ValueRef<'a>>),
}

/// Why a payload cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record of the row log is malformed: {0}")]
pub(crate) struct Malformed(&'static str);

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_value(out: &mut Vec<u8>, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => out.push(0),
        ValueRef::Integer(value) => {
            out.push(1);
            put_signed(out, value);
        }
        ValueRef::Real(value) => {
            out.push(2);
            out.extend_from_slice(&value.to_be_bytes());
        }
        ValueRef::Text(bytes) => {
            out.push(3);
            put_bytes(out, bytes);
        }
        ValueRef::Blob(bytes) => {
            out.push(4);
            put_bytes(out, bytes);
        }
    }
}

/// Appends a row operation.
pub(crate) fn put_row(out: &mut Vec<u8>, record: &RowRecord<'_>) {
    let (op, by_key) = match &record.change {
        RowChange::Insert { rowid, .. } => (RowOp::Insert, rowid.is_none()),
        RowChange::Delete { rowid, .. } => (RowOp::Delete, rowid.is_none()),
        RowChange::Update { key, .. } => (RowOp::Update, matches!(key, UpdateKey::Columns(_))),
    };
    let code = match op {
        RowOp::Insert => 1,
        RowOp::Update => 2,
        RowOp::Delete => 3,
    };
    out.push(code | if by_key { BY_KEY } else { 0 });
    put_bytes(out, record.table.as_bytes());
    match &record.change {
        RowChange::Insert { rowid, values } | RowChange::Delete { rowid, values } => {
            if let Some(rowid) = rowid {
                put_signed(out, *rowid);
            }
            put_values(out, values);
        }
        RowChange::Update { key, changes } => {
            match key {
                UpdateKey::Rowid { old, new } => {
                    put_signed(out, *old);
                    out.push(u8::from(old != new));
                    if old != new {
                        put_signed(out, *new);
                    }
                }
                UpdateKey::Columns(values) => put_values(out, values),
            }
            put_varint(out, changes.len() as u64);
            for (position, old, new) in changes {
                put_varint(out, *position as u64);
                put_value(out, *old);
                put_value(out, *new);
            }
        }
    }
}

fn put_values(out: &mut Vec<u8>, values: &[ValueRef<'_>]) {
    put_varint(out, values.len() as u64);
    for value in values {
        put_value(out, *value);
    }
}

/// Appends a statement.
pub(crate) fn put_statement(out: &mut Vec<u8>, flags: u8, text: &str) {
    out.push(flags);
    out.extend_from_slice(text.as_bytes());
}

/// Appends what `sqlite_sequence` holds of a name.
pub(crate) fn put_sequence(out: &mut Vec<u8>, name: &str, sequence: Sequence<'_>) {
    let (kind, row) = match sequence {
        Sequence::None => (META_NO_SEQUENCE, None),
        Sequence::Row(row) => (META_SEQUENCE, Some(row)),
        Sequence::Another(row) => (META_ANOTHER_SEQUENCE, Some(row)),
    };
    out.push(kind);
    put_bytes(out, name.as_bytes());
    if let Some((rowid, value)) = row {
        put_signed(out, rowid);
        put_value(out, value);
    }
}

/// Reads a payload from its beginning.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed("it ends early"))?;
        self.0 = rest;
        Ok(*first)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed("it ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return if shift == 63 && byte > 1 {
                    Err(Malformed("a number of more than 64 bits"))
                } else {
                    Ok(value)
                };
            }
        }
        Err(Malformed("a number of more than 64 bits"))
    }

    fn signed(&mut self) -> Result<i64, Malformed> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn count(&mut self) -> Result<usize, Malformed> {
        let count = self.varint()?;
        // Everything counted takes at least a byte, which bounds what is allocated for it.
        usize::try_from(count).ok().filter(|count| *count <= self.0.len()).ok_or(Malformed("a count beyond its end"))
    }

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.count()?;
        self.take(length)
    }

    fn name(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed("a name that is not UTF-8"))
    }

    pub(crate) fn value(&mut self) -> Result<ValueRef<'a>, Malformed> {
        Ok(match self.byte()? {
            0 => ValueRef::Null,
            1 => ValueRef::Integer(self.signed()?),
            2 => ValueRef::Real(f64::from_be_bytes(self.take(8)?.try_into().expect("eight bytes"))),
            3 => ValueRef::Text(self.bytes()?),
            4 => ValueRef::Blob(self.bytes()?),
            _ => return Err(Malformed("a value of unknown type")),
        })
    }

    fn values(&mut self) -> Result<Vec<ValueRef<'a>>, Malformed> {
        (0..self.count()?).map(|_| self.value()).collect()
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("something follows its end")) }
    }

    /// A whole row operation.
    pub(crate) fn row(mut self) -> Result<RowRecord<'a>, Malformed> {
        let code = self.byte()?;
        let by_key = code & BY_KEY != 0;
        let table = self.name()?;
        let change = match code & !BY_KEY {
            code @ (1 | 3) => {
                let rowid = if by_key { None } else { Some(self.signed()?) };
                let values = self.values()?;
                if code == 1 { RowChange::Insert { rowid, values } } else { RowChange::Delete { rowid, values } }
            }
            2 => {
                let key = if by_key {
                    UpdateKey::Columns(self.values()?)
                } else {
                    let old = self.signed()?;
                    let new = match self.byte()? {
                        0 => old,
                        1 => self.signed()?,
                        _ => return Err(Malformed("an unknown flag")),
                    };
                    UpdateKey::Rowid { old, new }
                };
                let count = self.count()?;
                let changes = (0..count)
                    .map(|_| Ok((self.varint()? as usize, self.value()?, self.value()?)))
                    .collect::<Result<_, Malformed>>()?;
                RowChange::Update { key, changes }
            }
            _ => return Err(Malformed("an unknown operation")),
        };
        self.end()?;
        Ok(RowRecord { table, change })
    }

    /// A statement: its flags and its text.
    pub(crate) fn statement(mut self) -> Result<(u8, &'a str), Malformed> {
        let flags = self.byte()?;
        if flags & !(OUTSIDE_TRANSACTION | LEGACY_ALTER_TABLE | LEGACY_WITH_FOREIGN_KEYS) != 0 {
            return Err(Malformed("unknown flags of a statement"));
        }
        Ok((flags, std::str::from_utf8(self.0).map_err(|_| Malformed("a text that is not UTF-8"))?))
    }

    /// A name and what `sqlite_sequence` holds of it.
    pub(crate) fn sequence(mut self) -> Result<(&'a str, Sequence<'a>), Malformed> {
        let kind = self.byte()?;
        let name = self.name()?;
        let row = match kind {
            META_SEQUENCE => Sequence::Row((self.signed()?, self.value()?)),
            META_ANOTHER_SEQUENCE => Sequence::Another((self.signed()?, self.value()?)),
            META_NO_SEQUENCE => Sequence::None,
            _ => return Err(Malformed("an unknown kind of meta record")),
        };
        self.end()?;
        Ok((name, row))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A value that owns what it holds.
    #[derive(Clone, Debug)]
    enum Owned {
        Null,
        Integer(i64),
        Real(f64),
        Text(Vec<u8>),
        Blob(Vec<u8>),
    }

    impl Owned {
        fn borrowed(&self) -> ValueRef<'_> {
            match self {
                Owned::Null => ValueRef::Null,
                Owned::Integer(value) => ValueRef::Integer(*value),
                Owned::Real(value) => ValueRef::Real(*value),
                Owned::Text(bytes) => ValueRef::Text(bytes),
                Owned::Blob(bytes) => ValueRef::Blob(bytes),
            }
        }
    }

    fn value() -> impl Strategy<Value = Owned> {
        let bytes = prop::collection::vec(any::<u8>(), 0..200);
        prop_oneof![
            Just(Owned::Null),
            any::<i64>().prop_map(Owned::Integer),
            (-50i64..50).prop_map(Owned::Integer),
            prop::num::f64::NORMAL.prop_map(Owned::Real),
            bytes.clone().prop_map(Owned::Text),
            bytes.prop_map(Owned::Blob),
        ]
    }

    proptest! {
        #[test]
        fn rows_read_back_as_they_were(
            table in "[a-z\"ü]{1,12}",
            rowid in any::<Option<i64>>(),
            new in any::<Option<i64>>(),
            kind in 0..3,
            values in prop::collection::vec(value(), 0..8),
        ) {
            let borrowed: Vec<_> = values.iter().map(Owned::borrowed).collect();
            let change = match kind {
                0 => RowChange::Insert { rowid, values: borrowed },
                1 => RowChange::Delete { rowid, values: borrowed },
                _ => RowChange::Update {
                    key: match rowid {
                        Some(old) => UpdateKey::Rowid { old, new: new.unwrap_or(old) },
                        None => UpdateKey::Columns(borrowed.clone()),
                    },
                    changes: borrowed.iter().enumerate().map(|(at, value)| (at * 3, *value, ValueRef::Null)).collect(),
                },
            };
            let record = RowRecord { table: &table, change };
            let mut bytes = Vec::new();
            put_row(&mut bytes, &record);
            prop_assert_eq!(Reader(&bytes).row().unwrap(), record);
            // Nothing shorter and nothing longer is the same record.
            prop_assert!(Reader(&bytes[..bytes.len() - 1]).row().is_err());
            bytes.push(0);
            prop_assert!(Reader(&bytes).row().is_err());
        }

        #[test]
        fn whatever_bytes_there_are_reading_ends(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Reader(&bytes).row();
            let _ = Reader(&bytes).statement();
            let _ = Reader(&bytes).sequence();
        }
    }

    #[test]
    fn statements_and_sequences_read_back() {
        let mut bytes = Vec::new();
        put_statement(&mut bytes, LEGACY_ALTER_TABLE, "ALTER TABLE t RENAME TO u");
        assert_eq!(Reader(&bytes).statement(), Ok((LEGACY_ALTER_TABLE, "ALTER TABLE t RENAME TO u")));
        bytes[0] = 0x40;
        assert!(Reader(&bytes).statement().is_err(), "an unknown flag is not passed over");
        let row = (3, ValueRef::Integer(70));
        for row in [Sequence::None, Sequence::Row(row), Sequence::Another(row)] {
            let mut bytes = Vec::new();
            put_sequence(&mut bytes, "t", row);
            assert_eq!(Reader(&bytes).sequence(), Ok(("t", row)));
        }
    }
}
