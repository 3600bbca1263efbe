//! Requests that wait for a partition's outcome.
//!
//! Each has a ticket, answered exactly once. Whoever gives up waiting, because the time ran out or because the client left, has the partition forget
//! the ticket, so that nothing is kept for nobody.

use std::time::Duration;

use highwater_partition::{Input, Outcome, Ticket};
use highwater_wire::PartitionId;
use tokio::sync::oneshot;

use crate::error::Unavailable;
use crate::inbox::{Inbox, ToCore};

/// A ticket that was handed to the core. Dropped unanswered, it is forgotten there too.
pub(crate) struct Waiting {
    partition: PartitionId,
    ticket: Ticket,
    answer: oneshot::Receiver<Outcome>,
    inbox: Inbox,
    settled: bool,
}

impl Waiting {
    /// Hands an input to the core, under a new ticket that `input` puts into it.
    pub(crate) fn ask(
        inbox: &Inbox,
        partition: PartitionId,
        input: impl FnOnce(Ticket) -> Input,
    ) -> Result<Waiting, Unavailable> {
        let ticket = inbox.next_ticket();
        let (reply, answer) = oneshot::channel();
        inbox.send(ToCore::Ask { partition, ticket, reply, input: input(ticket) })?;
        Ok(Waiting { partition, ticket, answer, inbox: inbox.clone(), settled: false })
    }

    /// The outcome, if it comes within that time.
    pub(crate) async fn outcome(mut self, wait: Duration) -> Result<Outcome, Unavailable> {
        match tokio::time::timeout(wait, &mut self.answer).await {
            Ok(Ok(outcome)) => {
                self.settled = true;
                Ok(outcome)
            }
            Ok(Err(_)) => {
                self.settled = true;
                Err(Unavailable::ShuttingDown)
            }
            Err(_) => Err(Unavailable::TimedOut { waited_ms: wait.as_millis() as u64 }),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.settled {
            // A core that is gone has forgotten everything anyway.
            let _ = self.inbox.send(ToCore::Forget { partition: self.partition, ticket: self.ticket });
        }
    }
}
