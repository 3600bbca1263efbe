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
