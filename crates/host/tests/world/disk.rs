//! A node's disk in memory: logs that lose what was not flushed when the node crashes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use highwater_host::Folders;
use highwater_log::{FlushDone, LogError, LogStore};
use highwater_wire::{HardState, LogId, LogShape, Offset, PartitionId, batch};

#[derive(Clone, Debug, Default)]
struct Stored {
    hard: HardState,
    batches: Vec<(Offset, Bytes)>,
    flushed: Offset,
}

/// All logs of one node.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    logs: Rc<RefCell<BTreeMap<PartitionId, Stored>>>,
    pub broken: Rc<RefCell<Option<PartitionId>>>,
}

impl Disk {
    /// The power fails: what was not flushed is gone.
    pub fn crash(&self) {
        for stored in self.logs.borrow_mut().values_mut() {
            let flushed = stored.flushed;
            stored.batches.retain(|(base, _)| *base < flushed);
        }
    }

    /// The bytes of a log, batch by batch.
    pub fn batches(&self, id: PartitionId) -> Vec<Bytes> {
        let logs = self.logs.borrow();
        logs.get(&id).map(|stored| stored.batches.iter().map(|(_, bytes)| bytes.clone()).collect()).unwrap_or_default()
    }
}

impl Folders for Disk {
    type Log = MemLog;

    fn open(&mut self, partition: PartitionId, _: &str, _: LogId) -> Result<MemLog, LogError> {
        if *self.broken.borrow() == Some(partition) {
            return Err(LogError::Poisoned("the folder cannot be read".into()));
        }
        let mut logs = self.logs.borrow_mut();
        let stored = logs.entry(partition).or_default();
        let mut shape = LogShape::default();
        for (_, bytes) in &stored.batches {
            let header = batch::header(bytes).expect("whole batches are stored");
            shape.append(header.epoch, header.count);
        }
        shape.flushed = shape.end;
        stored.flushed = shape.end;
        let hard = stored.hard.clone();
        Ok(MemLog { disk: self.clone(), partition, shape, hard, generation: 0, flushing: false })
    }
}

/// One of them, open.
#[derive(Debug)]
pub struct MemLog {
    disk: Disk,
    partition: PartitionId,
    shape: LogShape,
    hard: HardState,
    generation: u64,
    flushing: bool,
}

impl MemLog {
    fn stored<T>(&self, f: impl FnOnce(&mut Stored) -> T) -> T {
        f(self.disk.logs.borrow_mut().get_mut(&self.partition).expect("an open log is stored"))
    }
}

impl LogStore for MemLog {
    type FlushJob = FlushDone;

    fn shape(&self) -> &LogShape {
        &self.shape
    }

    fn hard_state(&self) -> &HardState {
        &self.hard
    }

    fn persist(&mut self, hard: &HardState) -> Result<(), LogError> {
        self.hard = hard.clone();
        self.stored(|stored| stored.hard = hard.clone());
        Ok(())
    }

    fn reserve(&mut self, _: usize) -> Result<(), LogError> {
        Ok(())
    }

    fn append(&mut self, batches: &Bytes) -> Result<(), LogError> {
        for split in batch::split(batches) {
            let (header, bytes) = split.expect("whole batches are appended");
            assert_eq!(header.base, self.shape.end, "appends are at the end");
            self.shape.append(header.epoch, header.count);
            self.stored(|stored| stored.batches.push((header.base, bytes)));
        }
        Ok(())
    }

    fn cut(&mut self, to: Offset) -> Result<(), LogError> {
        self.shape.cut(to);
        self.generation += 1;
        let flushed = self.shape.flushed;
        self.stored(|stored| {
            stored.batches.retain(|(base, _)| *base < to);
            stored.flushed = flushed;
        });
        Ok(())
    }

    fn read(&self, from: Offset, max_bytes: usize) -> Result<Bytes, LogError> {
        let mut bytes = BytesMut::new();
        self.stored(|stored| {
            for (_, next) in stored.batches.iter().filter(|(base, _)| *base >= from) {
                if !bytes.is_empty() && bytes.len() + next.len() > max_bytes {
                    break;
                }
                bytes.extend_from_slice(next);
            }
        });
        Ok(bytes.freeze())
    }

    fn begin_flush(&mut self) -> Option<FlushDone> {
        if self.flushing || self.shape.flushed == self.shape.end {
            return None;
        }
        self.flushing = true;
        Some(FlushDone { end: self.shape.end, generation: self.generation, result: Ok(()) })
    }

    fn finish_flush(&mut self, done: FlushDone) -> Result<Offset, LogError> {
        self.flushing = false;
        done.result?;
        if done.generation == self.generation {
            self.shape.flushed = done.end;
            self.stored(|stored| stored.flushed = done.end);
        }
        Ok(self.shape.flushed)
    }
}
