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
