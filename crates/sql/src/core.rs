//! What only the holder of the writer's token may touch.

use highwater_partition::Reign;
use highwater_wire::{Epoch, Offset};

use crate::apply::Applier;
use crate::client::Client;
use crate::unfinished::Unfinished;

/// The state of the writing side.
pub(crate) struct Core {
    /// The reign it executes in; `None` while it does not lead.
    pub(crate) reign: Option<Reign>,
    /// Everything below it is executed or applied.
    pub(crate) end: Offset,
    /// The epoch of the entry before `end`.
    pub(crate) epoch: Option<Epoch>,
    /// The greatest timestamp of all that is below `end`. It never goes back, so that the ages of idempotency keys can be told by it.
    pub(crate) log_time_ms: i64,
    /// Where transactions end in SQLite's log since the last checkpoint, the state right after that first.
    pub(crate) frames: Vec<Frame>,
    /// The salts of SQLite's log. They change at a checkpoint and at no other time.
    pub(crate) salts: [u8; 8],
    /// How many frames there were when a reader last kept a checkpoint from ending.
    pub(crate) put_off: u32,
    /// Everything below it is known to be committed.
    pub(crate) committed: Offset,
    /// Entries of a transaction whose end has not come yet.
    pub(crate) unfinished: Unfinished,
    /// Why this database stopped, if it has.
    pub(crate) failed: Option<String>,
    /// The connection that all one-shot transactions share.
    pub(crate) writer: Option<Client>,
    /// The connection that applies.
    pub(crate) applier: Option<Applier>,
}

/// The end of a transaction in SQLite's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) end: Offset,
    pub(crate) epoch: Option<Epoch>,
    /// How many frames there are up to there.
    pub(crate) frames: u32,
}

impl Core {
    /// How many frames SQLite's log has.
    pub(crate) fn frames_now(&self) -> u32 {
        self.frames.last().map_or(0, |frame| frame.frames)
    }

    /// Asserts what is always true, of the newest transaction: the older ones were looked at when they were.
    pub(crate) fn check(&self) {
        if let [.., before, last] = self.frames.as_slice() {
            assert!(
                before.end <= last.end && before.frames <= last.frames,
                "transaction ends and their frames rise: {before:?}, {last:?}"
            );
        }
        assert!(self.frames.last().is_none_or(|last| last.end == self.end), "the last frame is the present end");
    }
}
