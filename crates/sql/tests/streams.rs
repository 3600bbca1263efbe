//! Streams: arguments, scripts, descriptions, PRAGMAs, refusals, time.

mod common;

use std::time::Duration;

use common::{Bench, integer, of, quick, soon, statement, transaction};
use highwater_sql::{Key, Options, Statement, Transaction, Value};

fn code_of(bench: &Bench, sql: &str) -> String {
    of(bench.database.session().execute(&statement(sql))).unwrap_err().code
}

#[test]
fn arguments_by_position_and_by_name() {
    let bench = Bench::leader();
    let session = bench.database.session();
    let run = |sql: &str, args: Vec<Value>, named: Vec<(&str, Value)>| {
        let named = named.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        of(session.execute(&Statement { sql: sql.to_string(), args, named, want_rows: true }))
            .map(|result| result.rows[0].clone())
    };
    let (one, two) = (Value::Integer(1), Value::Integer(2));
    assert_eq!(run("SELECT ?, ?", vec![one.clone(), two.clone()], vec![]).unwrap(), [one.clone(), two.clone()]);
    assert_eq!(run("SELECT ?2, ?1", vec![one.clone(), two.clone()], vec![]).unwrap(), [two.clone(), one.clone()]);
    assert_eq!(
        run("SELECT :a, $b, @a", vec![], vec![("a", one.clone()), ("$b", two.clone()), ("@a", two.clone())]).unwrap()
            [..2],
        [one.clone(), two.clone()]
    );
    assert_eq!(run("SELECT :a, :b", vec![one.clone()], vec![("b", two.clone())]).unwrap(), [one.clone(), two.clone()]);
    assert_eq!(run("SELECT ?, ?", vec![one.clone()], vec![]).unwrap_err().code, "ARGS_INVALID");
    assert_eq!(run("SELECT ?", vec![one.clone(), two.clone()], vec![]).unwrap_err().code, "ARGS_INVALID");
    assert_eq!(run("SELECT 1", vec![], vec![("x", two)]).unwrap_err().code, "ARGS_INVALID");
    for value in [
        Value::Null,
        Value::Integer(i64::MIN),
        Value::Real(0.1),
        Value::Text("ü\0x".into()),
        Value::Blob(vec![0, 255]),
        Value::Blob(vec![]),
        Value::Text(String::new()),
    ] {
        assert_eq!(run("SELECT ?", vec![value.clone()], vec![]).unwrap(), [value]);
    }
}

#[test]
fn errors_bear_codes_that_clients_know() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a NOT NULL)"]).unwrap();
    assert_eq!(code_of(&bench, "SELEC 1"), "SQL_PARSE_ERROR");
    assert_eq!(code_of(&bench, "SELECT 'open"), "SQL_PARSE_ERROR");
    assert_eq!(code_of(&bench, " -- nothing"), "SQL_NO_STATEMENT");
    assert_eq!(code_of(&bench, "SELECT 1; SELECT 2"), "SQL_MANY_STATEMENTS");
    assert_eq!(code_of(&bench, "SELECT * FROM missing"), "SQLITE_ERROR");
    assert_eq!(code_of(&bench, "INSERT INTO t VALUES(NULL)"), "SQLITE_CONSTRAINT");
    assert_eq!(code_of(&bench, "COMMIT"), "SQLITE_ERROR");
    assert_eq!(
        of(bench.database.transaction(&transaction(&["BEGIN", "SELECT 1"]), soon())).unwrap_err().code,
        "SQLITE_ERROR"
    );
    let failed = of(bench.database.session().execute(&statement("SELECT 1 FORM t"))).unwrap_err();
    assert_eq!(failed.offset, Some(14), "{failed}");
    of(bench.database.session().execute(&statement("SELECT 1; -- and a comment\n ;"))).unwrap();
}

#[test]
fn what_would_harm_others_is_refused_by_name() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    let end = bench.log.end();
    for sql in [
        "ATTACH 'x.sqlite' AS x",
        "DETACH main",
        "SELECT load_extension('x')",
        "SELECT * FROM sqlite_highwater_state",
        "UPDATE sqlite_highwater_state SET applied = 0",
        "DELETE FROM sqlite_highwater_keys",
        "CREATE TRIGGER tr AFTER INSERT ON sqlite_highwater_keys BEGIN SELECT 1; END",
        "DROP TABLE sqlite_highwater_state",
        "ALTER TABLE sqlite_highwater_state RENAME TO mine",
        "PRAGMA writable_schema=on",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA ignore_check_constraints=on",
        "PRAGMA schema_version=7",
        "UPDATE sqlite_schema SET sql = ''",
        "SELECT * FROM sqlite_dbpage",
        "CREATE VIRTUAL TABLE d USING dbstat",
        "VACUUM INTO 'copy.sqlite'",
        "CREATE TABLE sqlite_mine(a)",
    ] {
        let refused = of(bench.database.session().execute(&statement(sql)));
        assert!(refused.is_err(), "{sql}");
        assert!(of(bench.database.transaction(&transaction(&[sql]), soon())).is_err(), "{sql}");
    }
    bench
        .run(&["CREATE TRIGGER sneaky AFTER INSERT ON t BEGIN UPDATE sqlite_highwater_state SET applied = 0; END"])
        .unwrap();
    assert!(bench.run(&["INSERT INTO t VALUES(1)"]).is_err(), "not from a trigger either");
    bench.run(&["DROP TRIGGER sneaky"]).unwrap();
    assert_eq!(bench.log.end(), end + 2);
    bench.assert_replicates();
}

#[test]
fn pragmas_are_answered_as_sqlite_would_and_hold_where_they_may() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE p(id INTEGER PRIMARY KEY)", "CREATE TABLE c(p REFERENCES p)"]).unwrap();
    let session = bench.database.session();
    let rows = |sql: &str| of(session.execute(&statement(sql))).unwrap().rows;
    assert_eq!(rows("PRAGMA journal_mode=DELETE"), [[Value::Text("wal".into())]]);
    assert_eq!(rows("PRAGMA busy_timeout=7"), [[Value::Integer(7)]]);
    assert_eq!(rows("PRAGMA synchronous=OFF"), Vec::<Vec<Value>>::new());
    assert_eq!(rows("PRAGMA synchronous"), [[Value::Integer(1)]], "nothing was changed");
    assert_eq!(rows("PRAGMA foreign_keys"), [[Value::Integer(1)]]);
    rows("PRAGMA foreign_keys=off");
    assert_eq!(rows("PRAGMA foreign_keys"), [[Value::Integer(0)]]);
    rows("INSERT INTO c VALUES(9)");
    bench.publish();
    assert_eq!(code_of(&bench, "INSERT INTO c VALUES(9)"), "SQLITE_CONSTRAINT", "other streams have their own");
    // Within a transaction it is ignored, as in SQLite.
    rows("BEGIN");
    rows("PRAGMA foreign_keys=on");
    rows("COMMIT");
    assert_eq!(rows("PRAGMA foreign_keys"), [[Value::Integer(0)]]);
    assert_eq!(rows("PRAGMA table_info(p)").len(), 1);
    assert_eq!(rows("SELECT name FROM pragma_table_info('p')").len(), 1);
    // A one-shot request sets nothing on the connections that all share, not even when it is only looked at.
    for sql in ["PRAGMA foreign_keys=off", "PRAGMA case_sensitive_like=on", "PRAGMA recursive_triggers=on"] {
        // Whether it can be prepared at all does not matter.
        let _ = bench.database.read_only(&[statement(sql)], soon());
        bench.run(&[sql]).unwrap();
    }
    assert_eq!(bench.run(&["INSERT INTO c VALUES(9)"]).unwrap_err().code, "SQLITE_CONSTRAINT");
    assert_eq!(bench.rows("SELECT 'A' LIKE 'a'"), [[Value::Integer(1)]]);
    bench.assert_replicates();
}

#[test]
fn settings_of_a_stream_survive_a_rewind() {
    use highwater_partition::StateMachine;
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE p(id INTEGER PRIMARY KEY)", "CREATE TABLE c(p REFERENCES p)"]).unwrap();
    let session = bench.database.session();
    of(session.execute(&statement("PRAGMA foreign_keys=off"))).unwrap();
    of(bench.database.transaction(&transaction(&["INSERT INTO p VALUES(1)"]), soon())).unwrap();
    bench.database.rewind(2).unwrap();
    bench.log.cut(2);
    bench.database.lead(common::reign(1, 2), 2).unwrap();
    bench.database.publish(2);
    of(session.execute(&statement("INSERT INTO c VALUES(7)"))).unwrap();
}

#[test]
fn read_only_transactions_write_nothing() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    for begin in ["BEGIN READONLY", "BEGIN TRANSACTION READONLY"] {
        let session = bench.database.session();
        of(session.execute(&statement(begin))).unwrap();
        assert_eq!(of(session.execute(&statement("INSERT INTO t VALUES(1)"))).unwrap_err().code, "SQLITE_READONLY");
        of(session.execute(&statement("SELECT * FROM t"))).unwrap();
        assert_eq!(of(session.execute(&statement("DROP TABLE t"))).unwrap_err().code, "SQLITE_READONLY");
        of(session.execute(&statement("COMMIT"))).unwrap();
    }
    assert_eq!(bench.log.end(), 1);
}

#[test]
fn a_script_runs_until_it_fails_and_a_description_runs_nothing() {
    let bench = Bench::leader();
    let session = bench.database.session();
    of(session.sequence("CREATE TABLE t(a TEXT, b); INSERT INTO t VALUES('x;y', 1); -- done\n")).unwrap();
    bench.publish();
    let failed =
        of(session
            .sequence("INSERT INTO t VALUES('z', 2); INSERT INTO missing VALUES(1); INSERT INTO t VALUES('w', 3)"))
        .unwrap_err();
    assert_eq!(failed.code, "SQLITE_ERROR");
    bench.publish();
    assert_eq!(integer(&of(session.execute(&statement("SELECT count(*) FROM t"))).unwrap()), 2);
    let described = session.describe("SELECT a, b + ?, :x AS y FROM t").unwrap();
    assert_eq!(described.params, [None, Some(":x".to_string())]);
    assert_eq!(described.columns[0].decl_type.as_deref(), Some("TEXT"));
    assert!(described.is_readonly && !described.is_explain);
    let described = session.describe("EXPLAIN DELETE FROM t").unwrap();
    assert!(described.is_explain);
    assert!(!session.describe("DELETE FROM t").unwrap().is_readonly);
    of(session.execute(&statement("EXPLAIN DELETE FROM t"))).unwrap();
    assert_eq!(integer(&of(session.execute(&statement("SELECT count(*) FROM t"))).unwrap()), 2);
}

#[test]
fn an_interactive_transaction_that_holds_the_writer_too_long_is_taken_away() {
    let bench = Bench::leader_with(Options { interactive_max: Duration::ZERO, ..quick() });
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    let slow = bench.database.session();
    of(slow.execute(&statement("BEGIN IMMEDIATE"))).unwrap();
    // Somebody who waits for the writer gets it.
    bench.run(&["INSERT INTO t VALUES(1)"]).unwrap();
    let lost = of(slow.execute(&statement("INSERT INTO t VALUES(2)"))).unwrap_err();
    assert_eq!(lost.code, "TRANSACTION_TIMEOUT");
    assert_eq!(
        of(slow.execute(&statement("INSERT INTO t VALUES(2)"))).unwrap_err().code,
        "TRANSACTION_TIMEOUT",
        "nothing of it runs alone"
    );
    of(slow.execute(&statement("ROLLBACK"))).unwrap();
    of(slow.execute(&statement("INSERT INTO t VALUES(3)"))).unwrap();
    bench.publish();
    assert_eq!(bench.rows("SELECT a FROM t ORDER BY a"), [[Value::Integer(1)], [Value::Integer(3)]]);
    bench.assert_replicates();
}

#[test]
fn a_statement_that_runs_too_long_is_interrupted() {
    let bench = Bench::leader_with(Options { statement_max: Duration::from_millis(30), ..quick() });
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    assert_eq!(code_of(&bench, endless), "TRANSACTION_TIMEOUT");
    let soon = std::time::Instant::now() + Duration::from_millis(30);
    let failed = of(bench.database.transaction(&transaction(&["INSERT INTO t VALUES(1)", endless]), soon)).unwrap_err();
    assert_eq!(failed.code, "TRANSACTION_TIMEOUT");
    assert_eq!(bench.log.end(), 1);
    bench.run(&["INSERT INTO t VALUES(2)"]).unwrap();
    bench.assert_replicates();
}

#[test]
fn two_interactive_transactions_wait_for_each_other() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    let first = bench.database.session();
    of(first.execute(&statement("BEGIN IMMEDIATE"))).unwrap();
    of(first.execute(&statement("INSERT INTO t VALUES(1)"))).unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            let second = bench.database.session();
            of(second.execute(&statement("BEGIN IMMEDIATE"))).unwrap();
            let seen = integer(&of(second.execute(&statement("SELECT count(*) FROM t"))).unwrap());
            of(second.execute(&statement("COMMIT"))).unwrap();
            seen
        });
        of(first.execute(&statement("INSERT INTO t VALUES(2)"))).unwrap();
        of(first.execute(&statement("COMMIT"))).unwrap();
        assert_eq!(second.join().unwrap(), 2);
    });
}

#[test]
fn what_is_too_large_is_refused_and_the_database_goes_on() {
    let options =
        Options { value_bytes_max: 10_000, transaction_bytes_max: 50_000, result_bytes_max: 20_000, ..quick() };
    let bench = Bench::leader_with(options);
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    assert_eq!(bench.run(&["INSERT INTO t VALUES(zeroblob(20000))"]).unwrap_err().code, "VALUE_TOO_LARGE");
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) INSERT INTO t SELECT zeroblob(1000) FROM n";
    assert_eq!(bench.run(&[many]).unwrap_err().code, "TRANSACTION_TOO_LARGE");
    let session = bench.database.session();
    assert_eq!(of(session.execute(&statement(many))).unwrap_err().code, "TRANSACTION_TOO_LARGE");
    assert!(session.is_autocommit());
    for _ in 0..3 {
        bench.run(&[&many.replace("100)", "20)").replace("< 100", "< 20")]).unwrap();
    }
    assert_eq!(bench.run(&["SELECT * FROM t"]).unwrap_err().code, "RESPONSE_TOO_LARGE");
    let end = bench.log.end();
    assert_eq!(bench.run(&["UPDATE t SET a = a || '' RETURNING *"]).unwrap_err().code, "RESPONSE_TOO_LARGE");
    assert_eq!(bench.log.end(), end, "what cannot be answered is not done");
    bench.run(&["INSERT INTO t VALUES(1)"]).unwrap();
    bench.assert_replicates();
}

#[test]
fn a_value_of_ten_megabytes_is_stored_and_one_beyond_the_limit_refused() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    let insert = |bytes: usize| Transaction {
        statements: vec![Statement {
            sql: "INSERT INTO t VALUES(?)".into(),
            args: vec![Value::Blob(vec![7; bytes])],
            ..Statement::default()
        }],
        key: None,
    };
    of(bench.database.transaction(&insert(10 << 20), soon())).unwrap();
    assert_eq!(of(bench.database.transaction(&insert(17 << 20), soon())).unwrap_err().code, "VALUE_TOO_LARGE");
    bench.run(&["UPDATE t SET a = a || x'07'"]).unwrap();
    assert_eq!(bench.rows("SELECT length(a) FROM t"), [[Value::Integer((10 << 20) + 1)]]);
    bench.assert_replicates();
}

#[test]
fn one_effect_for_each_key() {
    fn clock() -> i64 {
        1_700_000_000_000
    }
    fn two_days_later() -> i64 {
        clock() + 48 * 3600 * 1000
    }
    let bench = Bench::leader_with(Options { clock, ..quick() });
    bench.run(&["CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, a)"]).unwrap();
    let keyed = |key: &str, hash: u8, sql: &str| Transaction {
        key: Some(Key { key: key.to_string(), request_hash: [hash; 32] }),
        ..transaction(&[sql])
    };
    let insert = "INSERT INTO t(a) VALUES(random()) RETURNING id, a";
    let first = bench.database.transaction(&keyed("k", 1, insert), soon());
    let again = bench.database.transaction(&keyed("k", 1, insert), soon());
    assert_eq!(first.result.as_ref().unwrap(), again.result.as_ref().unwrap());
    assert_eq!(first.hold, again.hold, "held until the first one's position");
    assert_eq!(
        of(bench.database.transaction(&keyed("k", 2, insert), soon())).unwrap_err().code,
        "IDEMPOTENCY_MISMATCH"
    );
    // A failure has no effect, and keeps no key.
    of(bench.database.transaction(&keyed("f", 1, "INSERT INTO missing VALUES(1)"), soon())).unwrap_err();
    of(bench.database.transaction(&keyed("f", 2, insert), soon())).unwrap();
    assert_eq!(of(bench.database.transaction(&keyed("", 2, insert), soon())).unwrap_err().code, "ARGS_INVALID");
    bench.publish();
    assert_eq!(bench.rows("SELECT count(*) FROM t"), [[Value::Integer(2)]]);
    bench.assert_replicates();

    // The key is replicated: another leader knows it, until it is too old by log time.
    use highwater_partition::StateMachine;
    let next = Bench::follower_with(Options { clock, ..quick() });
    bench.ship_to(&next.database);
    next.database.lead(common::reign(2, 1), bench.log.end()).unwrap();
    let elsewhere = next.database.transaction(&keyed("k", 1, insert), soon());
    assert_eq!(elsewhere.result.unwrap(), first.result.clone().unwrap());
    let later = Bench::follower_with(Options { clock: two_days_later, ..quick() });
    bench.ship_to(&later.database);
    later.database.lead(common::reign(2, 1), bench.log.end()).unwrap();
    let log = &later.log;
    log.start_at(bench.log.end());
    let forgotten = later.database.transaction(&keyed("k", 2, insert), soon());
    assert_ne!(forgotten.result.unwrap(), first.result.unwrap());
}

#[test]
fn a_savepoint_before_a_statement_that_fails_is_begun_once() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE sp(a)"]).unwrap();
    let failing = [
        "SELECT json('x')",
        "RELEASE x",
        "BEGIN",
        "VACUUM",
        "SELECT * FROM missing",
        "SELECT ?",
        "INSERT INTO sp VALUES(json('x'))",
    ];
    for (number, fails) in failing.into_iter().enumerate() {
        let session = bench.database.session();
        let run = |sql: &str| of(session.execute(&statement(sql)));
        run("SAVEPOINT y").unwrap();
        run(fails).unwrap_err();
        run("INSERT INTO sp VALUES(1)").unwrap();
        run("RELEASE y").unwrap();
        assert!(session.is_autocommit(), "the release commits after {fails}");
        bench.publish();

        run("BEGIN").unwrap();
        run("SAVEPOINT y").unwrap();
        run(fails).unwrap_err();
        run("INSERT INTO sp VALUES(1)").unwrap();
        run("RELEASE y").unwrap();
        assert_eq!(run("ROLLBACK TO y").unwrap_err().message, "no such savepoint: y", "after {fails}");
        run("COMMIT").unwrap();
        bench.publish();
        assert_eq!(bench.rows("SELECT count(*) FROM sp"), [[Value::Integer(2 * number as i64 + 2)]]);
    }
    bench.assert_replicates();
}
