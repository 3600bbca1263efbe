//! A node's database on its simulated disk, from one process to the next.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_log::Io;
use highwater_log::mem::{Fault, MemIo};
use highwater_sim::machine::{Machine, Machines, State, Store};
use highwater_sim::rng::Rng;
use highwater_sql::{Database, Options};
use highwater_wire::{NodeId, Offset};
use rusqlite::{Connection, OpenFlags};

use crate::folder::Mounted;
use crate::machine::{Outbox, SqlMachine, clock};
use crate::vfs;

/// Makes machines that are SQLite.
#[derive(Clone, Copy, Debug, Default)]
pub struct Databases;

impl Machines for Databases {
    fn store(&self, node: NodeId, mut rng: Rng) -> Box<dyn Store> {
        let path = format!("/node-{node}");
        let io = MemIo::new();
        let mounted = Mounted::mount(&path, io.clone());
        // Small ones, so that a run sees many checkpoints; now and then one that sees few, and long logs instead.
        let checkpoint = *rng.pick(&[40_000, 120_000, 400_000, 4_000_000]);
        Box::new(Kept { path, io, mounted, checkpoint })
    }

    fn replay(&self, batches: &Bytes, to: Offset) -> Result<State, String> {
        let io = MemIo::new();
        let mounted = Mounted::mount("/replayed", io.clone());
        let mut kept = Kept { path: "/replayed".to_owned(), io, mounted, checkpoint: 4_000_000 };
        let mut machine = kept.machine()?;
        machine.apply(0, to, batches, true)?;
        machine.publish(to)?;
        let (_, state) = machine.everything()?.ok_or("what was replayed cannot be read")?;
        Ok(state)
    }
}

struct Kept {
    path: String,
    io: MemIo,
    mounted: Arc<Mounted>,
    /// The size of SQLite's log from which on a checkpoint is wanted, in bytes.
    checkpoint: u64,
}

impl Kept {
    fn options(&self) -> Options {
        Options {
            wal_bytes_checkpoint: self.checkpoint,
            wal_bytes_max: 16 * self.checkpoint,
            // Nobody else is there to be waited for.
            checkpoint_wait: Duration::ZERO,
            publish_wait: Duration::ZERO,
            clock,
            ..Options::default()
        }
    }

    fn machine(&mut self) -> Result<SqlMachine, String> {
        let outbox = Arc::new(Outbox::default());
        let database = Database::open_in(Path::new(&self.path), self.mounted.clone(), self.options(), outbox.clone())
            .map_err(|error| error.to_string())?;
        self.check()?;
        // Then it was made anew from the log: right after damage, and damage is not what a crash may do.
        let names = self.io.list().map_err(|error| error.to_string())?;
        if let Some(name) = names.iter().find(|name| name.ends_with(".damaged")) {
            return Err(format!("nothing but crashes befell the database, and it was set aside as {name}"));
        }
        Ok(SqlMachine::new(database, outbox))
    }

    /// SQLite's own check of the whole file and its log, on a connection of its own.
    fn check(&self) -> Result<(), String> {
        let check = || -> rusqlite::Result<String> {
            let path = format!("{}/database.sqlite", self.path);
            let conn = Connection::open_with_flags_and_vfs(path, OpenFlags::SQLITE_OPEN_READ_WRITE, vfs::NAME)?;
            conn.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            conn.query_row("PRAGMA integrity_check", [], |row| row.get(0))
        };
        match check() {
            Ok(found) if found == "ok" => Ok(()),
            Ok(found) => Err(format!("after recovery the integrity check finds {found}")),
            Err(error) => Err(format!("the integrity check after recovery: {error}")),
        }
    }
}

impl Store for Kept {
    fn open(&mut self) -> Result<Box<dyn Machine>, String> {
        Ok(Box::new(self.machine()?))
    }

    fn crash(&mut self, power: bool, rng: &mut Rng) {
        self.io.heal();
        match power {
            true => self.io.crash(|choices| rng.below(choices as u64) as usize),
            false => self.io.kill(),
        }
        self.mounted = Mounted::mount(&self.path, self.io.clone());
    }

    fn fail_from(&mut self, rng: &mut Rng) -> bool {
        let (after, short) = (rng.below(60), rng.percent(50));
        self.io.fail(Fault { op: None, after, full: false, for_ever: true, short });
        true
    }

    fn heal(&mut self) {
        self.io.heal();
    }
}
