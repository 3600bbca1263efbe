//! What the log's tests share: batches, small segments, and how a log looks from outside.

use bytes::{Bytes, BytesMut};
use highwater_log::mem::MemIo;
use highwater_log::{Log, LogError, LogStore, Options};
use highwater_wire::batch::{self, Record};
use highwater_wire::{Epoch, LogId, Offset};

pub(crate) const LOG_ID: LogId = LogId(0x10c);

/// Small, so that a handful of batches makes several segments.
pub(crate) const OPTIONS: Options =
    Options { segment_bytes: 4096 + 1024, zero_bytes: 512, cache_bytes: 600, create: true };

pub(crate) fn open(io: &MemIo) -> Log<MemIo> {
    match Log::open(io.clone(), OPTIONS, LOG_ID) {
        Ok(log) => log,
        Err(error) => panic!("the log opens: {error}"),
    }
}

/// One stamped batch of that many records, each of that many bytes.
pub(crate) fn stamped(base: Offset, epoch: u32, records: usize, bytes: usize) -> Bytes {
    let record = |index: usize| {
        let fill = (base as usize + index + epoch as usize * 7) as u8;
        Record { key: None, value: Some(Bytes::from(vec![fill; bytes])) }
    };
    let records: Vec<_> = (0..records).map(record).collect();
    let mut batch = batch::build(&records, 1_000 + i64::from(epoch));
    batch::stamp(&mut batch, base, Epoch(epoch)).expect("what was built can be stamped");
    batch.freeze()
}

/// Several, one behind the other.
pub(crate) fn several(base: Offset, epoch: u32, sizes: &[usize]) -> Bytes {
    let mut out = BytesMut::new();
    for (index, bytes) in sizes.iter().enumerate() {
        out.extend_from_slice(&stamped(base + index as u64, epoch, 1, *bytes));
    }
    out.freeze()
}

/// Flushes everything, as the flush thread would.
pub(crate) fn flush<L>(log: &mut L) -> Result<Offset, LogError>
where
    L: LogStore<FlushJob = highwater_log::FlushJob<highwater_log::mem::MemFile>>,
{
    match log.begin_flush() {
        Some(job) => log.finish_flush(job.run()),
        None => Ok(log.shape().flushed),
    }
}

/// Every batch of a log, read in pieces of at most `max_bytes`.
pub(crate) fn batches(log: &impl LogStore, max_bytes: usize) -> Result<Vec<Bytes>, LogError> {
    let mut next = log.shape().start;
    let mut all = Vec::new();
    while next < log.shape().end {
        let read = log.read(next, max_bytes)?;
        assert!(!read.is_empty(), "there is a batch at {next}");
        for part in batch::split(&read) {
            let (header, bytes) = part.expect("what is read are batches");
            assert_eq!(header.base, next, "batches follow each other");
            next += header.count;
            all.push(bytes);
        }
    }
    Ok(all)
}
