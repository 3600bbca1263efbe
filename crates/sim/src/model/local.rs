//! What one replica does on one input: the real step function, with its effects performed on a disk in memory.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::{Bytes, BytesMut};
use highwater_replica::{Effect, Input, Mode, Replica, Role, Start, Timeout, Timing};
use highwater_wire::batch::{self, Control, Record};
use highwater_wire::{Body, Dest, Envelope, Epoch, HardState, LogShape, Sender};

use super::world::{COORDINATOR, Entry, Local, Node, PARTITION, incarnation, peer};
use super::{Config, REPLICAS};

/// What a step did.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    pub(super) sent: Vec<(usize, Envelope)>,
    /// The last HW announced.
    pub(super) hw: Option<u64>,
    /// An epoch that this replica began to lead, and its log then.
    pub(super) led: Option<(Epoch, Vec<Entry>)>,
    /// Where the log was cut, at the lowest.
    pub(super) cut: Option<u64>,
    /// Indexes that were given to reads: (the read's number, its index).
    pub(super) indexes: Vec<(u64, u64)>,
    /// The write was refused, as when too few are in reach: nothing happened.
    pub(super) refused: bool,
}

impl Done {
    /// Whether there is something in it that the oracle remembers or judges.
    pub(super) fn is_announced(&self) -> bool {
        self.hw.is_some() || self.led.is_some() || self.cut.is_some() || !self.indexes.is_empty()
    }
}

/// A replica before anything has happened.
pub(super) fn first(index: usize, config: &Config) -> Node {
    // They have met before: which incarnation is new where is of no interest to any law but its own.
    let others = (0..REPLICAS).filter(|other| *other != index);
    let seen = match config.rule {
        Some(_) => Default::default(),
        None => others.map(|other| (peer(other), incarnation(other, 1))).collect(),
    };
    recover(index, 1, Vec::new(), HardState { seen, ..HardState::default() }, config)
}

fn recover(index: usize, starts: u64, log: Vec<Entry>, hard: HardState, config: &Config) -> Node {
    let mut shape = LogShape::default();
    log.iter().for_each(|entry| shape.append(entry.epoch, 1));
    shape.flushed = shape.end;
    let mode = match config.rule {
        Some(_) => Mode::Appointed,
        None => Mode::SelfElecting { voters: (0..REPLICAS).map(peer).collect() },
    };
    let replica = Replica::new(Start {
        partition: PARTITION,
        me: peer(index),
        incarnation: incarnation(index, starts),
        mode,
        timing: Timing::default(),
        seed: 0,
        shape,
        hard: hard.clone(),
        now: 0,
    });
    Node { replica, starts, durable: log.len(), log, hard }
}

/// The bytes of an entry that is not stamped yet.
pub(super) fn unstamped(id: u8) -> BytesMut {
    match id {
        0 => batch::build_control(&Control::EpochStart, 0),
        id => {
            let value = Bytes::copy_from_slice(&[id]);
            batch::build(&[Record { key: None, value: Some(value) }], 0)
        }
    }
}

fn bytes_of(log: &[Entry], from: u64) -> Bytes {
    let mut all = BytesMut::new();
    for (offset, entry) in log.iter().enumerate().skip(from as usize) {
        let mut one = unstamped(entry.id);
        batch::stamp(&mut one, offset as u64, entry.epoch).expect("a batch built here");
        all.extend_from_slice(&one);
    }
    all.freeze()
}

fn entries_of(batches: &Bytes) -> Vec<Entry> {
    let entry = |item: Result<(batch::BatchHeader, Bytes), batch::BatchError>| {
        let (header, bytes) = item.expect("only whole batches are appended");
        assert_eq!(header.count, 1, "batches here have one entry");
        let id = match header.control {
            true => 0,
            false => batch::records(&bytes).expect("a batch built here")[0].value.as_ref().expect("a value")[0],
        };
        Entry { epoch: header.epoch, id }
    };
    batch::split(batches).map(entry).collect()
}

/// Takes the step.
///
/// # Errors
/// What the replica says of itself when it breaks a law of its own and stops.
pub(super) fn step(
    index: usize,
    node: &Node,
    local: Local,
    message: Option<&Envelope>,
    config: &Config,
) -> Result<(Node, Done), String> {
    let run = || {
        let (mut node, mut done) = (node.clone(), Done::default());
        let mut effects = Vec::new();
        match local {
            Local::Deliver(_) => {
                let envelope = message.expect("a delivery has a message").clone();
                node.replica.step(0, Input::Message(envelope), &mut effects);
            }
            Local::Flush => {
                node.durable = node.log.len();
                node.replica.step(0, Input::Flushed(node.durable as u64), &mut effects);
            }
            Local::Crash(kept) => {
                assert!(kept >= node.durable, "what is durable survives");
                node.log.truncate(kept);
                node = recover(index, node.starts + 1, node.log, node.hard, config);
            }
            Local::Write(id) => {
                let epoch = node.replica.promised().expect("a leader has an epoch");
                let base = node.log.len() as u64;
                let proposed = node.replica.propose(0, epoch, base, unstamped(id), &mut effects);
                done.refused = proposed.is_err();
            }
            Local::Stand => stand(index, &mut node, &mut effects),
            Local::Fire(timeout) => node.replica.step(0, Input::Timeout(timeout), &mut effects),
            Local::Read(number) => node.replica.step(0, Input::Read(number.into()), &mut effects),
        }
        perform(&mut node, effects, &mut done);
        (node, done)
    };
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| reason_of(panic.as_ref()))
}

/// What a panic said.
pub(super) fn reason_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// The question whether this replica would win is asked, and the others say yes: it decides only when somebody stands, and changes nobody.
fn stand(index: usize, node: &mut Node, effects: &mut Vec<Effect>) {
    let mut asked = Vec::new();
    node.replica.step(0, Input::Timeout(Timeout::Election), &mut asked);
    for effect in asked {
        let Effect::Send(Dest::Node(voter), question) = effect else { panic!("only a question: {effect:?}") };
        let voter = voter.0 as usize;
        assert_ne!(voter, index, "nobody asks itself");
        // As the newest process that this one knows of: it would not listen to an older one, and of a newer one it hears by other messages.
        let newest = node.hard.seen.get(&peer(voter)).copied();
        let sender = Sender { peer: peer(voter), incarnation: newest.unwrap_or_else(|| incarnation(voter, 1)) };
        let body = Body::Vote { granted: true, pre: true };
        node.replica.step(0, Input::Message(Envelope { sender, body, ..question }), effects);
    }
}

/// Performs the effects of one step on this replica's disk, in order.
pub(super) fn perform(node: &mut Node, effects: Vec<Effect>, done: &mut Done) {
    let mut queue = VecDeque::from(effects);
    while let Some(effect) = queue.pop_front() {
        match effect {
            Effect::Persist(hard) => node.hard = hard,
            Effect::Append(batches) => node.log.extend(entries_of(&batches)),
            Effect::Cut(to) => {
                node.log.truncate(to as usize);
                node.durable = node.durable.min(node.log.len());
                done.cut = Some(done.cut.map_or(to, |lower| lower.min(to)));
            }
            Effect::Send(Dest::Node(to), envelope) => done.sent.push((to.0 as usize, envelope)),
            Effect::Send(Dest::Coordinator, envelope) => done.sent.push((COORDINATOR, envelope)),
            Effect::Ship { to, stream, from, .. } => {
                let batches = bytes_of(&node.log, from);
                let (size, upto) = (batches.len(), node.log.len() as u64);
                let hw = node.replica.hw();
                let body = Body::Batch { stream, base: from, batches, hw, start: 0 };
                let sender = Sender {
                    peer: node.replica.me(),
                    incarnation: incarnation(node.replica.me().node.0 as usize, node.starts),
                };
                let envelope = Envelope { partition: PARTITION, sender, epoch: node.replica.promised(), body };
                done.sent.push((to.node.0 as usize, envelope));
                let mut more = Vec::new();
                node.replica.shipped(to, stream, upto, size, &mut more);
                queue.extend(more);
            }
            Effect::HighWatermark(hw) => done.hw = Some(hw),
            Effect::Role(Role::Leader { epoch, .. }) => done.led = Some((epoch, node.log.clone())),
            Effect::Role(_) => {}
            Effect::Read(number, answer) => done.indexes.extend(answer.ok().map(|index| (number, index))),
        }
    }
}
