//! Acknowledging, on both sides.
//!
//! A follower acknowledges only what is durable: an acknowledgement is owed from the moment of the append and leaves after the flush, on the stream
//! it is owed on and in no other epoch. While a stream is live the whole log is a prefix of the leader's, so whatever of it is durable may be
//! acknowledged at once.
//!
//! The leader counts an acknowledgement only of its own epoch, from the peer's present (incarnation, stream), and only if it accepted that stream:
//! what was acknowledged to it in an earlier epoch may have been cut since.

use highwater_wire::{Body, Offset, Sender, StreamId};

use crate::Effect;
use crate::state::{Part, Replica};

impl Replica {
    /// An acknowledgement of everything below `offset` is owed on the live stream.
    pub(crate) fn owe(&mut self, offset: Offset) {
        assert!(offset <= self.log.end, "only entries that are here are acknowledged");
        let following = self.part.following_mut().expect("a follower owes acknowledgements");
        let stream = following.stream.as_mut().expect("acknowledgements are owed on a stream");
        assert!(stream.live, "nothing is owed before the stream is accepted");
        stream.owed = Some(offset);
    }

    /// Acknowledges if everything that is owed is durable.
    pub(crate) fn acknowledge(&mut self, out: &mut Vec<Effect>) {
        if self.stream().and_then(|stream| stream.owed).is_some_and(|owed| owed <= self.log.flushed) {
            self.acknowledge_durable(out);
        }
    }

    /// Acknowledges what is durable, if anything is owed; what is not stays owed.
    fn acknowledge_durable(&mut self, out: &mut Vec<Effect>) {
        let (leo, applied) = (self.log.flushed, self.applied);
        let Part::Follower(following) = &mut self.part else { return };
        let Some(stream) = &mut following.stream else { return };
        let Some(owed) = stream.owed else { return };
        assert!(stream.live, "nothing is owed before the stream is accepted");
        if owed <= leo {
            stream.owed = None;
        }
        let (node, id) = (following.leader.node, stream.id);
        self.send(node, Body::Ack { stream: id, leo, applied }, out);
    }

    /// The log is durable up to `offset`.
    pub(crate) fn flushed(&mut self, offset: Offset, out: &mut Vec<Effect>) {
        assert!(offset <= self.log.end, "{offset} was flushed, which is beyond the end {}", self.log.end);
        if offset <= self.log.flushed {
            return;
        }
        self.log.flushed = offset;
        self.acknowledge_durable(out);
        self.follow_high_watermark(out);
        self.advance_high_watermark(out);
    }

    /// A follower acknowledges, in this leader's own epoch.
    pub(crate) fn count_ack(
        &mut self,
        sender: Sender,
        id: StreamId,
        leo: Offset,
        applied: Offset,
        out: &mut Vec<Effect>,
    ) {
        let (end, now) = (self.log.end, self.timers.now);
        let Some(leading) = self.part.leading_mut() else { return };
        let Some(peer) = leading.peers.get_mut(&sender.peer) else { return };
        let present =
            peer.stream.is_some_and(|(incarnation, stream, _)| (incarnation, stream) == (sender.incarnation, id));
        if !present || !peer.accepted {
            return;
        }
        assert!(leo <= end, "what is beyond the end was judged unfit before");
        peer.heard_at = now;
        peer.applied = peer.applied.max(applied);
        peer.acked = peer.acked.max(leo);
        while peer.in_flight.front().is_some_and(|(upto, _)| *upto <= leo) {
            peer.in_flight.pop_front();
        }
        self.advance_high_watermark(out);
        self.admit(out);
        self.pump(out);
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{Body, CommitRule};

    use crate::bench::{Bench, stream_of};

    #[test]
    fn nothing_is_acknowledged_before_it_is_durable() {
        let mut bench = Bench::appointed(2, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1]);
        bench.settle();
        bench.write(0).expect("both are in reach");
        bench.flush(0);
        bench.deliver();
        assert_eq!((bench.ends(), bench.hws()), (vec![2, 2], vec![1, 1]));
        bench.flush(1);
        assert_eq!(bench.under_way(0), [Body::Ack { stream: stream_of(1, 1), leo: 2, applied: 0 }]);
        bench.deliver();
        assert_eq!(bench.hws(), [2, 2]);
    }

    #[test]
    fn the_leaders_own_part_waits_for_its_own_flush() {
        let mut bench = Bench::appointed(2, CommitRule::Quorum { q: 1 });
        bench.appoint(0, 1, &[0, 1]);
        bench.settle();
        bench.write(0).expect("the leader alone is enough");
        bench.deliver();
        bench.flush(1);
        bench.deliver();
        assert_eq!(bench.hws(), [1, 1], "one copy is durable, but HW does not pass the leader's own LEO");
        bench.flush(0);
        assert_eq!(bench.hws()[0], 2);
    }

    #[test]
    fn acknowledgements_of_another_stream_or_incarnation_do_not_count() {
        let mut bench = Bench::appointed(2, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1]);
        bench.deliver();
        bench.flush(0);
        bench.receive(0, 1, 1, Body::Ack { stream: stream_of(1, 7), leo: 1, applied: 0 });
        assert_eq!(bench.hws()[0], 0);
        bench.restart(1);
        bench.receive(0, 1, 1, Body::Ack { stream: stream_of(1, 1), leo: 1, applied: 0 });
        assert_eq!(bench.hws()[0], 0);
    }

    #[test]
    fn the_offset_of_an_open_is_no_acknowledgement() {
        let mut bench = Bench::appointed(2, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1]);
        bench.settle();
        bench.write(0).expect("both are in reach");
        bench.deliver();
        bench.flush(0);
        bench.step(1, crate::Input::Disconnected(highwater_wire::NodeId(0)));
        bench.deliver();
        assert_eq!((bench.ends(), bench.hws()), (vec![2, 2], vec![1, 1]), "it was stated, and is not durable");
    }
}
