//! Linearizable reads at the leader (Raft, section 6.4 of the dissertation).
//!
//! A leader serves them once HW has reached the start of its epoch (`quorum`: once its control entry is committed), since an older HW may leave
//! out what an earlier leader acknowledged. The index is HW; then a round of confirmations is sent, *after* the reads that it serves arrived. A
//! replica confirms that it has promised nothing later; the coordinator, that the record still names this epoch. Enough are: under `quorum:q`,
//! q of the set; under `isr`, all of the maximal set as it was when the reads arrived; under every rule the coordinator alone.
//!
//! The coordinator is asked only when a round has not ended within a heartbeat. Replicas are asked with an even number and the coordinator with the
//! odd one after it, so that its answer is not taken for that of the replica beside it.

use std::collections::BTreeSet;

use highwater_wire::{Body, CommitRule, Dest, NodeId, PeerId, Sender};

use crate::Effect;
use crate::state::{Leading, Reader, Replica, Round, WaitingRead};

impl Replica {
    /// A read arrived at this leader, from its caller or from a follower.
    pub(crate) fn read_at_leader(&mut self, reader: Reader, out: &mut Vec<Effect>) {
        let leading = self.part.leading_mut().expect("a leader gives read indexes");
        let set = leading.maximal();
        assert!(!set.is_empty(), "a set has members");
        leading.waiting.push(WaitingRead { reader, set });
        self.start_round(out);
    }

    /// A follower asks for an index, in the promised epoch.
    pub(crate) fn asked_for_index(&mut self, from: NodeId, id: u64, out: &mut Vec<Effect>) {
        match self.part.leading() {
            Some(leading) => {
                let reader = Reader::Follower(from, id);
                let served = leading.round.as_ref().is_some_and(|round| round.readers.contains(&reader));
                // A follower has one question out, and their numbers rise: of several that wait, only the last is still asked.
                let waits = |read: &WaitingRead| matches!(read.reader, Reader::Follower(node, other) if node == from && other >= id);
                if !served && !leading.waiting.iter().any(waits) {
                    self.forget_question(from);
                    self.read_at_leader(reader, out);
                }
            }
            None => self.send(from, Body::ReadIndexAnswer { id, index: None }, out),
        }
    }

    fn forget_question(&mut self, from: NodeId) {
        if let Some(leading) = self.part.leading_mut() {
            leading.waiting.retain(|read| !matches!(read.reader, Reader::Follower(node, _) if node == from));
        }
    }

    /// Whether HW covers everything that was committed before this epoch.
    fn serves_reads(&self, leading: &Leading) -> bool {
        match leading.committed.rule {
            CommitRule::Isr { .. } => self.hw >= leading.epoch_start,
            CommitRule::Quorum { .. } => self.hw > leading.epoch_start,
        }
    }

    /// Starts a round for all waiting reads, unless one is under way.
    pub(crate) fn start_round(&mut self, out: &mut Vec<Effect>) {
        let (me, index) = (self.me, self.hw);
        let Some(leading) = self.part.leading() else { return };
        if leading.round.is_some() || leading.waiting.is_empty() || !self.serves_reads(leading) {
            return;
        }
        self.last_question += 1;
        let number = self.last_question * 2;
        let leading = self.part.leading_mut().expect("a leader starts rounds");
        let waiting = std::mem::take(&mut leading.waiting);
        let mut set: BTreeSet<PeerId> = leading.maximal().into_iter().collect();
        set.extend(waiting.iter().flat_map(|read| &read.set));
        leading.round = Some(Round {
            number,
            readers: waiting.into_iter().map(|read| read.reader).collect(),
            index,
            set: set.into_iter().collect(),
            confirmed: BTreeSet::from([me]),
        });
        self.ask_confirmations(out);
        self.end_round_if_confirmed(out);
    }

    fn ask_confirmations(&self, out: &mut Vec<Effect>) {
        let Some(round) = self.part.leading().and_then(|leading| leading.round.as_ref()) else { return };
        for peer in round.set.iter().filter(|peer| !round.confirmed.contains(peer)) {
            self.send(peer.node, Body::Confirm { round: round.number }, out);
        }
    }

    /// A round that is still under way is asked again, and the coordinator with it.
    pub(crate) fn repeat_round(&self, out: &mut Vec<Effect>) {
        let Some(round) = self.part.leading().and_then(|leading| leading.round.as_ref()) else { return };
        assert!(round.number.is_multiple_of(2), "replicas are asked with even numbers");
        self.ask_confirmations(out);
        if self.voters().is_none() {
            let body = Body::Confirm { round: round.number + 1 };
            out.push(Effect::Send(Dest::Coordinator, self.envelope(self.hard.promised, body)));
        }
    }

    /// A leader asks whether it still leads an epoch that is not below the promised one. What is asked of the coordinator is not answered here, even if
    /// it is handed to both: the coordinator's word alone would be enough, and a replica's is not.
    pub(crate) fn confirm(&self, from: NodeId, epoch: highwater_wire::Epoch, round: u64, out: &mut Vec<Effect>) {
        assert!(Some(epoch) >= self.hard.promised, "what is older was refused before");
        if round.is_multiple_of(2) {
            self.send_in(Some(epoch), from, Body::Confirmed { round }, out);
        }
    }

    /// A confirmation of this leader's own epoch.
    pub(crate) fn hear_confirmed(&mut self, sender: Sender, number: u64, out: &mut Vec<Effect>) {
        let appointed = self.voters().is_none();
        let Some(round) = self.part.leading_mut().and_then(|leading| leading.round.as_mut()) else { return };
        if number == round.number && round.set.contains(&sender.peer) {
            round.confirmed.insert(sender.peer);
            self.end_round_if_confirmed(out);
        } else if number == round.number + 1 && appointed {
            self.end_round(out);
        }
    }

    fn end_round_if_confirmed(&mut self, out: &mut Vec<Effect>) {
        let Some(leading) = self.part.leading() else { return };
        let Some(round) = &leading.round else { return };
        let needed = match leading.committed.rule {
            CommitRule::Isr { .. } => round.set.len(),
            CommitRule::Quorum { q } => q as usize,
        };
        assert!(round.confirmed.contains(&self.me), "the leader is among those who confirm");
        if round.confirmed.len() >= needed {
            self.end_round(out);
        }
    }

    fn end_round(&mut self, out: &mut Vec<Effect>) {
        let leading = self.part.leading_mut().expect("a leader ends its rounds");
        let round = leading.round.take().expect("a round is under way");
        assert!(round.index <= self.hw, "an index covers only what is committed");
        for reader in round.readers {
            match reader {
                Reader::Own(id) => out.push(Effect::Read(id, Ok(round.index))),
                Reader::Follower(node, id) => {
                    self.send(node, Body::ReadIndexAnswer { id, index: Some(round.index) }, out);
                }
            }
        }
        self.start_round(out);
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{Body, CommitRule};

    use crate::bench::Bench;
    use crate::{Input, Timeout};

    #[test]
    fn a_lone_replica_confirms_itself_and_reads_wait_for_its_control_entry() {
        let mut bench = Bench::appointed(1, CommitRule::Quorum { q: 1 });
        bench.appoint(0, 1, &[0]);
        bench.step(0, Input::Read(1));
        assert_eq!(bench.reads, [], "HW has not reached the epoch's start");
        bench.flush(0);
        bench.step(0, Input::Read(2));
        assert_eq!(bench.reads, [(0, 1, Ok(1)), (0, 2, Ok(1))]);
    }

    #[test]
    fn one_round_serves_all_reads_that_waited_before_it_was_sent() {
        let mut bench = Bench::appointed(3, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1, 2]);
        bench.settle();
        bench.step(0, Input::Read(1));
        let first_round = bench.wire.clone();
        bench.step(0, Input::Read(2));
        bench.step(0, Input::Read(3));
        assert_eq!(bench.wire, first_round, "the next round is sent when this one has ended");
        bench.deliver();
        assert_eq!(bench.reads, [(0, 1, Ok(1)), (0, 2, Ok(1)), (0, 3, Ok(1))]);
    }

    #[test]
    fn who_promised_a_later_epoch_does_not_confirm() {
        let mut bench = Bench::appointed(3, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1, 2]);
        bench.settle();
        bench.ask_promise(&[1, 2], 2);
        bench.wire.clear();
        bench.step(0, Input::Read(1));
        bench.deliver();
        assert_eq!(bench.reads, []);
    }

    #[test]
    fn the_whole_isr_confirms_or_the_coordinator_alone() {
        let mut bench = Bench::appointed(3, CommitRule::Isr { min: 1 });
        bench.appoint(0, 1, &[0, 1, 2]);
        bench.settle();
        bench.step(0, Input::Read(1));
        bench.wire.retain(|(to, _)| *to == 1);
        bench.deliver();
        assert_eq!(bench.reads, [], "one member has not confirmed");
        bench.coordinator.clear();
        bench.step(0, Input::Timeout(Timeout::Heartbeat));
        bench.wire.clear();
        let Some(Body::Confirm { round }) = bench.coordinator.pop().map(|envelope| envelope.body) else {
            panic!("the coordinator is asked")
        };
        assert_eq!(round % 2, 1, "under an odd number");
        bench.receive(0, 2, 1, Body::Confirmed { round });
        assert_eq!(bench.reads, [(0, 1, Ok(0))]);
    }

    #[test]
    fn a_replica_does_not_answer_what_is_asked_of_the_coordinator() {
        let mut bench = Bench::appointed(2, CommitRule::Quorum { q: 2 });
        bench.receive(1, 0, 1, Body::Confirm { round: 2 });
        bench.receive(1, 0, 1, Body::Confirm { round: 3 });
        assert_eq!(bench.under_way(0), [Body::Confirmed { round: 2 }]);
    }

    #[test]
    fn a_follower_reads_by_its_leaders_index() {
        let mut bench = Bench::appointed(3, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1, 2]);
        bench.settle();
        bench.step(1, Input::Read(5));
        bench.step(1, Input::Read(6));
        assert_eq!(bench.under_way(0).len(), 1, "one question at a time");
        bench.deliver();
        assert_eq!(bench.reads, [(1, 5, Ok(1)), (1, 6, Ok(1))]);
    }
}
