//! A state machine in memory that lives by the same rules as the one that is SQLite: it applies what its partition says is in the log, executes ahead
//! of HW while it leads, shows readers what is published and nothing else, rewinds, and after a crash begins again at an earlier committed point.
//!
//! ```text
//!   restored        published           applied (the leader: executed ahead)
//!      v                v                  v
//!   ---|----------------|==================|
//!         readers' state ^    tail: transactions that only the executing side knows
//! ```

mod seam;
mod state;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use bytes::Bytes;
use highwater_partition::Reign;
use highwater_wire::{Epoch, NodeId, Offset, batch};

pub(crate) use seam::for_profile;
pub use seam::{Executed, Machine, Machines, Shown, Store, View, provide};
pub use state::{Entry, Foreseen, NOWHERE, OpId, Place, State, Write, WriteAnswer};

use crate::rng::Rng;
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
struct Checkpoint {
    /// The state.
    pub state: State,
    /// The offset after the last transaction in it.
    pub at: Offset,
    /// The epoch of that transaction; `None` before the first.
    pub epoch: Option<Epoch>,
    /// See [`fold`].
    pub content: u64,
}

/// Machines that are maps in memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Maps;

impl Machines for Maps {
    fn store(&self, _: NodeId, _: Rng) -> Box<dyn Store> {
        Box::new(Kept::default())
    }

    fn replay(&self, batches: &Bytes, to: Offset) -> Result<State, String> {
        let mut machine = MapMachine::restore(&Kept::default());
        machine.apply(0, to, batches, true)?;
        Ok(machine.latest)
    }
}

/// What survives a process: the last state that was kept. It is replaced whole, so that no crash can tear it.
#[derive(Clone, Debug, Default)]
struct Kept(Rc<RefCell<Checkpoint>>);

impl Store for Kept {
    fn open(&mut self) -> Result<Box<dyn Machine>, String> {
        Ok(Box::new(MapMachine::restore(self)))
    }

    fn crash(&mut self, _: bool, _: &mut Rng) {}

    fn fail_from(&mut self, _: &mut Rng) -> bool {
        false
    }

    fn fail_once(&mut self, _: &mut Rng) -> bool {
        false
    }

    fn set_full(&mut self, _: bool) {}

    fn rot(&mut self) -> bool {
        false
    }

    fn heal(&mut self) {}
}

/// The machine of one process.
#[derive(Debug)]
struct MapMachine {
    kept: Kept,
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

impl MapMachine {
    /// A machine that starts from what survived the last process.
    fn restore(kept: &Kept) -> MapMachine {
        let base = kept.0.borrow().clone();
        MapMachine {
            kept: kept.clone(),
            shown: false,
            tail: VecDeque::new(),
            latest: base.state.clone(),
            applied: base.at,
            reign: None,
            base,
        }
    }

    /// What readers see, if anything may be seen.
    fn published(&self) -> Option<&Checkpoint> {
        self.shown.then_some(&self.base)
    }
}

impl Machine for MapMachine {
    fn applied(&self) -> Offset {
        self.applied
    }

    fn apply(&mut self, from: Offset, to: Offset, batches: &Bytes, _: bool) -> Result<(), String> {
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

    fn lead(&mut self, reign: Reign, end: Offset) -> Result<(), String> {
        if self.applied != end {
            return Err(format!("told to lead from {end}, while {} is applied", self.applied));
        }
        self.reign = Some(reign);
        Ok(())
    }

    fn execute(&mut self, entry: &Entry, timestamp_ms: i64) -> Result<Option<Executed>, String> {
        let Some(reign) = self.reign else { return Ok(None) };
        let Foreseen { answer, effect, before } = self.latest.foresee(entry);
        let mut proposals = Vec::new();
        if effect {
            let records = entry.records();
            let base = self.applied;
            self.applied += records.len() as u64;
            let applied = self.latest.apply(entry, (reign.epoch, self.applied));
            assert_eq!(applied, Ok(answer), "a change that was foreseen happens");
            self.tail.push_back(Transaction { to: self.applied, epoch: reign.epoch, entry: Some(*entry) });
            proposals.push((base, batch::build(&records, timestamp_ms)));
        }
        Ok(Some(Executed { answer, reign, until: self.applied, wrote: effect, before, proposals }))
    }

    fn publish(&mut self, hw: Offset) -> Result<(), String> {
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

    fn rewind(&mut self, to: Offset) -> Result<Offset, String> {
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

    fn shown(&mut self) -> Result<Option<Shown>, String> {
        Ok(self.published().map(|base| Shown { at: base.at, epoch: base.epoch, content: base.content }))
    }

    fn look(&mut self, key: u8, list: u8) -> Result<Option<View>, String> {
        Ok(self.published().map(|base| {
            let elements = base.state.list(list);
            View {
                at: base.at,
                epoch: base.epoch,
                effects: base.state.journal().len() as u64,
                register: base.state.register(key),
                list_len: elements.len() as u64,
                list_last: elements.last().copied().unwrap_or(0),
            }
        }))
    }

    fn everything(&mut self) -> Result<Option<(Offset, State)>, String> {
        Ok(self.published().map(|base| (base.at, base.state.clone())))
    }

    fn keep(&mut self) -> Result<(), String> {
        *self.kept.0.borrow_mut() = self.base.clone();
        Ok(())
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
        let mut machine = MapMachine::restore(&Kept::default());
        assert!(machine.execute(&set(1, 5), 0).unwrap().is_none(), "nothing is executed before it leads");
        machine.lead(reign(0), 0).unwrap();
        let first = machine.execute(&set(1, 5), 0).unwrap().unwrap();
        let second = machine.execute(&set(2, 6), 0).unwrap().unwrap();
        assert_eq!((first.until, second.until), (1, 2));
        assert!(machine.published().is_none());
        machine.publish(1).unwrap();
        assert_eq!(machine.published().map(|shown| shown.state.register(0)), Some(5));
        assert_eq!(machine.rewind(1), Ok(1));
        assert!(machine.published().is_none(), "readers see nothing until the next publish");
        machine.publish(1).unwrap();
        machine.lead(reign(1), 1).unwrap();
        assert!(machine.execute(&set(1, 5), 0).unwrap().unwrap().proposals.is_empty(), "the key has had its effect");
        assert!(!machine.execute(&set(2, 6), 0).unwrap().unwrap().proposals.is_empty(), "the rewound one has not");
    }

    #[test]
    fn a_follower_applies_the_bytes_of_the_leader() {
        let mut leader = MapMachine::restore(&Kept::default());
        leader.lead(reign(0), 0).unwrap();
        let (base, mut bytes) = leader.execute(&set(1, 5), 0).unwrap().unwrap().proposals.remove(0);
        batch::stamp(&mut bytes, base, Epoch(0)).unwrap();
        let mut follower = MapMachine::restore(&Kept::default());
        follower.apply(0, 1, &bytes.freeze(), true).unwrap();
        follower.publish(1).unwrap();
        leader.publish(1).unwrap();
        assert_eq!(follower.shown(), leader.shown());
        assert!(follower.rewind(0).is_err(), "what was committed is not taken back");
    }
}
