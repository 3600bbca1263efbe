//! The leader appends, and keeps its streams supplied.
//!
//! Batches leave as soon as they are appended, before this leader's own flush: the flushes here and there run side by side. What is under way on one
//! stream and not acknowledged is bounded by a window. The replica says from where a stream wants more; whoever holds the log reads, sends, and
//! reports how far it got. A stream that gets no entries is told a new HW by an empty batch at once.

use bytes::BytesMut;
use highwater_wire::batch::{self, BatchError};
use highwater_wire::{Body, CommitRule, Epoch, Millis, Offset, PeerId, StreamId};

use crate::state::Replica;
use crate::{Effect, ProposeError};

impl Replica {
    /// Appends `batches`, made for `epoch` on a log that ends at `base`, stamped here. Returns the log's new end, at whose commit the whole proposal
    /// is committed.
    ///
    /// # Errors
    /// [`ProposeError`]; nothing was appended then.
    pub fn propose(
        &mut self,
        now: Millis,
        epoch: Epoch,
        base: Offset,
        batches: BytesMut,
        out: &mut Vec<Effect>,
    ) -> Result<Offset, ProposeError> {
        self.advance_clock(now);
        if !self.leads(epoch) {
            return Err(ProposeError::NotLeader { asked: epoch, leader: self.leader() });
        }
        if base != self.log.end {
            return Err(ProposeError::WrongBase { asked: base, end: self.log.end });
        }
        let (needed, in_reach) = self.reach();
        if in_reach < needed {
            return Err(ProposeError::TooFewInReach { needed, in_reach });
        }
        let before = self.milestones();
        let end = self.append_own(batches, out)?;
        self.pump(out);
        self.check(before);
        Ok(end)
    }

    /// Stamps batches with the next offsets and the led epoch, and appends them.
    pub(crate) fn append_own(&mut self, mut batches: BytesMut, out: &mut Vec<Effect>) -> Result<Offset, ProposeError> {
        let epoch = self.hard.promised.expect("a leader has an epoch");
        let base = self.log.end;
        assert!(self.leads(epoch), "only a leader appends of its own");
        if batches.is_empty() {
            return Err(BatchError::Malformed("a proposal has no batch").into());
        }
        let end = batch::stamp(&mut batches, base, epoch)?;
        assert!(end > base, "a batch has entries");
        self.log.append(epoch, end - base);
        out.push(Effect::Append(batches.freeze()));
        Ok(end)
    }

    /// (how many of the set the commit rule needs, how many are in reach, this leader included). In reach is who was heard of within three heartbeats on a live stream;
    /// a new leader gives the others as long to open one, or every election would begin with refusals.
    pub(crate) fn reach(&self) -> (u32, u32) {
        self.reach_at(self.timers.now)
    }

    fn reach_at(&self, now: Millis) -> (u32, u32) {
        let leading = self.part.leading().expect("a leader asks how many it reaches");
        let (CommitRule::Isr { min: needed } | CommitRule::Quorum { q: needed }) = leading.committed.rule;
        let silent_ms = 3 * self.timing.heartbeat_ms;
        let reached = |member: &&PeerId| {
            **member == self.me
                || leading
                    .peers
                    .get(*member)
                    .is_some_and(|peer| (peer.live || peer.stream.is_none()) && now - peer.heard_at <= silent_ms)
        };
        let in_reach = leading.committed.members.iter().filter(reached).count();
        (needed, u32::try_from(in_reach).expect("members are few"))
    }

    /// Where this replica leads: whether a proposal would be refused now because too few are in reach. For those who would execute a transaction first, and undo it.
    pub fn shortage(&self, now: Millis) -> Option<ProposeError> {
        self.part.leading()?;
        let (needed, in_reach) = self.reach_at(now.max(self.timers.now));
        (in_reach < needed).then_some(ProposeError::TooFewInReach { needed, in_reach })
    }

    /// An [`Effect::Ship`] was performed: entries below `upto`, `bytes` long, were sent on `stream`. Asks for more if the window allows.
    ///
    /// # Panics
    /// If nothing was sent: there were entries when it was asked for.
    pub fn shipped(&mut self, to: PeerId, stream: StreamId, upto: Offset, bytes: usize, out: &mut Vec<Effect>) {
        assert!(upto <= self.log.end, "{upto} was sent, but the log ends at {}", self.log.end);
        let hw = self.hw;
        let Some(peer) = self.part.leading_mut().and_then(|leading| leading.peers.get_mut(&to)) else { return };
        if !peer.shipping || peer.stream.is_none_or(|(_, present, _)| present != stream) {
            return;
        }
        assert!(upto > peer.next, "a ship from {} brought nothing to send", peer.next);
        peer.shipping = false;
        peer.next = upto;
        peer.told = hw;
        peer.in_flight.push_back((upto, bytes));
        self.pump(out);
    }

    /// Gives every live stream what it lacks: entries as far as its window allows, or else a new HW.
    pub(crate) fn pump(&mut self, out: &mut Vec<Effect>) {
        let (end, start, hw, window) = (self.log.end, self.log.start, self.hw, self.timing.window_bytes);
        let Some(leading) = self.part.leading_mut() else { return };
        let mut news = Vec::new();
        for (to, peer) in leading.peers.iter_mut().filter(|(_, peer)| peer.live && !peer.shipping) {
            assert!(peer.next <= end, "{to:?} was sent entries that are not here");
            let (_, stream, _) = peer.stream.expect("a live stream has an id");
            let under_way: usize = peer.in_flight.iter().map(|(_, bytes)| bytes).sum();
            if peer.next < end && under_way < window {
                peer.shipping = true;
                out.push(Effect::Ship { to: *to, stream, from: peer.next, max_bytes: window - under_way });
            } else if peer.told < hw {
                peer.told = hw;
                news.push((to.node, stream, peer.next));
            }
        }
        for (node, stream, base) in news {
            let batches = bytes::Bytes::new();
            self.send(node, Body::Batch { stream, base, batches, hw, start }, out);
        }
    }

    /// An empty batch on every live stream, so that its follower knows that it lives.
    pub(crate) fn beat(&self, out: &mut Vec<Effect>) {
        let Some(leading) = self.part.leading() else { return };
        let (hw, start) = (self.hw, self.log.start);
        for (to, peer) in leading.peers.iter().filter(|(_, peer)| peer.live && !peer.shipping) {
            let (_, stream, _) = peer.stream.expect("a live stream has an id");
            assert!(peer.next <= self.log.end, "{to:?} was sent entries that are not here");
            self.send(to.node, Body::Batch { stream, base: peer.next, batches: bytes::Bytes::new(), hw, start }, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use highwater_wire::{Body, CommitRule, Epoch};

    use crate::ProposeError;
    use crate::bench::{Bench, peer};
    use crate::{Input, Timing};

    /// Time passes for the leader, and what it sends is lost.
    fn pass(bench: &mut Bench, ms: u64) {
        for _ in 0..ms {
            bench.now += 1;
            bench.step(0, Input::Tick);
        }
        bench.wire.clear();
    }

    #[test]
    fn a_leader_that_stood_still_for_a_moment_does_not_take_the_others_for_silent() {
        let mut bench = Bench::appointed(3, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1, 2]);
        bench.settle();
        bench.now += 4 * Timing::default().heartbeat_ms;
        assert_eq!(bench.write(0), Ok(2), "what the others sent meanwhile waits behind the write");
        bench.settle();
        bench.now += 2 * Timing::default().election_ms.1;
        let refused = Err(ProposeError::TooFewInReach { needed: 2, in_reach: 1 });
        assert_eq!(bench.write(0), refused, "by now another may lead");
        bench.step(1, Input::Timeout(crate::Timeout::Silent));
        bench.settle();
        assert_eq!(bench.write(0), Ok(3), "heard of again");
        pass(&mut bench, 4 * Timing::default().heartbeat_ms);
        assert_eq!(bench.write(0), refused, "silent while it looked");
    }

    #[test]
    fn a_write_that_cannot_reach_its_rule_is_refused_with_the_numbers() {
        let mut bench = Bench::appointed(3, CommitRule::Isr { min: 2 });
        bench.appoint(0, 1, &[0]);
        assert_eq!(bench.write(0), Ok(1), "the others are given time to open their streams");
        pass(&mut bench, Timing::default().heartbeat_ms * 3 + 1);
        assert_eq!(bench.write(0), Err(ProposeError::TooFewInReach { needed: 2, in_reach: 1 }));
        let lead = bench.lead(0);
        bench.tell(&[1], 1, &lead);
        bench.settle();
        assert_eq!(bench.write(0), Ok(2));
        bench.wire.clear();
        pass(&mut bench, Timing::default().heartbeat_ms * 3 + 1);
        assert_eq!(
            bench.write(0),
            Err(ProposeError::TooFewInReach { needed: 2, in_reach: 1 }),
            "it was silent for long"
        );
        assert_eq!(bench.ends()[0], 2, "nothing of it is in the log");
    }

    #[test]
    fn proposals_of_another_reign_or_state_are_refused() {
        let mut bench = Bench::appointed(1, CommitRule::Quorum { q: 1 });
        bench.appoint(0, 2, &[0]);
        let mut propose =
            |epoch, base| bench.replicas[0].propose(0, Epoch(epoch), base, BytesMut::new(), &mut Vec::new());
        assert_eq!(propose(1, 1), Err(ProposeError::NotLeader { asked: Epoch(1), leader: Some(peer(0)) }));
        assert_eq!(propose(2, 0), Err(ProposeError::WrongBase { asked: 0, end: 1 }));
        assert!(matches!(propose(2, 1), Err(ProposeError::Malformed(_))));
    }

    #[test]
    fn a_full_window_waits_for_acknowledgements() {
        let mut bench = Bench::appointed(2, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1]);
        bench.settle();
        bench.replicas[0].timing.window_bytes = 1;
        for _ in 0..3 {
            bench.write(0).expect("both are in reach");
        }
        let batches = |bench: &Bench| {
            bench
                .under_way(1)
                .iter()
                .filter(|body| matches!(body, Body::Batch { batches, .. } if !batches.is_empty()))
                .count()
        };
        assert_eq!(batches(&bench), 1, "one batch always fits, the others wait");
        bench.settle();
        assert_eq!(bench.hws(), [4, 4]);
        bench.step(0, Input::Disconnected(peer(1).node));
        assert!(!bench.replicas[0].peers(0)[0].live);
    }
}
