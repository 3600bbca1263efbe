//! Hand-made facts and histories for the tests that show that a law can fail.

use bytes::Bytes;
use highwater_wire::{
    Body, CommitRule, Envelope, Epoch, HardState, Incarnation, LogId, NodeId, Offset, PartitionId, PeerId, Position,
    Sender, Set, Version, batch,
};

use super::Law;
use crate::clients::{Ask, Call, End, Final, History, Seen};
use crate::facts::{Facts, Observation, OnRecord, Place};
use crate::machine::{Entry, NOWHERE, OpId, State, Write, WriteAnswer};

/// A partition like any other but the metadata.
pub(crate) const PARTITION: PartitionId = PartitionId(1);

/// A replica of it.
pub(crate) fn place(node: u32) -> Place {
    Place { partition: PARTITION, node: NodeId(node) }
}

pub(crate) fn peer(node: u32) -> PeerId {
    PeerId { node: NodeId(node), log: LogId(u64::from(node)) }
}

pub(crate) fn incarnation(starts: u64) -> Incarnation {
    Incarnation { starts, random: starts }
}

/// One stamped batch that sets register 0.
pub(crate) fn entry(base: Offset, epoch: u32, value: u64) -> Bytes {
    let entry = Entry { op: OpId(value), keyed: false, write: Write::Set { key: 0, value } };
    let mut bytes = batch::build(&entry.records(), 0);
    batch::stamp(&mut bytes, base, Epoch(epoch)).expect("a batch that was just built can be stamped");
    bytes.freeze()
}

/// Three replicas under that rule with empty logs.
pub(crate) fn three(rule: CommitRule) -> Facts {
    let mut facts = Facts::default();
    take(&mut facts, &recorded(PARTITION, rule, &[1, 2, 3], 1));
    for node in 1..=3 {
        take(&mut facts, &opened(node, Bytes::new(), None));
    }
    facts
}

/// A record of epoch 0 with these members.
pub(crate) fn recorded(partition: PartitionId, rule: CommitRule, members: &[u32], version: u64) -> Observation {
    let set = Set { rule, members: members.iter().map(|node| peer(*node)).collect() };
    let record = OnRecord { set, epoch: Some(Epoch(0)), version: Version(version) };
    Observation::Recorded { partition, record }
}

pub(crate) fn opened(node: u32, batches: Bytes, promised: Option<u32>) -> Observation {
    let hard = HardState { promised: promised.map(Epoch), ..HardState::default() };
    Observation::Opened { place: place(node), incarnation: incarnation(1), batches, hard }
}

pub(crate) fn take(facts: &mut Facts, seen: &Observation) {
    facts.take(seen).expect("a possible observation");
}

/// Appends one entry there and makes it durable if told so.
pub(crate) fn append(facts: &mut Facts, node: u32, epoch: u32, value: u64, durable: bool) {
    let base = facts.log(place(node)).end();
    take(facts, &Observation::Appended { place: place(node), batches: entry(base, epoch, value) });
    if durable {
        take(facts, &Observation::Flushed { place: place(node), to: base + 1 });
    }
}

/// What the law says of one more observation.
pub(crate) fn see(law: &mut dyn Law, facts: &mut Facts, seen: Observation) -> Result<(), String> {
    law.before(facts, &seen)?;
    take(facts, &seen);
    law.after(facts, &seen)
}

pub(crate) fn position(offset: Offset) -> Position {
    Position { partition: PARTITION, epoch: Some(Epoch(0)), offset }
}

/// A call that ended; invoked at `time`, returned one later.
pub(crate) fn call(op: u64, client: u32, time: u64, ask: Ask, end: End) -> Call {
    Call { client, op: OpId(op), ask, invoked: time, returned: Some(time + 1), end, node: NodeId(1) }
}

/// A write of its own number into register 0, acknowledged with the entry that ends at `offset`.
pub(crate) fn wrote(op: u64, client: u32, time: u64, offset: Offset) -> Call {
    let end = End::Wrote { answer: WriteAnswer::Written, at: position(offset) };
    call(op, client, time, set(op), end)
}

pub(crate) fn set(op: u64) -> Ask {
    let entry = Entry { op: OpId(op), keyed: true, write: Write::Set { key: 0, value: op } };
    Ask::Write { entry, leader_ack: false }
}

/// A view of register 0 after that many effects, each of one offset.
pub(crate) fn seen(effects: u64, register: u64) -> Seen {
    Seen { at: position(effects), effects, register, list_len: 0, list_last: 0 }
}

pub(crate) fn history(calls: &[Call]) -> History {
    let mut history = History::default();
    for call in calls {
        history.invoke(Call { returned: None, end: End::Unknown, ..*call });
        if let Some(returned) = call.returned {
            history.finish(call.op, call.end, call.node, returned);
        }
    }
    history
}

/// The end state after these sets of register 0, in order.
pub(crate) fn ends(ops: &[u64]) -> Final {
    let mut state = State::default();
    for op in ops {
        let Ask::Write { entry, .. } = set(*op) else { unreachable!("set() is a write") };
        state.apply(&Entry { keyed: false, ..entry }, NOWHERE).expect("a set changes something");
    }
    Final::new(state)
}

/// A message of that epoch from a node.
pub(crate) fn envelope(from: u32, epoch: u32, body: Body) -> Envelope {
    let sender = Sender { peer: peer(from), incarnation: incarnation(1) };
    Envelope { partition: PARTITION, sender, epoch: Some(Epoch(epoch)), body }
}
