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
        self.answered = false;
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

#[cfg(test)]
mod tests {
    use highwater_wire::{Body, CommitRule};

    use crate::ReadError;
    use crate::bench::Bench;

    #[test]
    fn a_later_promise_voids_acknowledgements_that_wait_for_their_flush() {
        let mut bench = Bench::appointed(3, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1, 2]);
        bench.settle();
        bench.write(0).expect("all are in reach");
        bench.deliver();
        assert_eq!(bench.ends(), [2, 2, 2], "the write is appended everywhere and flushed nowhere");
        bench.ask_promise(&[1], 2);
        bench.wire.clear();
        bench.flush(1);
        assert!(bench.under_way(0).is_empty(), "nothing of epoch 1 leaves after epoch 2 was promised");
    }

    #[test]
    fn a_leader_that_promises_a_later_epoch_resigns_and_tells_its_readers() {
        let mut bench = Bench::appointed(3, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1, 2]);
        bench.settle();
        bench.step(0, crate::Input::Read(7));
        bench.receive(0, 1, 1, Body::ReadIndex { id: 9 });
        bench.wire.clear();
        bench.ask_promise(&[0], 2);
        assert_eq!(bench.reads, [(0, 7, Err(ReadError::LeadershipLost))]);
        assert!(bench.under_way(1).contains(&Body::ReadIndexAnswer { id: 9, index: None }));
        assert!(bench.write(0).is_err(), "it appends no more");
    }
}
