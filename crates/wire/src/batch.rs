//! Kafka's record batch, version 2: the unit of append, checksum and shipping. The leader stamps base offset and epoch, which lie outside the
//! CRC, in place; everybody stores and forwards the rest unchanged.
//!
//! The layout is that of KIP-98, section "Message Format": a header of [`HEADER_BYTES`] big-endian bytes, then the records. What is stricter
//! here: a batch holds exactly as many records as it takes offsets, because this log is never compacted, and the offsets of its records rise by
//! one. Bytes come from disks and networks, so every function answers any input with a value or an error and allocates no more than a small
//! multiple of the input's size.

use bytes::{Bytes, BytesMut};

use crate::ids::{Epoch, LogId, NodeId, Offset, PeerId};
use crate::varint;

/// The size of a batch's header: everything before its first record.
pub const HEADER_BYTES: usize = 61;

/// Where the fields of the header lie.
mod at {
    pub(super) const BASE: usize = 0;
    pub(super) const LENGTH: usize = 8;
    pub(super) const EPOCH: usize = 12;
    pub(super) const MAGIC: usize = 16;
    pub(super) const CRC: usize = 17;
    pub(super) const ATTRIBUTES: usize = 21;
    pub(super) const LAST_OFFSET_DELTA: usize = 23;
    pub(super) const BASE_TIMESTAMP: usize = 27;
    pub(super) const MAX_TIMESTAMP: usize = 35;
    pub(super) const PRODUCER: usize = 43;
    pub(super) const RECORD_COUNT: usize = 57;
}

/// How many bytes come before those that the batch length counts.
const LENGTH_COUNTS_FROM: usize = 12;
/// The magic byte that says version 2.
const MAGIC: u8 = 2;
/// The bits of the attributes that name a compression codec.
const CODEC: i16 = 0b111;
/// The bit of the attributes that says control batch.
const CONTROL: i16 = 1 << 5;
/// The least bytes a record takes: its length, attributes, two deltas, two null lengths and a header count of one byte each.
const RECORD_BYTES_MIN: usize = 7;

/// The version of a control record's key; Kafka's.
const CONTROL_KEY_VERSION: i16 = 0;
/// Own control types. Kafka has given out 0 to 6; clients skip those they do not know.
const TYPE_EPOCH_START: i16 = 32;
const TYPE_CONFIGURATION: i16 = 33;
/// The version of the control values written here.
const CONTROL_VALUE_VERSION: i16 = 0;
/// A voter in a configuration: its node (u32) and log (u64).
const VOTER_BYTES: usize = 12;

/// What a batch's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// The offset of its first record.
    pub base: Offset,
    /// The leader epoch it was stamped with.
    pub epoch: Epoch,
    /// How many offsets it takes, at least 1.
    pub count: u64,
    /// Whether it is a control batch, which state machines skip.
    pub control: bool,
    /// The greatest timestamp of its records, milliseconds of the leader's wall clock.
    pub max_timestamp_ms: i64,
    /// The length of the whole batch in bytes, header included.
    pub size_bytes: usize,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key; Kafka's null is `None`.
    pub key: Option<Bytes>,
    /// The value; Kafka's null is `None`.
    pub value: Option<Bytes>,
}

/// What a control batch says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// The first entry of an epoch under `quorum`, through which earlier entries become committed.
    EpochStart,
    /// The voters of the self-electing partition.
    Configuration(Vec<PeerId>),
}

/// Why bytes are not a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BatchError {
    /// The bytes end before the batch does.
    #[error("a batch of {wanted} bytes was cut short at {found}")]
    Short {
        /// What the header says, or the header's own size.
        wanted: usize,
        /// What is there.
        found: usize,
    },
    /// Anything else: the first thing that is wrong.
    #[error("not a record batch: {0}")]
    Malformed(&'static str),
    /// The checksum does not hold.
    #[error("a batch's checksum is {found:#010x} where its bytes give {wanted:#010x}")]
    Checksum {
        /// Computed from the bytes.
        wanted: u32,
        /// Stored in the header.
        found: u32,
    },
}

/// Builds one batch, not yet stamped (base offset 0, epoch -1).
///
/// # Panics
/// If there is no record, or more than `i32::MAX` bytes of them.
pub fn build(records: &[Record], timestamp_ms: i64) -> BytesMut {
    build_with(records, timestamp_ms, 0)
}

/// Builds a control batch of one record, not yet stamped.
pub fn build_control(control: &Control, timestamp_ms: i64) -> BytesMut {
    let mut value = CONTROL_VALUE_VERSION.to_be_bytes().to_vec();
    let kind = match control {
        Control::EpochStart => TYPE_EPOCH_START,
        Control::Configuration(voters) => {
            for voter in voters {
                value.extend(voter.node.0.to_be_bytes());
                value.extend(voter.log.0.to_be_bytes());
            }
            TYPE_CONFIGURATION
        }
    };
    let key = [CONTROL_KEY_VERSION.to_be_bytes(), kind.to_be_bytes()].concat();
    let record = Record { key: Some(key.into()), value: Some(value.into()) };
    build_with(&[record], timestamp_ms, CONTROL)
}

fn build_with(records: &[Record], timestamp_ms: i64, attributes: i16) -> BytesMut {
    assert!(!records.is_empty(), "a batch has at least one record");
    assert!(records.len() <= i32::MAX as usize, "a batch has at most i32::MAX records");
    let payload: usize =
        records.iter().map(|r| r.key.as_ref().map_or(0, Bytes::len) + r.value.as_ref().map_or(0, Bytes::len)).sum();
    // 32 bytes are enough for the lengths and deltas around any record's key and value.
    let mut out = Vec::with_capacity(HEADER_BYTES + payload + 32 * records.len());
    out.resize(HEADER_BYTES, 0);
    for (index, record) in records.iter().enumerate() {
        put_record(&mut out, record, index as i64);
    }
    let length = i32::try_from(out.len() - LENGTH_COUNTS_FROM).expect("a batch has at most i32::MAX bytes of records");
    let last_delta = records.len() as i32 - 1;
    put(&mut out, at::LENGTH, &length.to_be_bytes());
    put(&mut out, at::EPOCH, &(-1i32).to_be_bytes());
    out[at::MAGIC] = MAGIC;
    put(&mut out, at::ATTRIBUTES, &attributes.to_be_bytes());
    put(&mut out, at::LAST_OFFSET_DELTA, &last_delta.to_be_bytes());
    put(&mut out, at::BASE_TIMESTAMP, &timestamp_ms.to_be_bytes());
    put(&mut out, at::MAX_TIMESTAMP, &timestamp_ms.to_be_bytes());
    // No producer: its id, epoch and sequence, 14 bytes in all, are -1.
    put(&mut out, at::PRODUCER, &[0xff; 14]);
    put(&mut out, at::RECORD_COUNT, &(last_delta + 1).to_be_bytes());
    let crc = crc32c::crc32c(&out[at::ATTRIBUTES..]);
    put(&mut out, at::CRC, &crc.to_be_bytes());
    BytesMut::from(Bytes::from(out))
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

fn put_record(out: &mut Vec<u8>, record: &Record, offset_delta: i64) {
    let field_bytes = |field: &Option<Bytes>| {
        let len = field.as_ref().map_or(-1, |bytes| bytes.len() as i64);
        varint::len(len) + field.as_ref().map_or(0, Bytes::len)
    };
    // Attributes, a timestamp delta of zero and a header count of zero take one byte each.
    let length = 3 + varint::len(offset_delta) + field_bytes(&record.key) + field_bytes(&record.value);
    varint::put(out, length as i64);
    let begin = out.len();
    out.push(0);
    varint::put(out, 0);
    varint::put(out, offset_delta);
    for field in [&record.key, &record.value] {
        match field {
            None => varint::put(out, -1),
            Some(bytes) => {
                varint::put(out, bytes.len() as i64);
                out.extend_from_slice(bytes);
            }
        }
    }
    varint::put(out, 0);
    assert_eq!(out.len() - begin, length, "a record is as long as it says");
}

/// Stamps one or several batches that lie one behind the other with consecutive offsets from `base` and with `epoch`. Returns the offset after
/// the last. The CRC is not looked at. On an error nothing was changed.
pub fn stamp(batches: &mut [u8], base: Offset, epoch: Epoch) -> Result<Offset, BatchError> {
    let epoch = i32::try_from(epoch.0).map_err(|_| BatchError::Malformed("the epoch to stamp is above i32::MAX"))?;
    // All are read before the first is written, so that a malformed one leaves the others as they were.
    let mut places = Vec::new();
    let (mut position, mut next) = (0, base);
    loop {
        let raw = Raw::read(&batches[position..])?;
        places.push((position, next));
        next = offset_after(next, raw.count)?;
        position += raw.size_bytes;
        if position == batches.len() {
            break;
        }
    }
    for (position, base) in places {
        let base = i64::try_from(base).expect("offsets were checked above");
        put(batches, position + at::BASE, &base.to_be_bytes());
        put(batches, position + at::EPOCH, &epoch.to_be_bytes());
    }
    Ok(next)
}

fn offset_after(base: Offset, count: u64) -> Result<Offset, BatchError> {
    base.checked_add(count)
        .filter(|end| *end <= i64::MAX as u64)
        .ok_or(BatchError::Malformed("its offsets reach beyond i64::MAX"))
}

/// Reads the header of the batch at the beginning of `bytes`, which may be followed by more. The CRC is not looked at. A batch that was not yet
/// stamped is malformed.
pub fn header(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let raw = Raw::read(bytes)?;
    let base = u64::try_from(raw.base).map_err(|_| BatchError::Malformed("its base offset is negative"))?;
    let epoch = u32::try_from(raw.epoch).map_err(|_| BatchError::Malformed("it was not stamped with an epoch"))?;
    offset_after(base, raw.count)?;
    Ok(BatchHeader {
        base,
        epoch: Epoch(epoch),
        count: raw.count,
        control: raw.attributes & CONTROL != 0,
        max_timestamp_ms: raw.max_timestamp_ms,
        size_bytes: raw.size_bytes,
    })
}

/// Like [`header`], and checks the CRC.
pub fn check(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = header(bytes)?;
    let wanted = crc32c::crc32c(&bytes[at::ATTRIBUTES..header.size_bytes]);
    let found = u32::from_be_bytes(field(bytes, at::CRC));
    if wanted != found {
        return Err(BatchError::Checksum { wanted, found });
    }
    Ok(header)
}

/// Splits batches that lie one behind the other, without copying. The CRCs are not looked at. Ends after the first error.
pub fn split(batches: &Bytes) -> impl Iterator<Item = Result<(BatchHeader, Bytes), BatchError>> + use<> {
    let mut rest = batches.clone();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        Some(match header(&rest) {
            Ok(header) => Ok((header, rest.split_to(header.size_bytes))),
            Err(error) => {
                rest.clear();
                Err(error)
            }
        })
    })
}

/// The records of one batch, without copying. Compressed batches are refused as malformed: none are written yet. The CRC is not looked at.
pub fn records(batch: &Bytes) -> Result<Vec<Record>, BatchError> {
    let raw = Raw::read(batch)?;
    if raw.attributes & CODEC != 0 {
        return Err(BatchError::Malformed("it is compressed"));
    }
    let body = batch.slice(HEADER_BYTES..raw.size_bytes);
    if raw.count > (body.len() / RECORD_BYTES_MIN) as u64 {
        return Err(BatchError::Malformed("it counts more records than its bytes can hold"));
    }
    let mut records = Vec::with_capacity(raw.count as usize);
    let mut cursor = Cursor { bytes: body };
    for index in 0..raw.count {
        let length = cursor.length()?;
        let mut one = Cursor { bytes: cursor.take(length)? };
        records.push(one.record(index)?);
        if !one.bytes.is_empty() {
            return Err(BatchError::Malformed("a record is longer than its fields"));
        }
    }
    if !cursor.bytes.is_empty() {
        return Err(BatchError::Malformed("bytes follow its last record"));
    }
    Ok(records)
}

/// What a control batch says; `None` for one of a kind that this version does not know, which is skipped.
pub fn control(batch: &Bytes) -> Result<Option<Control>, BatchError> {
    if Raw::read(batch)?.attributes & CONTROL == 0 {
        return Err(BatchError::Malformed("it is not a control batch"));
    }
    let records = records(batch)?;
    let [record] = records.as_slice() else {
        return Err(BatchError::Malformed("a control batch has exactly one record"));
    };
    let key = record.key.as_deref().unwrap_or_default();
    if key.len() < 4 {
        return Err(BatchError::Malformed("a control record's key is below 4 bytes"));
    }
    let version = i16::from_be_bytes(field(key, 0));
    let kind = i16::from_be_bytes(field(key, 2));
    if version != CONTROL_KEY_VERSION || ![TYPE_EPOCH_START, TYPE_CONFIGURATION].contains(&kind) {
        return Ok(None);
    }
    let value = record.value.as_deref().unwrap_or_default();
    if value.len() < 2 {
        return Err(BatchError::Malformed("a control value has no version"));
    }
    // A kind that is known must be understood: to skip a newer configuration would be to count the wrong voters.
    if i16::from_be_bytes(field(value, 0)) != CONTROL_VALUE_VERSION {
        return Err(BatchError::Malformed("a control value is of a newer version"));
    }
    let voters = value[2..].chunks_exact(VOTER_BYTES);
    if !voters.remainder().is_empty() || (kind == TYPE_EPOCH_START && value.len() > 2) {
        return Err(BatchError::Malformed("a control value has a wrong length"));
    }
    Ok(Some(match kind {
        TYPE_EPOCH_START => Control::EpochStart,
        _ => Control::Configuration(
            voters
                .map(|voter| PeerId {
                    node: NodeId(u32::from_be_bytes(field(voter, 0))),
                    log: LogId(u64::from_be_bytes(field(voter, 4))),
                })
                .collect(),
        ),
    }))
}

/// The `N` bytes at `at`; the caller knows that they are there.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes is an array of N bytes")
}

/// A header as it lies in the bytes, stamped or not, its lengths and counts checked.
struct Raw {
    base: i64,
    epoch: i32,
    attributes: i16,
    max_timestamp_ms: i64,
    count: u64,
    size_bytes: usize,
}

impl Raw {
    fn read(bytes: &[u8]) -> Result<Raw, BatchError> {
        if bytes.len() < HEADER_BYTES {
            return Err(BatchError::Short { wanted: HEADER_BYTES, found: bytes.len() });
        }
        // The magic byte comes first: another version has its length elsewhere.
        if bytes[at::MAGIC] != MAGIC {
            return Err(BatchError::Malformed("its version is not 2"));
        }
        let size_bytes = usize::try_from(i32::from_be_bytes(field(bytes, at::LENGTH)))
            .map_err(|_| BatchError::Malformed("its length is negative"))?
            + LENGTH_COUNTS_FROM;
        if size_bytes < HEADER_BYTES {
            return Err(BatchError::Malformed("its length is below its header's"));
        }
        if size_bytes > bytes.len() {
            return Err(BatchError::Short { wanted: size_bytes, found: bytes.len() });
        }
        let last_delta = i32::from_be_bytes(field(bytes, at::LAST_OFFSET_DELTA));
        let count = u64::try_from(i64::from(last_delta) + 1)
            .ok()
            .filter(|count| *count > 0)
            .ok_or(BatchError::Malformed("its last offset delta is negative"))?;
        let records = i32::from_be_bytes(field(bytes, at::RECORD_COUNT));
        if u64::try_from(records).ok() != Some(count) {
            return Err(BatchError::Malformed("it has not as many records as offsets"));
        }
        Ok(Raw {
            base: i64::from_be_bytes(field(bytes, at::BASE)),
            epoch: i32::from_be_bytes(field(bytes, at::EPOCH)),
            attributes: i16::from_be_bytes(field(bytes, at::ATTRIBUTES)),
            max_timestamp_ms: i64::from_be_bytes(field(bytes, at::MAX_TIMESTAMP)),
            count,
            size_bytes,
        })
    }
}

/// Reads records off the front of a batch's body.
struct Cursor {
    bytes: Bytes,
}

impl Cursor {
    fn varint(&mut self) -> Result<i64, BatchError> {
        let (value, size) =
            varint::get(&self.bytes).ok_or(BatchError::Malformed("a number in a record is cut short or too large"))?;
        let _ = self.bytes.split_to(size);
        Ok(value)
    }

    /// A length that cannot be null.
    fn length(&mut self) -> Result<usize, BatchError> {
        usize::try_from(self.varint()?).map_err(|_| BatchError::Malformed("a length is negative"))
    }

    fn take(&mut self, len: usize) -> Result<Bytes, BatchError> {
        if len > self.bytes.len() {
            return Err(BatchError::Malformed("a record reaches beyond its batch"));
        }
        Ok(self.bytes.split_to(len))
    }

    /// Bytes with their length before them; null as -1.
    fn nullable(&mut self) -> Result<Option<Bytes>, BatchError> {
        match self.varint()? {
            -1 => Ok(None),
            len => {
                let len = usize::try_from(len).map_err(|_| BatchError::Malformed("a length is negative"))?;
                self.take(len).map(Some)
            }
        }
    }

    /// The fields of one record. Headers are read over: nothing here writes any.
    fn record(&mut self, offset_delta: u64) -> Result<Record, BatchError> {
        let _attributes = self.take(1)?;
        let _timestamp_delta = self.varint()?;
        if u64::try_from(self.varint()?).ok() != Some(offset_delta) {
            return Err(BatchError::Malformed("the offsets of its records do not rise by one"));
        }
        let key = self.nullable()?;
        let value = self.nullable()?;
        for _ in 0..self.length()? {
            let key_len = self.length()?;
            let _key = self.take(key_len)?;
            let _value = self.nullable()?;
        }
        Ok(Record { key, value })
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
