//! What the transaction on a connection has done so far, in the order of execution, as the records that will ship it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use highwater_wire::batch::{self, Record};
use highwater_wire::record::{HEADER_BYTES, Kind, RecordHeader};

use crate::ffi::{RowEvent, RowOp, ValueRef};
use crate::names;
use crate::rowlog::{self, Change, RowChange, RowRecord, Sequence, UpdateKey};
use crate::shape::{RowKey, Shape, ShapeError};

/// The records of one transaction. Every one begins with its header, none of which ends the transaction before [`Capture::build`].
pub(crate) struct Capture {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    statements: Vec<usize>,
    shapes: BTreeMap<String, Arc<Shape>>,
    failure: Option<String>,
    bytes_max: usize,
}

/// A place in the records to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(usize);

impl Capture {
    /// Takes down at most `bytes_max` bytes for a transaction.
    pub(crate) fn new(bytes_max: usize) -> Capture {
        Capture {
            bytes: Vec::new(),
            ends: Vec::new(),
            statements: Vec::new(),
            shapes: BTreeMap::new(),
            failure: None,
            bytes_max,
        }
    }

    /// How many records there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// How many bytes they have.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// How many of them are statements.
    pub(crate) fn statements(&self) -> usize {
        self.statements.len()
    }

    /// The present place.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.ends.len())
    }

    /// Forgets what came after a mark: it was rolled back.
    pub(crate) fn truncate(&mut self, mark: Mark) {
        assert!(mark.0 <= self.ends.len(), "a mark lies within the records");
        self.ends.truncate(mark.0);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
        if !self.statements.is_empty() {
            // What was rolled back may have been the schema.
            self.statements.retain(|at| *at < mark.0);
            self.shapes.clear();
        }
        self.failure = None;
    }

    /// Forgets everything: the transaction ended.
    pub(crate) fn clear(&mut self) {
        self.truncate(Mark(0));
        // A large transaction's memory is given back.
        self.bytes.shrink_to(1 << 20);
    }

    /// Forgets what is known of tables: the schema may be another.
    pub(crate) fn forget_shapes(&mut self) {
        self.shapes.clear();
    }

    /// Notes that something cannot be shipped. The first reason is kept.
    pub(crate) fn fail(&mut self, reason: String) {
        self.failure.get_or_insert(reason);
    }

    /// Why what was done cannot be shipped, if so.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn begin(&mut self, kind: Kind) {
        RecordHeader { kind, ends_transaction: false, ack: None }.encode_into(&mut self.bytes);
    }

    fn end(&mut self) {
        self.ends.push(self.bytes.len());
        if self.bytes.len() > self.bytes_max {
            self.fail(format!(
                "the transaction changes more than {} bytes, the most that one may: split it",
                self.bytes_max
            ));
        }
    }

    /// Takes down a row that is about to be changed.
    pub(crate) fn row(&mut self, event: &RowEvent<'_>) {
        if event.table == names::STATE || self.failure.is_some() {
            return;
        }
        let shape = match self.shapes.get(event.table) {
            Some(shape) => shape.clone(),
            None => match Shape::of_event(event) {
                Ok(shape) => {
                    let shape = Arc::new(shape);
                    self.shapes.insert(event.table.to_string(), shape.clone());
                    shape
                }
                Err(error) => return self.fail(error.to_string()),
            },
        };
        self.begin(Kind::Row);
        match change(event, &shape) {
            Ok(change) => {
                rowlog::put_row(&mut self.bytes, &RowRecord { table: event.table, change });
                self.end();
            }
            Err(error) => {
                self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
                self.fail(error.to_string());
            }
        }
    }

    /// Takes down a row that is there already: of a table that was made with its rows.
    pub(crate) fn inserted(&mut self, table: &str, rowid: Option<i64>, values: Vec<ValueRef<'_>>) {
        self.begin(Kind::Row);
        rowlog::put_row(&mut self.bytes, &RowRecord { table, change: RowChange::Insert { rowid, values } });
        self.end();
    }

    /// Takes down a statement that replicas run themselves. It may change the schema.
    pub(crate) fn statement(&mut self, flags: u8, text: &str) {
        self.begin(Kind::Statement);
        rowlog::put_statement(&mut self.bytes, flags, text);
        self.statements.push(self.ends.len());
        self.end();
        self.shapes.clear();
    }

    /// Takes down what `sqlite_sequence` holds of a name.
    pub(crate) fn sequence(&mut self, name: &str, sequence: Sequence<'_>) {
        self.begin(Kind::Meta);
        rowlog::put_sequence(&mut self.bytes, name, sequence);
        self.end();
    }

    /// The transaction as one batch, or as several if it is large; its last record ends it. The records stay, since the commit may yet fail.
    ///
    /// # Panics
    /// If there is no record.
    pub(crate) fn build(&mut self, timestamp_ms: i64, batch_bytes: usize) -> BytesMut {
        assert!(!self.ends.is_empty(), "a transaction that did nothing is not shipped");
        assert!(self.failure.is_none(), "what cannot be shipped is not built");
        self.set_last_ends(true);
        let bytes = Bytes::from(std::mem::take(&mut self.bytes));
        let (mut batches, mut records, mut size, mut start) = (BytesMut::new(), Vec::new(), 0, 0);
        for end in &self.ends {
            if size > 0 && size + (end - start) > batch_bytes {
                batches.unsplit(batch::build(&std::mem::take(&mut records), timestamp_ms));
                size = 0;
            }
            records.push(Record { key: None, value: Some(bytes.slice(start..*end)) });
            size += end - start;
            start = *end;
        }
        batches.unsplit(batch::build(&records, timestamp_ms));
        drop(records);
        self.bytes = bytes.into();
        self.set_last_ends(false);
        batches
    }

    /// Rewrites the last record's header.
    fn set_last_ends(&mut self, ends_transaction: bool) {
        let last = if self.ends.len() > 1 { self.ends[self.ends.len() - 2] } else { 0 };
        let (header, _) = RecordHeader::decode(&self.bytes[last..]).expect("our own header");
        let mut rewritten = Vec::with_capacity(HEADER_BYTES);
        RecordHeader { ends_transaction, ..header }.encode_into(&mut rewritten);
        self.bytes[last..last + HEADER_BYTES].copy_from_slice(&rewritten);
    }
}

fn change<'e>(event: &'e RowEvent<'_>, shape: &Shape) -> Result<RowChange<'e>, ShapeError> {
    let by_rowid = matches!(shape.key, RowKey::Rowid(_));
    Ok(match event.op {
        RowOp::Insert => {
            let values = shape.columns.iter().map(|(cid, _)| event.after(*cid)).collect::<Result<_, _>>()?;
            RowChange::Insert { rowid: by_rowid.then_some(event.new_rowid), values }
        }
        RowOp::Delete => {
            let values = shape.columns.iter().map(|(cid, _)| event.before(*cid)).collect::<Result<_, _>>()?;
            RowChange::Delete { rowid: by_rowid.then_some(event.old_rowid), values }
        }
        RowOp::Update => {
            let key = match &shape.key {
                RowKey::Rowid(_) => UpdateKey::Rowid { old: event.old_rowid, new: event.new_rowid },
                RowKey::Columns(positions) => UpdateKey::Columns(
                    positions.iter().map(|at| event.before(shape.columns[*at].0)).collect::<Result<_, _>>()?,
                ),
            };
            let mut changes: Vec<Change<'e>> = Vec::new();
            for (position, (cid, _)) in shape.columns.iter().enumerate() {
                let (old, new) = (event.before(*cid)?, event.after(*cid)?);
                if !same(old, new) {
                    changes.push((position, old, new));
                }
            }
            RowChange::Update { key, changes }
        }
    })
}

/// Whether two values are the same in type and bytes. Reals are compared as bits, so that -0.0 and 0.0 differ.
fn same(a: ValueRef<'_>, b: ValueRef<'_>) -> bool {
    match (a, b) {
        (ValueRef::Real(a), ValueRef::Real(b)) => a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}
