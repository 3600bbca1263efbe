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
