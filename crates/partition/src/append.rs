//! Appending for a state machine that follows HW on the leader too, and so has no reign: the metadata.
//!
//! Such a machine holds nothing but what is committed. What is refused here has therefore left no trace, and nothing is rewound.

use bytes::BytesMut;
use highwater_log::LogStore;
use highwater_wire::{Epoch, Millis};

use crate::effect::Effect;
use crate::partition::{Kind, Partition};

impl<L: LogStore> Partition<L> {
    /// Appends batches, not yet stamped, at the end of the log, if this replica leads `epoch` and the commit rule can be met. Returns whether it
    /// did: if so they may be committed, or be cut by a later leader; if not they never will be in the log.
    ///
    /// # Panics
    /// If the machine executes ahead of the log: its proposals name their reign and base.
    pub fn append(&mut self, now: Millis, epoch: Epoch, batches: BytesMut, out: &mut Vec<Effect<L::FlushJob>>) -> bool {
        assert_eq!(self.kind, Kind::AtHighWatermark, "a machine that executes ahead proposes in a reign");
        if self.halted().is_some() || self.starved().is_some() || self.log.reserve(batches.len()).is_err() {
            return false;
        }
        let base = self.log.shape().end;
        let mut effects = Vec::new();
        if self.replica.propose(now, epoch, base, batches, &mut effects).is_err() {
            return false;
        }
        self.settle(effects, out);
        let delayed = self.halted().is_some() || self.starved().is_some();
        assert!(delayed || self.log.shape().end > base, "what was appended is in the log");
        true
    }
}
