//! What is due when.
//!
//! `Tick` decides only which of the procedures of [`Timeout`] are due; a checker that knows no time runs the same ones by name, at any moment, so none
//! of them may rely on time having passed for its safety.

use highwater_wire::{Body, CommitRule, Dest, Millis, PeerId};

use crate::state::{Part, Replica};
use crate::{Effect, Timeout};

/// A number that looks random, of (seed, which node, which attempt): the finalizer of SplitMix64 over their mixture.
fn mix(seed: u64, node: u64, attempt: u64) -> u64 {
    let mut z = seed ^ node.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ attempt.wrapping_mul(0xd1b5_4a32_d192_ed03);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Replica {
    /// Time as this replica knows it never goes back. A leader that has stood still for a heartbeat or more has heard nobody meanwhile, which says nothing of
    /// them: what they sent waits here. If it stood still for so long that another may lead by now, it must hear from them before it counts on them.
    pub(crate) fn advance_clock(&mut self, now: Millis) {
        let gap = now.saturating_sub(self.timers.now);
        self.timers.now += gap;
        let own_silence = self.timing.heartbeat_ms..2 * self.timing.election_ms.1;
        if own_silence.contains(&gap)
            && let Some(leading) = self.part.leading_mut()
        {
            leading.peers.values_mut().for_each(|peer| peer.heard_at += gap);
        }
    }

    /// How long this replica waits for a leader before it stands. A single voter need not wait for anybody.
    fn election_time_ms(&self) -> Millis {
        let (shortest, longest) = self.timing.election_ms;
        assert!(shortest <= longest, "the shortest election time is at most the longest");
        if self.voters().is_some_and(|voters| voters.len() == 1) {
            return 0;
        }
        let node = u64::from(self.me.node.0) ^ self.me.log.0.rotate_left(32);
        shortest + mix(self.seed, node, u64::from(self.timers.attempts)) % (longest - shortest + 1)
    }

    /// Runs what is due now.
    pub(crate) fn tick(&mut self, out: &mut Vec<Effect>) {
        let now = self.timers.now;
        let leaderless_ms = now - self.timers.leader_at;
        if leaderless_ms >= self.timing.election_ms.0 {
            self.hears_leader = false;
        }
        if self.may_stand() && leaderless_ms >= self.election_time_ms() {
            self.timers.attempts = self.timers.attempts.wrapping_add(1);
            self.timers.leader_at = now;
            self.timeout(Timeout::Election, out);
        }
        let live = self.stream().is_some_and(|stream| stream.live);
        if live && now - self.timers.stream_at >= 3 * self.timing.heartbeat_ms {
            self.timeout(Timeout::Silent, out);
        }
        for member in self.late_members() {
            self.timeout(Timeout::Lagging(member), out);
        }
        if self.timers.heartbeat_at.is_none_or(|last| now - last >= self.timing.heartbeat_ms) {
            self.timers.heartbeat_at = Some(now);
            self.timeout(Timeout::Heartbeat, out);
        }
    }

    /// Restarts the lag clock of every peer that has caught up with what it had to, and names those whose time is over.
    fn late_members(&mut self) -> Vec<PeerId> {
        let (now, leo, allowed_ms) = (self.timers.now, self.log.flushed, self.timing.replica_lag_max_ms);
        let Some(leading) = self.part.leading_mut() else { return Vec::new() };
        let mut late = Vec::new();
        for (id, peer) in &mut leading.peers {
            assert!(peer.lag_target <= leo, "a leader's LEO does not go down");
            if peer.acked >= peer.lag_target {
                peer.lag_since = now;
                peer.lag_target = leo;
            } else if now - peer.lag_since >= allowed_ms {
                late.push(*id);
            }
        }
        late
    }

    /// Does what is done when that timer runs out.
    pub(crate) fn timeout(&mut self, timeout: Timeout, out: &mut Vec<Effect>) {
        match timeout {
            Timeout::Election => self.canvass(out),
            Timeout::Heartbeat => self.heartbeat(out),
            Timeout::Lagging(member) => self.drop_lagging(member, out),
            Timeout::Silent => {
                self.hears_leader = false;
                if self.stream().is_some_and(|stream| stream.live) {
                    self.open(out);
                    self.ask_who_leads(out);
                }
            }
        }
    }

    fn heartbeat(&mut self, out: &mut Vec<Effect>) {
        match &self.part {
            // Whoever still follows asks, and is heard again by that. But another that was elected meanwhile may have fallen silent too, and then each would
            // wait for ever for a word of the other's; a question keeps nobody from standing.
            Part::Leader(_) if self.is_deaf() => self.ask_who_leads(out),
            Part::Leader(_) => {
                self.beat(out);
                self.repeat_proposal(out);
                self.repeat_round(out);
                self.announce_to_absent(out);
                self.doubt_appointment(out);
            }
            Part::Follower(following) => {
                match &following.stream {
                    None => {
                        self.open(out);
                        self.ask_who_leads(out);
                    }
                    Some(stream) if !stream.live => {
                        self.ask_stream(out);
                        self.ask_who_leads(out);
                    }
                    Some(_) => {}
                }
                self.repeat_question(out);
            }
            Part::Idle | Part::Candidate { .. } => self.ask_who_leads(out),
        }
    }

    /// Asks the coordinator, or in the self-electing partition every voter, who leads. The question states the promised epoch, from which a coordinator
    /// learns that somebody refuses the leader on record.
    pub(crate) fn ask_who_leads(&self, out: &mut Vec<Effect>) {
        match self.voters() {
            None => out.push(Effect::Send(Dest::Coordinator, self.envelope(self.hard.promised, Body::WhoLeads))),
            Some(voters) => {
                for voter in voters.iter().filter(|voter| **voter != self.me) {
                    self.send(voter.node, Body::WhoLeads, out);
                }
            }
        }
    }

    /// Whether a self-elected leader has heard from too few for twice the longest election time. As long as its heartbeats arrive nobody else stands; one that hears
    /// nothing can commit nothing, so it falls silent and lets those that hear each other elect another. (Ongaro 2014, section 6.2, has such a leader step down; here it
    /// need not, for its epoch is over as soon as another's begins.)
    fn is_deaf(&self) -> bool {
        let leading = self.part.leading().expect("a leader listens");
        let CommitRule::Quorum { q: needed } = leading.committed.rule else { return false };
        let (now, patience_ms) = (self.timers.now, 2 * self.timing.election_ms.1);
        let heard = |member: &&PeerId| {
            let peer = leading.peers.get(*member);
            **member == self.me || peer.is_some_and(|peer| now - peer.heard_at <= patience_ms)
        };
        let heard = leading.committed.members.iter().filter(heard).count();
        assert!(needed > 0, "a commit rule counts somebody");
        self.voters().is_some() && heard < needed as usize
    }

    /// An appointed leader that cannot know by itself that it still leads asks. It may have been replaced while it was cut off: what told it so was lost with the
    /// connection, and without a stream it sends nothing that anybody could refuse. Under `quorum:q` whoever was replaced reaches fewer than q, for too many have
    /// promised a later epoch. Under `isr` it may reach as many as ever, but not all of the set: whoever replaced it is a member that follows it no more.
    fn doubt_appointment(&self, out: &mut Vec<Effect>) {
        let (_, in_reach) = self.reach();
        let set = &self.part.leading().expect("a leader doubts").committed;
        let enough = match set.rule {
            CommitRule::Quorum { q } => q as usize,
            CommitRule::Isr { .. } => set.members.len(),
        };
        assert!(enough > 0, "a commit rule counts somebody");
        if self.voters().is_none() && (in_reach as usize) < enough {
            self.ask_who_leads(out);
        }
    }

    /// A self-elected leader tells voters without a stream that it leads: its first word to them may have been lost.
    fn announce_to_absent(&self, out: &mut Vec<Effect>) {
        let leading = self.part.leading().expect("a leader announces itself");
        if self.voters().is_some() {
            for (peer, _) in leading.peers.iter().filter(|(_, state)| !state.live) {
                self.send(peer.node, self.own_lead(), out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{Body, CommitRule, Epoch, NodeId};

    use super::mix;
    use crate::bench::Bench;
    use crate::{Input, Timeout, Timing};

    #[test]
    fn a_self_elected_leader_that_hears_nobody_falls_silent_until_it_hears_again() {
        let mut bench = Bench::electing(3);
        bench.step(0, Input::Timeout(Timeout::Election));
        bench.settle();
        bench.wire.clear();
        bench.now = 2 * Timing::default().election_ms.1;
        bench.step(0, Input::Timeout(Timeout::Heartbeat));
        assert_eq!(bench.wire.len(), 2, "it speaks to both");
        bench.wire.clear();
        bench.now += 1;
        bench.step(0, Input::Timeout(Timeout::Heartbeat));
        assert!(
            bench.wire.iter().all(|(_, envelope)| envelope.body == Body::WhoLeads),
            "it only asks: {:?}",
            bench.wire
        );
        bench.wire.clear();
        bench.step(1, Input::Timeout(Timeout::Silent));
        bench.settle();
        bench.step(0, Input::Timeout(Timeout::Heartbeat));
        assert!(!bench.wire.is_empty(), "one of two others is enough");
    }

    /// Delivers and flushes among these alone, for as long as an election takes.
    fn among(bench: &mut Bench, these: [usize; 2]) {
        for _ in 0..8 {
            bench.deliver_to(&these);
            these.into_iter().for_each(|index| bench.flush(index));
        }
    }

    /// The third, by which either would hear, is gone.
    #[test]
    fn of_two_leaders_that_hear_nobody_the_older_finds_the_newer() {
        let mut bench = Bench::electing(3);
        bench.step(0, Input::Timeout(Timeout::Election));
        bench.settle();
        let led_by = |bench: &Bench, index: usize| bench.replicas[index].leader().map(|leader| leader.node);
        // Node 0 is cut off, and node 1 elected by the other two.
        bench.now = 2 * Timing::default().election_ms.1 + 1;
        bench.step(1, Input::Timeout(Timeout::Silent));
        bench.step(2, Input::Timeout(Timeout::Silent));
        bench.wire.clear();
        bench.step(1, Input::Timeout(Timeout::Election));
        among(&mut bench, [1, 2]);
        bench.wire.clear();
        assert_eq!((led_by(&bench, 0), led_by(&bench, 1)), (Some(NodeId(0)), Some(NodeId(1))));
        bench.now *= 3;
        for index in [0, 1] {
            bench.step(index, Input::Timeout(Timeout::Heartbeat));
        }
        among(&mut bench, [0, 1]);
        assert_eq!(led_by(&bench, 0), Some(NodeId(1)));
    }

    #[test]
    fn a_leader_that_was_replaced_while_it_was_cut_off_asks_who_leads() {
        let mut bench = Bench::appointed(3, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1, 2]);
        bench.settle();
        bench.coordinator.clear();
        bench.step(0, Input::Timeout(Timeout::Heartbeat));
        assert!(bench.coordinator.is_empty(), "it reaches all");
        // Its connections end, and another is appointed meanwhile; no word of that arrives.
        for node in [1, 2] {
            bench.step(0, Input::Disconnected(NodeId(node)));
        }
        bench.wire.clear();
        bench.now = 4 * Timing::default().heartbeat_ms;
        bench.step(0, Input::Timeout(Timeout::Heartbeat));
        let asked: Vec<(Option<Epoch>, Body)> =
            bench.coordinator.drain(..).map(|envelope| (envelope.epoch, envelope.body)).collect();
        assert_eq!(asked, [(Some(Epoch(1)), Body::WhoLeads)]);
    }

    /// The one that is missing may lead by now, even if those in reach are enough to go on.
    #[test]
    fn a_leader_under_isr_that_does_not_reach_a_member_asks_who_leads() {
        let mut bench = Bench::appointed(3, CommitRule::Isr { min: 1 });
        bench.appoint(0, 1, &[0, 1, 2]);
        bench.settle();
        bench.step(0, Input::Timeout(Timeout::Heartbeat));
        assert!(bench.coordinator.is_empty(), "it reaches all");
        bench.step(0, Input::Disconnected(NodeId(2)));
        bench.step(0, Input::Timeout(Timeout::Heartbeat));
        let asked: Vec<Body> = bench.coordinator.drain(..).map(|envelope| envelope.body).collect();
        assert_eq!(asked, [Body::WhoLeads]);
    }

    #[test]
    fn jitter_differs_between_nodes_and_attempts_and_repeats_for_one_seed() {
        let draw = |seed, node, attempt| mix(seed, node, attempt) % 151;
        assert_eq!(draw(7, 1, 0), draw(7, 1, 0));
        let distinct: std::collections::BTreeSet<u64> =
            (0..3).flat_map(|node| (0..20).map(move |attempt| draw(7, node, attempt))).collect();
        assert!(distinct.len() > 40, "60 draws out of 151 times give {} different ones", distinct.len());
    }
}
