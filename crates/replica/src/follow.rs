//! Copying: a follower takes batches from its live stream.
//!
//! A batch that begins at the log's end is appended, and an acknowledgement of the new end is owed. One that begins before it has been here
//! already and is ignored. One that begins behind it shows that something was lost on the way: the stream ends and is opened anew. An empty batch
//! brings news of HW, or is a heartbeat; it too states the leader's next offset for this stream, so a lost last batch is noticed.

use bytes::Bytes;
use highwater_wire::batch;
use highwater_wire::{Epoch, Offset, PeerId, StreamId, Unfit};

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
        if self.stream_of(from, id).is_none_or(|stream| !stream.live) {
            return;
        }
        if base < end {
            return;
        }
        if base > end {
            self.open(out);
            return;
        }
        let runs = self.epochs_of(&batches, end);
        let Ok(runs) = runs.map_err(|unfit| out.push(Effect::Reject(from.node, unfit))) else {
            self.end_stream();
            return;
        };
        let Some(stream) = self.stream_of(from, id) else { return };
        let news = hw > stream.told;
        stream.told = stream.told.max(hw);
        // Only a batch that brings nothing else is a heartbeat; answering news of HW as well would double the messages of every write.
        let heartbeat = batches.is_empty() && !news;
        self.timers.stream_at = self.timers.now;
        self.hear_leader();
        if !batches.is_empty() {
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

    /// The (epoch, number of entries) of each batch. Refused are any that are not whole, unbroken batches that may follow on this log's end.
    fn epochs_of(&self, batches: &Bytes, end: Offset) -> Result<Vec<(Epoch, u64)>, Unfit> {
        let (mut next, mut last) = (end, self.log.last_epoch());
        let mut runs = Vec::new();
        for item in batch::split(batches) {
            let checked = item.and_then(|(_, bytes)| batch::check(&bytes));
            let header = checked.map_err(|error| Unfit::new("entries come as whole and sound batches", error))?;
            let follows = header.base == next && Some(header.epoch) >= last && Some(header.epoch) <= self.hard.promised;
            Unfit::unless(follows, "batches follow each other in offsets and epochs", (next, last, header))?;
            next += header.count;
            last = Some(header.epoch);
            runs.push((header.epoch, header.count));
        }
        Ok(runs)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use highwater_wire::{Body, CommitRule};

    use crate::bench::{Bench, stream_of};

    fn follower() -> Bench {
        let mut bench = Bench::appointed(2, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1]);
        bench.settle();
        assert_eq!(bench.ends(), [1, 1]);
        bench
    }

    #[test]
    fn a_batch_taken_twice_is_there_once() {
        let mut bench = follower();
        bench.write(0).expect("both are in reach");
        let twice = bench.wire.clone();
        bench.wire.extend(twice);
        bench.settle();
        assert_eq!((bench.ends(), bench.hws()), (vec![2, 2], vec![2, 2]));
    }

    #[test]
    fn a_gap_opens_the_stream_anew_and_even_a_heartbeat_shows_it() {
        let mut bench = follower();
        bench.write(0).expect("both are in reach");
        bench.wire.clear();
        bench.step(0, crate::Input::Timeout(crate::Timeout::Heartbeat));
        bench.deliver();
        assert_eq!(bench.ends(), [2, 2], "the lost batch came on the new stream");
    }

    #[test]
    fn bytes_that_are_no_batches_end_the_stream_and_are_not_appended() {
        let mut bench = follower();
        let batches = Bytes::from_static(b"not a batch");
        bench.receive(1, 0, 1, Body::Batch { stream: stream_of(1, 1), base: 1, batches, hw: 9, start: 0 });
        assert_eq!(bench.ends()[1], 1);
        assert!(!bench.replicas[1].stream_is_live());
    }
}
