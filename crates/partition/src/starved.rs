//! A disk that is full in the middle of a step.
//!
//! A promise or a cut must be durable before anything that comes behind it, and needs a few blocks for that. If there are none, nothing has been
//! changed: what the step decided is kept, in order, and tried again at every tick until there is room. Meanwhile
//!
//! - messages are dropped, as a network may drop them, so that what is kept stays small; nothing is sent either, so that to its peers this replica is silent;
//! - what else comes in is decided about as ever, and what is decided is performed behind what waits;
//! - proposals and linearizable reads are refused as *full*: they had no effect. Readers go on with what they see.
//!
//! No data needs repair afterwards, and no restart: service returns with the space.

use std::collections::VecDeque;

use highwater_log::{LogError, LogStore};
use highwater_replica as replica;

use crate::effect::Effect;
use crate::partition::Partition;

/// What waits for room.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Starved {
    /// What the disk said last.
    pub(crate) reason: String,
    /// What is to be done, in order, once there is room. The first could not be.
    pub(crate) effects: VecDeque<replica::Effect>,
}

impl<L: LogStore> Partition<L> {
    /// Why nothing is performed at present: the disk is full.
    pub(crate) fn starved(&self) -> Option<&str> {
        self.starved.as_ref().map(|starved| starved.reason.as_str())
    }

    /// The first of these effects found the disk full and changed nothing.
    pub(crate) fn starve(&mut self, reason: String, effects: VecDeque<replica::Effect>) {
        assert!(self.starved.is_none(), "what waits for room is performed by nobody else");
        assert!(!effects.is_empty(), "something found no room");
        self.starved = Some(Starved { reason, effects });
    }

    /// Tries again what found no room. Returns whether everything was performed.
    pub(crate) fn try_again(&mut self, out: &mut Vec<Effect<L::FlushJob>>) -> Result<bool, LogError> {
        if let Some(Starved { effects, .. }) = self.starved.take() {
            self.perform(effects.into(), out)?;
        }
        Ok(self.starved.is_none())
    }

    /// Tells of it once when the disk turns out to be full, and once when there is room again.
    pub(crate) fn tell_of_room(&self, was_starved: bool, out: &mut Vec<Effect<L::FlushJob>>) {
        match (was_starved, self.starved()) {
            (false, Some(reason)) => out.push(Effect::DiskFull(Some(reason.to_owned()))),
            (true, None) => out.push(Effect::DiskFull(None)),
            _ => {}
        }
    }
}
