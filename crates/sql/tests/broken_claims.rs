//! What a fresh eye broke: what one client may do neither makes replicas differ nor stops the database for others.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Bench, integer, of, quick, statement};
use highwater_sql::{Options, ResultRoom, Session, SqlError, Value, bounded};

/// Runs statements on a stream, each by itself, up to the first that fails.
fn stream(bench: &Bench, session: &Session, statements: &[&str]) -> Result<(), SqlError> {
    for sql in statements {
        let result = of(session.execute(&statement(sql)));
        bench.publish();
        result?;
    }
    Ok(())
}

/// Of an answer that must be an error.
fn code<T>(result: Result<T, SqlError>) -> String {
    result.map(drop).expect_err("it is refused").code
}

#[test]
fn like_in_the_schema_does_not_depend_on_a_stream() {
    let bench = Bench::leader();
    bench
        .run(&[
            "CREATE TABLE p(x)",
            "CREATE UNIQUE INDEX pi ON p(x LIKE 'abc')",
            "CREATE TABLE likes(a INTEGER PRIMARY KEY AUTOINCREMENT)",
            "CREATE TRIGGER r AFTER INSERT ON likes BEGIN INSERT INTO p VALUES('FAIL'); END",
        ])
        .unwrap();
    let session = bench.database.session();
    stream(&bench, &session, &["INSERT INTO p VALUES('abc')", "SELECT * FROM p", "PRAGMA case_sensitive_like=on"])
        .unwrap();
    for refused in
        ["INSERT INTO p VALUES('ABC')", "CREATE TABLE q(a)", "SELECT * FROM p WHERE x LIKE 'abc'", "SELECT * FROM p"]
    {
        assert_eq!(stream(&bench, &session, &[refused]).unwrap_err().code, "SQLITE_AUTH", "{refused}");
        assert_eq!(
            stream(&bench, &session, &["BEGIN IMMEDIATE", refused]).unwrap_err().code,
            "SQLITE_AUTH",
            "{refused}"
        );
        stream(&bench, &session, &["ROLLBACK"]).unwrap();
    }
    let told = of(session.execute(&statement("SELECT 'a' LIKE 'A', (SELECT count(*) FROM likes)"))).unwrap();
    assert_eq!(told.rows, [[Value::Integer(0), Value::Integer(0)]]);
    stream(&bench, &session, &["CREATE TEMP TABLE own(a)", "INSERT INTO own VALUES(1)"]).unwrap();
    stream(&bench, &session, &["BEGIN IMMEDIATE", "PRAGMA case_sensitive_like=off"]).unwrap();
    let twice = stream(&bench, &session, &["INSERT INTO p VALUES('ABC')"]);
    assert_eq!(twice.unwrap_err().code, "SQLITE_CONSTRAINT");
    stream(&bench, &session, &["INSERT INTO likes DEFAULT VALUES", "DELETE FROM likes", "COMMIT"]).unwrap();
    assert_eq!(bench.rows("SELECT seq FROM sqlite_sequence"), [[Value::Integer(1)]]);
    bench.assert_replicates();
}

#[test]
fn what_clients_write_to_sqlite_sequence_replicates_exactly() {
    let bench = Bench::leader();
    bench
        .run(&[
            "CREATE TABLE s1(id INTEGER PRIMARY KEY AUTOINCREMENT, x)",
            "INSERT INTO sqlite_sequence VALUES('s1', 1)",
            "INSERT INTO sqlite_sequence VALUES('s1', 5)",
        ])
        .unwrap();
    bench.run(&["INSERT INTO s1(x) VALUES(1)"]).unwrap();
    bench
        .run(&[
            "INSERT INTO sqlite_sequence VALUES('s1', 9), (NULL, x'00'), (x'7331', 1)",
            "INSERT INTO s1(x) VALUES(2)",
        ])
        .unwrap();
    bench.assert_replicates();
    bench.run(&["DELETE FROM sqlite_sequence", "INSERT INTO s1(x) VALUES(3)"]).unwrap();
    bench.assert_replicates();
}

#[test]
fn a_trigger_does_not_write_to_sqlite_sequence() {
    let bench = Bench::leader();
    bench
        .run(&[
            "CREATE TABLE s1(id INTEGER PRIMARY KEY AUTOINCREMENT, x)",
            "INSERT INTO s1(x) VALUES(1)",
            "CREATE TRIGGER r AFTER INSERT ON s1 BEGIN DELETE FROM sqlite_sequence; END",
        ])
        .unwrap();
    assert_eq!(bench.run(&["INSERT INTO s1(x) VALUES(2)"]).unwrap_err().code, "SQLITE_AUTH");
    bench.assert_replicates();
}

#[test]
fn an_imported_file_may_name_a_table_twice_in_sqlite_sequence() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file.db");
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch(
        "CREATE TABLE a(id INTEGER PRIMARY KEY AUTOINCREMENT); INSERT INTO a DEFAULT VALUES;
         INSERT INTO sqlite_sequence VALUES('a', 5), ('a', 'x'), (NULL, x'00');",
    )
    .unwrap();
    conn.close().unwrap();
    let bench = Bench::leader();
    of(bench.database.import(&path, common::soon())).unwrap();
    bench.publish();
    bench.run(&["INSERT INTO a DEFAULT VALUES"]).unwrap();
    bench.run(&["DELETE FROM sqlite_sequence", "INSERT INTO a DEFAULT VALUES"]).unwrap();
    bench.assert_replicates();
}

#[test]
fn a_query_that_writes_takes_no_lock_from_the_readers_side() {
    let bench = Bench::leader();
    bench.run(&["CREATE VIRTUAL TABLE f USING fts4(c)", "CREATE TABLE t(a)"]).unwrap();
    for word in ["a", "b", "c"] {
        bench.run(&[&format!("INSERT INTO f VALUES('{word}')")]).unwrap();
    }
    bench.run(&["CREATE VIEW v AS SELECT optimize(f) AS o FROM f LIMIT 1"]).unwrap();
    let optimize = "SELECT optimize(f) FROM f LIMIT 1";
    let follower = Bench::follower();
    bench.ship_to(&follower.database);
    for sql in [optimize, "SELECT * FROM v"] {
        assert_eq!(code(follower.run(&[sql])), "NOT_LEADER", "{sql}");
        assert!(!bench.database.read_only(&[statement(sql)], common::soon()).unwrap(), "{sql}");
    }
    let session = follower.database.session();
    assert_eq!(code(of(session.execute(&statement(optimize)))), "NOT_LEADER");
    let session = bench.database.session();
    stream(&bench, &session, &["BEGIN READONLY", "SELECT * FROM t"]).unwrap();
    assert_eq!(stream(&bench, &session, &[optimize]).unwrap_err().code, "SQLITE_READONLY");
    stream(&bench, &session, &["ROLLBACK"]).unwrap();
    assert_eq!(code(bench.run(&[&format!("CREATE TABLE c AS {optimize}")])), "SQLITE_AUTH");
    stream(&bench, &session, &[optimize]).unwrap();
    bench.run(&["INSERT INTO f VALUES('d')", "SELECT * FROM v"]).unwrap();
    bench.assert_replicates();
}

#[test]
fn a_lock_that_somebody_holds_does_not_stop_a_replica() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)", "INSERT INTO t VALUES(1)"]).unwrap();
    let follower = Bench::follower_with(Options { full_wait: None, ..quick() });
    let other = rusqlite::Connection::open(follower.dir.path().join("database.sqlite")).unwrap();
    other.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let holder = std::thread::spawn(move || {
        // sleep: longer than SQLite itself waits for a lock.
        std::thread::sleep(Duration::from_millis(2500));
        other.execute_batch("ROLLBACK").unwrap();
    });
    bench.ship_to(&follower.database);
    holder.join().unwrap();
    assert_eq!(integer(&follower.run(&["SELECT count(*) FROM t"]).unwrap()[0]), 1);
    assert_eq!(follower.database.failed(), None);
}

#[test]
fn a_foreign_key_refers_to_no_table_of_ours() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    for refused in [
        "CREATE TABLE fka(a REFERENCES sqlite_highwater_state(applied))",
        "CREATE TABLE fka(a, b, FOREIGN KEY(a) REFERENCES \"SQLite_Highwater_Keys\"(position))",
        "ALTER TABLE t ADD COLUMN b REFERENCES sqlite_highwater_keys(position)",
    ] {
        assert_eq!(bench.run(&[refused]).unwrap_err().code, "SQLITE_AUTH", "{refused}");
        let session = bench.database.session();
        assert_eq!(stream(&bench, &session, &["PRAGMA foreign_keys=off", refused]).unwrap_err().code, "SQLITE_AUTH");
    }
    bench.run(&["INSERT INTO t VALUES(1)"]).unwrap();
    bench.assert_replicates();
}

#[test]
fn an_imported_foreign_key_refers_to_no_table_of_ours() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file.db");
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch("CREATE TABLE a(x REFERENCES sqlite_highwater_state(applied))").unwrap();
    conn.close().unwrap();
    let bench = Bench::leader();
    assert_eq!(of(bench.database.import(&path, common::soon())).unwrap_err().code, "SQLITE_AUTH");
    bench.run(&["CREATE TABLE t(a)", "INSERT INTO t VALUES(1)"]).unwrap();
    bench.assert_replicates();
}

#[test]
fn writes_that_are_refused_for_the_size_of_the_log_do_not_make_it_grow() {
    let bench = Bench::leader_with(Options { wal_bytes_checkpoint: 64 << 10, wal_bytes_max: 256 << 10, ..quick() });
    bench.run(&["CREATE TABLE t(a)", "INSERT INTO t VALUES(1)"]).unwrap();
    let reader = bench.database.session();
    stream(&bench, &reader, &["BEGIN", "SELECT * FROM t"]).unwrap();
    let write = "INSERT INTO t VALUES(zeroblob(10000))";
    let refused = (0..200).find_map(|_| bench.run(&[write]).err()).unwrap();
    assert_eq!(refused.code, "OVERLOADED");
    let size = || std::fs::metadata(bench.dir.path().join("database.sqlite-wal")).unwrap().len();
    let before = size();
    for _ in 0..50 {
        assert_eq!(code(bench.run(&[write])), "OVERLOADED");
    }
    assert_eq!(size(), before);
    stream(&bench, &reader, &["COMMIT"]).unwrap();
    bench.run(&[write]).unwrap();
    assert!(size() < before, "the checkpoint is made up for");
    bench.assert_replicates();
}

/// A room without an end.
#[derive(Debug)]
struct Vast;

impl ResultRoom for Vast {
    fn take(&self, _: usize) -> Result<(), String> {
        Ok(())
    }

    fn give_back(&self, _: usize) {}
}

#[test]
fn a_statement_that_doubles_while_it_is_prepared_ends_soon_with_a_clear_error() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)", "INSERT INTO t VALUES(1)"]).unwrap();
    let mut with = "WITH x0(c) AS (SELECT a FROM t)".to_string();
    for level in 1..=30 {
        with += &format!(", x{level}(c) AS (SELECT c + c FROM x{})", level - 1);
    }
    let query = format!("{with} SELECT length(c) FROM x30");
    let write = format!("INSERT INTO t {query}");
    let session = bench.database.session();
    let begun = Instant::now();
    let attempt = |run: &dyn Fn() -> Result<(), SqlError>| bounded(Arc::new(Vast), run).unwrap_err().code;
    for sql in [&query, &write] {
        assert_eq!(attempt(&|| bench.run(&[sql]).map(drop)), "STATEMENT_TOO_LARGE");
        assert_eq!(attempt(&|| of(session.execute(&statement(sql))).map(drop)), "STATEMENT_TOO_LARGE");
        assert_eq!(attempt(&|| session.describe(sql).map(drop)), "STATEMENT_TOO_LARGE");
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    bench.run(&["INSERT INTO t VALUES(2)"]).unwrap();
    assert_eq!(integer(&bench.run(&["SELECT count(*) FROM t"]).unwrap()[0]), 2);
    bench.assert_replicates();
}

#[test]
fn a_list_of_large_values_ends_at_its_deadline_and_keeps_no_checkpoint_away() {
    let options = Options { wal_bytes_checkpoint: 64 << 10, wal_bytes_max: 256 << 10, ..quick() };
    let bench = Bench::leader_with(Options { statement_max: Duration::from_millis(300), ..options });
    bench.run(&["CREATE TABLE t(a)", "INSERT INTO t VALUES(1)"]).unwrap();
    let column = vec!["length(hex(randomblob(7000000)))"; 20].join("+");
    let hexes = format!("SELECT {} FROM t LIMIT 1", vec![column.as_str(); 100].join(","));
    let joined = format!("SELECT {} FROM t", vec!["length(zeroblob(2000000)||a||a||a||a||a)"; 1900].join(","));
    for sql in [hexes, joined] {
        let begun = Instant::now();
        let at = begun + Duration::from_millis(300);
        let answer = of(bench.database.transaction(&common::transaction(&[&sql]), at));
        assert_eq!(code(answer), "TRANSACTION_TIMEOUT");
        assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
    }
    for _ in 0..100 {
        bench.run(&["INSERT INTO t VALUES(zeroblob(10000))"]).unwrap();
    }
}
