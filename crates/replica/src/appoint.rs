//! Hearing who leads an epoch.
//!
//! An appointment is bound to an incarnation: a replica takes it up only if it names the incarnation that promised, if `promised` is that very
//! epoch, and if this incarnation has not led it before. A leader that restarted may have lost its tail, and would write a second history under the
//! same epoch. Any other replica that hears of a leader in a later epoch, or in its promised one while it has no leader there, follows.
//!
//! A leader that hears of itself learns the record: version and set, by which it knows the outcome of a change that it proposed.

use highwater_wire::{Epoch, Lead, Sender};

use crate::Effect;
use crate::state::{Following, Part, Replica};

impl Replica {
    /// `sender` says that `lead` is who leads `epoch`, which is not below the promised one.
    pub(crate) fn hear_lead(&mut self, sender: Sender, epoch: Epoch, lead: Lead, out: &mut Vec<Effect>) {
        assert!(Some(epoch) >= self.hard.promised, "what is older was refused before");
        if let Some(voters) = self.voters() {
            // A self-elected leader speaks for itself, and only voters are elected.
            let speaks_for_itself = sender.peer == lead.leader && sender.incarnation == lead.incarnation;
            if !speaks_for_itself || !voters.contains(&lead.leader) || lead.leader == self.me {
                return;
            }
        }
        if lead.leader.node != self.me.node {
            self.hear_of_other(epoch, &lead, out);
        } else if lead.leader == self.me && lead.incarnation == self.incarnation && Some(epoch) == self.hard.promised {
            if self.part.leading().is_some() {
                self.learn_record(lead, out);
            } else if self.led < Some(epoch) && lead.set.members.contains(&self.me) {
                assert_eq!(self.part, Part::Idle, "{epoch:?} has two leaders");
                self.begin_to_lead(lead, out);
            }
        }
    }

    fn hear_of_other(&mut self, epoch: Epoch, lead: &Lead, out: &mut Vec<Effect>) {
        assert_ne!(lead.leader, self.me, "somebody else leads");
        if !lead.replicas.contains(&self.me) || !lead.replicas.contains(&lead.leader) {
            return; // The record does not count this replica (any more): nobody would serve it.
        }
        if Some(epoch) > self.hard.promised {
            self.raise(epoch, None, out);
        }
        match &self.part {
            Part::Leader(_) => panic!("{epoch:?} has two leaders: this replica and {:?}", lead.leader),
            Part::Follower(following) => {
                assert_eq!(following.leader, lead.leader, "{epoch:?} has two leaders");
                // A stream that ended is opened anew at the next heartbeat. Were it opened at this word, a leader that refuses this epoch, and a
                // coordinator that does not know it yet, would be asked by turns as fast as the network carries it.
                self.hear_leader();
            }
            Part::Idle | Part::Candidate { .. } => {
                let following = Following { leader: lead.leader, stream: None, asking: None, waiting: Vec::new() };
                self.part = Part::Follower(following);
                self.answered = false;
                out.push(Effect::Role(self.role()));
                self.hear_leader();
                self.open(out);
            }
        }
    }

    /// The leader of the promised epoch is alive.
    pub(crate) fn hear_leader(&mut self) {
        self.timers.leader_at = self.timers.now;
        if self.voters().is_some() {
            self.hears_leader = true;
            self.canvass = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{CommitRule, Epoch};

    use crate::Role;
    use crate::bench::{Bench, peer};

    #[test]
    fn an_appointment_is_taken_up_only_by_the_incarnation_that_promised() {
        let mut bench = Bench::appointed(3, CommitRule::Quorum { q: 2 });
        bench.ask_promise(&[0, 1], 1);
        let lead = bench.lead(0);
        bench.restart(0);
        bench.tell(&[0], 1, &lead);
        assert_eq!(bench.replicas[0].role(), Role::Idle, "the process that promised is gone");
        let lead = bench.lead(0);
        bench.tell(&[0], 1, &lead);
        assert_eq!((bench.replicas[0].role(), bench.rejected.len()), (Role::Idle, 1), "this one has not promised");
        bench.ask_promise(&[0], 1);
        bench.tell(&[0], 1, &lead);
        assert_eq!(bench.replicas[0].role(), Role::Leader { epoch: Epoch(1), epoch_start: 0 });
    }

    #[test]
    fn an_appointment_to_an_epoch_that_was_not_promised_is_not_taken_up() {
        let mut bench = Bench::appointed(3, CommitRule::Quorum { q: 2 });
        bench.ask_promise(&[0], 1);
        let lead = bench.lead(0);
        bench.tell(&[0], 2, &lead);
        assert_eq!((bench.replicas[0].role(), bench.replicas[0].promised()), (Role::Idle, Some(Epoch(1))));
    }

    #[test]
    fn others_follow_into_a_later_epoch_without_having_promised_it_and_never_into_an_older_one() {
        let mut bench = Bench::appointed(3, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 3, &[0, 1]);
        let lead = bench.lead(0);
        bench.tell(&[2], 3, &lead);
        assert_eq!(bench.replicas[2].role(), Role::Follower { epoch: Epoch(3), leader: peer(0) });
        let older = bench.lead(1);
        bench.tell(&[2], 2, &older);
        assert_eq!(bench.replicas[2].leader(), Some(peer(0)));
    }
}
