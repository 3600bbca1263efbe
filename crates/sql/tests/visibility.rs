//! Nobody sees above HW, on any door; and what was seen is never taken back.

mod common;

use common::{Bench, integer, of, reign, soon, statement, transaction};
use highwater_partition::StateMachine;
use highwater_sql::{BatchStep, Condition, Hold, Value};

/// A leader whose table holds one committed row and one that is not.
fn half_committed() -> Bench {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a UNIQUE)", "INSERT INTO t VALUES(1)"]).unwrap();
    of(bench.database.transaction(&transaction(&["INSERT INTO t VALUES(2)", "CREATE TABLE u(b)"]), soon())).unwrap();
    bench
}

#[test]
fn reads_on_every_door_show_what_is_published() {
    let bench = half_committed();
    let (published, executed) = (2, 4);
    let count = "SELECT count(*) FROM t";
    let answer = bench.database.transaction(&transaction(&[count]), soon());
    assert_eq!((answer.hold, answer.seen.1), (None, published));
    assert_eq!(integer(&answer.result.unwrap()[0]), 1);

    let session = bench.database.session();
    let answer = session.execute(&statement(count));
    assert_eq!((answer.hold, answer.seen.1), (None, published));
    assert_eq!(integer(&answer.result.unwrap()), 1);

    let answer = session.batch(&[BatchStep { condition: None, statement: statement(count) }]);
    assert_eq!(answer.hold, None);
    assert_eq!(integer(answer.result[0].as_ref().unwrap().as_ref().unwrap()), 1);

    of(session.execute(&statement("BEGIN READONLY"))).unwrap();
    let answer = session.execute(&statement(count));
    assert_eq!((answer.hold, integer(&answer.result.unwrap())), (None, 1));
    of(session.execute(&statement("COMMIT"))).unwrap();

    assert_eq!(session.describe("SELECT * FROM u").unwrap_err().code, "SQLITE_ERROR", "the table is not committed");
    assert_eq!(bench.database.content_hash().unwrap().0, published);
    let copy = bench.dir.path().join("copy.sqlite");
    assert_eq!(bench.database.backup(&copy, soon()).unwrap(), published);
    let rows: i64 = rusqlite::Connection::open(&copy).unwrap().query_row(count, [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 1);

    // A reader that cannot be prepared at what is published is answered from what is executed, and held.
    let answer = session.execute(&statement("SELECT * FROM u"));
    assert_eq!(answer.hold, Some(Hold { reign: bench.reign, until: executed, wrote: false }));
    answer.result.unwrap();
}

#[test]
fn whatever_the_writer_computed_is_held_until_what_it_could_have_seen_is_committed() {
    let bench = half_committed();
    let base = bench.log.end();
    let held = Some(Hold { reign: bench.reign, until: base, wrote: false });
    // A constraint error tells of the row that is not committed.
    let answer = bench.database.transaction(&transaction(&["INSERT INTO t VALUES(2)"]), soon());
    assert_eq!((answer.result.unwrap_err().code.as_str(), answer.hold), ("SQLITE_CONSTRAINT", held));
    let session = bench.database.session();
    let answer = session.execute(&statement("INSERT INTO t VALUES(2)"));
    assert_eq!((answer.result.unwrap_err().code.as_str(), answer.hold), ("SQLITE_CONSTRAINT", held));
    // So does a count of zero, and so do rows given back.
    let answer = bench.database.transaction(&transaction(&["UPDATE t SET a = a WHERE a = 7"]), soon());
    assert_eq!((answer.result.unwrap()[0].affected, answer.hold), (0, held));
    of(session.execute(&statement("BEGIN IMMEDIATE"))).unwrap();
    let answer = session.execute(&statement("SELECT max(a) FROM t"));
    assert_eq!((integer(&answer.result.unwrap()), answer.hold), (2, held));
    let answer = session.execute(&statement("DELETE FROM t WHERE a = 2 RETURNING a"));
    assert_eq!((integer(&answer.result.unwrap()), answer.hold), (2, held));
    let answer = session.execute(&statement("ROLLBACK"));
    assert_eq!(answer.hold, held);
    answer.result.unwrap();
    let answer = session.execute(&statement("DELETE FROM t WHERE a = 2"));
    assert_eq!(answer.hold, Some(Hold { reign: bench.reign, until: base + 1, wrote: true }));
    answer.result.unwrap();
}

#[test]
fn a_stream_sees_its_own_writes_before_they_are_committed_and_is_held_for_it() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    let session = bench.database.session();
    let wrote = session.execute(&statement("INSERT INTO t VALUES(1)")).hold.unwrap();
    let answer = session.execute(&statement("SELECT count(*) FROM t"));
    assert_eq!(integer(&answer.result.unwrap()), 1);
    assert_eq!(answer.hold, Some(Hold { wrote: false, ..wrote }));
    let other = bench.database.session().execute(&statement("SELECT count(*) FROM t"));
    assert_eq!((integer(&other.result.unwrap()), other.hold), (0, None));
    bench.publish();
    let answer = session.execute(&statement("SELECT count(*) FROM t"));
    assert_eq!((integer(&answer.result.unwrap()), answer.hold), (1, None));
}

#[test]
fn after_a_rewind_nothing_of_what_was_lost_is_there_and_nothing_is_shown_before_a_publication() {
    let bench = half_committed();
    let session = bench.database.session();
    of(session.execute(&statement("BEGIN IMMEDIATE"))).unwrap();
    of(session.execute(&statement("INSERT INTO t VALUES(3)"))).unwrap();
    let idle = bench.database.session();
    of(idle.execute(&statement("SELECT 1"))).unwrap();
    let temporary = bench.database.session();
    of(temporary.execute(&statement("CREATE TEMP TABLE mine(a)"))).unwrap();

    assert_eq!(bench.database.rewind(3).unwrap(), 2, "the newest transaction end at or below");
    assert_eq!(bench.database.content_hash().unwrap_err().code, "NOT_READY");
    assert_eq!(of(idle.execute(&statement("SELECT 1"))).unwrap_err().code, "NOT_READY");
    bench.database.publish(2);
    assert_eq!(integer(&of(idle.execute(&statement("SELECT count(*) FROM t"))).unwrap()), 1);

    // The transaction is lost, and no later statement of it runs on its own.
    for sql in ["INSERT INTO t VALUES(4)", "SELECT 1"] {
        let lost = of(session.execute(&statement(sql))).unwrap_err();
        assert_eq!(lost.code, "STREAM_EXPIRED");
        assert!(lost.message.contains("transaction is lost"), "{lost}");
    }
    assert!(!session.is_autocommit());
    assert_eq!(of(session.execute(&statement("COMMIT"))).unwrap_err().code, "STREAM_EXPIRED");
    assert!(session.is_autocommit());
    assert_eq!(integer(&of(session.execute(&statement("SELECT count(*) FROM t"))).unwrap()), 1);
    // So is what was temporary, which is said once.
    assert_eq!(of(temporary.execute(&statement("SELECT 1"))).unwrap_err().code, "STREAM_EXPIRED");
    of(temporary.execute(&statement("SELECT 1"))).unwrap();

    bench.log.cut(2);
    assert_eq!(of(session.execute(&statement("INSERT INTO t VALUES(5)"))).unwrap_err().code, "NOT_LEADER");
    bench.database.lead(reign(1, 2), 2).unwrap();
    bench.run(&["INSERT INTO t VALUES(6)"]).unwrap();
    assert_eq!(bench.rows("SELECT a FROM t ORDER BY a"), [[Value::Integer(1)], [Value::Integer(6)]]);
    bench.assert_replicates();
}

#[test]
fn a_batch_that_writes_takes_the_writer_at_begin_and_one_that_reads_does_not() {
    let bench = half_committed();
    let step =
        |sql: &str, after: Option<usize>| BatchStep { condition: after.map(Condition::Ok), statement: statement(sql) };
    let session = bench.database.session();
    let answer = session.batch(&[
        step("BEGIN DEFERRED", None),
        step("SELECT count(*) FROM t", Some(0)),
        step("INSERT INTO t VALUES(3)", Some(1)),
        step("COMMIT", Some(2)),
        BatchStep { condition: Some(Condition::Not(Box::new(Condition::Ok(3)))), statement: statement("ROLLBACK") },
    ]);
    assert_eq!(integer(answer.result[1].as_ref().unwrap().as_ref().unwrap()), 2, "it reads what it will write on");
    assert!(answer.result[3].as_ref().unwrap().is_ok() && answer.result[4].is_none());
    assert_eq!(answer.hold, Some(Hold { reign: bench.reign, until: 5, wrote: true }));

    let answer = session.batch(&[step("BEGIN DEFERRED", None), step("SELECT 1", Some(0)), step("COMMIT", Some(1))]);
    assert!(answer.result.iter().all(|result| result.as_ref().unwrap().is_ok()));
}

#[test]
fn a_transaction_that_has_read_an_older_state_may_not_write() {
    let bench = half_committed();
    let session = bench.database.session();
    of(session.execute(&statement("BEGIN"))).unwrap();
    of(session.execute(&statement("SELECT * FROM t"))).unwrap();
    assert_eq!(of(session.execute(&statement("INSERT INTO t VALUES(3)"))).unwrap_err().code, "TRANSACTION_BUSY");
    of(session.execute(&statement("SELECT * FROM t"))).unwrap();
    of(session.execute(&statement("ROLLBACK"))).unwrap();
    bench.publish();
    of(session.execute(&statement("BEGIN"))).unwrap();
    of(session.execute(&statement("SELECT * FROM t"))).unwrap();
    of(session.execute(&statement("INSERT INTO t VALUES(3)"))).unwrap();
    of(session.execute(&statement("COMMIT"))).unwrap();
    bench.publish();
    bench.assert_replicates();
}

#[test]
fn hw_may_end_within_a_transaction_and_shows_what_was_before_it() {
    let leader = Bench::leader();
    leader.run(&["CREATE TABLE t(a)"]).unwrap();
    leader.run(&["INSERT INTO t VALUES(1), (2), (3)"]).unwrap();
    leader.run(&["INSERT INTO t VALUES(4)"]).unwrap();
    let follower = Bench::follower();
    for to in 1..=5 {
        follower.database.apply(to - 1, to, &leader.log.read(to - 1, to), true).unwrap();
        follower.database.publish(to);
        let (at, rows) = [(1, 0), (1, 0), (1, 0), (4, 3), (5, 4)][to as usize - 1];
        let answer = follower.database.transaction(&transaction(&["SELECT count(*) FROM t"]), soon());
        assert_eq!((answer.seen.1, integer(&answer.result.unwrap()[0])), (at, rows));
    }
}

#[test]
fn an_unfinished_transaction_of_an_older_epoch_is_passed_over() {
    let leader = Bench::leader();
    leader.run(&["CREATE TABLE t(a)"]).unwrap();
    leader.run(&["INSERT INTO t VALUES(1), (2), (3)"]).unwrap();
    let next = Bench::follower();
    // Of the second transaction only two entries of three have arrived.
    next.database.apply(0, 1, &leader.log.read(0, 1), true).unwrap();
    next.database.apply(1, 3, &leader.log.read(1, 3), false).unwrap();
    next.database.lead(reign(2, 1), 3).unwrap();
    assert_eq!(next.database.applied(), 3);
    next.database.publish(3);
    let answer = next.database.transaction(&transaction(&["SELECT count(*) FROM t"]), soon());
    assert_eq!((answer.seen.1, integer(&answer.result.unwrap()[0])), (3, 0));
}

#[test]
fn a_rewind_waits_for_nobody() {
    let bench = half_committed();
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    let writes = &format!("INSERT INTO t SELECT 100 + ({endless})");
    std::thread::scope(|scope| {
        let reading =
            scope.spawn(|| of(bench.database.transaction(&transaction(&[endless]), soon())).unwrap_err().code);
        let writing = scope.spawn(|| of(bench.database.transaction(&transaction(&[writes]), soon())).unwrap_err().code);
        let waiting = scope.spawn(|| of(bench.database.transaction(&transaction(&["DELETE FROM t"]), soon())));
        let streaming = scope.spawn(|| {
            let session = bench.database.session();
            of(session.execute(&statement("BEGIN"))).unwrap();
            let code = of(session.execute(&statement(endless))).unwrap_err().code;
            (code, of(session.execute(&statement("SELECT 1"))).unwrap_err().code)
        });
        // However far each has come, it ends.
        assert_eq!(bench.database.rewind(2).unwrap(), 2);
        let ended = ["NOT_READY", "NOT_LEADER"];
        assert!(ended.contains(&reading.join().unwrap().as_str()));
        assert!(ended.contains(&writing.join().unwrap().as_str()));
        assert!(ended.contains(&waiting.join().unwrap().unwrap_err().code.as_str()));
        let (code, next) = streaming.join().unwrap();
        assert!(code == "STREAM_EXPIRED" || ended.contains(&code.as_str()), "{code}");
        assert!(["STREAM_EXPIRED", "NOT_READY"].contains(&next.as_str()), "{next}");
    });
    bench.database.publish(2);
    assert_eq!(integer(&bench.run_as_it_is("SELECT count(*) FROM t")), 1);
}
