//! Power losses at every operation of a database's procedures, one after the other: while it is made, during a checkpoint, during the recovery after one.
//!
//! Each time the disk fails for good at the N-th operation, the power goes, and the database is opened again. It must open, must find nothing damaged,
//! must not have applied more than was committed, and must hold what its log says once the rest is applied. The last N is the one at which nothing fails.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use highwater_log::Io;
use highwater_log::mem::{Fault, MemIo};
use highwater_partition::{Reign, StateMachine};
use highwater_simsql::Mounted;
use highwater_sql::{Database, Options, Proposer, Statement, Transaction};
use highwater_wire::{Epoch, Offset, batch};

const REIGN: Reign = Reign { epoch: Epoch(1), number: 1 };

/// The log that a database proposes to.
#[derive(Default)]
struct Log(Mutex<(BytesMut, Offset)>);

impl Proposer for Log {
    fn propose(&self, reign: Reign, base: Offset, mut batches: BytesMut) {
        let mut log = self.0.lock().unwrap();
        log.1 = batch::stamp(&mut batches, base, reign.epoch).unwrap();
        log.0.extend_from_slice(&batches);
    }
}

impl Log {
    fn all(&self) -> (Bytes, Offset) {
        let log = self.0.lock().unwrap();
        (log.0.clone().freeze(), log.1)
    }
}

/// A disk, the log, and the process's database.
struct Bench {
    io: MemIo,
    folder: Arc<Mounted>,
    log: Arc<Log>,
}

impl Bench {
    fn new() -> Bench {
        let io = MemIo::new();
        Bench { folder: Mounted::mount("/crash", io.clone()), io, log: Arc::default() }
    }

    fn open(&self) -> Result<Arc<Database>, String> {
        let options = Options {
            wal_bytes_checkpoint: 40_000,
            checkpoint_wait: Duration::ZERO,
            publish_wait: Duration::ZERO,
            full_wait: None,
            ..Options::default()
        };
        Database::open_in(Path::new("/crash"), self.folder.clone(), options, self.log.clone())
            .map_err(|error| error.to_string())
    }

    /// From the N-th operation on everything but reads fails.
    fn fail_from(&self, after: u64, short: bool) {
        self.io.fail(Fault { op: None, after, full: false, for_ever: true, short });
    }

    /// The process is gone, and all that it wrote stays.
    fn kill(&mut self) {
        self.io.heal();
        self.io.kill();
        self.folder = Mounted::mount("/crash", self.io.clone());
    }

    /// The power goes; what was not synced goes with it as `fate` says: all of it, none of it, or this and that.
    fn lose_power(&mut self, fate: usize) {
        self.io.heal();
        let mut drawn = fate;
        self.io.crash(|choices| match fate {
            0 => 0,
            1 => choices - 1,
            _ => {
                drawn = (drawn * 25 + 7) % 1009;
                drawn % choices
            }
        });
        self.folder = Mounted::mount("/crash", self.io.clone());
    }

    /// Opens the database again, applies what it lacks, and compares it with one that is given the whole log.
    fn assert_whole(&self, what: &str) {
        let database = self.open().unwrap_or_else(|error| panic!("{what}: {error}"));
        let damaged: Vec<String> =
            self.io.list().unwrap().into_iter().filter(|name| name.ends_with(".damaged")).collect();
        assert!(damaged.is_empty(), "{what}: {damaged:?} were set aside");
        let (batches, end) = self.log.all();
        assert!(database.applied() <= end, "{what}: {} is applied of {end}", database.applied());
        database.apply(database.applied(), end, &batches, true).unwrap_or_else(|error| panic!("{what}: {error}"));
        database.publish(end);
        let fresh = Bench { io: MemIo::new(), folder: Mounted::mount("/fresh", MemIo::new()), log: Arc::default() };
        let other = Database::open_in(Path::new("/fresh"), fresh.folder.clone(), Options::default(), fresh.log.clone());
        let other = other.unwrap();
        other.apply(0, end, &batches, true).unwrap();
        other.publish(end);
        assert_eq!(database.content_hash().unwrap(), other.content_hash().unwrap(), "{what}");
    }
}

fn write(database: &Database, sql: &str) {
    let statements = vec![Statement { sql: sql.to_owned(), ..Statement::default() }];
    let answer = database.transaction(&Transaction { statements, key: None }, Instant::now() + Duration::from_secs(60));
    answer.result.unwrap();
}

/// A database that leads, with a log of SQLite's that is large enough for a checkpoint, all of it committed; and something that is not.
fn filled(bench: &Bench) -> Arc<Database> {
    let database = bench.open().unwrap();
    database.lead(REIGN, 0).unwrap();
    write(&database, "CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB)");
    for n in 0..8 {
        write(&database, &format!("INSERT INTO t VALUES({n}, zeroblob({}))", n * 1_500));
    }
    write(&database, "DELETE FROM t WHERE a % 3 = 0");
    database.publish(database.applied());
    database
}

/// Lets `act` fail at every operation in turn, and at none in the end.
fn at_every_operation(
    name: &str,
    prepare: impl Fn(&mut Bench) -> Option<Arc<Database>>,
    act: impl Fn(&Bench, Option<Arc<Database>>) -> bool,
) {
    let mut points = 0;
    for after in 0.. {
        let mut over = true;
        for fate in 0..4 {
            let mut bench = Bench::new();
            let database = prepare(&mut bench);
            bench.fail_from(after, fate % 2 == 1);
            over &= act(&bench, database);
            bench.lose_power(fate);
            bench.assert_whole(&format!("{name}, failing at operation {after}, fate {fate}"));
        }
        if over {
            break;
        }
        points += 1;
    }
    assert!(points >= 6, "{name} has {points} operations at which it could fail");
}

#[test]
fn a_power_loss_while_a_database_is_made_leaves_one_that_is_made_again() {
    at_every_operation("making", |_| None, |bench, _| bench.open().is_ok());
}

#[test]
fn a_power_loss_at_any_operation_of_a_checkpoint_leaves_the_state_before_or_after_it() {
    at_every_operation(
        "a checkpoint",
        |bench| Some(filled(bench)),
        |_, database| database.is_some_and(|database| database.checkpoint_if_due().is_ok()),
    );
}

#[test]
fn a_power_loss_during_the_recovery_from_one_is_recovered_from() {
    // The first one strikes late in a checkpoint, when its marker is in place and the file is being written.
    let late = |bench: &mut Bench| {
        let database = filled(bench);
        bench.fail_from(14, false);
        assert!(database.checkpoint_if_due().is_err(), "a checkpoint has more operations than that");
        drop(database);
        bench.lose_power(2);
        None
    };
    at_every_operation("recovery", late, |bench, _| bench.open().is_ok());
}

/// A start that takes a marker whose name did not become durable for one that did, and ends that checkpoint, leaves a file that the older marker knows
/// nothing of.
#[test]
fn what_a_failed_checkpoint_left_behind_is_made_durable_before_the_next_process_relies_on_it() {
    for after in 0.. {
        let mut over = true;
        for fate in 0..4 {
            let mut bench = Bench::new();
            let database = filled(&bench);
            bench.io.fail(Fault { op: None, after, full: false, for_ever: false, short: fate % 2 == 1 });
            over &= database.checkpoint_if_due().is_ok();
            drop(database);
            bench.kill();
            drop(bench.open().unwrap_or_else(|error| panic!("after one failure, at operation {after}: {error}")));
            bench.lose_power(fate);
            bench.assert_whole(&format!("one failure at operation {after}, a restart, and fate {fate}"));
        }
        if over {
            break;
        }
    }
}

#[test]
fn a_power_loss_at_any_operation_of_a_rewind_leaves_what_was_committed() {
    at_every_operation(
        "a rewind",
        |bench| {
            let database = filled(bench);
            let (committed, kept) = (database.applied(), bench.log.all());
            database.checkpoint_if_due().unwrap();
            write(&database, "UPDATE t SET b = zeroblob(9000)");
            assert!(database.applied() > committed);
            // It never came to be in the log.
            *bench.log.0.lock().unwrap() = (BytesMut::from(&kept.0[..]), kept.1);
            Some(database)
        },
        |bench, database| {
            let (database, end) = (database.unwrap(), bench.log.all().1);
            database.rewind(end).is_ok_and(|at| at == end) && {
                // What is executed afterwards takes the place of what was cut.
                database.lead(Reign { number: 2, ..REIGN }, end).is_ok()
            }
        },
    );
}
