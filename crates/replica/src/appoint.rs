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
                self.hear_leader();
                if self.stream().is_none() {
                    self.open(out);
                }
            }
            Part::Idle | Part::Candidate { .. } => {
                let following = Following { leader: lead.leader, stream: None, asking: None, waiting: Vec::new() };
                self.part = Part::Follower(following);
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
