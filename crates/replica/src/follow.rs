//! Copying: a follower takes batches from its live stream.
//!
//! A batch that begins at the log's end is appended, and an acknowledgement of the new end is owed. One that begins before it has been here
//! already and is ignored. One that begins behind it shows that something was lost on the way: the stream ends and is opened anew. An empty batch
//! brings news of HW, or is a heartbeat; it too states the leader's next offset for this stream, so a lost last batch is noticed.

use bytes::Bytes;
use highwater_wire::batch;
use highwater_wire::{Epoch, Offset, PeerId, StreamId};

use crate::Effect;
use crate::state::Replica;

impl Replica {
    /// Entries, or none, on stream `id` from `from`, in the promised epoch.
    pub(crate) fn take_batch(
        &mut self,
        from: PeerId,
        id: StreamId,
        base: Offset,
        batches: Bytes,
        hw: Offset,
        out: &mut Vec<Effect>,
    ) {
        let end = self.log.end;
        let Some(stream) = self.stream_of(from, id).filter(|stream| stream.live) else { return };
        if base < end {
            return;
        }
        if base > end {
            self.open(out);
            return;
        }
        let news = hw > stream.told;
        stream.told = stream.told.max(hw);
        // Only a batch that brings nothing else is a heartbeat; answering news of HW as well would double the messages of every write.
        let heartbeat = batches.is_empty() && !news;
        self.timers.stream_at = self.timers.now;
        self.hear_leader();
        if !batches.is_empty() {
            let Some(runs) = self.epochs_of(&batches, end) else {
                self.end_stream();
                return;
            };
            for (epoch, count) in runs {
                self.log.append(epoch, count);
            }
            assert!(self.log.end > end, "batches that are not empty have entries");
            out.push(Effect::Append(batches));
        }
        if heartbeat || self.log.end > end {
            self.owe(self.log.end);
            self.acknowledge(out);
        }
        self.follow_high_watermark(out);
    }

    /// The (epoch, number of entries) of each batch; none if these are not whole, unbroken batches that may follow on this log's end.
    fn epochs_of(&self, batches: &Bytes, end: Offset) -> Option<Vec<(Epoch, u64)>> {
        assert!(!batches.is_empty(), "there are batches");
        let (mut next, mut last) = (end, self.log.last_epoch());
        let mut runs = Vec::new();
        for item in batch::split(batches) {
            let (_, bytes) = item.ok()?;
            let header = batch::check(&bytes).ok()?;
            if header.base != next || Some(header.epoch) < last || Some(header.epoch) > self.hard.promised {
                return None;
            }
            next += header.count;
            last = Some(header.epoch);
            runs.push((header.epoch, header.count));
        }
        Some(runs).filter(|runs| !runs.is_empty())
    }
}
