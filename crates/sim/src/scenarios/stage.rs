//! A stage for stories: replicas with names, real logs on disks in memory, and messages that arrive when the story says so.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use highwater_log::mem::MemIo;
use highwater_log::{Log, LogStore, Options, dump};
use highwater_replica::{Effect, Input, Mode, Replica, Start, Timing};
use highwater_wire::batch::{self, Record};
use highwater_wire::{
    Body, Dest, Envelope, Epoch, HardState, Incarnation, Lead, LogId, NodeId, Offset, PartitionId, PeerId, Sender, Set,
    Version,
};

/// The node that the coordinator of a story sends from.
const COORDINATOR: NodeId = NodeId(99);

/// An actor: a replica that may be down, and its disk.
struct Actor {
    name: char,
    io: MemIo,
    starts: u64,
    running: Option<(Replica, Log<MemIo>)>,
}

/// The stage.
pub(crate) struct Stage {
    partition: PartitionId,
    mode: Mode,
    actors: BTreeMap<NodeId, Actor>,
    /// What has been sent and has not arrived: (from, to, message), oldest first.
    under_way: VecDeque<(NodeId, NodeId, Envelope)>,
    /// What was sent to the coordinator.
    pub(crate) to_coordinator: Vec<Envelope>,
}

/// The peer of that name.
pub(crate) fn peer(name: char) -> PeerId {
    PeerId { node: node(name), log: LogId(u64::from(u32::from(name))) }
}

/// The node of that name.
pub(crate) fn node(name: char) -> NodeId {
    NodeId(u32::from(name) - u32::from('A') + 1)
}

/// The name of that node.
pub(crate) fn name(node: NodeId) -> char {
    char::from_u32(u32::from('A') + node.0 - 1).unwrap_or('?')
}

/// One batch with one entry.
pub(crate) fn entry(value: &str) -> BytesMut {
    batch::build(&[Record { key: None, value: Some(Bytes::copy_from_slice(value.as_bytes())) }], 0)
}

impl Stage {
    /// A stage with these actors, all down, their logs empty. The metadata elects its own leader among them; any other partition is led by
    /// appointment.
    pub(crate) fn new(partition: PartitionId, names: &[char]) -> Stage {
        let mode = match partition {
            PartitionId::METADATA => Mode::SelfElecting { voters: names.iter().map(|name| peer(*name)).collect() },
            _ => Mode::Appointed,
        };
        let actor = |name| Actor { name, io: MemIo::new(), starts: 0, running: None };
        let actors = names.iter().map(|name| (node(*name), actor(*name))).collect();
        Stage { partition, mode, actors, under_way: VecDeque::new(), to_coordinator: Vec::new() }
    }

    fn actor(&mut self, name: char) -> &mut Actor {
        match self.actors.get_mut(&node(name)) {
            Some(actor) => actor,
            None => panic!("there is no {name} in this story"),
        }
    }

    /// Starts a process of that actor; `first` is what a new log begins with, and `promised` what it has promised.
    pub(crate) fn start(&mut self, name: char, first: Option<&[u8]>, promised: Option<Epoch>) {
        let (partition, mode) = (self.partition, self.mode.clone());
        let actor = self.actor(name);
        actor.starts += 1;
        let opened = Log::open(actor.io.clone(), Options::default(), peer(name).log);
        let mut log = match opened {
            Ok(log) => log,
            Err(error) => panic!("the log of {name} opens: {error}"),
        };
        if let Some(first) = first.filter(|_| log.shape().end == 0) {
            perform(name, log.append(&Bytes::copy_from_slice(first)));
            flush(name, &mut log);
        }
        if promised > log.hard_state().promised {
            perform(name, log.persist(&HardState { promised, ..HardState::default() }));
        }
        let start = Start {
            partition,
            me: peer(name),
            incarnation: Incarnation { starts: actor.starts, random: 0 },
            mode,
            timing: Timing::default(),
            seed: 1,
            shape: log.shape().clone(),
            hard: log.hard_state().clone(),
            now: 0,
        };
        actor.running = Some((Replica::new(start), log));
    }

    /// Its process dies; what was not flushed is lost, and so is everything that is under way from and to it.
    pub(crate) fn crash(&mut self, name: char) {
        let actor = self.actor(name);
        actor.running = None;
        actor.io.crash(|_| 0);
        let gone = node(name);
        self.under_way.retain(|(from, to, _)| *from != gone && *to != gone);
    }

    /// One event at an actor.
    pub(crate) fn step(&mut self, name: char, input: Input) {
        let mut effects = Vec::new();
        if let Some((replica, _)) = &mut self.actor(name).running {
            replica.step(0, input, &mut effects);
            self.perform(name, effects);
        }
    }

    /// The leader appends one entry.
    pub(crate) fn propose(&mut self, name: char, epoch: Epoch, value: &str) -> Result<Offset, String> {
        let mut effects = Vec::new();
        let Some((replica, log)) = &mut self.actor(name).running else { return Err(format!("{name} is down")) };
        let base = log.shape().end;
        let end = replica.propose(0, epoch, base, entry(value), &mut effects).map_err(|error| error.to_string())?;
        self.perform(name, effects);
        Ok(end)
    }

    fn perform(&mut self, name: char, effects: Vec<Effect>) {
        let (from, partition, actor) = (node(name), self.partition, self.actor(name));
        let starts = actor.starts;
        let mut sent = Vec::new();
        let Some((replica, log)) = &mut actor.running else { return };
        let mut queue = VecDeque::from(effects);
        while let Some(effect) = queue.pop_front() {
            match effect {
                Effect::Persist(hard) => perform(name, log.persist(&hard)),
                Effect::Append(batches) => perform(name, log.append(&batches)),
                Effect::Cut(to) => perform(name, log.cut(to)),
                Effect::Send(dest, envelope) => sent.push((dest, envelope)),
                Effect::Ship { to, stream, from: offset, .. } => {
                    // One batch at a time, so that a story can say how much has arrived.
                    let batches = log.read(offset, 1).unwrap_or_else(|error| panic!("{name} reads its log: {error}"));
                    let header =
                        batch::header(&batches).unwrap_or_else(|error| panic!("{name} reads a batch: {error}"));
                    let size = batches.len();
                    let body = Body::Batch { stream, base: offset, batches, hw: replica.hw(), start: 0 };
                    let sender = Sender { peer: peer(name), incarnation: Incarnation { starts, random: 0 } };
                    let envelope = Envelope { partition, sender, epoch: replica.promised(), body };
                    sent.push((Dest::Node(to.node), envelope));
                    let mut more = Vec::new();
                    replica.shipped(to, stream, header.base + header.count, size, &mut more);
                    queue.extend(more);
                }
                Effect::Reject(other, unfit) => panic!("{name} rejects what node {other} sent: {unfit}"),
                Effect::HighWatermark(_) | Effect::Role(_) | Effect::Read(..) => {}
            }
        }
        for (dest, envelope) in sent {
            match dest {
                Dest::Node(COORDINATOR) | Dest::Coordinator => self.to_coordinator.push(envelope),
                Dest::Node(to) => self.under_way.push_back((from, to, envelope)),
            }
        }
    }

    /// Everything that an actor has appended becomes durable.
    pub(crate) fn flush(&mut self, name: char) {
        if let Some((_, log)) = &mut self.actor(name).running
            && let Some(flushed) = flush(name, log)
        {
            self.step(name, Input::Flushed(flushed));
        }
    }

    /// The next message from one actor to another arrives; false if none is under way.
    pub(crate) fn deliver(&mut self, from: char, to: char) -> bool {
        let next = self.under_way.iter().position(|(f, t, _)| (*f, *t) == (node(from), node(to)));
        let Some((_, _, envelope)) = next.and_then(|at| self.under_way.remove(at)) else { return false };
        self.step(to, Input::Message(envelope));
        true
    }

    /// What is under way from one actor to another, oldest first.
    pub(crate) fn messages(&self, from: char, to: char) -> Vec<Body> {
        let between = |(f, t, _): &&(NodeId, NodeId, Envelope)| (*f, *t) == (node(from), node(to));
        self.under_way.iter().filter(between).map(|(_, _, envelope)| envelope.body.clone()).collect()
    }

    /// Messages between these actors arrive, and what they append is flushed, until nothing is under way between them.
    pub(crate) fn settle(&mut self, among: &[char]) {
        loop {
            let mut moved = false;
            for from in among {
                for to in among {
                    while self.deliver(*from, *to) {
                        moved = true;
                    }
                }
            }
            for name in among {
                self.flush(*name);
            }
            if !moved {
                return;
            }
        }
    }

    /// What is under way from and to an actor is lost.
    pub(crate) fn cut_off(&mut self, name: char) {
        self.under_way.retain(|(from, to, _)| *from != node(name) && *to != node(name));
    }

    /// A message of the coordinator arrives at an actor.
    pub(crate) fn coordinate(&mut self, to: char, epoch: Epoch, body: Body) {
        let peer = PeerId { node: COORDINATOR, log: LogId(0) };
        let sender = Sender { peer, incarnation: Incarnation { starts: 1, random: 0 } };
        let envelope = Envelope { partition: self.partition, sender, epoch: Some(epoch), body };
        self.step(to, Input::Message(envelope));
    }

    /// The coordinator tells these actors who leads.
    pub(crate) fn announce(&mut self, to: &[char], epoch: Epoch, leader: char, set: &Set, version: u64) {
        let incarnation = Incarnation { starts: self.actor(leader).starts, random: 0 };
        let replicas: Vec<PeerId> = self.actors.values().map(|actor| peer(actor.name)).collect();
        for name in to {
            let lead = Lead {
                leader: peer(leader),
                incarnation,
                replicas: replicas.clone(),
                set: set.clone(),
                version: Version(version),
                lossy: None,
            };
            self.coordinate(*name, epoch, Body::Lead(lead));
        }
    }

    /// The replica of an actor that runs.
    pub(crate) fn replica(&self, name: char) -> &Replica {
        match self.actors.get(&node(name)).and_then(|actor| actor.running.as_ref()) {
            Some((replica, _)) => replica,
            None => panic!("{name} does not run"),
        }
    }

    /// The incarnation in which an actor runs.
    pub(crate) fn incarnation(&self, name: char) -> Incarnation {
        Incarnation { starts: self.actors.get(&node(name)).map_or(0, |actor| actor.starts), random: 0 }
    }

    /// What an actor's log holds: (epoch, value) of every entry, control entries by what they are.
    pub(crate) fn log(&self, name: char) -> Vec<(u32, String)> {
        let Some((_, log)) = self.actors.get(&node(name)).and_then(|actor| actor.running.as_ref()) else {
            return Vec::new();
        };
        let (mut entries, mut from) = (Vec::new(), 0);
        while from < log.shape().end {
            let batches = log.read(from, 1).unwrap_or_else(|error| panic!("{name} reads its log: {error}"));
            entries.extend(values(&batches));
            from = entries.len() as Offset;
        }
        entries
    }

    /// What cuts have given up in an actor's folder: (offset, epoch, value).
    pub(crate) fn lost_tail(&self, name: char) -> Vec<(Offset, u32, String)> {
        let Some(actor) = self.actors.get(&node(name)) else { return Vec::new() };
        let mut lost = Vec::new();
        for tail in dump::lost_tails(&actor.io).unwrap_or_default() {
            for item in dump::lost_tail(&actor.io, &tail) {
                if let Ok(dump::Item::Frame(frame)) = item {
                    lost.extend(values(&frame.batch).into_iter().map(|(epoch, value)| (frame.offset, epoch, value)));
                }
            }
        }
        lost
    }
}

/// The entries of batches.
fn values(batches: &Bytes) -> Vec<(u32, String)> {
    let mut entries = Vec::new();
    for (header, bytes) in batch::split(batches).filter_map(Result::ok) {
        if header.control {
            let what = batch::control(&bytes).ok().flatten();
            entries.push((
                header.epoch.0,
                what.map_or_else(
                    || "control".to_owned(),
                    |what| match what {
                        batch::Control::EpochStart => "epoch start".to_owned(),
                        batch::Control::Configuration(voters) => format!("configuration of {}", voters.len()),
                    },
                ),
            ));
            continue;
        }
        for record in batch::records(&bytes).unwrap_or_default() {
            let value = record.value.unwrap_or_default();
            entries.push((header.epoch.0, String::from_utf8_lossy(&value).into_owned()));
        }
    }
    entries
}

fn flush(name: char, log: &mut Log<MemIo>) -> Option<Offset> {
    let done = log.begin_flush()?.run();
    match log.finish_flush(done) {
        Ok(flushed) => Some(flushed),
        Err(error) => panic!("{name} flushes: {error}"),
    }
}

fn perform(name: char, result: Result<(), highwater_log::LogError>) {
    if let Err(error) = result {
        panic!("the disk of {name} works in this story: {error}");
    }
}
