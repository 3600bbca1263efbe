//! What goes into a partition.

use bytes::BytesMut;
use highwater_log::FlushDone;
use highwater_replica::Timeout;
use highwater_wire::{Envelope, Epoch, NodeId, Offset};

use crate::machine::Reign;

/// A waiting request of the caller's; answered exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AckPolicy {
    /// HW has passed it.
    #[default]
    Committed,
    /// It is durable on the leader alone. The answer says so.
    Leader,
}

/// A transaction that a state machine executed ahead of the log, as it goes into the log.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The reign it was executed in.
    pub reign: Reign,
    /// The end of the log it was executed on.
    pub base: Offset,
    /// One or several batches, one behind the other, not yet stamped.
    pub batches: BytesMut,
}

/// One event.
#[derive(Debug)]
pub enum Input {
    /// A message for this partition arrived.
    Message(Envelope),
    /// Time has passed.
    Tick,
    /// Does at once what `Tick` would do when that timer runs out, for checkers that know no time.
    Timeout(Timeout),
    /// The connection to that node broke.
    Disconnected(NodeId),
    /// A flush job ended.
    FlushDone(FlushDone),
    /// Append a transaction. If it is refused, the state machine is told to rewind, since it has run ahead on it. Its outcome is told to the `Hold` on it.
    Propose(Proposal),
    /// An answer that depends on everything below `until`, as executed in `reign`: say when it may leave, or what became of it. Comes after the
    /// proposals it depends on.
    Hold {
        /// Whom to answer.
        ticket: Ticket,
        /// The reign whose state the answer was computed from.
        reign: Reign,
        /// The end of that state.
        until: Offset,
        /// The answer's own proposal ends at `until`: if it is lost, its outcome may be *unknown*. Otherwise it only looked, and leadership is confirmed
        /// before it leaves, as for a linearizable read.
        wrote: bool,
        /// When it may leave. `Leader` is for a write's own answer, and says so.
        ack: AckPolicy,
    },
    /// A linearizable read: answered when everything committed at its arrival is published here.
    Read {
        /// Whom to answer.
        ticket: Ticket,
    },
    /// A read that wants to see `until`: answered when it is published here.
    AtLeast {
        /// Whom to answer.
        ticket: Ticket,
        /// The epoch of the entry before `until`, which must be the log's too.
        epoch: Option<Epoch>,
        /// The offset.
        until: Offset,
    },
    /// The caller waits no more for this ticket (it timed out); it is forgotten without an answer.
    Forget {
        /// The ticket.
        ticket: Ticket,
    },
    /// The state machine has applied up to here.
    Applied(Offset),
    /// The state machine has rewound, and has applied up to here.
    Rewound(Offset),
}
