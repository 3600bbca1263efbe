//! Driving the state machine.
//!
//! ```text
//!             Rewound(at)                 all applied, and this replica leads
//!  Rewinding -------------> Applying ---------------------------------------> Leading(reign)
//!      ^                       |  (one Apply under way at a time)                  |
//!      |   more was asked for than is committed, and leadership is gone           |
//!      +-----------------------+                                                  |
//!      |   leadership is gone, or a proposal was refused                          |
//!      +--------------------------------------------------------------------------+
//! ```
//!
//! A follower's machine gets only what is committed. A leader's gets everything in its log, committed or not, and then executes ahead; so
//! it alone can ever hold what is cut later, and it is rewound to HW before anything is cut. Readers see the least of HW and what is applied,
//! never less than they saw before, and nothing while a rewind is under way. After a restart they see nothing until HW has reached what was applied, and until what was
//! committed when this process first heard a leader's word is applied: otherwise what they are shown at first would be as old as the last process's end, or, where the machine
//! is made anew, as old as the log.

use std::collections::BTreeMap;

use bytes::Bytes;
use highwater_log::{LogError, LogStore};
use highwater_replica::ProposeError;
use highwater_wire::{Epoch, Offset};

use crate::effect::Effect;
use crate::machine::{Command, Reign};
use crate::partition::{Kind, Partition};

/// Bytes of batches in one `Apply`.
const APPLY_BYTES: usize = 1 << 20;

/// Reigns whose refusals are remembered. A hold comes right after its proposal, so a handful would do.
const REIGNS_REMEMBERED: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Rewinding,
    Applying,
    Leading(Reign),
}

/// Why a proposal of a reign was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    Replica(ProposeError),
    Full(String),
}

/// What is known of the state machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Driver {
    phase: Phase,
    /// What the machine has told to be applied.
    applied: Offset,
    /// What it was asked to apply.
    requested: Offset,
    /// The epoch that this replica leads.
    leads: Option<Epoch>,
    reigns: u64,
    /// What readers see; `None` from a rewind until the next publication.
    published: Option<Offset>,
    /// The most that readers ever saw, or that the machine held when the process started.
    shown: Offset,
    /// Readers may not be shown less than this: what they saw already, and what the machine held after its last rewind. That may have been cut since
    /// it was rewound a time before, so it is not carried from one rewind to the next.
    floor: Offset,
    /// What was committed when a leader's word first reached this process; `None` before. Readers are not shown less. Once it was shown, `shown` says as
    /// much and this is 0.
    heard: Option<Offset>,
    /// Where the rewind under way goes.
    rewinding_to: Offset,
    /// Leadership ended while the machine was being rewound to the end of the log: when that is done, it must go on to here.
    then_to: Option<Offset>,
    /// What the machine held when the process started. It was committed, even if this replica does not know that yet.
    recovered: Option<Offset>,
    /// For each recent reign with a refusal: nothing of it from this base on is in the log.
    refused: BTreeMap<u64, (Offset, Refusal)>,
}

impl Default for Driver {
    fn default() -> Self {
        Driver {
            phase: Phase::Rewinding,
            applied: 0,
            requested: 0,
            leads: None,
            reigns: 0,
            published: None,
            shown: 0,
            floor: 0,
            heard: None,
            rewinding_to: 0,
            then_to: None,
            recovered: None,
            refused: BTreeMap::new(),
        }
    }
}

impl Driver {
    pub(crate) fn published(&self) -> Option<Offset> {
        self.published
    }

    pub(crate) fn applied_offset(&self) -> Offset {
        self.applied
    }

    /// Whether the machine executes ahead now, so that it holds everything in the log.
    pub(crate) fn executes(&self) -> bool {
        matches!(self.phase, Phase::Leading(_))
    }

    /// Whether the machine executes in this very reign.
    pub(crate) fn reigns(&self, reign: Reign) -> bool {
        self.phase == Phase::Leading(reign)
    }

    /// Whether the machine may hold something that is not known to be committed, with no rewind under way.
    pub(crate) fn holds_uncommitted(&self, hw: Offset) -> bool {
        match self.phase {
            Phase::Rewinding => false,
            Phase::Applying => self.requested > self.committed(hw),
            Phase::Leading(_) => true,
        }
    }

    fn committed(&self, hw: Offset) -> Offset {
        hw.max(self.recovered.unwrap_or(0))
    }

    /// The machine has applied up to `to`. Told too late, after a rewind was asked for, it means nothing.
    pub(crate) fn applied(&mut self, to: Offset) {
        if self.phase == Phase::Applying {
            assert_eq!(to, self.requested, "the machine answers the one Apply that is under way");
            self.applied = to;
        }
    }

    /// The machine holds exactly what is below `at`.
    pub(crate) fn rewound(&mut self, at: Offset) {
        assert_eq!(self.phase, Phase::Rewinding, "a rewind was asked for");
        self.phase = Phase::Applying;
        self.applied = at;
        self.requested = at;
        if self.recovered.is_none() {
            self.recovered = Some(at);
            self.shown = at;
        }
        self.floor = self.shown.max(at);
    }

    /// Whether the machine, now that it was rewound, still holds what may have been cut meanwhile; it is rewound again then.
    pub(crate) fn rewind_on<Job>(&mut self, out: &mut Vec<Effect<Job>>) -> bool {
        let Some(to) = self.then_to.take().filter(|to| self.applied > *to) else { return false };
        self.rewind(to, out);
        true
    }

    /// Leadership began or ended. What a deposed leader's machine holds above HW may be cut any time now.
    pub(crate) fn lead<Job>(&mut self, leads: Option<Epoch>, hw: Offset, out: &mut Vec<Effect<Job>>) {
        let lost = self.leads.is_some() && self.leads != leads;
        self.leads = leads;
        if lost && self.holds_uncommitted(hw) {
            self.rewind(self.committed(hw), out);
        } else if lost && self.phase == Phase::Rewinding && self.rewinding_to > self.committed(hw) {
            self.then_to = Some(self.committed(hw));
        }
    }

    pub(crate) fn rewind<Job>(&mut self, to: Offset, out: &mut Vec<Effect<Job>>) {
        assert_ne!(self.phase, Phase::Rewinding, "one rewind at a time");
        self.phase = Phase::Rewinding;
        self.rewinding_to = to;
        self.published = None;
        out.push(Effect::Machine(Command::Rewind { to }));
    }

    /// Nothing that was proposed in `reign` at or above `base` is in the log. The first refusal of a reign has the least base.
    pub(crate) fn refuse(&mut self, reign: Reign, base: Offset, refusal: Refusal) {
        let first = self.refused.entry(reign.number).or_insert((base, refusal));
        assert!(first.0 <= base, "a machine proposes on rising bases");
        while self.refused.len() > REIGNS_REMEMBERED {
            self.refused.pop_first();
        }
    }

    /// Whether something that ends at `until` in that reign was refused.
    pub(crate) fn refusal(&self, reign: Reign, until: Offset) -> Option<&Refusal> {
        self.refused.get(&reign.number).filter(|(base, _)| until > *base).map(|(_, refusal)| refusal)
    }

    pub(crate) fn check(&self, end: Offset, hw: Offset) {
        if self.phase == Phase::Rewinding {
            return;
        }
        assert!(self.applied <= self.requested, "applied {} of {} asked", self.applied, self.requested);
        assert!(self.published.is_none_or(|p| p >= self.floor), "readers never go back");
        if self.leads.is_none() && self.requested > self.floor {
            assert!(self.requested <= hw.min(end), "a follower's machine gets only what is committed");
        }
    }
}

impl<L: LogStore> Partition<L> {
    /// Gives the machine what it may have next, and shows readers what they may see.
    pub(crate) fn advance_machine(&mut self, out: &mut Vec<Effect<L::FlushJob>>) -> Result<(), LogError> {
        let (hw, end) = (self.replica.hw(), self.log.shape().end);
        let leads = self.driver.leads.filter(|_| self.kind == Kind::Ahead);
        // While something waits for room, the log is not what the replica says it is.
        let log_is_told = self.starved().is_none();
        if log_is_told && self.driver.phase == Phase::Applying && self.driver.requested == self.driver.applied {
            let target = if leads.is_some() { end } else { hw };
            let from = self.driver.applied;
            let (to, batches) = self.whole_batches(from, target)?;
            if to > from {
                self.driver.requested = to;
                out.push(Effect::Machine(Command::Apply { from, to, batches, committed: to <= hw }));
            } else if let Some(epoch) = leads {
                self.driver.reigns += 1;
                let reign = Reign { epoch, number: self.driver.reigns };
                self.driver.phase = Phase::Leading(reign);
                out.push(Effect::Machine(Command::Lead { reign, end }));
            }
        }
        self.driver.heard = self.driver.heard.or_else(|| self.replica.told());
        let visible = match self.driver.phase {
            Phase::Rewinding => return Ok(()),
            Phase::Applying => hw.min(self.driver.applied),
            Phase::Leading(_) => hw,
        };
        let caught_up = self.driver.heard.is_some_and(|heard| visible >= heard.max(self.driver.floor));
        if caught_up && self.driver.published.is_none_or(|published| published < visible) {
            self.driver.published = Some(visible);
            self.driver.shown = visible;
            self.driver.floor = visible;
            self.driver.heard = Some(0);
            out.push(Effect::Machine(Command::Publish { hw: visible }));
        }
        Ok(())
    }

    /// Whole batches from `from` on that end at or below `target`, and where they end. The log's end lies between batches, and so does the HW of a leader that
    /// keeps the protocol; with one that lies within a batch, that batch waits.
    fn whole_batches(&self, from: Offset, target: Offset) -> Result<(Offset, Bytes), LogError> {
        if from >= target {
            return Ok((from, Bytes::new()));
        }
        let mut batches = self.log.read(from, APPLY_BYTES)?;
        let (mut to, mut size) = (from, 0);
        for batch in highwater_wire::batch::split(&batches) {
            let (header, bytes) =
                batch.map_err(|error| LogError::Poisoned(format!("a batch read back is damaged: {error}")))?;
            if header.base + header.count > target {
                break;
            }
            assert_eq!(header.base, to, "batches lie one behind the other");
            to = header.base + header.count;
            size += bytes.len();
        }
        batches.truncate(size);
        Ok((to, batches))
    }
}
