//! SQLite on a simulated disk: what a power loss takes and leaves.

use std::sync::Arc;

use highwater_log::mem::MemIo;
use highwater_simsql::Mounted;
use highwater_sql::Folder;
use rusqlite::{Connection, OpenFlags};

/// A disk, mounted for the thread of one test.
struct Bench {
    io: MemIo,
    folder: Arc<Mounted>,
}

impl Bench {
    fn new() -> Bench {
        let io = MemIo::new();
        let folder = Mounted::mount("/disk", io.clone());
        Bench { io, folder }
    }

    fn open(&self) -> Connection {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let vfs = self.folder.vfs().expect("a simulated folder names its VFS");
        Connection::open_with_flags_and_vfs("/disk/t.sqlite", flags, vfs).unwrap()
    }

    fn lose_power(&mut self, choose: impl FnMut(usize) -> usize) {
        self.io.crash(choose);
        self.folder = Mounted::mount("/disk", self.io.clone());
    }
}

fn count(conn: &Connection) -> i64 {
    conn.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

#[test]
fn in_wal_mode_what_was_not_synced_may_go_and_what_was_stays() {
    for sync in [false, true] {
        let mut bench = Bench::new();
        let conn = bench.open();
        conn.execute_batch(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t(a); INSERT INTO t VALUES(1)",
        )
        .unwrap();
        bench.folder.sync_dir().unwrap();
        let mode = if sync { "FULL" } else { "NORMAL" };
        conn.execute_batch(&format!("PRAGMA synchronous={mode}; INSERT INTO t VALUES(2)")).unwrap();
        assert_eq!(count(&bench.open()), 2, "another connection shares the index of the log");
        bench.lose_power(|_| 0);
        drop(conn);
        assert_eq!(count(&bench.open()), if sync { 2 } else { 1 });
    }
}

#[test]
fn with_a_rollback_journal_a_power_loss_leaves_whole_transactions() {
    for choice in 0..40 {
        let mut bench = Bench::new();
        let conn = bench.open();
        conn.execute_batch("CREATE TABLE t(a); INSERT INTO t SELECT 1 FROM (VALUES(1),(2),(3))").unwrap();
        bench.folder.sync_dir().unwrap();
        conn.execute_batch("PRAGMA cache_size=2; BEGIN").unwrap();
        for _ in 0..40 {
            conn.execute_batch("INSERT INTO t VALUES(zeroblob(3000))").unwrap();
        }
        // The transaction has spilled into the file, and is not over.
        let mut drawn = choice;
        bench.lose_power(|choices| {
            drawn = (drawn * 5 + 3) % 97;
            drawn % choices
        });
        drop(conn);
        let conn = bench.open();
        assert_eq!(count(&conn), 3);
        let found: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(found, "ok");
    }
}

#[test]
fn a_writer_is_kept_from_what_another_writes_and_nobody_waits_for_time_to_pass() {
    let bench = Bench::new();
    let (one, other) = (bench.open(), bench.open());
    one.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(a); BEGIN IMMEDIATE").unwrap();
    other.busy_timeout(std::time::Duration::from_secs(3600)).unwrap();
    let refused = other.execute_batch("BEGIN IMMEDIATE").unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy));
    one.execute_batch("COMMIT").unwrap();
    other.execute_batch("BEGIN IMMEDIATE; COMMIT").unwrap();
}
