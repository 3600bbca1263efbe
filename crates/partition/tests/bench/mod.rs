//! A bench for one partition: a log in memory whose flushes end when the test says so, and messages made by hand.
#![allow(missing_docs, dead_code, unreachable_pub)]

use std::cell::RefCell;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use highwater_log::{FlushDone, LogError, LogStore};
use highwater_partition::{Command, Effect, Input, Kind, Outcome, Partition, Proposal, Reign, Ticket};
use highwater_replica::{Mode, Start, Timing};
use highwater_wire::batch::{self, Record};
use highwater_wire::{
    Body, CommitRule, Envelope, Epoch, HardState, Incarnation, Lead, LogId, LogShape, NodeId, Offset, PartitionId,
    PeerId, Sender, Set, Unfit, Version,
};

pub const PARTITION: PartitionId = PartitionId(1);

/// Batches in a vector.
#[derive(Debug, Default)]
pub struct VecLog {
    shape: LogShape,
    hard: HardState,
    batches: Vec<(Offset, Bytes)>,
    generation: u64,
    flushing: bool,
    pub full: bool,
    /// Not even promises and cuts find room. Shared, since the partition owns the log.
    pub no_block: Rc<RefCell<bool>>,
    pub lost: Vec<Offset>,
}

impl LogStore for VecLog {
    type FlushJob = FlushDone;

    fn shape(&self) -> &LogShape {
        &self.shape
    }

    fn hard_state(&self) -> &HardState {
        &self.hard
    }

    fn persist(&mut self, hard: &HardState) -> Result<(), LogError> {
        if *self.no_block.borrow() {
            return Err(LogError::Full("no space left for a promise".into()));
        }
        self.hard = hard.clone();
        Ok(())
    }

    fn reserve(&mut self, _: usize) -> Result<(), LogError> {
        if self.full { Err(LogError::Full("no space left".into())) } else { Ok(()) }
    }

    fn append(&mut self, batches: &Bytes) -> Result<(), LogError> {
        if *self.no_block.borrow() {
            return Err(LogError::Full("no space left for entries".into()));
        }
        for split in batch::split(batches) {
            let (header, bytes) = split.expect("a replica appends whole batches");
            assert_eq!(header.base, self.shape.end);
            self.shape.append(header.epoch, header.count);
            self.batches.push((header.base, bytes));
        }
        Ok(())
    }

    fn cut(&mut self, to: Offset) -> Result<(), LogError> {
        if *self.no_block.borrow() {
            return Err(LogError::Full("no space left for a cut".into()));
        }
        self.lost.extend(to..self.shape.end);
        self.batches.retain(|(base, _)| *base < to);
        self.shape.cut(to);
        self.generation += 1;
        Ok(())
    }

    fn read(&self, from: Offset, max_bytes: usize) -> Result<Bytes, LogError> {
        let mut bytes = BytesMut::new();
        let ends_after = |bytes: &Bytes| batch::header(bytes).is_ok_and(|header| header.base + header.count > from);
        for (_, next) in self.batches.iter().filter(|(_, bytes)| ends_after(bytes)) {
            if !bytes.is_empty() && bytes.len() + next.len() > max_bytes {
                break;
            }
            bytes.extend_from_slice(next);
        }
        Ok(bytes.freeze())
    }

    fn begin_flush(&mut self) -> Option<FlushDone> {
        if self.flushing || self.shape.flushed == self.shape.end {
            return None;
        }
        self.flushing = true;
        Some(FlushDone { end: self.shape.end, generation: self.generation, result: Ok(()) })
    }

    fn finish_flush(&mut self, done: FlushDone) -> Result<Offset, LogError> {
        self.flushing = false;
        done.result?;
        if done.generation == self.generation {
            self.shape.flushed = done.end;
        }
        Ok(self.shape.flushed)
    }
}

pub fn peer(node: u32) -> PeerId {
    PeerId { node: NodeId(node), log: LogId(u64::from(node) * 11) }
}

pub fn sender(node: u32) -> Sender {
    Sender { peer: peer(node), incarnation: Incarnation { starts: 1, random: u64::from(node) } }
}

pub fn message(from: u32, epoch: u32, body: Body) -> Input {
    Input::Message(Envelope { partition: PARTITION, sender: sender(from), epoch: Some(Epoch(epoch)), body })
}

pub fn quorum(q: u32, nodes: &[u32]) -> Set {
    Set { rule: CommitRule::Quorum { q }, members: nodes.iter().map(|n| peer(*n)).collect() }
}

pub fn lead(leader: u32, set: &Set, version: u64) -> Body {
    Body::Lead(Lead {
        leader: peer(leader),
        incarnation: sender(leader).incarnation,
        replicas: set.members.clone(),
        set: set.clone(),
        version: Version(version),
        lossy: None,
    })
}

/// One unstamped batch with these values.
pub fn transaction(values: &[&str]) -> BytesMut {
    let records: Vec<Record> =
        values.iter().map(|v| Record { key: None, value: Some(Bytes::copy_from_slice(v.as_bytes())) }).collect();
    batch::build(&records, 0)
}

/// Stamped batches, as a leader of `epoch` sends them.
pub fn entries(base: Offset, epoch: u32, values: &[&str]) -> Bytes {
    let mut bytes = transaction(values);
    batch::stamp(&mut bytes, base, Epoch(epoch)).unwrap();
    bytes.freeze()
}

/// Node 1's partition, with what came out of it so far.
pub struct Bench {
    pub partition: Partition<VecLog>,
    pub now: u64,
    pub flush: Option<FlushDone>,
    pub commands: Vec<Command>,
    pub answers: Vec<(Ticket, Outcome)>,
    pub sent: Vec<Envelope>,
    /// "publish 3", "answer 7": their order.
    pub order: Vec<String>,
    pub halted: Option<String>,
    pub disk_full: Option<String>,
    pub rejected: Vec<(NodeId, Unfit)>,
}

impl Bench {
    /// A new log; the machine has told that it holds nothing.
    pub fn new() -> Bench {
        let mut bench = Bench::recovered(VecLog::default());
        bench.step(Input::Rewound(0));
        bench
    }

    pub fn recovered(log: VecLog) -> Bench {
        let start = Start {
            partition: PARTITION,
            me: peer(1),
            incarnation: sender(1).incarnation,
            mode: Mode::Appointed,
            timing: Timing::default(),
            seed: 1,
            shape: log.shape().clone(),
            hard: log.hard_state().clone(),
            now: 0,
        };
        Bench {
            partition: Partition::new(start, log, Kind::Ahead),
            now: 0,
            flush: None,
            commands: vec![],
            answers: vec![],
            sent: vec![],
            order: vec![],
            halted: None,
            disk_full: None,
            rejected: vec![],
        }
    }

    pub fn step(&mut self, input: Input) {
        let mut out = Vec::new();
        self.partition.step(self.now, input, &mut out);
        for effect in out {
            match effect {
                Effect::Send(_, envelope) => self.sent.push(envelope),
                Effect::Flush(job) => assert!(self.flush.replace(job).is_none(), "one flush at a time"),
                Effect::Machine(command) => {
                    if let Command::Publish { hw } = command {
                        self.order.push(format!("publish {hw}"));
                    }
                    self.commands.push(command);
                }
                Effect::Answer(ticket, outcome) => {
                    self.order.push(format!("answer {}", ticket.0));
                    self.answers.push((ticket, outcome));
                }
                Effect::Reject(node, unfit) => self.rejected.push((node, unfit)),
                Effect::Role(_) => {}
                Effect::DiskFull(reason) => self.disk_full = reason,
                Effect::Halted(reason) => self.halted = Some(reason),
            }
        }
    }

    /// Ends the flush that is running, and those it leads to.
    pub fn flush(&mut self) {
        while let Some(done) = self.flush.take() {
            self.step(Input::FlushDone(done));
        }
    }

    /// The commands since the last call.
    pub fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// Answers every Apply and Rewind at once, a rewind exactly where asked, until nothing more comes. Returns the reign if the machine was told to lead.
    pub fn run_machine(&mut self) -> Option<(Reign, Offset)> {
        let mut reign = None;
        loop {
            let commands = self.take_commands();
            if commands.is_empty() {
                return reign;
            }
            for command in commands {
                match command {
                    Command::Apply { to, .. } => self.step(Input::Applied(to)),
                    Command::Rewind { to } => self.step(Input::Rewound(to)),
                    Command::Lead { reign: r, end } => reign = Some((r, end)),
                    Command::Publish { .. } => {}
                }
            }
        }
    }

    /// Node 1 promises `epoch` and is appointed in it.
    pub fn appoint(&mut self, epoch: u32, set: &Set) -> (Reign, Offset) {
        self.step(message(9, epoch, Body::PromiseRequest { ballot: 1 }));
        self.step(message(9, epoch, lead(1, set, u64::from(epoch))));
        self.flush();
        self.run_machine().expect("the machine is told to lead")
    }

    pub fn propose(&mut self, reign: Reign, base: Offset, values: &[&str]) {
        self.step(Input::Propose(Proposal { reign, base, batches: transaction(values) }));
    }

    pub fn answer(&mut self, ticket: u64) -> Option<Outcome> {
        let at = self.answers.iter().position(|(t, _)| t.0 == ticket)?;
        Some(self.answers.remove(at).1)
    }

    /// The stream that node `from` opened, accepted, as if by a follower whose log is empty.
    pub fn open_stream(&mut self, from: u32, epoch: u32, end: Offset, last_epoch: Option<u32>) {
        let last_epoch = last_epoch.map(Epoch);
        self.step(message(from, epoch, Body::Open { stream: highwater_wire::StreamId(1), end, last_epoch }));
    }

    pub fn ack(&mut self, from: u32, epoch: u32, leo: Offset) {
        self.step(message(from, epoch, Body::Ack { stream: highwater_wire::StreamId(1), leo, applied: 0 }));
    }

    /// Node `from` confirms that this node leads `epoch`, for every round that was asked so far.
    pub fn confirm(&mut self, from: u32, epoch: u32) {
        let asked: Vec<u64> = self
            .sent
            .iter()
            .filter_map(|envelope| match envelope.body {
                Body::Confirm { round } => Some(round),
                _ => None,
            })
            .collect();
        for round in asked {
            self.step(message(from, epoch, Body::Confirmed { round }));
        }
    }
}
