//! One node's decisions, step by step.
//!
//! A step takes one input in and works until everything that follows from it inside the node is done: what one part of the node tells another goes
//! through one queue, first come, first served, and never by one part calling the other. What must be done outside comes out as effects, in
//! order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use highwater_coordinator::{Command, Coordinator, Event, Metadata, check_name, check_rule};
use highwater_log::{LogError, LogStore};
use highwater_partition::{Input as PartitionInput, Partition, Ticket};
use highwater_wire::{Body, CommitRule, Envelope, Epoch, Millis, NodeId, Offset, PartitionId, PeerId, Sender};

use crate::api::{Effect, Folders, HostError, HostStart, Input, NodeState};
use crate::databases::Database;
use crate::older_copy::OLDER_COPY;
use crate::registration::Registration;

/// The log of a [`Folders`]' flush jobs.
pub(crate) type Job<F> = <<F as Folders>::Log as LogStore>::FlushJob;

/// What one part of the node tells another.
#[derive(Debug)]
pub(crate) enum Work {
    /// For the replica of the metadata.
    Metadata(PartitionInput),
    /// For a database's partition.
    Database(PartitionId, PartitionInput),
    /// For the coordinator, if one runs here.
    Coordinator(Event),
    /// A command of the coordinator that led the metadata in that epoch.
    Propose(Epoch, Command),
    /// For the node itself: the answer to its registration, or that its folder is an older copy.
    Node(Envelope),
}

/// The replica of the metadata.
pub(crate) enum MetadataReplica<L: LogStore> {
    /// The first entry was written and is being flushed. Nothing is sent or heard before.
    Forming(L),
    /// It runs.
    Running(Box<Partition<L>>),
    /// It does nothing more until the process restarts, for this reason.
    Halted(String),
}

/// All decisions of one node.
pub struct Host<F: Folders> {
    pub(crate) me: Sender,
    pub(crate) state: NodeState,
    pub(crate) start: HostStart,
    pub(crate) folders: F,
    pub(crate) now: Millis,
    pub(crate) queue: VecDeque<Work>,

    pub(crate) metadata: MetadataReplica<F::Log>,
    /// The voters named in the metadata's log.
    pub(crate) voters: Vec<PeerId>,
    /// What this node has applied of the metadata, up to `applied`.
    pub(crate) view: Metadata,
    pub(crate) applied: Offset,
    /// Who leads the metadata, as far as its replica here knows.
    pub(crate) metadata_leader: Option<NodeId>,

    /// The epoch in which this node leads the metadata, and where it began.
    pub(crate) leads: Option<(Epoch, Offset)>,
    pub(crate) coordinator: Option<Coordinator>,
    /// Reads of the metadata under way for the coordinator: its number for each.
    pub(crate) reads: BTreeMap<Ticket, u64>,
    pub(crate) tickets: u64,
    /// Nodes whose processes are known to be gone, until they are heard of again.
    pub(crate) gone: BTreeSet<NodeId>,

    pub(crate) registration: Registration,
    /// This node is about to stop in good order.
    pub(crate) leaving: bool,
    /// When the last heartbeat was sent.
    pub(crate) heartbeat_at: Option<Millis>,
    pub(crate) databases: BTreeMap<PartitionId, Database<F::Log>>,
    /// Databases whose state machine has stopped, and why.
    pub(crate) stopped: BTreeMap<PartitionId, String>,
    /// Databases whose logs cannot be opened while the disk is full.
    pub(crate) without_room: BTreeSet<PartitionId>,
}

impl<F: Folders> Host<F> {
    /// Starts a node: opens the metadata's log, forms the cluster if that is empty and first voters are given, and begins to take part. Of a folder that was
    /// refused as an older copy nothing is opened, and the node only says so.
    ///
    /// # Errors
    /// [`HostError::Log`] if the metadata's log cannot be opened or written, [`HostError::Damaged`] if it does not read back,
    /// [`HostError::Database`] if a configured database cannot keep what it declares.
    ///
    /// # Panics
    /// If `start` has no incarnation, or a session that a heartbeat does not fit into.
    pub fn new(start: HostStart, mut folders: F, out: &mut Vec<Effect<Job<F>>>) -> Result<Self, HostError> {
        let incarnation = *start.state.incarnations.last().expect("a started node has an incarnation");
        assert!(start.timing.heartbeat_ms < start.session_ms, "a session outlasts a heartbeat");
        let me = Sender { peer: PeerId { node: start.state.node, log: start.state.log }, incarnation };
        let log = match start.state.older_copy {
            true => None,
            false => Some(folders.open(PartitionId::METADATA, "metadata", start.state.log)?),
        };
        let mut host = Host {
            me,
            state: start.state.clone(),
            folders,
            now: start.now,
            queue: VecDeque::new(),
            metadata: MetadataReplica::Halted(String::new()),
            voters: Vec::new(),
            view: Metadata::default(),
            applied: 0,
            metadata_leader: None,
            leads: None,
            coordinator: None,
            reads: BTreeMap::new(),
            tickets: 0,
            gone: BTreeSet::new(),
            registration: Registration::begin(start.now),
            leaving: false,
            heartbeat_at: None,
            databases: BTreeMap::new(),
            stopped: BTreeMap::new(),
            without_room: BTreeSet::new(),
            start,
        };
        match log {
            Some(log) => host.open_metadata(log, out)?,
            None => host.retire(OLDER_COPY.to_owned(), out),
        }
        let replicas = if host.voters.is_empty() { &host.start.voters } else { &host.voters };
        check_databases(&host.start.databases, replicas.len())?;
        host.settle(out);
        Ok(host)
    }

    /// Takes one event in and appends to `out` what must be done about it, in order.
    ///
    /// # Panics
    /// If `now` goes back, or a law of the protocol is broken.
    pub fn step(&mut self, now: Millis, input: Input, out: &mut Vec<Effect<Job<F>>>) {
        assert!(now >= self.now, "the node's clock is monotonic: {now} after {}", self.now);
        self.now = now;
        match input {
            Input::Tick => self.tick(out),
            Input::Leave => self.leave(out),
            Input::Message(envelope) => {
                self.gone.remove(&envelope.sender.peer.node);
                match self.judge(&envelope) {
                    Ok(()) => self.arrived(envelope),
                    Err(unfit) => out.push(Effect::Reject(envelope.sender.peer.node, unfit)),
                }
            }
            Input::Disconnected(node) => self.disconnected(node),
            Input::Gone(node) => {
                self.gone.insert(node);
                self.disconnected(node);
                self.queue.push_back(Work::Coordinator(Event::Gone(node)));
            }
            Input::FlushDone(PartitionId::METADATA, done) => {
                if let Some(done) = self.formed(done, out) {
                    self.queue.push_back(Work::Metadata(PartitionInput::FlushDone(done)));
                }
            }
            Input::FlushDone(id, done) => self.queue.push_back(Work::Database(id, PartitionInput::FlushDone(done))),
            Input::MachineStopped(id, reason) => self.machine_stopped(id, reason, out),
            Input::Partition(id, input) => self.queue.push_back(Work::Database(id, input)),
        }
        self.settle(out);
    }

    fn tick(&mut self, out: &mut Vec<Effect<Job<F>>>) {
        self.queue.push_back(Work::Metadata(PartitionInput::Tick));
        for id in self.databases.keys() {
            self.queue.push_back(Work::Database(*id, PartitionInput::Tick));
        }
        // One's own heartbeat comes before the coordinator looks at its sessions.
        self.tick_registration(out);
        self.queue.push_back(Work::Coordinator(Event::Tick));
    }

    fn disconnected(&mut self, node: NodeId) {
        self.queue.push_back(Work::Metadata(PartitionInput::Disconnected(node)));
        for id in self.databases.keys() {
            self.queue.push_back(Work::Database(*id, PartitionInput::Disconnected(node)));
        }
    }

    /// Works the queue off.
    fn settle(&mut self, out: &mut Vec<Effect<Job<F>>>) {
        while let Some(work) = self.queue.pop_front() {
            match work {
                Work::Metadata(input) => self.step_metadata(input, out),
                Work::Database(id, input) => self.step_database(id, input, out),
                Work::Coordinator(event) => self.step_coordinator(event, out),
                Work::Propose(epoch, command) => self.propose(epoch, command, out),
                Work::Node(envelope) => match envelope.body {
                    Body::OlderCopy { .. } => self.refused_by_voter(&envelope, out),
                    _ => self.registration_answered(&envelope, out),
                },
            }
        }
    }
}

/// Refuses databases that could never be created as they are declared.
fn check_databases(databases: &[(String, CommitRule)], replicas: usize) -> Result<(), HostError> {
    for (name, rule) in databases {
        check_name(name).map_err(|error| HostError::Database { name: name.clone(), error })?;
        if replicas > 0 {
            check_rule(*rule, replicas).map_err(|error| HostError::Database { name: name.clone(), error })?;
        }
    }
    Ok(())
}

/// What a log that cannot be used any more says.
pub(crate) fn reason(error: &LogError) -> String {
    error.to_string()
}
