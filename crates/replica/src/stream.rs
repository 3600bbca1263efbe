//! A follower's stream: opened with a question, live once accepted, opened anew when it breaks.
//!
//! The question states the append end of the log and the epoch of its last entry (an unflushed tail is stated, not hidden: it might survive under
//! the new leader's entries). Each question has a stream id of its own, and only an answer to the present one counts: the log may have
//! changed and come back to the same length meanwhile. The stated offset is never an acknowledgement, since it may be about to be cut.

use highwater_wire::{Body, Epoch, Offset, PeerId, StreamId};

use crate::Effect;
use crate::state::{Part, Replica, Stream};

impl Replica {
    /// The follower's stream, if it has one.
    pub(crate) fn stream(&self) -> Option<&Stream> {
        match &self.part {
            Part::Follower(following) => following.stream.as_ref(),
            _ => None,
        }
    }

    /// The follower's stream, if `id` is it and `from` is the leader it goes to.
    pub(crate) fn stream_of(&mut self, from: PeerId, id: StreamId) -> Option<&mut Stream> {
        let following = self.part.following_mut()?;
        if following.leader != from {
            return None;
        }
        following.stream.as_mut().filter(|stream| stream.id == id)
    }

    /// Opens a new stream to the leader; the one before, with what it owed, is void.
    pub(crate) fn open(&mut self, out: &mut Vec<Effect>) {
        let asked = (self.log.end, self.log.last_epoch());
        let id = StreamId(self.last_stream.0 + 1);
        let following = self.part.following_mut().expect("a follower opens streams");
        assert!(following.stream.as_ref().is_none_or(|old| old.id < id), "stream ids grow");
        assert!(id.number() > 0, "streams of one process are numbered by 32 bits");
        following.stream = Some(Stream { id, live: false, asked, told: 0, owed: None });
        self.last_stream = id;
        self.timers.stream_at = self.timers.now;
        self.ask_stream(out);
    }

    /// Sends the stream's question, again if need be: the same question gets the same answer.
    pub(crate) fn ask_stream(&self, out: &mut Vec<Effect>) {
        let Part::Follower(following) = &self.part else { panic!("a follower opens streams") };
        let stream = following.stream.as_ref().expect("a question belongs to a stream");
        let (end, last_epoch) = stream.asked;
        self.send(following.leader.node, Body::Open { stream: stream.id, end, last_epoch }, out);
    }

    /// Ends the stream, with everything that is owed on it. It is opened anew at the next heartbeat, if not before.
    pub(crate) fn end_stream(&mut self) {
        if let Some(following) = self.part.following_mut() {
            following.stream = None;
        }
    }

    /// The leader accepted the question: the log is a prefix of the leader's, and an acknowledgement of its present end is owed.
    pub(crate) fn accept(
        &mut self,
        from: PeerId,
        id: StreamId,
        asked: (Offset, Option<Epoch>),
        hw: Offset,
        out: &mut Vec<Effect>,
    ) {
        let end = self.log.end;
        let Some(stream) = self.stream_of(from, id) else { return };
        if stream.live || stream.asked != asked {
            return;
        }
        assert_eq!(asked.0, end, "a log stands still while its question is out");
        stream.live = true;
        stream.told = hw;
        stream.owed = Some(end);
        self.timers.stream_at = self.timers.now;
        self.hear_leader();
        self.acknowledge(out);
        self.follow_high_watermark(out);
    }

    /// The leader says where the logs part: cut there, and ask again.
    pub(crate) fn diverge(
        &mut self,
        from: PeerId,
        id: StreamId,
        asked: (Offset, Option<Epoch>),
        theirs: (Option<Epoch>, Offset),
        out: &mut Vec<Effect>,
    ) {
        let question = (self.log.last_epoch(), self.log.end);
        match self.stream_of(from, id) {
            Some(stream) if !stream.live && stream.asked == asked => {}
            _ => return,
        }
        let to = self.where_to_cut(theirs.0, theirs.1);
        assert!(to < self.log.end, "a cut to {to} takes nothing away from {:?}", self.log);
        self.cut(to, out);
        assert!((self.log.last_epoch(), self.log.end) < question, "each round lowers (last epoch, end)");
        self.hear_leader();
        self.open(out);
    }

    /// The connection to the leader, or from a follower, broke: what was under way on it will not arrive. Only a live stream is opened anew at once: a
    /// question that is still out is repeated at heartbeats, or a leader that is gone would be asked as fast as connections are refused.
    pub(crate) fn disconnected(&mut self, node: highwater_wire::NodeId, out: &mut Vec<Effect>) {
        match &mut self.part {
            Part::Follower(following)
                if following.leader.node == node && following.stream.as_ref().is_some_and(|stream| stream.live) =>
            {
                self.open(out);
            }
            Part::Leader(leading) => {
                for (_, peer) in leading.peers.iter_mut().filter(|(peer, _)| peer.node == node) {
                    peer.live = false;
                    peer.shipping = false;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{Body, CommitRule, Epoch};

    use crate::bench::{Bench, stream_of};
    use crate::{Input, Timeout};

    /// Replica 0 leads epoch 1, replica 1 has one more entry than was ever committed; then 2 leads epoch 2.
    fn parted() -> Bench {
        let mut bench = Bench::appointed(3, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1, 2]);
        bench.settle();
        bench.write(0).expect("all are in reach");
        bench.wire.retain(|(to, _)| *to == 1);
        bench.deliver();
        bench.flush(1);
        bench.wire.clear();
        assert_eq!(bench.ends(), [2, 2, 1]);
        bench.appoint(2, 2, &[2, 0]);
        bench.flush(2);
        bench
    }

    #[test]
    fn logs_that_parted_become_one() {
        let mut bench = parted();
        let lead = bench.lead(2);
        bench.tell(&[1], 2, &lead);
        bench.settle();
        assert_eq!((bench.ends(), bench.hws()), (vec![2, 2, 2], vec![2, 2, 2]));
        let shapes: Vec<_> = bench.replicas.iter().map(|replica| replica.shape().epochs.clone()).collect();
        assert_eq!(shapes, vec![vec![(Epoch(1), 0), (Epoch(2), 1)]; 3]);
    }

    #[test]
    fn an_answer_to_another_question_is_dead() {
        let mut bench = parted();
        bench.wire.clear();
        let diverge = |stream, end| Body::Diverge {
            stream: stream_of(1, stream),
            end,
            last_epoch: Some(Epoch(1)),
            epoch: Some(Epoch(1)),
            stop: 1,
        };
        bench.receive(0, 2, 2, diverge(9, 2));
        bench.receive(0, 2, 2, diverge(1, 3));
        bench.receive(0, 1, 2, diverge(1, 2));
        assert_eq!(bench.ends()[0], 2, "another stream, another end, another sender");
        bench.receive(0, 2, 2, diverge(1, 2));
        assert_eq!(bench.ends()[0], 1);
    }

    #[test]
    fn silence_opens_the_stream_anew_and_asks_who_leads() {
        let mut bench = Bench::appointed(2, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1]);
        bench.settle();
        bench.step(1, Input::Timeout(Timeout::Silent));
        assert_eq!(bench.under_way(0), [Body::Open { stream: stream_of(1, 2), end: 1, last_epoch: Some(Epoch(1)) }]);
        assert_eq!(bench.coordinator.pop().map(|envelope| envelope.body), Some(Body::WhoLeads));
        bench.settle();
        assert!(bench.replicas[1].stream_is_live());
    }

    /// Both processes of replica 1 ask the same question on their first stream. The leader has heard the earlier one, and does not count what the later
    /// one acknowledges: were its answer taken, both ends would believe in a stream on which nothing is ever counted.
    #[test]
    fn an_answer_to_the_process_before_a_restart_is_dead() {
        let mut bench = Bench::appointed(2, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1]);
        let lead = bench.lead(0);
        let (to, question) = bench.wire.pop_front().expect("replica 1 opens a stream");
        bench.step(to, Input::Message(question));
        bench.restart(1);
        bench.tell(&[1], 1, &lead);
        bench.wire.retain(|(to, _)| *to == 1);
        bench.deliver();
        assert!(!bench.replicas[1].stream_is_live());
        bench.step(1, Input::Timeout(Timeout::Heartbeat));
        bench.settle();
        assert_eq!((bench.ends(), bench.hws()), (vec![1, 1], vec![1, 1]), "its own question is answered");
    }
}
