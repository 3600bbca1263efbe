//! A database under test with the log it proposes to.

#![allow(dead_code, unreachable_pub, reason = "each test uses what it needs")]

pub mod timed;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use highwater_partition::{Reign, StateMachine};
use highwater_sql::{Answer, Database, Options, Proposer, ResultSet, SqlError, Statement, Transaction, Value};
use highwater_wire::{Epoch, Offset, batch};

/// The log: stamped batches one behind the other, each with its offsets.
#[derive(Default)]
pub struct Log {
    state: Mutex<LogState>,
}

#[derive(Default)]
struct LogState {
    batches: Vec<(Offset, Offset, Bytes)>,
    end: Offset,
}

impl Proposer for Log {
    fn propose(&self, reign: Reign, base: Offset, mut batches: BytesMut) {
        let mut state = self.state.lock().unwrap();
        assert_eq!(state.end, base, "a proposal begins where the log ends");
        let end = batch::stamp(&mut batches, base, reign.epoch).expect("a proposal is well formed");
        for split in batch::split(&batches.freeze()) {
            let (header, bytes) = split.expect("a proposal is well formed");
            batch::check(&bytes).expect("its checksum holds");
            state.batches.push((header.base, header.base + header.count, bytes));
        }
        state.end = end;
    }
}

impl Log {
    pub fn end(&self) -> Offset {
        self.state.lock().unwrap().end
    }

    /// Entries of whole batches that overlap `[from, to)`.
    pub fn read(&self, from: Offset, to: Offset) -> Bytes {
        let state = self.state.lock().unwrap();
        let mut bytes = BytesMut::new();
        for (base, end, batch) in &state.batches {
            if *end > from && *base < to {
                bytes.extend_from_slice(batch);
            }
        }
        bytes.freeze()
    }

    /// Removes everything at and above `to`, which must be a batch's beginning.
    pub fn cut(&self, to: Offset) {
        let mut state = self.state.lock().unwrap();
        state.batches.retain(|(_, end, _)| *end <= to);
        state.end = to;
    }

    /// An empty log whose first entry will be at `base`.
    pub fn start_at(&self, base: Offset) {
        self.state.lock().unwrap().end = base;
    }

    /// Where batches end, from 0 on.
    pub fn ends(&self) -> Vec<Offset> {
        self.state.lock().unwrap().batches.iter().map(|(_, end, _)| *end).collect()
    }

    /// The size of all batches.
    pub fn size_bytes(&self) -> usize {
        self.state.lock().unwrap().batches.iter().map(|(.., bytes)| bytes.len()).sum()
    }
}

pub struct Bench {
    pub dir: tempfile::TempDir,
    pub log: Arc<Log>,
    pub database: Arc<Database>,
    pub reign: Reign,
}

pub fn reign(epoch: u32, number: u64) -> Reign {
    Reign { epoch: Epoch(epoch), number }
}

pub fn quick() -> Options {
    Options {
        interactive_max: Duration::from_secs(20),
        writer_wait: Duration::from_secs(20),
        checkpoint_wait: Duration::from_millis(1),
        publish_wait: Duration::from_millis(1),
        ..Options::default()
    }
}

impl Bench {
    /// A database that leads epoch 1 of an empty log.
    pub fn leader() -> Bench {
        Bench::leader_with(quick())
    }

    pub fn leader_with(options: Options) -> Bench {
        let bench = Bench::follower_with(options);
        bench.database.lead(bench.reign, 0).unwrap();
        bench.database.publish(0);
        bench
    }

    /// A database that leads nothing.
    pub fn follower() -> Bench {
        Bench::follower_with(quick())
    }

    pub fn follower_with(options: Options) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let log = Arc::new(Log::default());
        let database = Database::open(dir.path(), options, log.clone()).unwrap();
        Bench { dir, log, database, reign: reign(1, 1) }
    }

    /// HW reaches the end of the log.
    pub fn publish(&self) {
        self.database.publish(self.log.end());
    }

    /// Runs statements without arguments as one transaction and publishes.
    pub fn run(&self, statements: &[&str]) -> Result<Vec<ResultSet>, SqlError> {
        let answer = self.database.transaction(&transaction(statements), soon());
        self.publish();
        answer.result
    }

    /// Runs a query without publishing anything.
    pub fn run_as_it_is(&self, sql: &str) -> ResultSet {
        of(self.database.transaction(&transaction(&[sql]), soon())).unwrap().remove(0)
    }

    pub fn rows(&self, sql: &str) -> Vec<Vec<Value>> {
        self.run(&[sql]).unwrap().remove(0).rows
    }

    /// Applies what this bench's log holds to another database, up to the end.
    pub fn ship_to(&self, other: &Database) {
        let (from, to) = (other.applied(), self.log.end());
        other.apply(from, to, &self.log.read(from, to), true).unwrap();
        other.publish(to);
    }

    /// Asserts that a fresh follower that applies the log holds the same.
    pub fn assert_replicates(&self) {
        let follower = Bench::follower();
        self.ship_to(&follower.database);
        assert_eq!(follower.database.content_hash().unwrap(), self.database.content_hash().unwrap());
        follower.assert_sound();
    }

    /// Asserts SQLite's own integrity check, on a fresh connection.
    pub fn assert_sound(&self) {
        assert_sound(&self.dir.path().join("database.sqlite"));
    }
}

pub fn assert_sound(path: &Path) {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    let found: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok");
}

pub fn transaction(statements: &[&str]) -> Transaction {
    Transaction { statements: statements.iter().map(|sql| statement(sql)).collect(), key: None }
}

pub fn statement(sql: &str) -> Statement {
    Statement { sql: sql.to_string(), want_rows: true, ..Statement::default() }
}

pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

pub fn integer(answer: &ResultSet) -> i64 {
    match answer.rows[0][0] {
        Value::Integer(value) => value,
        ref other => panic!("an integer was expected; found {other:?}"),
    }
}

/// The result of an answer whose hold has been looked at or does not matter.
pub fn of<T>(answer: Answer<T>) -> T {
    answer.result
}
