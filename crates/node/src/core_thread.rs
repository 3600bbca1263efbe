//! The core thread: owns the host, feeds it one event after the other, and performs what comes out, in order.
//!
//! Nothing here decides anything about replication. An effect that must be durable is, before the next one is performed; one that cannot be performed
//! ends the process's part in its cluster, since everything later may depend on it.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::{Duration, Instant};

use highwater_host::{Effect, Host, Input};
use highwater_partition::{Command, Outcome, StateMachine, Ticket};
use highwater_replica::Role;
use highwater_sql::Options;
use highwater_wire::{NodeId, Offset, PartitionId};
use tokio::sync::oneshot;

use crate::ahead::Ahead;
use crate::database::Database;
use crate::flush::FlushThread;
use crate::folder::{DataFolder, Logs, NodeLog};
use crate::inbox::{Inbox, ToCore};
use crate::machine::{MachineStart, MachineThread};
use crate::measure::Rate;
use crate::on_panic::{BROKEN, OnPanic};
use crate::peers::Peers;
use crate::proposer::ToLog;
use crate::view::{NodeView, Rates};

type Job = <NodeLog as highwater_log::LogStore>::FlushJob;

/// How often the host hears that time has passed.
const TICK: Duration = Duration::from_millis(10);

/// How often rates are sampled.
const SAMPLE: Duration = Duration::from_secs(1);

/// Inputs taken in a row before effects of time get their turn.
const BURST: usize = 256;

/// The databases of this node, for all threads.
pub(crate) type Registry = Arc<RwLock<BTreeMap<String, Arc<Database>>>>;

/// What the core needs besides its host.
pub(crate) struct CoreStart {
    pub(crate) node: NodeId,
    pub(crate) folder: DataFolder,
    pub(crate) registry: Registry,
    pub(crate) inbox: Inbox,
    pub(crate) peers: Box<dyn Peers>,
    pub(crate) options: Options,
    pub(crate) ahead_bytes_max: u64,
    pub(crate) started: Instant,
    /// Set once, with the reason, if the core ends other than by being told to.
    pub(crate) failed: Arc<OnceLock<String>>,
    /// Set once, with the reason, if the metadata's replica here has halted.
    pub(crate) halted: Arc<OnceLock<String>>,
}

struct OneDatabase {
    shared: Arc<Database>,
    ahead: Arc<Ahead>,
    machine: Option<Arc<highwater_sql::Database>>,
    thread: MachineThread,
    written: Rate,
    applied: Rate,
}

/// The core.
pub(crate) struct Core {
    start: CoreStart,
    host: Host<Logs>,
    flushers: BTreeMap<PartitionId, FlushThread>,
    databases: BTreeMap<PartitionId, OneDatabase>,
    waiting: BTreeMap<Ticket, oneshot::Sender<Outcome>>,
    effects: Vec<Effect<Job>>,
}

impl Core {
    /// A core around a host that was just made, with the effects of making it.
    pub(crate) fn new(start: CoreStart, host: Host<Logs>, effects: Vec<Effect<Job>>) -> Core {
        Core { start, host, flushers: BTreeMap::new(), databases: BTreeMap::new(), waiting: BTreeMap::new(), effects }
    }

    /// Runs until told to stop, or until an effect cannot be performed.
    pub(crate) fn run(mut self, inbox: Receiver<ToCore>) {
        let failed = self.start.failed.clone();
        let _noticed = OnPanic(move || {
            // The first reason is kept.
            let _ = failed.set(BROKEN.to_string());
        });
        match self.serve(&inbox) {
            Ok(done) => {
                self.close(&inbox);
                let _ = done.send(());
            }
            Err(reason) => {
                tracing::error!(%reason, "this node stops");
                let _ = self.start.failed.set(reason.clone());
                for database in self.databases.values() {
                    database.shared.stop(reason.clone());
                }
            }
        }
    }

    fn serve(&mut self, inbox: &Receiver<ToCore>) -> Result<Sender<()>, String> {
        self.perform()?;
        let mut next_tick = Instant::now() + TICK;
        let mut next_sample = Instant::now() + SAMPLE;
        loop {
            let mut message = match inbox.recv_timeout(next_tick.saturating_duration_since(Instant::now())) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Err("every handle of this node was dropped".into()),
            };
            let mut taken = 0;
            while let Some(one) = message.take() {
                if let ToCore::Stop(done) = one {
                    return Ok(done);
                }
                self.take(one)?;
                taken += 1;
                if taken < BURST {
                    message = inbox.try_recv().ok();
                }
            }
            let now = Instant::now();
            if now >= next_tick {
                self.step(Input::Tick)?;
                for (id, database) in &self.databases {
                    database.shared.set_shortage(self.host.shortage(*id));
                }
                self.notice_failed_machines()?;
                next_tick = now + TICK;
            }
            if now >= next_sample {
                self.sample(now);
                next_sample = now + SAMPLE;
            }
        }
    }

    fn take(&mut self, message: ToCore) -> Result<(), String> {
        match message {
            ToCore::Host(input) => self.step(input),
            ToCore::Ask { partition, ticket, reply, input } => {
                if self.databases.contains_key(&partition) {
                    self.waiting.insert(ticket, reply);
                    self.step(Input::Partition(partition, input))
                } else {
                    // The waiter hears of it by the dropped sender.
                    Ok(())
                }
            }
            ToCore::Forget { partition, ticket } => match self.waiting.remove(&ticket) {
                Some(_) => self.step(Input::Partition(partition, highwater_partition::Input::Forget { ticket })),
                None => Ok(()),
            },
            ToCore::Opened { partition, machine, applied } => self.opened(partition, machine, applied),
            ToCore::MachineStopped { partition, reason } => {
                if let Some(database) = self.databases.get(&partition) {
                    database.shared.stop(reason.clone());
                }
                self.step(Input::MachineStopped(partition, reason))
            }
            ToCore::Broken(reason) => Err(reason),
            ToCore::View(reply) => {
                let _ = reply.send(self.view());
                Ok(())
            }
            ToCore::Stop(_) => unreachable!("stopping was handled by the caller"),
        }
    }

    fn step(&mut self, input: Input) -> Result<(), String> {
        let now = self.start.started.elapsed().as_millis() as u64;
        self.host.step(now, input, &mut self.effects);
        self.perform()
    }

    /// Performs all effects in order.
    fn perform(&mut self) -> Result<(), String> {
        if self.effects.is_empty() {
            return Ok(());
        }
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            self.perform_one(effect)?;
        }
        assert!(self.effects.is_empty(), "performing an effect takes no step of its own");
        self.effects = effects;
        Ok(())
    }

    fn perform_one(&mut self, effect: Effect<Job>) -> Result<(), String> {
        match effect {
            Effect::Persist(state) => {
                self.start
                    .folder
                    .persist(&state)
                    .map_err(|error| format!("the node's memory was not kept: {error}"))?;
            }
            Effect::Send(to, envelope) => self.start.peers.send(to, envelope),
            Effect::Flush(partition, job) => {
                if !self.flushers.contains_key(&partition) {
                    let flusher = FlushThread::start(partition, self.start.inbox.clone())
                        .map_err(|error| format!("no thread for flushes: {error}"))?;
                    self.flushers.insert(partition, flusher);
                }
                self.flushers[&partition].run(job);
            }
            Effect::Opened(partition, name) => self.open(partition, name)?,
            Effect::Machine(partition, command) => self.command(partition, command),
            Effect::Answer(ticket, outcome) => {
                if let Some(reply) = self.waiting.remove(&ticket) {
                    let _ = reply.send(outcome);
                }
            }
            Effect::Reject(node, unfit) => {
                tracing::debug!(%node, %unfit, "rejected what a node sent");
                self.start.peers.refuse(node, unfit.wanted);
            }
            Effect::Role(partition, role) => {
                tracing::info!(partition = partition.0, ?role, "the role changed");
                if let Some(database) = self.databases.get(&partition) {
                    database.shared.set_leader(match role {
                        Role::Leader { .. } => Some(self.start.node),
                        Role::Follower { leader, .. } => Some(leader.node),
                        Role::Idle | Role::Candidate { .. } => None,
                    });
                }
            }
            Effect::DiskFull(partition, Some(reason)) => {
                tracing::warn!(partition = partition.0, %reason, "waits for room on the disk: nothing is written or sent until then");
            }
            Effect::DiskFull(partition, None) => {
                tracing::info!(partition = partition.0, "there is room on the disk again: goes on");
            }
            Effect::Halted(partition, reason) => self.halted(partition, reason),
        }
        Ok(())
    }

    /// A partition halted. A database that could not even be opened is registered all the same, so that whoever asks for it hears why.
    fn halted(&mut self, partition: PartitionId, reason: String) {
        tracing::error!(partition = partition.0, %reason, "a partition halted");
        if partition == PartitionId::METADATA {
            // The first reason is kept.
            let _ = self.start.halted.set(reason);
            return;
        }
        if let Some(database) = self.databases.get(&partition) {
            database.shared.stop(reason);
            return;
        }
        let record = self.host.view().partitions().find(|record| record.id == partition);
        if let Some(name) = record.map(|record| record.name.clone()) {
            let ahead = Arc::new(Ahead::new(self.start.ahead_bytes_max));
            let shared = Arc::new(Database::new(name.clone(), partition, self.start.inbox.clone(), ahead));
            shared.stop(reason);
            self.start.registry.write().expect("no holder of this lock panics").insert(name, shared);
        }
    }

    /// Starts the state machine of a partition that was opened.
    fn open(&mut self, partition: PartitionId, name: String) -> Result<(), String> {
        assert!(!self.databases.contains_key(&partition), "a partition is opened once");
        let ahead = Arc::new(Ahead::new(self.start.ahead_bytes_max));
        let inbox = self.start.inbox.clone();
        let shared = Arc::new(Database::new(name.clone(), partition, inbox.clone(), ahead.clone()));
        let thread = MachineThread::start(MachineStart {
            partition,
            folder: self.start.folder.sql_folder(&name),
            options: self.start.options.clone(),
            proposer: Arc::new(ToLog { partition, inbox: inbox.clone(), ahead: ahead.clone() }),
            shared: shared.clone(),
            inbox,
        })
        .map_err(|error| format!("no thread for the database {name:?}: {error}"))?;
        self.start.registry.write().expect("no holder of this lock panics").insert(name, shared.clone());
        let database =
            OneDatabase { shared, ahead, machine: None, thread, written: Rate::default(), applied: Rate::default() };
        self.databases.insert(partition, database);
        Ok(())
    }

    fn opened(
        &mut self,
        partition: PartitionId,
        machine: Arc<highwater_sql::Database>,
        applied: Offset,
    ) -> Result<(), String> {
        let database = self.databases.get_mut(&partition).expect("a machine is opened for a database of this node");
        database.machine = Some(machine.clone());
        database.shared.opened(machine);
        self.step(Input::Partition(partition, highwater_partition::Input::Rewound(applied)))
    }

    fn command(&mut self, partition: PartitionId, command: Command) {
        let Some(database) = self.databases.get(&partition) else {
            panic!("a command for the state machine of {partition:?}, which was never opened");
        };
        match command {
            // Visible before any later answer leaves.
            Command::Publish { hw } => {
                database.ahead.committed(hw);
                if let Some(machine) = &database.machine {
                    machine.publish(hw);
                }
            }
            Command::Rewind { .. } => {
                database.ahead.rewound();
                database.shared.set_leads(false);
                database.thread.command(command);
            }
            Command::Lead { .. } => {
                // What was proposed after the rewind was asked for and before it was carried out is void as well: its end would otherwise count as ahead until HW
                // has passed it, and nothing might be executed to make HW pass it.
                database.ahead.rewound();
                database.thread.command(command);
            }
            Command::Apply { .. } => database.thread.command(command),
        }
    }

    /// A machine that fails in a client's hands is not told anything by its partition while it leads, so nothing else would bring it to light.
    fn notice_failed_machines(&mut self) -> Result<(), String> {
        let failed = |(id, database): (&PartitionId, &OneDatabase)| {
            let reason = database.machine.as_ref()?.failed()?;
            database.shared.stopped().is_none().then(|| (*id, reason.to_owned()))
        };
        let failed: Vec<(PartitionId, String)> = self.databases.iter().filter_map(failed).collect();
        for (partition, reason) in failed {
            tracing::error!(partition = partition.0, %reason, "the state machine has failed");
            self.take(ToCore::MachineStopped { partition, reason })?;
        }
        Ok(())
    }

    fn sample(&mut self, now: Instant) {
        for (id, database) in &mut self.databases {
            if let Some(status) = self.host.partition_status(*id) {
                database.written.sample(now, status.hw);
                database.applied.sample(now, status.applied);
            }
        }
    }

    fn view(&self) -> NodeView {
        let rates = self.databases.iter().map(|(id, database)| {
            (*id, Rates { write: database.written.per_second(), apply: database.applied.per_second() })
        });
        let flushes = self.flushers.iter().map(|(id, flusher)| (*id, flusher.done())).collect();
        NodeView { host: self.host.status(), rates: rates.collect(), flushes }
    }

    /// Ends in good order: flushes that run are finished and taken in, machines stop, logs are marked as closed cleanly.
    fn close(mut self, inbox: &Receiver<ToCore>) {
        self.flushers.clear();
        while let Ok(message) = inbox.try_recv() {
            let taken = match message {
                ToCore::Host(input @ Input::FlushDone(..)) => self.step_quietly(input),
                _ => Ok(()),
            };
            if let Err(reason) = taken {
                tracing::error!(%reason, "while closing");
                return;
            }
        }
        for database in self.databases.values() {
            database.shared.stop("this node is shutting down".into());
        }
        self.waiting.clear();
        for (_, OneDatabase { shared, thread, machine, .. }) in std::mem::take(&mut self.databases) {
            drop(thread);
            if let Some(Err(error)) = machine.map(|machine| machine.close()) {
                tracing::warn!(database = shared.name(), %error, "a database was not closed cleanly");
            }
        }
        for (partition, log) in self.host.into_logs() {
            match log.close() {
                Ok(()) => tracing::info!(partition = partition.0, "closed a log"),
                Err(error) => tracing::warn!(partition = partition.0, %error, "a log was not closed cleanly"),
            }
        }
    }

    /// Takes a flush's end in and performs what needs no other thread.
    fn step_quietly(&mut self, input: Input) -> Result<(), String> {
        let now = self.start.started.elapsed().as_millis() as u64;
        self.host.step(now, input, &mut self.effects);
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                // Recovery flushes what is left when the log is opened next.
                Effect::Flush(..) => {}
                other => self.perform_one(other)?,
            }
        }
        Ok(())
    }
}
