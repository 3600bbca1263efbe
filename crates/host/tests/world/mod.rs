//! Hosts joined by a perfect network, with disks and state machines in memory. Time passes when the test says so.
#![allow(missing_docs, dead_code, unreachable_pub)]

mod chaos;
mod disk;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use highwater_host::{Effect, Folders, Host, HostError, HostStart, Input, NodeState};
use highwater_log::LogStore;
use highwater_partition::{AckPolicy, Command, Input as PartitionInput, Outcome, Proposal, Reign, Ticket};
use highwater_replica::{Role, Timing};
use highwater_wire::batch::{self, Record};
use highwater_wire::{CommitRule, Envelope, Epoch, HardState, Incarnation, LogId, NodeId, Offset, PartitionId, PeerId};

pub use chaos::Chaos;
pub use disk::{Disk, Job};

pub const MAIN: PartitionId = PartitionId(1);

pub fn peer(n: u32) -> PeerId {
    PeerId { node: NodeId(n), log: LogId(u64::from(n) * 11) }
}

/// A state machine that keeps the values below what it has applied.
#[derive(Debug, Default)]
pub struct Machine {
    pub reign: Option<(Reign, Offset)>,
    pub published: Option<Offset>,
    values: Vec<(Offset, String)>,
    applied: Offset,
}

/// One node: its folder, and its process while it runs.
pub struct Node {
    pub state: NodeState,
    pub disk: Disk,
    pub host: Option<Host<Disk>>,
    pub machines: BTreeMap<PartitionId, Machine>,
    pub halted: BTreeMap<PartitionId, String>,
    pub answers: BTreeMap<Ticket, Outcome>,
    /// Flush jobs of these partitions wait until they are taken off the list.
    pub hold_flushes: BTreeSet<PartitionId>,
    held: Vec<(PartitionId, Job)>,
}

pub struct World {
    pub now: u64,
    pub nodes: BTreeMap<u32, Node>,
    pub rule: CommitRule,
    pub databases: Vec<(String, CommitRule)>,
    /// Every effect of every node, as text.
    pub trace: Vec<String>,
    /// What happens next, in order.
    inputs: VecDeque<(u32, Input)>,
    tickets: u64,
    /// Processes started so far.
    starts: u64,
    /// If set, messages and flushes go there.
    pub chaos: Option<Chaos>,
    /// Counts what was rejected while somebody lies.
    rejections: Option<usize>,
}

impl World {
    /// That many new nodes, all of them first voters, with a database `main`; none is started.
    pub fn new(count: u32, rule: CommitRule) -> World {
        let nodes = (1..=count).map(|n| (n, Node::new(n))).collect();
        let databases = vec![("main".into(), rule)];
        World {
            now: 1000,
            nodes,
            rule,
            databases,
            trace: vec![],
            inputs: VecDeque::new(),
            tickets: 0,
            starts: 0,
            chaos: None,
            rejections: None,
        }
    }

    /// As above, started, and run until `main` has a leader whose machine executes.
    pub fn formed(count: u32, rule: CommitRule) -> World {
        let mut world = World::new(count, rule);
        for n in 1..=count {
            world.start(n);
        }
        world.run_until("main is led", |world| world.leader().is_some());
        world
    }

    pub fn start_with(&mut self, n: u32, databases: Vec<(String, CommitRule)>) -> Result<(), HostError> {
        let voters = self.nodes.keys().map(|n| peer(*n)).collect();
        self.starts += 1;
        let node = self.nodes.get_mut(&n).expect("a node");
        assert!(node.host.is_none(), "node {n} runs");
        node.state.starts += 1;
        // Drawn anew at every start, so that it differs between a folder and its copy.
        let random = self.starts * 1000;
        node.state.incarnations.push(Incarnation { starts: node.state.starts, random });
        let start = HostStart {
            state: node.state.clone(),
            voters,
            databases,
            address: format!("node-{n}"),
            timing: Timing::default(),
            session_ms: 600,
            seed: u64::from(n) * 77,
            now: self.now,
        };
        let mut out = Vec::new();
        node.host = Some(Host::new(start, node.disk.clone(), &mut out)?);
        self.perform(n, out);
        Ok(())
    }

    pub fn start(&mut self, n: u32) {
        self.start_with(n, self.databases.clone()).expect("the node starts");
        self.settle();
    }

    /// The process is killed and what was not flushed is lost.
    pub fn kill(&mut self, n: u32) {
        let node = self.nodes.get_mut(&n).expect("a node");
        assert!(node.host.take().is_some(), "node {n} runs");
        match &mut self.chaos {
            Some(chaos) => {
                chaos.flushes.retain(|(of, ..)| *of != n);
                node.disk.crash(|below| chaos.draw(below));
            }
            None => node.disk.crash(|_| 0),
        }
        node.machines.clear();
        node.held.clear();
        self.inputs.retain(|(to, _)| *to != n);
        for other in self.running() {
            self.inputs.push_back((other, Input::Disconnected(NodeId(n))));
        }
        self.settle();
    }

    /// A copy of that node's data folder.
    pub fn copy(&self, n: u32) -> (NodeState, Disk) {
        let node = &self.nodes[&n];
        (node.state.clone(), node.disk.copy())
    }

    /// Puts a data folder in place of that node's, whose process must not run; returns the one that was there.
    pub fn exchange(&mut self, n: u32, (state, disk): (NodeState, Disk)) -> (NodeState, Disk) {
        let node = self.node(n);
        assert!(node.host.is_none(), "node {n} runs");
        node.halted.clear();
        (std::mem::replace(&mut node.state, state), std::mem::replace(&mut node.disk, disk))
    }

    /// Everybody notices that nothing listens at that node any more.
    pub fn notice_gone(&mut self, n: u32) {
        for other in self.running() {
            self.inputs.push_back((other, Input::Gone(NodeId(n))));
        }
        self.settle();
    }

    pub fn running(&self) -> Vec<u32> {
        self.nodes.iter().filter(|(_, node)| node.host.is_some()).map(|(n, _)| *n).collect()
    }

    pub fn host(&self, n: u32) -> &Host<Disk> {
        self.nodes[&n].host.as_ref().expect("the node runs")
    }

    pub fn node(&mut self, n: u32) -> &mut Node {
        self.nodes.get_mut(&n).expect("a node")
    }

    /// Lets time pass in steps of ten milliseconds.
    pub fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        while self.now < until {
            self.now += 10;
            for n in self.running() {
                self.inputs.push_back((n, Input::Tick));
            }
            self.settle();
        }
    }

    /// Lets time pass until `done`; returns how much did.
    pub fn run_until(&mut self, what: &str, done: impl Fn(&World) -> bool) -> u64 {
        let begun = self.now;
        while !done(self) {
            assert!(self.now - begun < 10_000, "not within ten seconds: {what}\n{}", self.trace.join("\n"));
            self.pass(10);
        }
        self.now - begun
    }

    /// A message made by hand arrives at node `n`, which rejects it as often as is returned.
    pub fn rejected_by(&mut self, n: u32, envelope: Envelope) -> usize {
        self.rejections = Some(0);
        self.input(n, Input::Message(envelope));
        self.rejections.take().unwrap_or_default()
    }

    /// Node `n`, which does not run, has promised that epoch to somebody.
    pub fn promise_durably(&mut self, n: u32, id: PartitionId, epoch: Epoch) {
        let mut disk = self.node(n).disk.clone();
        let mut log = disk.open(id, "", peer(n).log).expect("it opens");
        let hard = HardState { promised: Some(epoch), ..log.hard_state().clone() };
        log.persist(&hard).expect("it is kept");
    }

    pub fn input(&mut self, n: u32, input: Input) {
        self.inputs.push_back((n, input));
        self.settle();
    }

    pub fn settle(&mut self) {
        let mut steps = 0;
        while let Some((n, input)) = self.inputs.pop_front() {
            steps += 1;
            let latest = self.trace.len().saturating_sub(60);
            assert!(steps < 100_000, "it goes on for ever at {}:\n{}", self.now, self.trace[latest..].join("\n"));
            let now = self.now;
            if let Some(host) = self.node(n).host.as_mut() {
                let mut out = Vec::new();
                host.step(now, input, &mut out);
                self.perform(n, out);
            }
        }
    }

    fn perform(&mut self, n: u32, effects: Vec<Effect<Job>>) {
        for effect in effects {
            self.trace.push(format!("{} n{n} {effect:?}", self.now));
            match effect {
                Effect::Persist(state) => self.node(n).state = state,
                Effect::Send(to, envelope) => {
                    assert_eq!(highwater_wire::check(&envelope), Ok(()), "no honest message is unfit: {envelope:?}");
                    assert_ne!(to, NodeId(n), "what a node tells itself stays inside");
                    match &mut self.chaos {
                        Some(chaos) => chaos.wire.push((n, to.0, envelope)),
                        None => self.inputs.push_back((to.0, Input::Message(envelope))),
                    }
                }
                Effect::Flush(id, job) => {
                    if let Some(chaos) = &mut self.chaos {
                        chaos.flushes.push((n, id, job));
                    } else if self.node(n).hold_flushes.contains(&id) {
                        self.node(n).held.push((id, job));
                    } else {
                        self.inputs.push_back((n, Input::FlushDone(id, job.run())));
                    }
                }
                Effect::Opened(id, _) => {
                    self.node(n).machines.insert(id, Machine::default());
                    self.inputs.push_back((n, Input::Partition(id, PartitionInput::Rewound(0))));
                }
                Effect::Machine(id, command) => {
                    let answer = self.node(n).machines.get_mut(&id).expect("it was opened").command(command);
                    self.inputs.extend(answer.map(|answer| (n, Input::Partition(id, answer))));
                }
                Effect::Answer(ticket, outcome) => {
                    let before = self.node(n).answers.insert(ticket, outcome);
                    assert!(before.is_none(), "every ticket is answered once");
                }
                // Nobody lies here, unless the test does.
                Effect::Reject(node, unfit) => match &mut self.rejections {
                    Some(count) => *count += 1,
                    None => panic!("node {n} rejects what node {node} sent: {unfit}"),
                },
                Effect::Role(..) | Effect::DiskFull(..) => {}
                Effect::Halted(id, reason) => {
                    self.node(n).halted.insert(id, reason);
                }
            }
        }
    }

    /// Lets the flushes of that partition run.
    pub fn release_flushes(&mut self, n: u32, id: PartitionId) {
        let node = self.node(n);
        node.hold_flushes.remove(&id);
        let held = std::mem::take(&mut node.held);
        let (these, others): (Vec<_>, Vec<_>) = held.into_iter().partition(|(of, _)| *of == id);
        node.held = others;
        self.inputs.extend(these.into_iter().map(|(id, job)| (n, Input::FlushDone(id, job.run()))));
        self.settle();
    }

    /// The first entry of that node's metadata log.
    pub fn first_entry(&self, n: u32) -> Bytes {
        let log = self.host(n).metadata_partition().expect("the metadata runs").log();
        log.read(0, 1).expect("the log reads")
    }

    /// The node that leads `main` and whose machine executes.
    pub fn leader(&self) -> Option<u32> {
        self.running().into_iter().find(|n| {
            let status = self.host(*n).partition_status(MAIN);
            let leads = status.is_some_and(|s| s.halted.is_none() && matches!(s.role, Role::Leader { .. }));
            leads && self.nodes[n].machines.get(&MAIN).is_some_and(|machine| machine.reign.is_some())
        })
    }

    pub fn coordinator(&self) -> Option<u32> {
        self.running().into_iter().find(|n| self.host(*n).status().coordinates)
    }

    /// Proposes a value on the leader's machine; the ticket is answered once it is committed.
    pub fn write(&mut self, n: u32, value: &str) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let machine = self.node(n).machines.get_mut(&MAIN).expect("main is open");
        let (reign, base) = machine.reign.expect("the machine executes");
        machine.reign = Some((reign, base + 1));
        machine.values.push((base, value.to_owned()));
        let record = Record { key: None, value: Some(Bytes::copy_from_slice(value.as_bytes())) };
        let batches = batch::build(&[record], 0);
        let until = base + 1;
        let hold = PartitionInput::Hold { ticket, reign, until, wrote: true, ack: AckPolicy::Committed };
        self.inputs.push_back((n, Input::Partition(MAIN, PartitionInput::Propose(Proposal { reign, base, batches }))));
        self.inputs.push_back((n, Input::Partition(MAIN, hold)));
        self.settle();
        ticket
    }

    /// Proposes a value once it can be committed, and waits until it is.
    pub fn write_until_done(&mut self, value: &str) {
        let ready = |world: &World| world.leader().is_some_and(|leader| world.host(leader).shortage(MAIN).is_none());
        self.run_until("main is led, and enough are in reach", ready);
        let leader = self.leader().expect("main is led");
        let ticket = self.write(leader, value);
        self.run_until("the write is acknowledged", |world| world.done(leader, ticket));
    }

    /// A linearizable read on that node.
    pub fn read(&mut self, n: u32) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.input(n, Input::Partition(MAIN, PartitionInput::Read { ticket }));
        ticket
    }

    pub fn done(&self, n: u32, ticket: Ticket) -> bool {
        matches!(self.nodes[&n].answers.get(&ticket), Some(Outcome::Done(_)))
    }

    /// What readers of that node see.
    pub fn visible(&self, n: u32) -> Vec<&str> {
        let Some(machine) = self.nodes[&n].machines.get(&MAIN) else { return Vec::new() };
        let published = machine.published.unwrap_or(0);
        machine.values.iter().filter(|(at, _)| *at < published).map(|(_, value)| value.as_str()).collect()
    }

    /// Puts a message in front of that node, as if it had been under way for long.
    pub fn deliver(&mut self, n: u32, envelope: Envelope) {
        self.input(n, Input::Message(envelope));
    }
}

impl Node {
    fn new(n: u32) -> Node {
        let state = NodeState {
            cluster: 5,
            node: NodeId(n),
            log: peer(n).log,
            starts: 0,
            incarnations: Vec::new(),
            older_copy: false,
        };
        Node {
            state,
            disk: Disk::default(),
            host: None,
            machines: BTreeMap::new(),
            halted: BTreeMap::new(),
            answers: BTreeMap::new(),
            hold_flushes: BTreeSet::new(),
            held: Vec::new(),
        }
    }
}

impl Machine {
    fn command(&mut self, command: Command) -> Option<PartitionInput> {
        match command {
            Command::Apply { from, to, batches, .. } => {
                assert_eq!(from, self.applied, "entries are applied once and in order");
                for next in batch::split(&batches) {
                    let (header, bytes) = next.expect("whole batches are applied");
                    if !header.control {
                        for (at, record) in (header.base..).zip(batch::records(&bytes).expect("records")) {
                            let value = record.value.expect("values");
                            self.values.push((at, String::from_utf8_lossy(&value).into_owned()));
                        }
                    }
                }
                self.applied = to;
                Some(PartitionInput::Applied(to))
            }
            Command::Lead { reign, end } => {
                assert_eq!(end, self.applied, "all is applied before the machine executes");
                self.reign = Some((reign, end));
                None
            }
            Command::Publish { hw } => {
                self.published = Some(hw);
                None
            }
            Command::Rewind { to } => {
                self.values.retain(|(at, _)| *at < to);
                self.applied = self.reign.map_or(self.applied, |(_, end)| end).min(to);
                self.reign = None;
                self.published = None;
                Some(PartitionInput::Rewound(self.applied))
            }
        }
    }
}
