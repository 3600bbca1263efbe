//! Promising an epoch to a coordinator that wants to appoint a leader.
//!
//! A promise says: I append, acknowledge and confirm nothing of an epoch below this one any more, and my log ends here. A later epoch is promised
//! always; the same epoch again as long as nobody led this replica in it, since then the answer was lost or another coordinator asks; anything
//! else is refused with the promised epoch. The stated rank is that of the durable part of the log.
//!
//! An epoch of which the log holds entries has been led, though this incarnation knows nothing of it. A coordinator that asks for it again could
//! never record the appointment, unless its own disk has lost the first one; then the refusal makes it begin above.

use highwater_wire::{Body, Epoch, NodeId};

use crate::Effect;
use crate::state::{Part, Replica};

impl Replica {
    /// A coordinator on `from` asks for a promise of `epoch`, which is not below the promised one.
    pub(crate) fn promise(&mut self, from: NodeId, epoch: Epoch, ballot: u64, out: &mut Vec<Effect>) {
        assert!(Some(epoch) >= self.hard.promised, "what is older was refused before");
        if self.voters().is_some() {
            return; // Voters of the self-electing partition promise to candidates alone.
        }
        if Some(epoch) > self.hard.promised {
            self.raise(epoch, None, out);
        } else if self.part != Part::Idle || self.log.last_epoch() == Some(epoch) {
            self.refuse(from, out);
            return;
        }
        assert_eq!(self.hard.promised, Some(epoch), "the promise is given for the epoch that was asked for");
        self.answered = true;
        let rank = self.log.rank();
        self.send(from, Body::Promise { ballot, rank }, out);
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{Body, CommitRule, Epoch, Rank};

    use crate::bench::Bench;

    fn answer(bench: &mut Bench, epoch: u32) -> Vec<Body> {
        bench.wire.clear();
        bench.receive(1, 0, epoch, Body::PromiseRequest { ballot: 5 });
        bench.under_way(0)
    }

    #[test]
    fn an_epoch_is_promised_again_while_idle_and_older_ones_are_refused() {
        let mut bench = Bench::appointed(2, CommitRule::Quorum { q: 2 });
        let promise = Body::Promise { ballot: 5, rank: Rank { last_epoch: None, leo: 0 } };
        assert_eq!(answer(&mut bench, 3), std::slice::from_ref(&promise));
        assert_eq!(answer(&mut bench, 3), [promise]);
        assert_eq!(answer(&mut bench, 2), [Body::Refused { promised: Epoch(3) }]);
        bench.restart(1);
        assert_eq!(answer(&mut bench, 2), [Body::Refused { promised: Epoch(3) }], "a promise survives restarts");
        bench.appoint(0, 4, &[0, 1]);
        assert_eq!(
            answer(&mut bench, 4),
            [Body::Refused { promised: Epoch(4) }],
            "whoever follows in it promised it away"
        );
    }

    #[test]
    fn an_epoch_that_has_entries_is_not_promised_again() {
        let mut bench = Bench::appointed(2, CommitRule::Isr { min: 1 });
        bench.appoint(0, 1, &[0, 1]);
        bench.settle();
        bench.write(0).expect("the leader alone is enough");
        bench.settle();
        bench.restart(1);
        assert_eq!(answer(&mut bench, 1), [Body::Refused { promised: Epoch(1) }]);
        let rank = Rank { last_epoch: Some(Epoch(1)), leo: 1 };
        assert_eq!(answer(&mut bench, 2), [Body::Promise { ballot: 5, rank }]);
    }

    #[test]
    fn a_promise_states_the_durable_rank() {
        let mut bench = Bench::appointed(2, CommitRule::Isr { min: 1 });
        bench.appoint(0, 1, &[0, 1]);
        bench.settle();
        bench.write(0).expect("the leader alone is enough");
        bench.deliver();
        assert_eq!(bench.ends()[1], 1, "the entry is here, and not flushed");
        let rank = Rank { last_epoch: None, leo: 0 };
        assert_eq!(answer(&mut bench, 2), [Body::Promise { ballot: 5, rank }]);
    }
}
