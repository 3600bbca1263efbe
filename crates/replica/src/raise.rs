//! Raising the epoch: the one way into a later epoch, for promising, following, standing, leading and being refused alike.
//!
//! The role is left; a leader resigns, which means that it appends, acknowledges, confirms and serves reads no more. Everything owed in older
//! epochs is void: an acknowledgement that still waits for its flush must not leave after a promise, or an entry counts as copied on a replica
//! that the next leader's election was told does not have it. Nothing of the new epoch leaves before the promise is durable: `Persist` comes first.

use highwater_wire::{Body, Epoch, PeerId};

use crate::state::{Part, Reader, Replica};
use crate::{Effect, ReadError, Role};

impl Replica {
    /// Enters `epoch`, which must be later than the promised one, idle.
    pub(crate) fn raise(&mut self, epoch: Epoch, promised_to: Option<PeerId>, out: &mut Vec<Effect>) {
        assert!(
            Some(epoch) > self.hard.promised,
            "epochs only rise: {epoch:?} is not above the promised {:?}",
            self.hard.promised
        );
        assert!(
            promised_to.is_none() || self.voters().is_some(),
            "only voters of the self-electing partition promise to somebody"
        );
        self.leave_role(out);
        self.hard.promised = Some(epoch);
        self.hard.promised_to = promised_to;
        self.hard.hw_hint = (self.hw, self.hw_epoch);
        self.canvass = None;
        self.hears_leader = false;
        self.timers.leader_at = self.timers.now;
        out.push(Effect::Persist(self.hard.clone()));
    }

    /// Leaves the present role for `Idle`, which voids everything that was owed in it, and tells whoever waited.
    fn leave_role(&mut self, out: &mut Vec<Effect>) {
        let part = std::mem::replace(&mut self.part, Part::Idle);
        if part == Part::Idle {
            return;
        }
        out.push(Effect::Role(Role::Idle));
        match part {
            Part::Leader(leading) => {
                let round = leading.round.into_iter().flat_map(|round| round.readers);
                let waiting = leading.waiting.into_iter().map(|waiting| waiting.reader);
                for reader in round.chain(waiting) {
                    match reader {
                        Reader::Own(id) => out.push(Effect::Read(id, Err(ReadError::LeadershipLost))),
                        Reader::Follower(node, id) => {
                            self.send(node, Body::ReadIndexAnswer { id, index: None }, out);
                        }
                    }
                }
            }
            Part::Follower(following) => {
                let asked = following.asking.into_iter().flat_map(|(_, reads)| reads);
                for id in asked.chain(following.waiting) {
                    out.push(Effect::Read(id, Err(ReadError::LeadershipLost)));
                }
            }
            Part::Candidate { .. } | Part::Idle => {}
        }
    }
}
