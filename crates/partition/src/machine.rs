//! The seam to state machines.

use bytes::Bytes;
use highwater_wire::{Epoch, Offset};

/// One uninterrupted period in which a state machine executes ahead of the log. An epoch usually has one; a refused proposal ends it, and the machine is
/// rewound and told to lead again in the same epoch. What was executed in an older reign than the present one is never taken for the present one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reign {
    /// The epoch that is led.
    pub epoch: Epoch,
    /// Raised by every [`Command::Lead`] of this partition in this process.
    pub number: u64,
}

/// What a partition wants of its state machine. Commands are carried out in the order in which they were given, but for [`Command::Publish`],
/// which takes effect at once: it must be visible to readers before a later `Answer` leaves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Apply entries `[from, to)`, and answer with `Input::Applied(to)`. Entries below what the machine has already applied are skipped.
    Apply {
        /// The first offset.
        from: Offset,
        /// The offset after the last.
        to: Offset,
        /// The batches that hold them.
        batches: Bytes,
        /// Everything here is committed, so several transactions may be applied as one.
        committed: bool,
    },
    /// Everything below `end` is applied; from now on this machine executes requests itself, ahead of HW, and proposes them in `reign` from offset
    /// `end` on. Until then, and again after `Rewind`, it proposes nothing.
    Lead {
        /// What to propose in.
        reign: Reign,
        /// The base of the first proposal.
        end: Offset,
    },
    /// Readers may see everything below `hw`, and nothing at or above it.
    Publish {
        /// The offset.
        hw: Offset,
    },
    /// Leadership ended, or entries were cut: stop executing, forget everything at and above `to` (more may be forgotten), and answer with
    /// `Input::Rewound(at)`, where `at <= to` is what is applied now. Readers see nothing from then on until the next `Publish`.
    Rewind {
        /// The offset.
        to: Offset,
    },
}

/// A state machine as those who drive it see it. All calls but `publish` come from one thread, in order.
pub trait StateMachine {
    /// Why the machine stopped. It does not go on: a machine that may have diverged must not serve.
    type Error: std::fmt::Display;

    /// How far it has applied. After a restart never above what was committed.
    fn applied(&self) -> Offset;

    /// See [`Command::Apply`].
    fn apply(&self, from: Offset, to: Offset, batches: &Bytes, committed: bool) -> Result<(), Self::Error>;

    /// See [`Command::Lead`].
    fn lead(&self, reign: Reign, end: Offset) -> Result<(), Self::Error>;

    /// See [`Command::Publish`]. Cheap; called from the partition's own thread.
    fn publish(&self, hw: Offset);

    /// See [`Command::Rewind`]. Returns what is applied now.
    fn rewind(&self, to: Offset) -> Result<Offset, Self::Error>;
}
