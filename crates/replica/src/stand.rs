//! Standing for election in the self-electing partition (Raft, sections 5.2 and 9.6 of the dissertation for the pre-vote).
//!
//! A voter that heard from no leader for its randomised time first asks whether it would win the next epoch, one above everything promised or heard
//! of. Nobody changes state for that question, so a replica that was cut off does not depose a living leader when it comes back. With a majority
//! of yes it raises to that epoch, promising it to itself, durably, before it asks for votes; with a majority of votes it leads.

use std::collections::BTreeSet;

use highwater_wire::{Body, CommitRule, Epoch, Lead, PeerId, Sender, Set, Version};

use crate::state::{Canvass, Part, Replica};
use crate::{Effect, Mode, Role};

impl Replica {
    /// The voters of the self-electing partition; none under appointment.
    pub(crate) fn voters(&self) -> Option<&Vec<PeerId>> {
        match &self.mode {
            Mode::SelfElecting { voters } => Some(voters),
            Mode::Appointed => None,
        }
    }

    /// Whether these voters are more than half of all.
    fn is_majority(&self, voters: &BTreeSet<PeerId>) -> bool {
        let all = self.voters().expect("only the self-electing partition counts voters");
        assert!(voters.iter().all(|voter| all.contains(voter)), "only voters count");
        voters.len() > all.len() / 2
    }

    /// Whether this replica may stand at all.
    pub(crate) fn may_stand(&self) -> bool {
        self.voters().is_some_and(|voters| voters.contains(&self.me)) && self.part.leading().is_none()
    }

    /// The randomised time without a leader has passed: ask whether this replica would win. With epochs exhausted nobody is elected any more.
    pub(crate) fn canvass(&mut self, out: &mut Vec<Effect>) {
        if !self.may_stand() {
            return;
        }
        let heard = self.hard.promised.max(self.heard_epoch);
        let Some(epoch) = heard.map_or(Some(Epoch(0)), Epoch::next) else { return };
        assert!(Some(epoch) > self.hard.promised, "a candidate stands for a later epoch");
        self.hears_leader = false;
        self.canvass = Some(Canvass { epoch, yes: BTreeSet::from([self.me]) });
        self.ask_voters(epoch, true, out);
        self.count_canvass(out);
    }

    fn ask_voters(&self, epoch: Epoch, pre: bool, out: &mut Vec<Effect>) {
        let rank = self.log.rank();
        for voter in self.voters().into_iter().flatten().filter(|voter| **voter != self.me) {
            self.send_in(Some(epoch), voter.node, Body::Stand { rank, pre }, out);
        }
    }

    /// An answer of a voter. A vote counts only for the epoch it names, and only from a voter with the log id that the configuration names.
    pub(crate) fn hear_vote(&mut self, sender: Sender, epoch: Epoch, granted: bool, pre: bool, out: &mut Vec<Effect>) {
        if !granted || !self.voters().is_some_and(|voters| voters.contains(&sender.peer)) {
            return;
        }
        if pre {
            if let Some(canvass) = &mut self.canvass
                && canvass.epoch == epoch
            {
                canvass.yes.insert(sender.peer);
                self.count_canvass(out);
            }
        } else if Some(epoch) == self.hard.promised
            && let Part::Candidate { votes } = &mut self.part
        {
            votes.insert(sender.peer);
            self.count_votes(out);
        }
    }

    fn count_canvass(&mut self, out: &mut Vec<Effect>) {
        let canvass = self.canvass.as_ref().expect("counted while it runs");
        if !self.is_majority(&canvass.yes) {
            return;
        }
        let epoch = canvass.epoch;
        if Some(epoch) <= self.heard_epoch {
            self.canvass = None; // Somebody has entered that epoch meanwhile.
            return;
        }
        self.raise(epoch, Some(self.me), out);
        self.part = Part::Candidate { votes: BTreeSet::from([self.me]) };
        out.push(Effect::Role(Role::Candidate { epoch }));
        self.ask_voters(epoch, false, out);
        self.count_votes(out);
    }

    fn count_votes(&mut self, out: &mut Vec<Effect>) {
        let Part::Candidate { votes } = &self.part else { panic!("votes are counted for a candidate") };
        assert_eq!(self.hard.promised_to, Some(self.me), "a candidate has promised its epoch to itself");
        if !self.is_majority(votes) {
            return;
        }
        let voters = self.voters().expect("only the self-electing partition has candidates").clone();
        let q = u32::try_from(voters.len() / 2 + 1).expect("voters are few");
        let lead = Lead {
            leader: self.me,
            incarnation: self.incarnation,
            replicas: voters.clone(),
            set: Set { rule: CommitRule::Quorum { q }, members: voters },
            version: Version(0),
            lossy: self.hard.lossy,
        };
        self.begin_to_lead(lead, out);
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::Epoch;

    use crate::bench::Bench;
    use crate::{Input, Role, Timeout};

    fn leaders(bench: &Bench) -> Vec<usize> {
        let leads = |index: &usize| matches!(bench.replicas[*index].role(), Role::Leader { .. });
        (0..bench.replicas.len()).filter(leads).collect()
    }

    #[test]
    fn three_voters_elect_one_by_time_alone_and_the_others_follow() {
        let mut bench = Bench::electing(3);
        while leaders(&bench).is_empty() {
            assert!(bench.now < 5_000, "nobody was elected within five seconds");
            bench.now += 10;
            for index in 0..3 {
                bench.step(index, Input::Tick);
            }
            bench.settle();
        }
        assert_eq!(leaders(&bench).len(), 1);
        assert_eq!(bench.hws(), [1, 1, 1], "the control entry of its epoch is committed everywhere");
        let epoch = bench.replicas[0].promised();
        for _ in 0..100 {
            bench.now += 10;
            for index in 0..3 {
                bench.step(index, Input::Tick);
            }
            bench.settle();
        }
        assert_eq!(bench.replicas[0].promised(), epoch, "a leader that is heard of is not stood against");
    }

    #[test]
    fn a_single_voter_leads_at_its_first_tick() {
        let mut bench = Bench::electing(1);
        bench.step(0, Input::Tick);
        bench.settle();
        assert_eq!((leaders(&bench), bench.hws()), (vec![0], vec![1]));
    }

    #[test]
    fn the_question_before_an_election_changes_nobody_and_is_denied_by_who_hears_a_leader() {
        let mut bench = Bench::electing(3);
        bench.step(0, Input::Timeout(Timeout::Election));
        bench.settle();
        assert_eq!(leaders(&bench), [0]);
        bench.step(1, Input::Timeout(Timeout::Election));
        bench.settle();
        assert_eq!(leaders(&bench), [0]);
        assert_eq!(bench.replicas[1].role(), Role::Follower { epoch: Epoch(0), leader: crate::bench::peer(0) });
    }

    #[test]
    fn the_majority_that_lost_its_leader_elects_another() {
        let mut bench = Bench::electing(3);
        bench.step(0, Input::Timeout(Timeout::Election));
        bench.settle();
        bench.step(2, Input::Timeout(Timeout::Silent));
        bench.wire.clear();
        bench.step(1, Input::Timeout(Timeout::Election));
        while let Some((to, envelope)) = bench.wire.pop_front() {
            if to != 0 {
                bench.step(to, Input::Message(envelope));
            }
        }
        assert_eq!(leaders(&bench), [0, 1], "the old one is cut off and does not know");
        assert_eq!(bench.replicas[1].promised(), Some(Epoch(1)));
    }
}
