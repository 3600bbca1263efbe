//! The database: its files, its connections, and what is shared between them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use highwater_log::FileIo;
use highwater_wire::{Epoch, Offset};

use crate::allowance::Allowance;
use crate::api::{Answer, Proposer, SqlError};
use crate::apply::Applier;
use crate::client::Client;
use crate::core::{Core, Frame};
use crate::error::{MachineError, OpenError, cancelled, error, from_failure};
use crate::ffi::{Conn, Failure, Hooks, OpenMode, Snapshot, WrittenBack, compile_option_used};
use crate::folder::Folder;
use crate::gate::{Entered, Gate};
use crate::mend;
use crate::names;
use crate::options::Options;
use crate::session::Stream;
use crate::snapshots::{Snapshots, State};
use crate::sums::Sums;
use crate::token::{Denied, Held, Token};
use crate::unfinished::Unfinished;
use crate::wal::{Files, Marker, PAGE_BYTES};

/// Connections kept open for readers.
const READERS_KEPT: usize = 8;
/// SQLITE_ERROR_SNAPSHOT: a checkpoint has passed it.
const SNAPSHOT_GONE: i32 = rusqlite::ffi::SQLITE_ERROR | (3 << 8);

/// A replicated SQLite database on this node. All methods may be called from any thread; those that run SQL block.
///
/// A database that leads executes writes ahead of the log and hands them to its [`Proposer`]; everything it computed on that side of HW carries a
/// [`crate::Hold`]. Reads see the newest state that has been published.
pub struct Database {
    pub(crate) files: Files,
    pub(crate) options: Options,
    pub(crate) proposer: Arc<dyn Proposer>,
    pub(crate) token: Arc<Token>,
    pub(crate) snapshots: Snapshots,
    /// Interrupts and turns away everybody while the database is rewound or closed.
    pub(crate) stop: Arc<AtomicBool>,
    /// Held shared while a request is served; held alone while all connections are closed.
    pub(crate) gate: Arc<Gate>,
    pub(crate) readers: Mutex<Vec<Client>>,
    pub(crate) streams: Mutex<Vec<Weak<Mutex<Stream>>>>,
    /// How far the writing side has come, for whoever asks without its token.
    pub(crate) applied: AtomicU64,
    /// The checksums of the database file. Whoever holds them keeps checkpoints away.
    pub(crate) sums: Mutex<Sums>,
}

impl Database {
    /// Opens the database in a folder, making it if there is none, and throws away whatever of it may not be committed: what
    /// [`highwater_partition::StateMachine::applied`] then says is never above what was, and the log has the rest. Nothing is read until the first
    /// publication. A database file that is not what its checksums say is set aside and made anew, so that everything is applied again.
    ///
    /// # Errors
    /// If a file cannot be read or written or is not what it should be, or if SQLite was built without what is needed.
    pub fn open(dir: &Path, options: Options, proposer: Arc<dyn Proposer>) -> Result<Arc<Database>, OpenError> {
        let io = |error| OpenError::Io { path: dir.to_path_buf(), error };
        std::fs::create_dir_all(dir).map_err(io)?;
        let folder = FileIo::inspect(dir).map_err(io)?;
        Database::open_in(dir, Arc::new(folder), options, proposer)
    }

    /// The same in a folder that may be something else than the file system's; `dir` is the path by which SQLite's VFS knows it.
    ///
    /// # Errors
    /// As for [`Database::open`].
    pub fn open_in(
        dir: &Path,
        folder: Arc<dyn Folder>,
        options: Options,
        proposer: Arc<dyn Proposer>,
    ) -> Result<Arc<Database>, OpenError> {
        for (option, name) in [
            (c"ENABLE_PREUPDATE_HOOK", "SQLITE_ENABLE_PREUPDATE_HOOK"),
            (c"ENABLE_SNAPSHOT", "SQLITE_ENABLE_SNAPSHOT"),
            (c"ENABLE_MATH_FUNCTIONS", "SQLITE_ENABLE_MATH_FUNCTIONS"),
        ] {
            if !compile_option_used(option) {
                return Err(OpenError::Build(name));
            }
        }
        let files = Files::new(dir, folder);
        let sums = mend::prepare(&files)?;
        let sqlite = |failure: Failure| OpenError::Sqlite { path: files.database(), message: failure.to_string() };
        let snapshots = Snapshots::new();
        let core = open_core(&files, &snapshots).map_err(sqlite)?;
        Ok(Arc::new(Database {
            sums: Mutex::new(sums),
            applied: AtomicU64::new(core.end),
            token: Token::new(core),
            files,
            options,
            proposer,
            snapshots,
            stop: Arc::new(AtomicBool::new(false)),
            gate: Arc::default(),
            readers: Mutex::new(Vec::new()),
            streams: Mutex::new(Vec::new()),
        }))
    }

    /// Enters the gate: connections stay open until the guard is dropped.
    pub(crate) fn enter(&self) -> Result<Entered, SqlError> {
        self.gate.enter().ok_or_else(|| error("CLOSED", "the database has been closed on this node"))
    }

    /// How many statements were given up, each with its thread, because they neither ended nor could be interrupted while the database had to be rewound or
    /// closed.
    pub fn given_up(&self) -> u64 {
        self.gate.given_up()
    }

    /// Why it stopped on its own, if it has: it executes and applies nothing more until it is opened anew.
    pub fn failed(&self) -> Option<&str> {
        self.token.failed()
    }

    /// Takes the writer's token for a client, which must lead. It is waited for as long as the allowance and the options say.
    pub(crate) fn acquire(&self, allowance: &Allowance) -> Result<Held, SqlError> {
        let allowance = allowance.until(Instant::now() + self.options.writer_wait);
        let held = self.token.acquire(&allowance, Some(&self.stop)).map_err(|denied| match denied {
            Denied::Cancelled => cancelled(),
            Denied::TimedOut => error(
                "TRANSACTION_BUSY",
                "another transaction held the writer for as long as this one could wait; it had no effect, try again",
            ),
            Denied::Stopping => not_leader(),
        })?;
        if let Some(reason) = &held.failed {
            return Err(error("SQLITE_INTERNAL", format!("the database has stopped: {reason}")));
        }
        if held.reign.is_none() {
            return Err(not_leader());
        }
        Ok(held)
    }

    /// Takes the writer's token for a procedure of the machine's own.
    pub(crate) fn acquire_machine(&self, until: Instant) -> Result<Held, MachineError> {
        let held = self.token.acquire(&until.into(), None).map_err(|_| {
            MachineError::Failed(
                "the writer did not become free: a request neither ends nor can be interrupted".to_string(),
            )
        })?;
        match &held.failed {
            Some(reason) => Err(MachineError::Failed(reason.clone())),
            None => Ok(held),
        }
    }

    /// Opens a connection for clients.
    pub(crate) fn open_client(&self) -> Result<Client, Failure> {
        Client::open(self.files.location(), &self.options, &self.stop)
    }

    /// Opens a connection that serves many clients.
    pub(crate) fn open_shared(&self) -> Result<Client, Failure> {
        let client = self.open_client()?;
        client.hooks().collector.borrow_mut().set_shared(true);
        Ok(client)
    }

    /// The same for reading alone: a function that writes is refused before it takes a lock.
    fn open_reader(&self) -> Result<Client, Failure> {
        let client = self.open_shared()?;
        client.hooks().internally(|| client.exec("PRAGMA query_only=ON"))?;
        Ok(client)
    }

    /// Begins a read transaction on a connection that sees the newest published state, and tells which that is.
    pub(crate) fn begin_at_published(
        &self,
        client: &Client,
        allowance: &Allowance,
    ) -> Result<(Option<Epoch>, Offset), SqlError> {
        let until = allowance.deadline.min(Instant::now() + self.options.publish_wait);
        let stop = || self.stop.load(Ordering::Acquire) || allowance.cancel.is_cancelled();
        let mut passed: Option<State> = None;
        loop {
            let Some(state) = self.snapshots.newest(passed.as_ref(), until, &stop) else {
                return Err(match passed {
                    _ if allowance.cancel.is_cancelled() => cancelled(),
                    None => error(
                        "NOT_READY",
                        "this replica does not know yet what is committed, so there is nothing it may show: try again",
                    ),
                    Some(_) => {
                        error("SQLITE_BUSY", "a checkpoint passed this reader and has not ended in time: try again")
                    }
                });
            };
            client.hooks().undisturbed(|| client.run("BEGIN", |_| Ok(()))).map_err(from_failure)?;
            match state.snapshot.open(client) {
                Ok(()) => {
                    client.refresh().map_err(from_failure)?;
                    return Ok((state.epoch, state.end));
                }
                Err(failure) => {
                    client.hooks().undisturbed(|| client.run("ROLLBACK", |_| Ok(()))).map_err(from_failure)?;
                    // A checkpoint passed this state between the choice and the opening; when it ends there is a newer one.
                    if failure.code != SNAPSHOT_GONE {
                        return Err(from_failure(failure));
                    }
                    passed = Some(state);
                }
            }
        }
    }

    /// Runs something on a reading connection at the newest published state.
    pub(crate) fn read<T>(
        &self,
        allowance: &Allowance,
        run: impl FnOnce(&Client, (Option<Epoch>, Offset)) -> Result<T, SqlError>,
    ) -> Answer<Result<T, SqlError>> {
        let outcome = self.enter().and_then(|entered| {
            let kept = self.readers.lock().expect("nothing under this lock panics").pop();
            let client = match kept {
                Some(client) => client,
                None => self.open_reader().map_err(from_failure)?,
            };
            client.hooks().allow(allowance);
            let seen = self.begin_at_published(&client, allowance)?;
            let result = run(&client, seen);
            client.hooks().end_allowance();
            let ended = client.hooks().undisturbed(|| client.run("ROLLBACK", |_| Ok(())));
            if ended.is_ok() && client.autocommit() {
                entered.unless_given_up(|| {
                    let mut readers = self.readers.lock().expect("nothing under this lock panics");
                    if readers.len() < READERS_KEPT {
                        readers.push(client);
                    }
                });
            }
            Ok((result, seen))
        });
        match outcome {
            Ok((result, seen)) => Answer { result, hold: None, seen },
            Err(error) => Answer { result: Err(error), hold: None, seen: (None, 0) },
        }
    }
}

/// What a node that does not lead says to a write.
pub(crate) fn not_leader() -> SqlError {
    error("NOT_LEADER", "this replica does not lead the database, so it takes no writes: send it to the leader")
}

/// Makes an empty database with our own tables in it.
pub(crate) fn create(files: &Files) -> Result<Marker, Failure> {
    let conn = Conn::open(files.location(), OpenMode::Create, Hooks::own())?;
    conn.exec(&format!("PRAGMA page_size={PAGE_BYTES}; PRAGMA encoding='UTF-8'; PRAGMA journal_mode=WAL"))?;
    crate::client::set_up(&conn)?;
    conn.exec(&format!("BEGIN; PRAGMA writable_schema=ON; {} PRAGMA writable_schema=RESET; COMMIT", names::CREATE))?;
    let snapshot = Snapshot::newest(&conn)?;
    let emptied = conn.checkpoint_truncate()?;
    assert_eq!(emptied, WrittenBack::Emptied, "nobody else reads a database that is being made");
    conn.close()?;
    Ok(Marker { salts: snapshot.salts(), frames: snapshot.frames(), applied: 0 })
}

/// Opens the writing side and reads how far it has applied.
pub(crate) fn open_core(files: &Files, snapshots: &Snapshots) -> Result<Core, Failure> {
    let applier = Applier::open(files.location())?;
    // SQLite gives a snapshot only of a log that is not empty.
    applier.conn.run("UPDATE main.sqlite_highwater_state SET opened = opened + 1", |_| Ok(()))?;
    let (mut end, mut epoch, mut log_time_ms) = (0, None, 0);
    applier.conn.query(
        "SELECT applied, epoch, log_time_ms FROM main.sqlite_highwater_state",
        |_| Ok(()),
        |row| {
            end = row.integer(0) as u64;
            epoch = (row.value(1) != crate::ffi::ValueRef::Null).then(|| Epoch(row.integer(1) as u32));
            log_time_ms = row.integer(2);
            Ok(())
        },
    )?;
    let snapshot = Snapshot::newest(&applier.conn)?;
    snapshots.reset(State { end, epoch, snapshot });
    let mut unfinished = Unfinished::default();
    unfinished.reset(end);
    let core = Core {
        reign: None,
        end,
        epoch,
        log_time_ms,
        frames: vec![Frame { end, epoch, frames: snapshot.frames() }],
        salts: snapshot.salts(),
        put_off: 0,
        committed: end,
        unfinished,
        failed: None,
        writer: None,
        applier: Some(applier),
    };
    core.check();
    Ok(core)
}
