//! What the clients know: what they asked, when, and what they were told. The checkers of the history look at this and at nothing else.

use std::collections::BTreeMap;

use highwater_wire::{NodeId, Offset, Position};

use crate::machine::{Entry, OpId, State, WriteAnswer};

/// Simulated microseconds since the run began.
pub type Instant = u64;

/// How fresh a read must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Freshness {
    /// Sees everything that was acknowledged before it was asked, on any node.
    Linearizable,
    /// Sees the node's local state.
    Eventual,
    /// Sees at least that position.
    AtLeast(Position),
}

/// What a request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// A write.
    Write {
        /// The write with its id.
        entry: Entry,
        /// Acknowledged when the leader alone has it, instead of when it is committed.
        leader_ack: bool,
    },
    /// A read of one register and one list.
    Read {
        /// The register.
        key: u8,
        /// The list.
        list: u8,
        /// How fresh.
        freshness: Freshness,
    },
}

/// What a read saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The position of the state.
    pub at: Position,
    /// How many effects it contains.
    pub effects: u64,
    /// The register.
    pub register: u64,
    /// The list's length.
    pub list_len: u64,
    /// The list's last element; 0 if it is empty.
    pub list_last: u64,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The write was acknowledged, at the end of the log position named.
    Wrote {
        /// Its answer.
        answer: WriteAnswer,
        /// The position: of the write, or of what an answer without an effect was computed from.
        at: Position,
    },
    /// The read saw this.
    Read(Seen),
    /// Certainly no effect, now or later.
    Failed,
    /// It may have had its effect, or may yet have it, or never.
    Unknown,
    /// The position asked for was truncated.
    Truncated,
}

/// One call: a request with all its retries.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The client.
    pub client: u32,
    /// Its number.
    pub op: OpId,
    /// What it asked.
    pub ask: Ask,
    /// When it was first sent.
    pub invoked: Instant,
    /// When it ended; `None` while it is under way.
    pub returned: Option<Instant>,
    /// How; `Unknown` while it is under way.
    pub end: End,
    /// The last node asked.
    pub node: NodeId,
}

impl Call {
    /// The offset after an acknowledged write that changed something and waited for the commit.
    pub fn committed_write(&self) -> Option<Offset> {
        match (self.ask, self.end) {
            (Ask::Write { leader_ack: false, .. }, End::Wrote { answer, at }) if answer.took_effect() => {
                Some(at.offset)
            }
            _ => None,
        }
    }

    /// The write, if it is one.
    pub fn entry(&self) -> Option<&Entry> {
        match &self.ask {
            Ask::Write { entry, .. } => Some(entry),
            Ask::Read { .. } => None,
        }
    }
}

/// All calls of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    calls: BTreeMap<OpId, Call>,
}

impl History {
    /// Notes that a call begins.
    pub fn invoke(&mut self, call: Call) {
        let before = self.calls.insert(call.op, call);
        assert!(before.is_none(), "a call's number is used once");
    }

    /// Notes how a call ended.
    pub fn finish(&mut self, op: OpId, end: End, node: NodeId, now: Instant) {
        let call = self.calls.get_mut(&op).filter(|call| call.returned.is_none());
        let Some(call) = call else { panic!("a call that is under way ends; {op:?} is not") };
        assert!(call.invoked <= now, "a call ends after it began");
        (call.end, call.node, call.returned) = (end, node, Some(now));
    }

    /// The calls, by number.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.values()
    }

    /// One call.
    pub fn call(&self, op: OpId) -> Option<&Call> {
        self.calls.get(&op)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

/// The state as a linearizable read of everything found it after the run, and what replaying the clients' own record of their requests along
/// its journal gives at every prefix.
#[derive(Clone, Debug)]
pub struct Final {
    /// Every effect, in order.
    pub journal: Vec<OpId>,
    /// The place of each effect.
    pub place: BTreeMap<OpId, u64>,
    /// What the whole state looked like to the reader.
    pub state: State,
}

impl Final {
    /// From the state that was read at the end.
    pub fn new(state: State) -> Final {
        let journal = state.journal().to_vec();
        let place = journal.iter().enumerate().map(|(place, op)| (*op, place as u64)).collect();
        Final { journal, place, state }
    }
}
