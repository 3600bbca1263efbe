//! Where a follower's log parts from its leader's, found by epochs and never by HW (KIP-101, and KIP-279 for logs that parted more than once).
//!
//! The leader looks up the greatest of its epochs that is not above the follower's last one, and where that epoch ends. If it is the
//! follower's own last epoch and reaches as far as the follower's log, the follower's log is a prefix. Otherwise the follower cuts: holding
//! entries of that epoch, to the lesser of both ends of it; not holding any, to the first offset of its first later epoch. Then it asks again;
//! each round lowers (last epoch, end), at most once for each epoch the follower holds.

use highwater_wire::{Body, Epoch, Offset, Sender, StreamId};

use crate::Effect;
use crate::state::Replica;

impl Replica {
    /// A follower asks to be served from `asked` on, in this replica's promised epoch.
    pub(crate) fn serve_stream(
        &mut self,
        sender: Sender,
        id: StreamId,
        asked: (Offset, Option<Epoch>),
        out: &mut Vec<Effect>,
    ) {
        let (start, hw, now) = (self.log.start, self.hw, self.timers.now);
        let parting = self.where_logs_part(asked.0, asked.1);
        let Some(leading) = self.part.leading_mut() else { return };
        let Some(peer) = leading.peers.get_mut(&sender.peer) else { return };
        if asked.0 < start {
            return; // Only a snapshot would help: none are made yet, since the start does not move.
        }
        let newest = peer.stream.map(|(incarnation, stream, _)| (incarnation, stream));
        if newest > Some((sender.incarnation, id)) {
            return;
        }
        if newest == Some((sender.incarnation, id)) {
            if peer.stream.is_some_and(|(_, _, before)| before != asked) {
                return; // One stream id, two questions: only the first one counts.
            }
        } else {
            peer.stream = Some((sender.incarnation, id, asked));
            peer.accepted = parting.is_none();
            peer.live = peer.accepted;
            peer.next = asked.0;
            peer.shipping = false;
            peer.in_flight.clear();
        }
        assert_eq!(peer.accepted, parting.is_none(), "the same question gets the same answer");
        peer.heard_at = now;
        peer.told = hw;
        let (end, last_epoch) = asked;
        let answer = match parting {
            None => Body::Accept { stream: id, end, last_epoch, hw, start },
            Some((epoch, stop)) => Body::Diverge { stream: id, end, last_epoch, epoch, stop },
        };
        self.send(sender.peer.node, answer, out);
        self.pump(out);
    }

    /// None if a log that ends at (end, last epoch) is a prefix of this one; otherwise this log's greatest epoch not above, and its end.
    fn where_logs_part(&self, end: Offset, last_epoch: Option<Epoch>) -> Option<(Option<Epoch>, Offset)> {
        if end == 0 {
            return None;
        }
        match last_epoch.and_then(|last| self.log.end_of_epoch(last)) {
            Some((epoch, stop)) if Some(epoch) == last_epoch && stop >= end => None,
            Some((epoch, stop)) => Some((Some(epoch), stop)),
            None => Some((None, 0)),
        }
    }

    /// Where to cut when the leader's greatest epoch not above this log's last one is `epoch`, which ends at `stop` there.
    pub(crate) fn where_to_cut(&self, epoch: Option<Epoch>, stop: Offset) -> Offset {
        let held = epoch.and_then(|epoch| self.log.end_of_epoch(epoch)).filter(|(held, _)| Some(*held) == epoch);
        match held {
            Some((_, end)) => stop.min(end),
            None => {
                let later = self.log.epochs.iter().find(|(held, _)| Some(*held) > epoch);
                later.map_or(self.log.end, |(_, first)| *first)
            }
        }
    }

    /// Cuts the log, never below an HW that this replica has known: that would undo what was committed.
    pub(crate) fn cut(&mut self, to: Offset, out: &mut Vec<Effect>) {
        assert!(to >= self.hw, "a cut to {to} would undo what was committed below HW {}", self.hw);
        assert!(to <= self.log.end, "a cut to {to} is beyond the end {}", self.log.end);
        self.log.cut(to);
        out.push(Effect::Cut(to));
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{CommitRule, LogShape};
    use proptest::prelude::*;

    use super::*;
    use crate::bench::Bench;

    fn shape(log: &[u32]) -> LogShape {
        let mut shape = LogShape::default();
        log.iter().for_each(|epoch| shape.append(Epoch(*epoch), 1));
        shape
    }

    /// Three logs as elections leave them, written down as the epoch of each entry: in every epoch one of them leads, appends some entries, and some
    /// of the others copy a part of them over whatever they had beyond the common prefix.
    fn history(epochs: &[(usize, usize, [Option<usize>; 3])]) -> [Vec<u32>; 3] {
        let mut logs: [Vec<u32>; 3] = Default::default();
        for (epoch, (leader, count, copies)) in epochs.iter().enumerate() {
            logs[*leader].extend(std::iter::repeat_n(epoch as u32, *count));
            let led = logs[*leader].clone();
            for (log, copied) in logs.iter_mut().zip(copies) {
                let Some(copied) = copied else { continue };
                let common = log.iter().zip(&led).take_while(|(a, b)| a == b).count();
                log.clear();
                log.extend(&led[..(common + copied).min(led.len())]);
            }
        }
        logs
    }

    proptest! {
        #[test]
        fn rounds_end_in_a_prefix_and_take_at_most_one_for_each_epoch(
            epochs in proptest::collection::vec(
                (0..3_usize, 0..4_usize, proptest::array::uniform3(proptest::option::of(0..5_usize))), 1..8),
        ) {
            let logs = history(&epochs);
            let bench = Bench::appointed(1, CommitRule::Quorum { q: 1 });
            let (mut follower, mut leader) = (bench.replicas[0].clone(), bench.replicas[0].clone());
            (follower.log, leader.log) = (shape(&logs[0]), shape(&logs[1]));
            let (held, mut rounds) = (follower.log.epochs.len(), 0);
            while let Some((epoch, stop)) = leader.where_logs_part(follower.log.end, follower.log.last_epoch()) {
                let to = follower.where_to_cut(epoch, stop);
                prop_assert!(to < follower.log.end, "a round that takes nothing away");
                follower.log.cut(to);
                rounds += 1;
            }
            let end = follower.log.end as usize;
            prop_assert!(rounds <= held, "{} rounds for {} epochs", rounds, held);
            prop_assert_eq!(logs[0].get(..end), logs[1].get(..end), "not a prefix");
            let common = logs[0].iter().zip(&logs[1]).take_while(|(a, b)| a == b).count();
            prop_assert_eq!(end, common, "entries were cut that the leader has too");
        }
    }

    #[test]
    #[should_panic(expected = "would undo what was committed")]
    fn a_cut_below_a_known_hw_stops_the_process() {
        let mut bench = Bench::appointed(1, CommitRule::Quorum { q: 1 });
        bench.appoint(0, 1, &[0]);
        bench.settle();
        assert_eq!(bench.hws(), [1]);
        bench.replicas[0].cut(0, &mut Vec::new());
    }

    #[test]
    fn the_same_question_gets_the_same_answer_and_an_older_one_none() {
        let mut bench = Bench::appointed(2, CommitRule::Quorum { q: 1 });
        bench.appoint(0, 1, &[0]);
        bench.settle();
        let open = |stream| Body::Open { stream: StreamId(stream), end: 0, last_epoch: None };
        let accepts = |bench: &mut Bench| {
            let count = bench.under_way(1).iter().filter(|body| matches!(body, Body::Accept { .. })).count();
            bench.wire.clear();
            count
        };
        bench.receive(0, 1, 1, open(2));
        assert_eq!(accepts(&mut bench), 1);
        bench.receive(0, 1, 1, open(2));
        assert!(bench.under_way(1).iter().all(|body| !matches!(body, Body::Batch { .. })), "nothing is rewound");
        assert_eq!(accepts(&mut bench), 1);
        bench.receive(0, 1, 1, open(1));
        assert_eq!(accepts(&mut bench), 0);
    }
}
