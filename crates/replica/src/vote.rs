//! Voting in the self-electing partition.
//!
//! A vote for (epoch, candidate) is given if the epoch is later than the promised one, or is the promised one and was promised to this very
//! candidate, and if the candidate's rank is at least one's own (Raft, section 5.4.1). The promise is durable before the vote leaves: one candidate
//! for each epoch, over restarts as well. To the question before an election (`pre`) the answer is what the vote would be, but no from whoever hears
//! from a living leader or is one, and nothing changes.

use highwater_wire::{Body, Epoch, Rank, Sender};

use crate::Effect;
use crate::state::Replica;

impl Replica {
    /// `sender` stands for `epoch`, which is not below the promised one, or asks whether it would win.
    pub(crate) fn vote(&mut self, sender: Sender, epoch: Epoch, rank: Rank, pre: bool, out: &mut Vec<Effect>) {
        assert!(Some(epoch) >= self.hard.promised, "what is older was refused before");
        if !self.voters().is_some_and(|voters| voters.contains(&sender.peer)) || sender.peer.node == self.me.node {
            return;
        }
        let unbound = Some(epoch) > self.hard.promised || self.hard.promised_to == Some(sender.peer);
        let content = pre && (self.hears_leader || self.part.leading().is_some());
        let granted = unbound && rank >= self.log.rank() && !content;
        if granted && !pre && Some(epoch) > self.hard.promised {
            self.raise(epoch, Some(sender.peer), out);
        }
        assert!(!granted || pre || self.hard.promised_to == Some(sender.peer), "a vote is a promise to its candidate");
        // A yes names the epoch it is for; a no names the promised epoch, so that the candidate may stand above it next time.
        let named = if granted { Some(epoch) } else { self.hard.promised };
        self.send_in(named, sender.peer.node, Body::Vote { granted, pre }, out);
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{Body, Epoch, Rank};

    use crate::bench::Bench;

    fn ask(bench: &mut Bench, from: usize, epoch: u32, leo: u64, pre: bool) -> Body {
        bench.wire.clear();
        let last_epoch = (leo > 0).then_some(Epoch(0));
        bench.receive(2, from, epoch, Body::Stand { rank: Rank { last_epoch, leo }, pre });
        bench.under_way(from).pop().expect("every question is answered")
    }

    #[test]
    fn one_candidate_for_each_epoch_over_restarts_as_well() {
        let mut bench = Bench::electing(3);
        let (yes, no) = (Body::Vote { granted: true, pre: false }, Body::Vote { granted: false, pre: false });
        assert_eq!(ask(&mut bench, 0, 4, 0, false), yes);
        assert_eq!(ask(&mut bench, 1, 4, 0, false), no);
        bench.restart(2);
        assert_eq!(ask(&mut bench, 1, 4, 0, false), no);
        assert_eq!(ask(&mut bench, 0, 4, 0, false), yes, "the same candidate may ask again");
        assert_eq!(ask(&mut bench, 1, 3, 0, false), Body::Refused { promised: Epoch(4) });
    }

    #[test]
    fn a_log_that_lacks_entries_is_not_voted_for() {
        let mut bench = Bench::electing(3);
        bench.step(2, crate::Input::Timeout(crate::Timeout::Election));
        bench.settle();
        assert_eq!(bench.ends(), [1, 1, 1]);
        bench.restart(2);
        assert_eq!(ask(&mut bench, 0, 9, 0, true), Body::Vote { granted: false, pre: true });
        assert_eq!(ask(&mut bench, 0, 9, 0, false), Body::Vote { granted: false, pre: false });
        assert_eq!(bench.replicas[2].promised(), Some(Epoch(0)), "a denied vote changes nothing");
        assert_eq!(ask(&mut bench, 0, 9, 1, true), Body::Vote { granted: true, pre: true });
        assert_eq!(bench.replicas[2].promised(), Some(Epoch(0)), "nor does a question before the election");
        assert_eq!(ask(&mut bench, 0, 9, 1, false), Body::Vote { granted: true, pre: false });
        assert_eq!(bench.replicas[2].promised(), Some(Epoch(9)));
    }
}
