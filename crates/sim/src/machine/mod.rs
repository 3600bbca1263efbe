//! A state machine in memory that lives by the same rules as the one that is SQLite: it applies what its partition says is in the log, executes ahead
//! of HW while it leads, shows readers what is published and nothing else, rewinds, and after a crash begins again at an earlier committed point.
//!
//! ```text
//!   restored        published           applied (the leader: executed ahead)
//!      v                v                  v
//!   ---|----------------|==================|
//!         readers' state ^    tail: transactions that only the executing side knows
//! ```

mod state;

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use bytes::{Bytes, BytesMut};
use highwater_partition::Reign;
use highwater_wire::{Epoch, Offset, batch};

pub use state::{Entry, Foreseen, NOWHERE, OpId, Place, State, Write, WriteAnswer};

use crate::trace::Fnv;

/// A transaction between what is published and what is applied.
#[derive(Clone, Debug)]
struct Transaction {
    to: Offset,
    epoch: Epoch,
    entry: Option<Entry>,
}

/// A state at an offset, with a hash of the transactions that led to it.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    /// The state.
    pub state: State,
    /// The offset after the last transaction in it.
    pub at: Offset,
    /// The epoch of that transaction; `None` before the first.
    pub epoch: Option<Epoch>,
    /// See [`fold`].
    pub content: u64,
}

/// What executing a request ahead gave.
#[derive(Debug)]
pub struct Executed {
    /// What to answer, once it may leave.
    pub answer: WriteAnswer,
    /// The reign it was executed in.
    pub reign: Reign,
    /// The end of the state it was computed from, its own effect included.
    pub until: Offset,
    /// Where the effect lies that the same key had before.
    pub before: Option<Place>,
    /// The proposal, if it has an effect: the base and the batches.
    pub proposal: Option<(Offset, BytesMut)>,
}

/// The machine of one process.
#[derive(Debug)]
pub struct Machine {
    /// What readers see if `shown`.
    base: Checkpoint,
    shown: bool,
    tail: VecDeque<Transaction>,
    latest: State,
    applied: Offset,
    reign: Option<Reign>,
}

/// Folds one more transaction into a content hash. Offsets and epochs stay out: the hash is of what was done, not of where it lies.
pub fn fold(content: u64, entry: &Entry) -> u64 {
    let mut hasher = Fnv(content);
    entry.hash(&mut hasher);
    hasher.finish()
}

impl Machine {
    /// A machine that starts from what survived the last process.
    pub fn restore(from: &Checkpoint) -> Machine {
        Machine {
            base: from.clone(),
            shown: false,
            tail: VecDeque::new(),
            latest: from.state.clone(),
            applied: from.at,
            reign: None,
        }
    }

    /// How far it has applied.
    pub fn applied(&self) -> Offset {
        self.applied
    }

    /// The reign in which it executes requests itself.
    pub fn reign(&self) -> Option<Reign> {
        self.reign
    }

    /// What readers see, if anything may be seen.
    pub fn published(&self) -> Option<&Checkpoint> {
        self.shown.then_some(&self.base)
    }

    /// The newest state known to be committed, to survive a crash.
    pub fn checkpoint(&self) -> Checkpoint {
        self.base.clone()
    }

    /// Carries out `Command::Apply`.
    pub fn apply(&mut self, from: Offset, to: Offset, batches: &Bytes) -> Result<(), String> {
        if self.reign.is_some() {
            return Err(format!("told to apply [{from}, {to}) while it executes ahead"));
        }
        if from > self.applied {
            return Err(format!("told to apply from {from}, while only {} is applied", self.applied));
        }
        for split in batch::split(batches) {
            let (header, bytes) = split.map_err(|error| error.to_string())?;
            let end = header.base + header.count;
            if end <= self.applied || header.base >= to {
                continue;
            }
            if header.base != self.applied {
                return Err(format!("a batch of [{}, {end}) does not follow {}", header.base, self.applied));
            }
            let entry = match header.control {
                true => None,
                false => Some(Entry::decode(&batch::records(&bytes).map_err(|error| error.to_string())?)?),
            };
            if let Some(entry) = &entry {
                self.latest.apply(entry, (header.epoch, end))?;
            }
            self.tail.push_back(Transaction { to: end, epoch: header.epoch, entry });
            self.applied = end;
        }
        if self.applied < to {
            return Err(format!("told to apply up to {to}, and the batches end at {}", self.applied));
        }
        Ok(())
    }

    /// Carries out `Command::Lead`.
    pub fn lead(&mut self, reign: Reign, end: Offset) -> Result<(), String> {
        if self.applied != end {
            return Err(format!("told to lead from {end}, while {} is applied", self.applied));
        }
        self.reign = Some(reign);
        Ok(())
    }

    /// Executes a request ahead of the log; `None` if this machine does not lead.
    pub fn execute(&mut self, entry: &Entry, timestamp_ms: i64) -> Option<Executed> {
        let reign = self.reign?;
        let Foreseen { answer, effect, before } = self.latest.foresee(entry);
        let mut proposal = None;
        if effect {
            let records = entry.records();
            let base = self.applied;
            self.applied += records.len() as u64;
            let applied = self.latest.apply(entry, (reign.epoch, self.applied));
            assert_eq!(applied, Ok(answer), "a change that was foreseen happens");
            self.tail.push_back(Transaction { to: self.applied, epoch: reign.epoch, entry: Some(*entry) });
            proposal = Some((base, batch::build(&records, timestamp_ms)));
        }
        Some(Executed { answer, reign, until: self.applied, before, proposal })
    }

    /// Carries out `Command::Publish`.
    pub fn publish(&mut self, hw: Offset) -> Result<(), String> {
        if hw > self.applied {
            return Err(format!("told to publish {hw}, while only {} is applied", self.applied));
        }
        while self.tail.front().is_some_and(|transaction| transaction.to <= hw) {
            let Some(transaction) = self.tail.pop_front() else { break };
            if let Some(entry) = &transaction.entry {
                self.base.state.apply(entry, (transaction.epoch, transaction.to))?;
                self.base.content = fold(self.base.content, entry);
            }
            self.base.at = transaction.to;
            self.base.epoch = Some(transaction.epoch);
        }
        // After a restart nothing is shown until HW has reached what was restored.
        self.shown = hw >= self.base.at;
        Ok(())
    }

    /// Carries out `Command::Rewind`; returns what is applied now.
    pub fn rewind(&mut self, to: Offset) -> Result<Offset, String> {
        self.reign = None;
        self.shown = false;
        if to < self.base.at {
            return Err(format!("told to rewind to {to}, below {}, which was committed", self.base.at));
        }
        while self.tail.back().is_some_and(|transaction| transaction.to > to) {
            self.tail.pop_back();
        }
        self.latest = self.base.state.clone();
        for transaction in &self.tail {
            if let Some(entry) = &transaction.entry {
                self.latest.apply(entry, (transaction.epoch, transaction.to))?;
            }
        }
        self.applied = self.tail.back().map_or(self.base.at, |transaction| transaction.to);
        Ok(self.applied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(op: u64, value: u64) -> Entry {
        Entry { op: OpId(op), keyed: true, write: Write::Set { key: 0, value } }
    }

    fn reign(epoch: u32) -> Reign {
        Reign { epoch: Epoch(epoch), number: 1 }
    }

    #[test]
    fn what_is_executed_ahead_is_invisible_until_published_and_gone_after_a_rewind() {
        let mut machine = Machine::restore(&Checkpoint::default());
        assert!(machine.execute(&set(1, 5), 0).is_none(), "nothing is executed before it leads");
        machine.lead(reign(0), 0).unwrap();
        let first = machine.execute(&set(1, 5), 0).unwrap();
        let second = machine.execute(&set(2, 6), 0).unwrap();
        assert_eq!((first.until, second.until), (1, 2));
        assert!(machine.published().is_none());
        machine.publish(1).unwrap();
        assert_eq!(machine.published().map(|shown| shown.state.register(0)), Some(5));
        assert_eq!(machine.rewind(1), Ok(1));
        assert!(machine.published().is_none(), "readers see nothing until the next publish");
        machine.publish(1).unwrap();
        machine.lead(reign(1), 1).unwrap();
        assert!(machine.execute(&set(1, 5), 0).unwrap().proposal.is_none(), "the key has had its effect");
        assert!(machine.execute(&set(2, 6), 0).unwrap().proposal.is_some(), "the rewound one has not");
    }

    #[test]
    fn a_follower_applies_the_bytes_of_the_leader() {
        let mut leader = Machine::restore(&Checkpoint::default());
        leader.lead(reign(0), 0).unwrap();
        let (base, mut bytes) = leader.execute(&set(1, 5), 0).unwrap().proposal.unwrap();
        batch::stamp(&mut bytes, base, Epoch(0)).unwrap();
        let mut follower = Machine::restore(&Checkpoint::default());
        follower.apply(0, 1, &bytes.freeze()).unwrap();
        follower.publish(1).unwrap();
        leader.publish(1).unwrap();
        assert_eq!(follower.checkpoint().content, leader.checkpoint().content);
        assert!(follower.rewind(0).is_err(), "what was committed is not taken back");
    }
}
