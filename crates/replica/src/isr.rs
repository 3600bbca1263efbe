//! Changing the ISR (rule `isr`).
//!
//! One change is in flight at a time. The coordinator applies it by compare-and-set on the record's version and answers with the record. Until the
//! leader has learned the outcome, which is a `Lead` of a higher version, it counts committed and proposed members together and repeats the same
//! proposal; it never replaces one of unknown outcome, which may yet be applied.
//!
//! Out goes a member that has not reached, within the allowed lag, the leader's LEO as it was when that time began, if `min` members
//! remain. In comes a replica whose acknowledged LEO of this epoch has reached HW *and* the start of the epoch: HW alone may be an old one that
//! leaves out entries which were committed before this leader knew of it.

use highwater_wire::{Body, CommitRule, Dest, Lead, PeerId};

use crate::Effect;
use crate::state::Replica;

impl Replica {
    /// `member` has not kept up.
    pub(crate) fn drop_lagging(&mut self, member: PeerId, out: &mut Vec<Effect>) {
        let leo = self.log.flushed;
        let Some(leading) = self.part.leading() else { return };
        let CommitRule::Isr { min } = leading.committed.rule else { return };
        let behind = leading.peers.get(&member).is_some_and(|peer| peer.acked < leo);
        let members = &leading.committed.members;
        if !behind || !members.contains(&member) || members.len() <= min as usize {
            return;
        }
        let remaining = members.iter().copied().filter(|peer| *peer != member).collect();
        self.propose_set(remaining, out);
    }

    /// Proposes to take in every replica that has caught up.
    pub(crate) fn admit(&mut self, out: &mut Vec<Effect>) {
        let hw = self.hw;
        let Some(leading) = self.part.leading() else { return };
        if !matches!(leading.committed.rule, CommitRule::Isr { .. }) {
            return;
        }
        let caught_up = leading.peers.iter().filter(|(_, peer)| peer.live && peer.acked >= hw.max(leading.epoch_start));
        let mut members = leading.committed.members.clone();
        members.extend(caught_up.map(|(peer, _)| *peer));
        members.sort_unstable();
        members.dedup();
        if members.len() > leading.committed.members.len() {
            self.propose_set(members, out);
        }
    }

    fn propose_set(&mut self, members: Vec<PeerId>, out: &mut Vec<Effect>) {
        let me = self.me;
        let leading = self.part.leading_mut().expect("a leader changes its set");
        let CommitRule::Isr { min } = leading.committed.rule else { panic!("only an ISR is changed like this") };
        assert!(members.contains(&me), "a leader stays in its ISR");
        assert!(members.len() >= min as usize, "an ISR does not shrink below {min}");
        if leading.proposed.is_none() {
            leading.proposed = Some(members);
            self.repeat_proposal(out);
        }
    }

    /// Sends the change in flight to whoever coordinates now, if there is one.
    pub(crate) fn repeat_proposal(&self, out: &mut Vec<Effect>) {
        let Some(leading) = self.part.leading() else { return };
        if let Some(members) = leading.proposed.clone() {
            let body = Body::ChangeSet { version: leading.version, members };
            out.push(Effect::Send(Dest::Coordinator, self.envelope(self.hard.promised, body)));
        }
    }

    /// The record of this leader's own epoch. Only a higher version tells the outcome of a proposal.
    pub(crate) fn learn_record(&mut self, lead: Lead, out: &mut Vec<Effect>) {
        let (me, now, leo) = (self.me, self.timers.now, self.log.flushed);
        let leading = self.part.leading_mut().expect("only a leader learns the record");
        if lead.version <= leading.version {
            return;
        }
        assert!(lead.set.members.contains(&me), "the record keeps its leader in the set");
        let before = std::mem::replace(&mut leading.committed, lead.set);
        leading.version = lead.version;
        leading.proposed = None;
        leading.peers.retain(|peer, _| lead.replicas.contains(peer));
        for id in lead.replicas.iter().filter(|peer| **peer != me) {
            let peer = leading.peers.entry(*id).or_default();
            // A member that has just come in has the whole allowed time.
            if !before.members.contains(id) {
                peer.lag_since = now;
                peer.lag_target = leo;
            }
        }
        leading.replicas = lead.replicas;
        self.advance_high_watermark(out);
        self.admit(out);
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{Body, CommitRule, Version};

    use crate::bench::{Bench, peer};
    use crate::{Input, Timeout};

    /// Three in the ISR; replica 2 hears nothing any more, and one write waits for it.
    fn waiting(min: u32) -> Bench {
        let mut bench = Bench::appointed(3, CommitRule::Isr { min });
        bench.appoint(0, 1, &[0, 1, 2]);
        bench.settle();
        bench.write(0).expect("all are in reach");
        bench.wire.retain(|(to, _)| *to == 1);
        bench.settle();
        assert_eq!(bench.hws()[0], 0, "HW waits for the slowest member");
        bench
    }

    fn proposals(bench: &mut Bench) -> Vec<(u64, usize)> {
        let sent = std::mem::take(&mut bench.coordinator).into_iter().filter_map(|envelope| match envelope.body {
            Body::ChangeSet { version, members } => Some((version.0, members.len())),
            _ => None,
        });
        sent.collect()
    }

    #[test]
    fn a_member_goes_out_only_once_the_coordinator_has_said_so() {
        let mut bench = waiting(2);
        bench.step(0, Input::Timeout(Timeout::Lagging(peer(2))));
        assert_eq!((proposals(&mut bench), bench.hws()[0]), (vec![(1, 2)], 0), "both sets are counted");
        bench.step(0, Input::Timeout(Timeout::Heartbeat));
        bench.step(0, Input::Timeout(Timeout::Lagging(peer(1))));
        assert_eq!(proposals(&mut bench), [(1, 2)], "the same proposal again, and no other");
        let mut lead = bench.lead(0);
        bench.tell(&[0], 1, &lead);
        assert_eq!(bench.hws()[0], 0, "the same version tells nothing");
        (lead.version, lead.set.members) = (Version(2), vec![peer(0), peer(1)]);
        bench.tell(&[0], 1, &lead);
        assert_eq!(bench.hws()[0], 1);
        bench.wire.clear();
        bench.write(0).expect("two of two are in reach");
        bench.step(0, Input::Timeout(Timeout::Lagging(peer(1))));
        assert_eq!(proposals(&mut bench), [], "two are the least");
    }

    #[test]
    fn the_clock_of_a_member_runs_from_the_leo_it_has_to_reach() {
        let mut bench = waiting(1);
        for _ in 0..199 {
            bench.now += 10;
            bench.step(0, Input::Tick);
        }
        assert_eq!(proposals(&mut bench), [], "not yet two seconds behind");
        bench.now += 30;
        bench.step(0, Input::Tick);
        assert_eq!(proposals(&mut bench).first(), Some(&(1, 2)), "replica 2 goes, replica 1 has caught up and stays");
    }

    #[test]
    fn a_replica_comes_in_once_it_has_reached_hw_and_the_start_of_the_epoch() {
        let mut bench = waiting(1);
        bench.step(0, Input::Timeout(Timeout::Lagging(peer(2))));
        let mut lead = bench.lead(0);
        (lead.version, lead.set.members) = (Version(2), vec![peer(0), peer(1)]);
        bench.tell(&[0], 1, &lead);
        proposals(&mut bench);
        bench.wire.clear();
        bench.step(2, Input::Timeout(Timeout::Silent));
        bench.deliver();
        assert_eq!((bench.ends()[2], proposals(&mut bench)), (1, vec![]), "it has the entry, not yet durable");
        bench.flush(2);
        bench.deliver();
        assert_eq!(proposals(&mut bench), [(2, 3)]);
        bench.write(0).expect("three are in reach");
        bench.wire.retain(|(to, _)| *to == 1);
        bench.settle();
        assert_eq!(bench.hws()[0], 1, "the one who comes in is counted from the proposal on");
    }
}
