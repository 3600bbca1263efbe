//! The way from a database's writer to its log.

use std::sync::Arc;

use bytes::BytesMut;
use highwater_host::Input;
use highwater_partition::{Proposal, Reign};
use highwater_sql::Proposer;
use highwater_wire::{Offset, PartitionId};

use crate::ahead::Ahead;
use crate::inbox::{Inbox, ToCore};

/// Hands what a database executed to the core, in the order of execution. Never blocks: it is called under the writer's lock.
pub(crate) struct ToLog {
    pub(crate) partition: PartitionId,
    pub(crate) inbox: Inbox,
    pub(crate) ahead: Arc<Ahead>,
}

impl Proposer for ToLog {
    fn propose(&self, reign: Reign, base: Offset, batches: BytesMut) {
        assert!(!batches.is_empty(), "a proposal has at least one batch");
        self.ahead.proposed(base, batches.len() as u64);
        let proposal = highwater_partition::Input::Propose(Proposal { reign, base, batches });
        // A core that has ended answers nothing any more: the holds on this proposal end as unknown.
        let _ = self.inbox.send(ToCore::Host(Input::Partition(self.partition, proposal)));
    }
}
