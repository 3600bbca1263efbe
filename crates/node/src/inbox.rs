//! What reaches the core thread.
//!
//! The queue itself takes everything, because two of its senders must never block and must never be refused: the SQL writer, which proposes while it
//! holds its lock, and the threads that bring results back. It is bounded at its sources instead: bytes executed ahead ([`crate::Database::admit`]),
//! requests in flight (the limit of whoever serves clients), one flush job for each partition.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use highwater_host as host;
use highwater_partition::{Outcome, Ticket};
use highwater_wire::{Offset, PartitionId};
use tokio::sync::oneshot;

use crate::error::Unavailable;
use crate::view::NodeView;

/// One thing for the core thread.
pub(crate) enum ToCore {
    /// An event, as it is.
    Host(host::Input),
    /// A request that waits for an outcome under its ticket.
    Ask { partition: PartitionId, ticket: Ticket, reply: oneshot::Sender<Outcome>, input: highwater_partition::Input },
    /// Nobody waits for that ticket any more.
    Forget { partition: PartitionId, ticket: Ticket },
    /// A database's state machine is open.
    Opened { partition: PartitionId, machine: Arc<highwater_sql::Database>, applied: Offset },
    /// A database's state machine stopped, or could not be opened.
    MachineStopped { partition: PartitionId, reason: String },
    /// A thread that the core waits for has ended by a broken law.
    Broken(String),
    /// What there is to see.
    View(oneshot::Sender<NodeView>),
    /// Finish what is flushing, close the logs, end.
    Stop(mpsc::Sender<()>),
}

/// The sending side.
#[derive(Clone)]
pub(crate) struct Inbox {
    sender: mpsc::Sender<ToCore>,
    tickets: Arc<AtomicU64>,
}

impl Inbox {
    /// An inbox and its receiving end.
    pub(crate) fn new() -> (Inbox, mpsc::Receiver<ToCore>) {
        let (sender, receiver) = mpsc::channel();
        (Inbox { sender, tickets: Arc::new(AtomicU64::new(1)) }, receiver)
    }

    /// Queues one thing; refused only if the core has ended.
    pub(crate) fn send(&self, message: ToCore) -> Result<(), Unavailable> {
        self.sender.send(message).map_err(|_| Unavailable::ShuttingDown)
    }

    /// A ticket that was never given before in this process.
    pub(crate) fn next_ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }
}
