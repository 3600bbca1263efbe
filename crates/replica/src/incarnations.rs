//! Telling an older copy of a voter's folder (docs/protocol.md section 9).
//!
//! Voters of the self-electing partition do not register with anybody. Instead each keeps the newest incarnation that it has seen of every other, and
//! refuses whatever an older one says: a folder put back from before has forgotten votes and entries, and would let an epoch have two leaders or a leader
//! lack what is committed. As many starts with another random part means the same: the folder was copied before that start, and both were started.
//!
//! That a newer incarnation was seen is durable before anything that it says is acted on, for otherwise a restart here would forget it, and with it all
//! that hangs on it. The answer names the incarnation that it refuses, so that one that was caused by a message of an earlier process, late on the
//! wire, means nothing to the present one.
//!
//! It helps and proves nothing: a voter that has not seen the newer incarnation accepts the older.

use highwater_wire::{Body, Sender};

use crate::Effect;
use crate::state::Replica;

impl Replica {
    /// Whether what `sender` says may be heard. Under a coordinator, and from whoever has no vote, it may: there registration decides, or nothing counts.
    pub(crate) fn may_be_heard(&mut self, sender: Sender, out: &mut Vec<Effect>) -> bool {
        let Sender { peer, incarnation } = sender;
        if peer == self.me || !self.voters().is_some_and(|voters| voters.contains(&peer)) {
            return true;
        }
        match self.hard.seen.get(&peer) {
            Some(newest) if *newest == incarnation => true,
            Some(newest) if newest.starts >= incarnation.starts => {
                let answer = Body::OlderCopy { refused: incarnation, newest: *newest };
                self.send_in(None, peer.node, answer, out);
                false
            }
            Some(_) | None => {
                self.hard.seen.insert(peer, incarnation);
                out.push(Effect::Persist(self.hard.clone()));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{Body, CommitRule, Envelope, Epoch, Incarnation, PartitionId, Rank, Sender};

    use crate::bench::{Bench, peer};
    use crate::{Input, Timeout};

    const VOTE: Body = Body::Stand { rank: Rank { last_epoch: Some(Epoch(9)), leo: 99 }, pre: false };

    fn process(starts: u64, random: u64) -> Incarnation {
        Incarnation { starts, random }
    }

    /// What replica 1 answers to replica 0, which asks for its vote as that process.
    fn asked_by(bench: &mut Bench, epoch: u32, incarnation: Incarnation) -> Vec<Body> {
        bench.wire.clear();
        let sender = Sender { peer: peer(0), incarnation };
        let envelope = Envelope { partition: PartitionId(1), sender, epoch: Some(Epoch(epoch)), body: VOTE };
        bench.step(1, Input::Message(envelope));
        bench.under_way(0)
    }

    #[test]
    fn an_older_incarnation_is_refused_by_name_over_restarts_and_changes_nothing() {
        let mut bench = Bench::electing(3);
        let yes = Body::Vote { granted: true, pre: false };
        assert_eq!(asked_by(&mut bench, 4, process(7, 1)), std::slice::from_ref(&yes));
        for restarted in [false, true] {
            if restarted {
                bench.restart(1);
            }
            for older in [process(6, 2), process(7, 2)] {
                let refused = Body::OlderCopy { refused: older, newest: process(7, 1) };
                assert_eq!(asked_by(&mut bench, 5, older), [refused]);
            }
            assert_eq!(bench.replicas[1].promised(), Some(Epoch(4)), "nobody was voted for");
        }
        assert_eq!(asked_by(&mut bench, 5, process(8, 3)), [yes]);
        let late = Body::OlderCopy { refused: process(7, 1), newest: process(8, 3) };
        assert_eq!(asked_by(&mut bench, 6, process(7, 1)), [late], "what was true before is late now");
    }

    #[test]
    fn an_incarnation_is_durable_before_its_message_is_answered() {
        let mut bench = Bench::electing(3);
        let sender = Sender { peer: peer(0), incarnation: process(7, 1) };
        let pre = Body::Stand { rank: Rank { last_epoch: None, leo: 0 }, pre: true };
        let envelope = Envelope { partition: PartitionId(1), sender, epoch: Some(Epoch(0)), body: pre };
        let mut effects = Vec::new();
        bench.replicas[1].step(0, Input::Message(envelope), &mut effects);
        match &effects[..] {
            [crate::Effect::Persist(hard), crate::Effect::Send(..)] => {
                assert_eq!(hard.seen.get(&peer(0)), Some(&process(7, 1)));
                assert_eq!(hard.promised, None);
            }
            other => panic!("first the incarnation, then the answer: {other:?}"),
        }
    }

    #[test]
    fn an_older_copy_neither_wins_an_election_nor_disturbs_the_leader() {
        let mut bench = Bench::electing(3);
        bench.step(1, Input::Timeout(Timeout::Election));
        bench.settle();
        bench.restart(0);
        bench.step(0, Input::Timeout(Timeout::Heartbeat));
        bench.settle();
        assert_eq!(bench.ends(), [1, 1, 1]);
        let newest = bench.incarnation(0);
        bench.put_back(0);
        let copy = bench.incarnation(0);
        assert!(copy.starts <= newest.starts);
        bench.step(0, Input::Timeout(Timeout::Heartbeat));
        bench.step(0, Input::Timeout(Timeout::Election));
        bench.deliver_to(&[1, 2]);
        let refused = Body::OlderCopy { refused: copy, newest };
        assert!(!bench.under_way(0).is_empty());
        let answers: Vec<Body> =
            bench.under_way(0).into_iter().filter(|body| !matches!(body, Body::Batch { .. })).collect();
        assert!(answers.iter().all(|body| *body == refused), "{answers:?}");
        assert!(bench.replicas[1].leads(Epoch(0)));
    }

    #[test]
    fn under_a_coordinator_the_registration_decides() {
        let mut bench = Bench::appointed(3, CommitRule::Quorum { q: 2 });
        bench.ask_promise(&[1], 3);
        bench.starts(0, 9);
        bench.ask_promise(&[1], 4);
        bench.starts(0, 1);
        bench.ask_promise(&[1], 5);
        assert_eq!(bench.replicas[1].promised(), Some(Epoch(5)));
    }
}
