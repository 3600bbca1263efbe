//! A bench of a few replicas for tests: messages, flushes and crashes happen when the test says so.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use highwater_wire::batch::{self, Record};
use highwater_wire::{
    Body, CommitRule, Dest, Envelope, Epoch, HardState, Incarnation, Lead, LogId, LogShape, NodeId, Offset,
    PartitionId, PeerId, Sender, Set, StreamId, Unfit, Version,
};

use crate::{Effect, Input, Mode, ProposeError, ReadError, Replica, Start, Timing};

/// The replica on node `index`.
pub(crate) fn peer(index: usize) -> PeerId {
    PeerId { node: NodeId(index as u32), log: LogId(100 + index as u64) }
}

/// A stream of the replica's `starts`-th process.
pub(crate) fn stream_of(starts: u64, number: u64) -> StreamId {
    StreamId(StreamId::before_first_of(Incarnation { starts, random: 0 }).0 + number)
}

pub(crate) struct Bench {
    pub(crate) replicas: Vec<Replica>,
    logs: Vec<Vec<Bytes>>,
    hard: Vec<HardState>,
    starts: Vec<u64>,
    /// How many copies were put in place of each folder.
    copies: Vec<u64>,
    mode: Mode,
    rule: CommitRule,
    /// Messages under way between replicas: (to, message).
    pub(crate) wire: VecDeque<(usize, Envelope)>,
    /// What the coordinator was sent.
    pub(crate) coordinator: Vec<Envelope>,
    /// Answered reads: (replica, number, answer).
    pub(crate) reads: Vec<(usize, u64, Result<Offset, ReadError>)>,
    /// What was rejected: (by which replica, whose it was, why).
    pub(crate) rejected: Vec<(usize, NodeId, Unfit)>,
    pub(crate) now: u64,
}

impl Bench {
    pub(crate) fn appointed(nodes: usize, rule: CommitRule) -> Bench {
        Bench::new(nodes, Mode::Appointed, rule)
    }

    pub(crate) fn electing(nodes: usize) -> Bench {
        let voters = (0..nodes).map(peer).collect();
        Bench::new(nodes, Mode::SelfElecting { voters }, CommitRule::Quorum { q: nodes as u32 / 2 + 1 })
    }

    fn new(nodes: usize, mode: Mode, rule: CommitRule) -> Bench {
        let mut bench = Bench {
            replicas: Vec::new(),
            logs: vec![Vec::new(); nodes],
            hard: vec![HardState::default(); nodes],
            starts: vec![1; nodes],
            copies: vec![0; nodes],
            mode,
            rule,
            wire: VecDeque::new(),
            coordinator: Vec::new(),
            reads: Vec::new(),
            rejected: Vec::new(),
            now: 0,
        };
        bench.replicas = (0..nodes).map(|index| bench.recover(index)).collect();
        bench
    }

    fn recover(&self, index: usize) -> Replica {
        let mut shape = LogShape::default();
        for batch in &self.logs[index] {
            let header = batch::header(batch).expect("a batch");
            shape.append(header.epoch, header.count);
        }
        shape.flushed = shape.end;
        Replica::new(Start {
            partition: PartitionId(1),
            me: peer(index),
            incarnation: self.incarnation(index),
            mode: self.mode.clone(),
            timing: Timing::default(),
            seed: 1,
            shape,
            hard: self.hard[index].clone(),
            now: self.now,
        })
    }

    /// The process stops and starts; of what was not flushed, nothing is left.
    pub(crate) fn restart(&mut self, index: usize) {
        let flushed = self.replicas[index].shape().flushed;
        self.logs[index].retain(|bytes| batch::header(bytes).expect("a batch").base < flushed);
        self.starts[index] += 1;
        self.replicas[index] = self.recover(index);
    }

    /// The folder is replaced by the copy that was taken when it was new, and started: another process with as many starts as the folder's first.
    pub(crate) fn put_back(&mut self, index: usize) {
        self.logs[index].clear();
        self.hard[index] = HardState::default();
        self.starts[index] = 1;
        self.copies[index] += 1;
        self.replicas[index] = self.recover(index);
    }

    /// Says how often that folder has been started, for what is sent in its name by hand.
    pub(crate) fn starts(&mut self, index: usize, starts: u64) {
        self.starts[index] = starts;
    }

    /// Delivers what is under way to these, until none is left.
    pub(crate) fn deliver_to(&mut self, these: &[usize]) {
        while let Some(at) = self.wire.iter().position(|(to, _)| these.contains(to)) {
            let (to, envelope) = self.wire.remove(at).expect("it was found");
            self.step(to, Input::Message(envelope));
        }
    }

    pub(crate) fn step(&mut self, index: usize, input: Input) {
        let mut effects = Vec::new();
        self.replicas[index].step(self.now, input, &mut effects);
        self.perform(index, effects);
    }

    fn perform(&mut self, index: usize, effects: Vec<Effect>) {
        let mut queue = VecDeque::from(effects);
        while let Some(effect) = queue.pop_front() {
            match effect {
                Effect::Persist(hard) => self.hard[index] = hard,
                Effect::Append(batches) => {
                    self.logs[index].extend(batch::split(&batches).map(|item| item.expect("a batch").1));
                }
                Effect::Cut(to) => self.logs[index].retain(|bytes| batch::header(bytes).expect("a batch").base < to),
                Effect::Send(Dest::Node(node), envelope) => self.wire.push_back((node.0 as usize, envelope)),
                Effect::Send(Dest::Coordinator, envelope) => self.coordinator.push(envelope),
                Effect::Ship { to, stream, from, .. } => {
                    let mut bytes = BytesMut::new();
                    for batch in self.logs[index].iter().filter(|batch| batch::header(batch).unwrap().base >= from) {
                        bytes.extend_from_slice(batch);
                    }
                    let (replica, size) = (&mut self.replicas[index], bytes.len());
                    let (hw, upto) = (replica.hw(), replica.shape().end);
                    let body = Body::Batch { stream, base: from, batches: bytes.freeze(), hw, start: 0 };
                    let envelope = replica.envelope(replica.promised(), body);
                    let mut more = Vec::new();
                    replica.shipped(to, stream, upto, size, &mut more);
                    self.wire.push_back((to.node.0 as usize, envelope));
                    queue.extend(more);
                }
                Effect::Read(id, answer) => self.reads.push((index, id, answer)),
                Effect::Reject(node, unfit) => self.rejected.push((index, node, unfit)),
                Effect::HighWatermark(_) | Effect::Role(_) => {}
            }
        }
    }

    /// A message made by hand arrives.
    pub(crate) fn receive(&mut self, to: usize, from: usize, epoch: u32, body: Body) {
        let sender = Sender { peer: peer(from), incarnation: self.incarnation(from) };
        let envelope = Envelope { partition: PartitionId(1), sender, epoch: Some(Epoch(epoch)), body };
        self.step(to, Input::Message(envelope));
    }

    pub(crate) fn incarnation(&self, index: usize) -> Incarnation {
        Incarnation { starts: self.starts[index], random: index as u64 + 100 * self.copies[index] }
    }

    /// Delivers one message after the other, those caused by them included, until none is left. No log is flushed.
    pub(crate) fn deliver(&mut self) {
        while let Some((to, envelope)) = self.wire.pop_front() {
            self.step(to, Input::Message(envelope));
        }
    }

    pub(crate) fn flush(&mut self, index: usize) {
        let end = self.replicas[index].shape().end;
        self.step(index, Input::Flushed(end));
    }

    /// Delivers and flushes until nothing is left to do.
    pub(crate) fn settle(&mut self) {
        loop {
            self.deliver();
            (0..self.replicas.len()).for_each(|index| self.flush(index));
            if self.wire.is_empty() {
                return;
            }
        }
    }

    /// Asks for promises of `epoch`.
    pub(crate) fn ask_promise(&mut self, of: &[usize], epoch: u32) {
        for index in of {
            self.receive(*index, 0, epoch, Body::PromiseRequest { ballot: 1 });
        }
    }

    /// The record that names `leader`, with all replicas as the set.
    pub(crate) fn lead(&self, leader: usize) -> Lead {
        let replicas: Vec<PeerId> = (0..self.replicas.len()).map(peer).collect();
        Lead {
            leader: peer(leader),
            incarnation: self.incarnation(leader),
            set: Set { rule: self.rule, members: replicas.clone() },
            replicas,
            version: Version(1),
            lossy: None,
        }
    }

    /// Tells `to` who leads `epoch`.
    pub(crate) fn tell(&mut self, to: &[usize], epoch: u32, lead: &Lead) {
        for index in to {
            self.receive(*index, 0, epoch, Body::Lead(lead.clone()));
        }
    }

    /// Promises of `who`, and the appointment of `leader` told to them: the leader first.
    pub(crate) fn appoint(&mut self, leader: usize, epoch: u32, who: &[usize]) {
        self.ask_promise(who, epoch);
        self.wire.clear();
        let lead = self.lead(leader);
        self.tell(&[leader], epoch, &lead);
        let others: Vec<usize> = who.iter().copied().filter(|index| *index != leader).collect();
        self.tell(&others, epoch, &lead);
    }

    /// A transaction of one entry is proposed to `index` in the epoch it has promised.
    pub(crate) fn write(&mut self, index: usize) -> Result<Offset, ProposeError> {
        let record = Record { key: None, value: Some(Bytes::from_static(b"write")) };
        let epoch = self.replicas[index].promised().expect("somebody leads");
        let (base, mut effects) = (self.replicas[index].shape().end, Vec::new());
        let end = self.replicas[index].propose(self.now, epoch, base, batch::build(&[record], 0), &mut effects)?;
        self.perform(index, effects);
        Ok(end)
    }

    /// The bodies under way to `to`.
    pub(crate) fn under_way(&self, to: usize) -> Vec<Body> {
        self.wire.iter().filter(|(node, _)| *node == to).map(|(_, envelope)| envelope.body.clone()).collect()
    }

    pub(crate) fn hws(&self) -> Vec<Offset> {
        self.replicas.iter().map(Replica::hw).collect()
    }

    pub(crate) fn ends(&self) -> Vec<Offset> {
        self.replicas.iter().map(|replica| replica.shape().end).collect()
    }
}
