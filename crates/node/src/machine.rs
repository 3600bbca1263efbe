//! One thread for each database that carries out its partition's commands in order.
//!
//! Opening is the first thing it does, since it may take long. Publishing is not done here: it must be visible before an answer that depends on it
//! leaves, so the core does it itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use highwater_host::Input;
use highwater_partition::{Command, StateMachine};
use highwater_sql::{Database, Options, Proposer};
use highwater_wire::PartitionId;

use crate::database::Database as Shared;
use crate::inbox::{Inbox, ToCore};
use crate::on_panic::{BROKEN, OnPanic};

/// The thread; it ends when this is dropped, after the command it carries out.
pub(crate) struct MachineThread {
    commands: Option<mpsc::Sender<Command>>,
    thread: Option<JoinHandle<()>>,
}

/// What a machine thread opens.
pub(crate) struct MachineStart {
    pub(crate) partition: PartitionId,
    pub(crate) folder: PathBuf,
    pub(crate) options: Options,
    pub(crate) proposer: Arc<dyn Proposer>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) inbox: Inbox,
}

impl MachineThread {
    /// Starts the thread, which opens the database and tells the core.
    pub(crate) fn start(start: MachineStart) -> std::io::Result<MachineThread> {
        let (commands, queue) = mpsc::channel::<Command>();
        let thread = std::thread::Builder::new()
            .name(format!("machine-{}", start.partition.0))
            .spawn(move || run(start, queue))?;
        Ok(MachineThread { commands: Some(commands), thread: Some(thread) })
    }

    /// Queues a command. A machine that has stopped takes no more, which its partition has been told.
    pub(crate) fn command(&self, command: Command) {
        if let Some(commands) = &self.commands {
            let _ = commands.send(command);
        }
    }
}

impl Drop for MachineThread {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(start: MachineStart, queue: mpsc::Receiver<Command>) {
    let MachineStart { partition, folder, options, proposer, shared, inbox } = start;
    let to_core = inbox.clone();
    let _noticed = OnPanic(move || {
        // An error means that the core has ended, and with it everything.
        let _ = to_core.send(ToCore::MachineStopped { partition, reason: BROKEN.to_string() });
    });
    let stopped = |reason: String| {
        tracing::error!(partition = partition.0, %reason, "the state machine stopped");
        let _ = inbox.send(ToCore::MachineStopped { partition, reason });
    };
    let machine = match Database::open(&folder, options, proposer) {
        Ok(machine) => machine,
        Err(error) => return stopped(format!("{} could not be opened: {error}", folder.display())),
    };
    let applied = machine.applied();
    if inbox.send(ToCore::Opened { partition, machine: machine.clone(), applied }).is_err() {
        return;
    }
    for command in queue {
        let leads = matches!(command, Command::Lead { .. });
        if matches!(command, Command::Rewind { .. }) {
            shared.set_leads(false);
        }
        let news = match carry_out(&*machine, command) {
            Ok(news) => news,
            Err(reason) => return stopped(reason),
        };
        if leads {
            // A rewind that was asked for meanwhile comes next, and takes it back.
            shared.set_leads(true);
        }
        if let Some(news) = news
            && inbox.send(ToCore::Host(Input::Partition(partition, news))).is_err()
        {
            return;
        }
    }
}

/// Carries one command out; returns what the partition wants to hear of it.
fn carry_out<M: StateMachine>(machine: &M, command: Command) -> Result<Option<highwater_partition::Input>, String> {
    match command {
        Command::Apply { from, to, batches, committed } => {
            assert!(from < to, "an apply has at least one entry");
            machine
                .apply(from, to, &batches, committed)
                .map_err(|error| format!("applying entries {from}..{to} failed: {error}"))?;
            Ok(Some(highwater_partition::Input::Applied(to)))
        }
        Command::Lead { reign, end } => {
            machine.lead(reign, end).map_err(|error| format!("taking the lead at offset {end} failed: {error}"))?;
            Ok(None)
        }
        Command::Rewind { to } => {
            let at = machine.rewind(to).map_err(|error| format!("rewinding to offset {to} failed: {error}"))?;
            assert!(at <= to, "a rewind to {to} left {at} applied");
            Ok(Some(highwater_partition::Input::Rewound(at)))
        }
        Command::Publish { hw } => {
            machine.publish(hw);
            Ok(None)
        }
    }
}
