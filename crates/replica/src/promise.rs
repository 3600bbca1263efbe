//! Promising an epoch to a coordinator that wants to appoint a leader.
//!
//! A promise says: I append, acknowledge and confirm nothing of an epoch below this one any more, and my log ends here. A later epoch is promised
//! always; the same epoch again as long as nobody led this replica in it, since then the answer was lost or another coordinator asks; anything
//! else is refused with the promised epoch. The stated rank is that of the durable part of the log.

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
        } else if self.part != Part::Idle {
            self.refuse(from, out);
            return;
        }
        assert_eq!(self.hard.promised, Some(epoch), "the promise is given for the epoch that was asked for");
        let rank = self.log.rank();
        self.send(from, Body::Promise { ballot, rank }, out);
    }
}
