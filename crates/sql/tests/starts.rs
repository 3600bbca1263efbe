//! Checkpoints, and starts from the image that a killed process leaves at any moment.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{Bench, Log, of, quick, reign, soon, transaction};
use highwater_partition::StateMachine;
use highwater_sql::{Database, OpenError, Options};

fn small_log() -> Options {
    Options { wal_bytes_checkpoint: 100_000, ..quick() }
}

fn image(of: &Path) -> tempfile::TempDir {
    let image = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(of).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), image.path().join(file.file_name())).unwrap();
    }
    image
}

fn wal_bytes(dir: &Path) -> u64 {
    std::fs::metadata(dir.join("database.sqlite-wal")).map_or(0, |wal| wal.len())
}

/// Opens an image, applies what is missing up to `hw`, and compares.
fn assert_recovers(image: &Path, log: &Arc<Log>, hw: u64, expected: (u64, [u8; 32])) {
    let database = Database::open(image, small_log(), log.clone()).unwrap();
    let applied = database.applied();
    assert!(applied <= hw, "{applied} is applied after a start and {hw} was committed");
    database.apply(applied, hw, &log.read(applied, hw), true).unwrap();
    database.publish(hw);
    assert_eq!(database.content_hash().unwrap(), expected);
    drop(database);
    common::assert_sound(&image.join("database.sqlite"));
}

#[test]
fn a_killed_leader_starts_with_nothing_that_was_not_committed() {
    let bench = Bench::leader_with(small_log());
    bench.run(&["CREATE TABLE t(a INTEGER PRIMARY KEY, b)"]).unwrap();
    let mut hw = bench.log.end();
    for round in 0..30 {
        of(bench.database.transaction(&transaction(&["INSERT INTO t(b) VALUES(randomblob(3000))"]), soon())).unwrap();
        if round % 3 == 1 {
            hw = bench.log.end() - 1;
            bench.database.publish(hw);
        }
        if round % 4 == 0 {
            let expected = bench.database.content_hash().unwrap();
            assert_recovers(image(bench.dir.path()).path(), &bench.log, hw, expected);
        }
    }
}

#[test]
fn checkpoints_keep_sqlites_log_short_and_pass_nothing_that_is_not_committed() {
    let bench = Bench::leader_with(small_log());
    bench.run(&["CREATE TABLE t(a INTEGER PRIMARY KEY, b)"]).unwrap();
    let mut longest = 0;
    for _ in 0..100 {
        bench.run(&["INSERT INTO t(b) VALUES(randomblob(3000))"]).unwrap();
        longest = longest.max(wal_bytes(bench.dir.path()));
    }
    assert!(longest < 300_000, "{longest}");
    // While HW stands still there is none, and the log grows.
    let hw = bench.log.end();
    let expected = bench.database.content_hash().unwrap();
    for _ in 0..100 {
        of(bench.database.transaction(&transaction(&["INSERT INTO t(b) VALUES(randomblob(3000))"]), soon())).unwrap();
    }
    bench.database.checkpoint_if_due().unwrap();
    assert!(wal_bytes(bench.dir.path()) > 300_000);
    assert_eq!(bench.database.content_hash().unwrap(), expected, "readers stay where they were");
    assert_recovers(image(bench.dir.path()).path(), &bench.log, hw, expected);
    let at = bench.database.rewind(hw).unwrap();
    assert_eq!(at, hw, "and can be gone back to");
    bench.log.cut(hw);
    bench.database.lead(reign(1, 2), hw).unwrap();
    bench.database.publish(hw);
    assert_eq!(bench.database.content_hash().unwrap(), expected);
    bench.publish();
    bench.database.checkpoint_if_due().unwrap();
    assert_eq!(bench.database.content_hash().unwrap(), expected);
    bench.run(&["INSERT INTO t(b) VALUES(1)"]).unwrap();
    bench.assert_replicates();
}

#[test]
fn a_log_that_cannot_be_written_back_bounds_what_is_executed() {
    let bench = Bench::leader_with(Options { wal_bytes_max: 200_000, ..small_log() });
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    let mut refused = None;
    for _ in 0..100 {
        let answer = bench.database.transaction(&transaction(&["INSERT INTO t VALUES(randomblob(3000))"]), soon());
        if let Err(failed) = of(answer) {
            refused = Some(failed);
            break;
        }
    }
    assert_eq!(refused.unwrap().code, "OVERLOADED");
    bench.publish();
    bench.run(&["INSERT INTO t VALUES(1)"]).unwrap();
    bench.assert_replicates();
}

#[test]
fn a_reader_of_an_older_state_puts_a_checkpoint_off_and_sees_what_it_saw() {
    let bench = Bench::leader_with(small_log());
    bench.run(&["CREATE TABLE t(a)", "INSERT INTO t VALUES(1)"]).unwrap();
    let reader = bench.database.session();
    let count = common::statement("SELECT count(*) FROM t");
    of(reader.execute(&common::statement("BEGIN"))).unwrap();
    assert_eq!(common::integer(&of(reader.execute(&count)).unwrap()), 1);
    for _ in 0..40 {
        bench.run(&["INSERT INTO t VALUES(randomblob(3000))"]).unwrap();
    }
    assert_eq!(common::integer(&of(reader.execute(&count)).unwrap()), 1);
    of(reader.execute(&common::statement("COMMIT"))).unwrap();
    assert_eq!(common::integer(&of(reader.execute(&count)).unwrap()), 41);
    bench.database.checkpoint_if_due().unwrap();
    assert!(wal_bytes(bench.dir.path()) < 100_000);
    bench.assert_replicates();
}

#[test]
fn a_clean_stop_leaves_nothing_to_apply_again() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)", "INSERT INTO t VALUES(1)"]).unwrap();
    let expected = bench.database.content_hash().unwrap();
    let session = bench.database.session();
    of(session.execute(&common::statement("BEGIN IMMEDIATE"))).unwrap();
    bench.database.close().unwrap();
    assert_eq!(of(session.execute(&common::statement("SELECT 1"))).unwrap_err().code, "CLOSED");
    let again = Database::open(bench.dir.path(), quick(), bench.log.clone()).unwrap();
    assert_eq!(again.applied(), bench.log.end());
    again.publish(bench.log.end());
    assert_eq!(again.content_hash().unwrap(), expected);
}

#[test]
fn a_rewind_before_the_last_checkpoint_is_refused() {
    let bench = Bench::leader_with(small_log());
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    for _ in 0..60 {
        bench.run(&["INSERT INTO t VALUES(randomblob(3000))"]).unwrap();
    }
    let refused = bench.database.rewind(1).unwrap_err();
    assert!(matches!(refused, highwater_sql::MachineError::Forgotten { to: 1, .. }), "{refused}");
}

#[test]
fn damaged_or_missing_files_are_said_by_name() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    bench.database.close().unwrap();
    let open = |dir: &Path| Database::open(dir, quick(), bench.log.clone()).map(|_| ());

    let flipped = image(bench.dir.path());
    let marker = flipped.path().join("checkpoint");
    let mut bytes = std::fs::read(&marker).unwrap();
    bytes[21] ^= 1;
    std::fs::write(&marker, bytes).unwrap();
    assert!(matches!(open(flipped.path()), Err(OpenError::Malformed { path, .. }) if path == marker));

    // With nothing to compare it with, a database file that is gone or is none is refused.
    let without_sums = || {
        let image = image(bench.dir.path());
        std::fs::remove_file(image.path().join("sums.a")).unwrap();
        std::fs::remove_file(image.path().join("sums.b")).unwrap();
        image
    };
    let missing = without_sums();
    let database = missing.path().join("database.sqlite");
    std::fs::remove_file(&database).unwrap();
    assert!(matches!(open(missing.path()), Err(OpenError::Io { path, .. }) if path == database));

    let other = without_sums();
    std::fs::write(other.path().join("database.sqlite"), vec![7; 8192]).unwrap();
    assert!(matches!(open(other.path()), Err(OpenError::Malformed { .. })));

    // Without its marker a database was never finished; the log has it all.
    let unfinished = image(bench.dir.path());
    std::fs::remove_file(unfinished.path().join("checkpoint")).unwrap();
    let database = Database::open(unfinished.path(), quick(), bench.log.clone()).unwrap();
    assert_eq!(database.applied(), 0);
}
