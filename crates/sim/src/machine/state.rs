//! What the simulated state machine holds: registers, lists, and a journal of every effect in order.
//!
//! The journal is what makes the checker strong: it is part of the replicated state, a client reads it at the end of a run, and it names every write
//! that ever had an effect, in the order of the log. Replaying the clients' own record of their requests along the journal gives the state that
//! every read, at any time and on any node, must have seen some prefix of.

use std::collections::BTreeMap;

use bytes::Bytes;
use highwater_wire::batch::Record;
use highwater_wire::record::RecordHeader;
use highwater_wire::{Epoch, Offset};

/// A client's number for a request, unique in a run. It is the idempotency key of requests that have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// A request that may change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Write {
    /// Writes a register.
    Set {
        /// Which.
        key: u8,
        /// What; unique in a run.
        value: u64,
    },
    /// Writes a register if it holds `expect`.
    Cas {
        /// Which.
        key: u8,
        /// What it must hold; 0 for one never written.
        expect: u64,
        /// What it then holds; unique in a run.
        value: u64,
    },
    /// Appends to a list.
    Append {
        /// Which.
        list: u8,
        /// What; unique in a run.
        value: u64,
    },
}

/// The bytes of a write.
const BYTES: usize = 27;
/// What comes before them where they lie among others.
const MARK: &[u8] = b"simulated write:";

/// What a write answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteAnswer {
    /// The register was written.
    Written,
    /// The register held another value and was left alone.
    Mismatch {
        /// What it held.
        found: u64,
    },
    /// The list has this many elements now.
    Appended {
        /// Elements, the new one included.
        len: u64,
    },
}

impl WriteAnswer {
    /// Whether the write changed anything.
    pub fn took_effect(self) -> bool {
        !matches!(self, WriteAnswer::Mismatch { .. })
    }
}

/// One write as it lies in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The request.
    pub op: OpId,
    /// Whether its id is an idempotency key.
    pub keyed: bool,
    /// What it does.
    pub write: Write,
}

impl Entry {
    /// Its bytes, for a machine that keeps them in records of its own making: [`Entry::find`] finds them there.
    pub fn marked(&self) -> Vec<u8> {
        let mut bytes = MARK.to_vec();
        bytes.extend_from_slice(self.records()[0].value.as_deref().unwrap_or(&[]));
        bytes
    }

    /// The write in a transaction's records, if it has one: the records are those of [`Entry::records`], or one of them holds [`Entry::marked`]. Says what
    /// is wrong with a write that cannot be read.
    pub fn find(records: &[Record]) -> Result<Option<Entry>, String> {
        let values = || records.iter().filter_map(|record| record.value.as_ref());
        for value in values() {
            let Some(at) = value.windows(MARK.len()).position(|bytes| bytes == MARK) else { continue };
            let from = at + MARK.len();
            let bytes = value.get(from..from + BYTES).ok_or("a marked write is cut off")?;
            let record = Record { key: None, value: Some(Bytes::copy_from_slice(bytes)) };
            return Entry::decode(&[record]).map(Some);
        }
        if Entry::is_plain(records) { Entry::decode(records).map(Some) } else { Ok(None) }
    }

    /// Whether a transaction ends with these records: those of [`Entry::records`] are whole ones, and of others the last one says so.
    pub fn ends(records: &[Record]) -> bool {
        let last = records.last().and_then(|record| record.value.as_ref());
        let says = |value| RecordHeader::decode(value).map_or(true, |(header, _)| header.ends_transaction);
        Entry::is_plain(records) || last.is_none_or(|value| says(value))
    }

    /// Whether the records are those of [`Entry::records`], by the length of the first.
    fn is_plain(records: &[Record]) -> bool {
        records.iter().find_map(|record| record.value.as_ref()).is_some_and(|value| value.len() == BYTES)
    }

    /// The records of its transaction. Appends to list 0 take two offsets, so that offsets and transactions do not coincide.
    pub fn records(&self) -> Vec<Record> {
        let (tag, target, first, second) = match self.write {
            Write::Set { key, value } => (0, key, value, 0),
            Write::Cas { key, expect, value } => (1, key, expect, value),
            Write::Append { list, value } => (2, list, value, 0),
        };
        let mut value = vec![tag, target, u8::from(self.keyed)];
        for number in [self.op.0, first, second] {
            value.extend_from_slice(&number.to_le_bytes());
        }
        let mut records = vec![Record { key: None, value: Some(Bytes::from(value)) }];
        if let Write::Append { list: 0, .. } = self.write {
            records.push(Record { key: None, value: None });
        }
        records
    }

    /// Reads what [`Entry::records`] wrote; says what is wrong with anything else.
    pub fn decode(records: &[Record]) -> Result<Entry, String> {
        let value =
            records.first().and_then(|record| record.value.as_ref()).ok_or("a transaction without a first record")?;
        if value.len() != BYTES {
            return Err(format!("a record of {BYTES} bytes was expected, found {}", value.len()));
        }
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&value[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let (op, first, second) = (OpId(number(3)), number(11), number(19));
        let write = match value[0] {
            0 => Write::Set { key: value[1], value: first },
            1 => Write::Cas { key: value[1], expect: first, value: second },
            2 => Write::Append { list: value[1], value: first },
            other => return Err(format!("a record of kind 0, 1 or 2 was expected, found {other}")),
        };
        Ok(Entry { op, keyed: value[2] == 1, write })
    }
}

/// The replicated state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    registers: BTreeMap<u8, u64>,
    lists: BTreeMap<u8, Vec<u64>>,
    journal: Vec<OpId>,
    answers: BTreeMap<OpId, (WriteAnswer, Place)>,
    /// A hash of whatever else a machine holds that must be equal on all replicas.
    digest: Vec<u8>,
}

/// Where a transaction ends: its epoch, and the offset after it.
pub type Place = (Epoch, Offset);

/// For replaying a journal, in which only the order counts.
pub const NOWHERE: Place = (Epoch(0), 0);

/// What a write would answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// The answer.
    pub answer: WriteAnswer,
    /// Whether the state would change.
    pub effect: bool,
    /// Where the effect lies that the same key had before.
    pub before: Option<Place>,
}

impl State {
    /// What the write would answer here. A keyed write that had its effect answers what it answered then.
    pub fn foresee(&self, entry: &Entry) -> Foreseen {
        if entry.keyed
            && let Some((answer, place)) = self.answers.get(&entry.op)
        {
            return Foreseen { answer: *answer, effect: false, before: Some(*place) };
        }
        let (answer, effect) = match entry.write {
            Write::Set { .. } => (WriteAnswer::Written, true),
            Write::Cas { key, expect, .. } => match self.register(key) {
                found if found == expect => (WriteAnswer::Written, true),
                found => (WriteAnswer::Mismatch { found }, false),
            },
            Write::Append { list, .. } => (WriteAnswer::Appended { len: self.list(list).len() as u64 + 1 }, true),
        };
        Foreseen { answer, effect, before: None }
    }

    /// Carries out a write whose transaction ends at `place`. Says why if it has no effect here: in a log there are only writes that had one where they were executed.
    pub fn apply(&mut self, entry: &Entry, place: Place) -> Result<WriteAnswer, String> {
        let Foreseen { answer, effect, .. } = self.foresee(entry);
        if !effect {
            return Err(format!("{entry:?} was logged as a change, and changes nothing here ({answer:?})"));
        }
        match entry.write {
            Write::Set { key, value } | Write::Cas { key, value, .. } => {
                self.registers.insert(key, value);
            }
            Write::Append { list, value } => self.lists.entry(list).or_default().push(value),
        }
        self.journal.push(entry.op);
        if entry.keyed {
            self.answers.insert(entry.op, (answer, place));
        }
        Ok(answer)
    }

    /// What was read out of a machine that keeps it in its own way; `digest` is a hash of all that must be equal on all replicas.
    pub fn read(
        registers: BTreeMap<u8, u64>,
        lists: BTreeMap<u8, Vec<u64>>,
        journal: Vec<OpId>,
        digest: Vec<u8>,
    ) -> State {
        State { registers, lists, journal, answers: BTreeMap::new(), digest }
    }

    /// A register; 0 if it was never written.
    pub fn register(&self, key: u8) -> u64 {
        self.registers.get(&key).copied().unwrap_or(0)
    }

    /// A list.
    pub fn list(&self, list: u8) -> &[u64] {
        self.lists.get(&list).map_or(&[], Vec::as_slice)
    }

    /// Every effect, in order.
    pub fn journal(&self) -> &[OpId] {
        &self.journal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_back_what_they_wrote() {
        for write in [
            Write::Set { key: 3, value: 9 },
            Write::Cas { key: 1, expect: 4, value: 5 },
            Write::Append { list: 0, value: 77 },
            Write::Append { list: 2, value: 78 },
        ] {
            let entry = Entry { op: OpId(12), keyed: true, write };
            assert_eq!(Entry::decode(&entry.records()), Ok(entry));
            assert_eq!(Entry::find(&entry.records()), Ok(Some(entry)));
            let among_others = [b"a row: ".as_slice(), &entry.marked(), b"!"].concat();
            let records = [b"another row".to_vec(), among_others]
                .map(|value| Record { key: None, value: Some(Bytes::from(value)) });
            assert_eq!(Entry::find(&records), Ok(Some(entry)));
            assert_eq!(Entry::find(&records[..1]), Ok(None));
        }
        assert!(Entry::decode(&[Record { key: None, value: Some(Bytes::from_static(b"x")) }]).is_err());
    }

    #[test]
    fn a_key_has_one_effect_and_a_mismatch_has_none() {
        let mut state = State::default();
        let append = Entry { op: OpId(1), keyed: true, write: Write::Append { list: 1, value: 5 } };
        let place = (Epoch(3), 7);
        assert_eq!(state.apply(&append, place), Ok(WriteAnswer::Appended { len: 1 }));
        let again = Foreseen { answer: WriteAnswer::Appended { len: 1 }, effect: false, before: Some(place) };
        assert_eq!(state.foresee(&append), again);
        assert!(state.apply(&append, place).is_err());
        let cas = Entry { op: OpId(2), keyed: false, write: Write::Cas { key: 0, expect: 8, value: 9 } };
        let mismatch = Foreseen { answer: WriteAnswer::Mismatch { found: 0 }, effect: false, before: None };
        assert_eq!(state.foresee(&cas), mismatch);
        assert_eq!(state.journal(), &[OpId(1)]);
    }
}
