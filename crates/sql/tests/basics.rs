//! What works: writing, reading, applying, rewinding.

mod common;

use common::{Bench, integer, of, reign, soon, statement, transaction};
use highwater_partition::StateMachine;
use highwater_sql::{Hold, Value};

#[test]
fn a_write_is_held_until_its_end_and_read_once_it_is_published() {
    let bench = Bench::leader();
    let answer = bench.database.transaction(
        &transaction(&["CREATE TABLE t(a INTEGER PRIMARY KEY, b)", "INSERT INTO t(b) VALUES('x')"]),
        soon(),
    );
    let results = answer.result.unwrap();
    assert_eq!((results[1].affected, results[1].last_insert_rowid), (1, 1));
    assert_eq!(answer.hold, Some(Hold { reign: bench.reign, until: 2, wrote: true }));
    assert_eq!(answer.seen.1, 2);
    assert_eq!(bench.log.end(), 2);

    let before =
        bench.database.transaction(&transaction(&["SELECT count(*) FROM sqlite_schema WHERE name = 't'"]), soon());
    assert_eq!((before.hold, before.seen.1), (None, 0));
    assert_eq!(integer(&before.result.unwrap()[0]), 0);
    bench.publish();
    assert_eq!(bench.rows("SELECT b FROM t"), [[Value::Text("x".into())]]);
    bench.assert_replicates();
}

#[test]
fn a_rewind_leaves_the_state_at_that_offset() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    bench.run(&["INSERT INTO t VALUES(1)"]).unwrap();
    let at = bench.log.end();
    let hash = bench.database.content_hash().unwrap();
    for value in 2..5 {
        of(bench.database.transaction(&transaction(&[&format!("INSERT INTO t VALUES({value})")]), soon())).unwrap();
    }
    assert_eq!(bench.database.rewind(at).unwrap(), at);
    assert_eq!(bench.database.applied(), at);
    bench.database.publish(at);
    assert_eq!(bench.database.content_hash().unwrap(), hash);
    bench.log.cut(at);
    bench.database.lead(reign(2, 2), at).unwrap();
    bench.run(&["INSERT INTO t VALUES(9)"]).unwrap();
    assert_eq!(bench.rows("SELECT a FROM t ORDER BY a"), [[Value::Integer(1)], [Value::Integer(9)]]);
    bench.assert_replicates();
}

#[test]
fn a_stream_runs_interactive_transactions() {
    let bench = Bench::leader();
    let session = bench.database.session();
    of(session.execute(&statement("CREATE TABLE t(a)"))).unwrap();
    bench.publish();
    of(session.execute(&statement("BEGIN"))).unwrap();
    assert!(!session.is_autocommit());
    of(session.execute(&statement("INSERT INTO t VALUES(1)"))).unwrap();
    let answer = session.execute(&statement("SELECT count(*) FROM t"));
    assert_eq!(integer(&answer.result.unwrap()), 1);
    assert_eq!(answer.hold, Some(Hold { reign: bench.reign, until: 1, wrote: false }), "held until what it began on");
    assert_eq!(bench.log.end(), 1, "nothing is proposed before COMMIT");
    let committed = session.execute(&statement("COMMIT"));
    committed.result.unwrap();
    assert_eq!(committed.hold, Some(Hold { reign: bench.reign, until: 2, wrote: true }));
    assert!(session.is_autocommit());
    bench.publish();
    assert_eq!(integer(&of(session.execute(&statement("SELECT count(*) FROM t"))).unwrap()), 1);
    bench.assert_replicates();
}

#[test]
fn a_replica_that_does_not_lead_reads_and_refuses_writes() {
    let leader = Bench::leader();
    leader.run(&["CREATE TABLE t(a)", "INSERT INTO t VALUES(7)"]).unwrap();
    let follower = Bench::follower();
    let refused = of(follower.database.transaction(&transaction(&["SELECT 1"]), soon())).unwrap_err();
    assert_eq!(refused.code, "NOT_LEADER", "nothing is published yet: {refused}");
    leader.ship_to(&follower.database);
    assert_eq!(follower.rows("SELECT a FROM t"), [[Value::Integer(7)]]);
    let reads = |sql: &str| follower.database.read_only(&[statement(sql)], soon());
    assert_eq!(reads("SELECT a FROM t"), Ok(true));
    assert_eq!(reads("INSERT INTO t VALUES(1)"), Ok(false));
    assert_eq!(reads("SELECT * FROM not_there_yet").unwrap_err().message, "no such table: not_there_yet");
    let refused = follower.run(&["INSERT INTO t VALUES(1)"]).unwrap_err();
    assert_eq!(refused.code, "NOT_LEADER");
    let session = follower.database.session();
    assert_eq!(of(session.execute(&statement("DELETE FROM t"))).unwrap_err().code, "NOT_LEADER");
}

#[test]
fn what_was_executed_and_not_checkpointed_is_dropped_at_a_start_and_applied_again() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)", "INSERT INTO t VALUES(1),(2)"]).unwrap();
    let hash = bench.database.content_hash().unwrap();
    let Bench { dir, log, database, .. } = bench;
    // The image that a killed process leaves.
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    drop(database);
    let reopened = highwater_sql::Database::open(copy.path(), common::quick(), log.clone()).unwrap();
    assert_eq!(reopened.applied(), 0);
    reopened.apply(0, log.end(), &log.read(0, log.end()), true).unwrap();
    reopened.publish(log.end());
    assert_eq!(reopened.content_hash().unwrap(), hash);
}
