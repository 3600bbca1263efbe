//! Kafka's record batch, version 2: the unit of append, checksum and shipping. The leader stamps base offset and epoch, which lie outside the
//! CRC, in place; everybody stores and forwards the rest unchanged.

use bytes::{Bytes, BytesMut};

use crate::ids::{Epoch, Offset, PeerId};

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
    let _ = (records, timestamp_ms);
    todo!()
}

/// Builds a control batch of one record, not yet stamped.
pub fn build_control(control: &Control, timestamp_ms: i64) -> BytesMut {
    let _ = (control, timestamp_ms);
    todo!()
}

/// Stamps one or several batches that lie one behind the other with consecutive offsets from `base` and with `epoch`. Returns the offset after
/// the last. The CRC is not looked at.
pub fn stamp(batches: &mut [u8], base: Offset, epoch: Epoch) -> Result<Offset, BatchError> {
    let _ = (batches, base, epoch);
    todo!()
}

/// Reads the header of the batch at the beginning of `bytes`, which may be followed by more. The CRC is not looked at.
pub fn header(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let _ = bytes;
    todo!()
}

/// Like [`header`], and checks the CRC.
pub fn check(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let _ = bytes;
    todo!()
}

/// Splits batches that lie one behind the other, without copying. Ends after the first error.
pub fn split(batches: &Bytes) -> impl Iterator<Item = Result<(BatchHeader, Bytes), BatchError>> {
    let _ = batches;
    std::iter::empty()
}

/// The records of one batch, without copying. Compressed batches are refused as malformed: none are written yet.
pub fn records(batch: &Bytes) -> Result<Vec<Record>, BatchError> {
    let _ = batch;
    todo!()
}

/// What a control batch says; `None` for one of a kind that this version does not know, which is skipped.
pub fn control(batch: &Bytes) -> Result<Option<Control>, BatchError> {
    let _ = batch;
    todo!()
}
