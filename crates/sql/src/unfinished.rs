//! Putting transactions together from the records of batches.
//!
//! A transaction may span batches, and what a replica is given may end within one. Only whole transactions are applied; the rest waits here. A new epoch
//! ends an unfinished one: its leader is gone, and its successor does not know how it would have gone on.

use bytes::Bytes;
use highwater_wire::batch::{self, BatchHeader};
use highwater_wire::record::{Kind, RecordHeader};
use highwater_wire::{Epoch, Offset};

use crate::error::MachineError;

/// A whole transaction, or a stretch of the log that holds none.
#[derive(Debug)]
pub(crate) struct Whole {
    /// The offset after its last entry.
    pub(crate) end: Offset,
    /// The epoch of that entry.
    pub(crate) epoch: Epoch,
    /// The timestamp of the batch with that entry.
    pub(crate) timestamp_ms: i64,
    /// Its records, headers taken off. Empty for control batches.
    pub(crate) records: Vec<(Kind, Bytes)>,
}

/// Records whose transaction has not ended.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    records: Vec<(Kind, Bytes)>,
    epoch: Option<Epoch>,
    /// Everything below it has been taken in; never below what is applied.
    taken: Offset,
}

impl Unfinished {
    /// Nothing waits, and everything below `end` is applied.
    pub(crate) fn reset(&mut self, end: Offset) {
        *self = Unfinished { taken: end, ..Unfinished::default() };
    }

    /// Takes in entries below `to`, skipping those taken in before, and gives back what is whole.
    pub(crate) fn take(&mut self, to: Offset, batches: &Bytes) -> Result<Vec<Whole>, MachineError> {
        let mut whole = Vec::new();
        for split in batch::split(batches) {
            let unreadable = |reason: String| MachineError::Unreadable { offset: self.taken, reason };
            let (header, bytes) = split.map_err(|error| unreadable(error.to_string()))?;
            if header.base + header.count <= self.taken {
                continue;
            }
            if header.base >= to {
                break;
            }
            if header.base > self.taken {
                return Err(unreadable(format!("the next batch begins at {}", header.base)));
            }
            if self.epoch != Some(header.epoch) {
                self.records.clear();
                self.epoch = Some(header.epoch);
            }
            if header.control {
                self.records.clear();
                self.taken = header.base + header.count;
                whole.push(Self::whole(&header, self.taken, Vec::new()));
                continue;
            }
            self.take_records(&header, &bytes, to, &mut whole)?;
        }
        Ok(whole)
    }

    fn take_records(
        &mut self,
        header: &BatchHeader,
        bytes: &Bytes,
        to: Offset,
        whole: &mut Vec<Whole>,
    ) -> Result<(), MachineError> {
        let unreadable = |offset: Offset, reason: String| MachineError::Unreadable { offset, reason };
        let records = batch::records(bytes).map_err(|error| unreadable(header.base, error.to_string()))?;
        for (offset, record) in (header.base..).zip(records) {
            if offset < self.taken {
                continue;
            }
            if offset >= to {
                break;
            }
            let value = record.value.ok_or_else(|| unreadable(offset, "a record without a value".to_string()))?;
            let (record, payload) =
                RecordHeader::decode(&value).map_err(|error| unreadable(offset, error.to_string()))?;
            let payload = value.slice(value.len() - payload.len()..);
            self.records.push((record.kind, payload));
            self.taken = offset + 1;
            if record.ends_transaction {
                whole.push(Self::whole(header, self.taken, std::mem::take(&mut self.records)));
            }
        }
        Ok(())
    }

    fn whole(header: &BatchHeader, end: Offset, records: Vec<(Kind, Bytes)>) -> Whole {
        Whole { end, epoch: header.epoch, timestamp_ms: header.max_timestamp_ms, records }
    }

    /// The end of what was taken in, and its epoch if anything was since the last reset.
    pub(crate) fn taken(&self) -> (Offset, Option<Epoch>) {
        (self.taken, self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use highwater_wire::batch::{Control, Record, build, build_control, stamp};

    use super::*;

    /// A batch of records, of which those marked end their transactions.
    fn batch(base: Offset, epoch: u32, ends: &[bool]) -> (Offset, Bytes) {
        let records: Vec<Record> = ends
            .iter()
            .map(|ends| {
                let mut value = Vec::new();
                RecordHeader { kind: Kind::Row, ends_transaction: *ends, ack: None }.encode_into(&mut value);
                value.push(base as u8);
                Record { key: None, value: Some(value.into()) }
            })
            .collect();
        stamped(build(&records, 7), base, epoch)
    }

    fn stamped(mut batch: BytesMut, base: Offset, epoch: u32) -> (Offset, Bytes) {
        let end = stamp(&mut batch, base, Epoch(epoch)).unwrap();
        (end, batch.freeze())
    }

    fn ends(whole: &[Whole]) -> Vec<(Offset, usize)> {
        whole.iter().map(|whole| (whole.end, whole.records.len())).collect()
    }

    #[test]
    fn a_transaction_that_spans_batches_and_calls_comes_out_whole() {
        let mut unfinished = Unfinished::default();
        let (_, first) = batch(0, 1, &[true, false]);
        let (_, second) = batch(2, 1, &[false, true, false]);
        assert_eq!(ends(&unfinished.take(1, &first).unwrap()), [(1, 1)]);
        assert_eq!(ends(&unfinished.take(2, &first).unwrap()), [], "what was taken in is skipped");
        assert_eq!(ends(&unfinished.take(3, &second).unwrap()), []);
        assert_eq!(ends(&unfinished.take(5, &second).unwrap()), [(4, 3)]);
        assert_eq!(unfinished.taken(), (5, Some(Epoch(1))));
    }

    #[test]
    fn a_new_epoch_ends_what_was_unfinished() {
        for control in [false, true] {
            let mut unfinished = Unfinished::default();
            let (_, first) = batch(0, 1, &[false, false]);
            unfinished.take(2, &first).unwrap();
            let (base, whole) = if control {
                let (end, bytes) = stamped(build_control(&Control::EpochStart, 7), 2, 2);
                (end, unfinished.take(end, &bytes).unwrap())
            } else {
                (2, Vec::new())
            };
            assert_eq!(ends(&whole), if control { vec![(3, 0)] } else { vec![] });
            let (end, next) = batch(base, 2, &[true]);
            assert_eq!(ends(&unfinished.take(end, &next).unwrap()), [(end, 1)]);
        }
    }

    #[test]
    fn a_gap_and_a_record_that_cannot_be_read_are_errors() {
        let mut unfinished = Unfinished::default();
        let (end, later) = batch(3, 1, &[true]);
        assert!(matches!(unfinished.take(end, &later), Err(MachineError::Unreadable { offset: 0, .. })));
        let record = Record { key: None, value: Some(Bytes::from_static(b"\xffunknown")) };
        let (end, unknown) = stamped(build(&[record], 7), 0, 1);
        assert!(matches!(unfinished.take(end, &unknown), Err(MachineError::Unreadable { offset: 0, .. })));
        let empty = Record { key: None, value: None };
        let (end, empty) = stamped(build(&[empty], 7), 0, 1);
        assert!(unfinished.take(end, &empty).is_err());
    }
}
