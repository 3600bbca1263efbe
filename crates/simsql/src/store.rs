//! A node's database on its simulated disk, from one process to the next.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater_log::mem::{Fault, MemIo, Op};
use highwater_log::{Io, IoFile};
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
        Box::new(Kept::new(path, io, mounted, checkpoint, rng))
    }

    fn replay(&self, batches: &Bytes, to: Offset) -> Result<State, String> {
        let io = MemIo::new();
        let mounted = Mounted::mount("/replayed", io.clone());
        let mut kept = Kept::new("/replayed".to_owned(), io, mounted, 4_000_000, Rng::new(0));
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
    /// A transaction larger than this goes into several batches, in bytes.
    batch: usize,
    rng: Rng,
    doomed: Rc<Cell<bool>>,
    /// A bit is going to change when the process is gone.
    rots: bool,
    /// Bits have changed since the database was last opened.
    rotten: bool,
}

/// What can be made anew from the log when it is damaged. The marker cannot, and the sums only as long as the rest is whole.
const MENDED: [&str; 2] = ["database.sqlite", "database.sqlite-wal"];

impl Kept {
    fn new(path: String, io: MemIo, mounted: Arc<Mounted>, checkpoint: u64, mut rng: Rng) -> Kept {
        let batch = if rng.percent(40) { 2_000 } else { 4 << 20 };
        Kept { path, io, mounted, checkpoint, batch, rng, doomed: Rc::default(), rots: false, rotten: false }
    }

    fn options(&self) -> Options {
        Options {
            wal_bytes_checkpoint: self.checkpoint,
            batch_bytes: self.batch,
            wal_bytes_max: 16 * self.checkpoint,
            full_wait: None,
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
        self.look_for_damage()?;
        Ok(SqlMachine::new(database, outbox, Rc::clone(&self.doomed), self.rng.fork(0)))
    }

    /// What is set aside was damaged, and damage is not what a crash may do.
    fn look_for_damage(&mut self) -> Result<(), String> {
        let names = self.io.list().map_err(|error| error.to_string())?;
        for name in names.iter().filter(|name| name.ends_with(".damaged")) {
            if !self.rotten {
                return Err(format!("nothing but crashes befell the database, and it was set aside as {name}"));
            }
            self.io.remove(name).map_err(|error| error.to_string())?;
        }
        self.io.sync_dir().map_err(|error| error.to_string())?;
        self.rotten = false;
        Ok(())
    }

    /// A bit of a file that can be made anew changes.
    fn change_a_bit(&mut self, rng: &mut Rng) {
        let name = *rng.pick(&MENDED);
        let Ok(bytes) = self.io.open(name).and_then(|file| file.len()) else { return };
        if bytes > 0 {
            self.io.flip(name, rng.below(bytes) as usize, 1 << rng.below(8));
            self.rotten = true;
        }
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
        self.doomed.set(false);
        if std::mem::take(&mut self.rots) {
            self.change_a_bit(rng);
        }
        self.mounted = Mounted::mount(&self.path, self.io.clone());
    }

    fn fail_from(&mut self, rng: &mut Rng) -> bool {
        // Syncs and names are few, and what lies between two of them is what a checkpoint's order is about.
        let (op, after) = match rng.below(4) {
            0 => (Some(Op::Sync), rng.below(16)),
            1 => (Some(Op::Name), rng.below(16)),
            _ => (None, rng.below(60)),
        };
        self.io.fail(Fault { op, after, full: false, for_ever: true, short: rng.percent(50) });
        self.doomed.set(true);
        true
    }

    fn fail_once(&mut self, rng: &mut Rng) -> bool {
        let op = if rng.percent(50) { Some(*rng.pick(&[Op::Write, Op::Sync, Op::Read])) } else { None };
        self.io.fail(Fault { op, after: rng.below(40), full: false, for_ever: false, short: rng.percent(50) });
        true
    }

    fn set_full(&mut self, full: bool) {
        self.io.set_capacity(full.then(|| self.io.used_bytes() + 9_000));
    }

    fn rot(&mut self) -> bool {
        self.rots = true;
        true
    }

    fn heal(&mut self) {
        self.io.heal();
        self.io.set_capacity(None);
        self.doomed.set(false);
    }
}
