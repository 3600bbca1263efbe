//! One test for each trap of shipping row operations: what a leader did must be what a follower holds.

mod common;

use common::{Bench, integer, of, statement};
use highwater_sql::Value;

fn text(value: &str) -> Value {
    Value::Text(value.to_string())
}

#[test]
fn rows_whose_primary_key_holds_null_are_shipped() {
    let bench = Bench::leader();
    bench
        .run(&["CREATE TABLE t(a TEXT PRIMARY KEY, b)", "INSERT INTO t VALUES(NULL, 1), (NULL, 2), ('x', 3)"])
        .unwrap();
    bench.run(&["UPDATE t SET b = b + 10 WHERE a IS NULL", "DELETE FROM t WHERE b = 12"]).unwrap();
    assert_eq!(integer(&bench.run(&["SELECT count(*) FROM t WHERE a IS NULL"]).unwrap()[0]), 1);
    bench.assert_replicates();
}

#[test]
fn autoincrement_is_shipped_even_if_the_rows_are_gone_or_were_ignored() {
    let bench = Bench::leader();
    bench
        .run(&[
            "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, u UNIQUE)",
            "CREATE TABLE w(id INTEGER PRIMARY KEY AUTOINCREMENT)",
        ])
        .unwrap();
    bench.run(&["INSERT INTO t(u) VALUES(1), (2)", "DELETE FROM t"]).unwrap();
    bench.run(&["INSERT OR IGNORE INTO t(u) VALUES(5), (5), (6)", "INSERT INTO w DEFAULT VALUES"]).unwrap();
    bench.run(&["UPDATE sqlite_sequence SET seq = 100 WHERE name = 'w'", "INSERT INTO w DEFAULT VALUES"]).unwrap();
    bench.run(&["DELETE FROM sqlite_sequence WHERE name = 't'", "INSERT INTO t(u) VALUES(9)"]).unwrap();
    assert_eq!(bench.rows("SELECT max(id) FROM w"), [[Value::Integer(101)]]);
    bench.assert_replicates();
}

#[test]
fn autoincrement_that_a_failed_statement_left_behind_its_rows_stays_there() {
    let bench = Bench::leader();
    bench
        .run(&[
            "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, u UNIQUE)",
            "INSERT INTO t VALUES(1, 1)",
            "DELETE FROM sqlite_sequence",
        ])
        .unwrap();
    let session = bench.database.session();
    of(session.execute(&statement("INSERT OR FAIL INTO t(u) VALUES(2), (1)"))).unwrap_err();
    bench.publish();
    assert_eq!(
        bench.rows("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM sqlite_sequence)"),
        [[Value::Integer(2), Value::Integer(0)]]
    );
    bench.assert_replicates();
}

#[test]
fn generated_columns_are_left_out_wherever_they_stand() {
    let bench = Bench::leader();
    bench
        .run(&[
            "CREATE TABLE t(v AS (a || '!') VIRTUAL, a TEXT, s AS (a || '?') STORED, id INTEGER PRIMARY KEY, w AS (b + 1), b INT)",
            "CREATE INDEX t_v ON t(v)",
            "INSERT INTO t(a, b) VALUES('x', 1), ('y', 2)",
            "UPDATE t SET b = 5 WHERE a = 'x'",
            "UPDATE t SET a = 'z', id = 40 WHERE a = 'y'",
        ])
        .unwrap();
    bench.run(&["DELETE FROM t WHERE a = 'x'"]).unwrap();
    assert_eq!(
        bench.rows("SELECT v, s, w, id FROM t"),
        [[text("z!"), text("z?"), Value::Integer(3), Value::Integer(40)]]
    );
    bench.assert_replicates();
    bench
        .run(&[
            "CREATE TABLE k(v AS (a + b), a, b, c, PRIMARY KEY(c, a)) WITHOUT ROWID",
            "INSERT INTO k(a, b, c) VALUES(1, 2, 3), (2, 3, 4)",
            "UPDATE k SET b = 9 WHERE a = 1",
            "UPDATE k SET c = 7 WHERE a = 2",
        ])
        .unwrap();
    bench.assert_replicates();
}

#[test]
fn triggers_and_cascades_take_effect_once() {
    let bench = Bench::leader();
    bench
        .run(&[
            "CREATE TABLE p(id INTEGER PRIMARY KEY)",
            "CREATE TABLE c(id INTEGER PRIMARY KEY, p REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE)",
            "CREATE TABLE n(id INTEGER PRIMARY KEY, p REFERENCES p ON DELETE SET NULL)",
            "CREATE TABLE audit(what)",
            "CREATE TRIGGER c_gone AFTER DELETE ON c BEGIN INSERT INTO audit VALUES('gone ' || old.id); END",
            "CREATE TRIGGER p_new AFTER INSERT ON p BEGIN INSERT INTO audit VALUES('new ' || new.id); END",
            "CREATE VIEW v AS SELECT id FROM p",
            "CREATE TRIGGER v_in INSTEAD OF INSERT ON v BEGIN INSERT INTO p VALUES(new.id); INSERT INTO c(p) VALUES(new.id); END",
        ])
        .unwrap();
    bench
        .run(&["INSERT INTO p VALUES(1), (2)", "INSERT INTO c(p) VALUES(1), (1), (2)", "INSERT INTO n(p) VALUES(1)"])
        .unwrap();
    bench.run(&["INSERT INTO v VALUES(3)", "UPDATE p SET id = 20 WHERE id = 2", "DELETE FROM p WHERE id = 1"]).unwrap();
    assert_eq!(bench.rows("SELECT count(*) FROM audit"), [[Value::Integer(5)]]);
    bench.assert_replicates();
}

#[test]
fn conflicts_are_resolved_once() {
    let bench = Bench::leader();
    bench
        .run(&[
            "CREATE TABLE t(id INTEGER PRIMARY KEY, u UNIQUE, n INT DEFAULT 0)",
            "CREATE TABLE r(a PRIMARY KEY ON CONFLICT REPLACE, b UNIQUE ON CONFLICT IGNORE)",
        ])
        .unwrap();
    bench
        .run(&[
            "INSERT INTO t(id, u) VALUES(1, 'a'), (2, 'b'), (3, 'c')",
            "REPLACE INTO t(id, u) VALUES(1, 'b')",
            "INSERT INTO t(u) VALUES('c') ON CONFLICT(u) DO UPDATE SET n = n + 1",
            "INSERT INTO t(u) VALUES('c') ON CONFLICT DO NOTHING",
            "UPDATE OR REPLACE t SET u = 'b' WHERE u = 'c'",
            "INSERT INTO r VALUES(1, 1)",
            "INSERT INTO r VALUES(1, 2)",
            "INSERT INTO r VALUES(2, 2)",
        ])
        .unwrap();
    bench.assert_replicates();
}

#[test]
fn a_failed_statement_leaves_nothing_and_the_transaction_goes_on() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a UNIQUE, b CHECK (b > 0))", "INSERT INTO t VALUES(5, 1)"]).unwrap();
    let session = bench.database.session();
    of(session.execute(&statement("BEGIN"))).unwrap();
    of(session.execute(&statement("INSERT INTO t VALUES(1, 1)"))).unwrap();
    let failed = of(session.execute(&statement("INSERT INTO t VALUES(2, 1), (3, 1), (5, 1)"))).unwrap_err();
    assert_eq!(failed.code, "SQLITE_CONSTRAINT");
    of(session.execute(&statement("INSERT OR ABORT INTO t SELECT 6, 2 UNION ALL SELECT 7, 0"))).unwrap_err();
    of(session.execute(&statement("INSERT INTO t VALUES(8, 1) RETURNING abs(-9223372036854775808)"))).unwrap_err();
    of(session.execute(&statement("INSERT INTO t VALUES(9, 1)"))).unwrap();
    of(session.execute(&statement("COMMIT"))).unwrap();
    bench.publish();
    assert_eq!(
        bench.rows("SELECT a FROM t ORDER BY a"),
        [[Value::Integer(1)], [Value::Integer(5)], [Value::Integer(9)]]
    );
    bench.assert_replicates();
}

#[test]
fn or_fail_keeps_what_it_did_before_it_failed() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a UNIQUE)", "INSERT INTO t VALUES(3)"]).unwrap();
    let session = bench.database.session();
    of(session.execute(&statement("BEGIN"))).unwrap();
    of(session.execute(&statement("INSERT OR FAIL INTO t VALUES(1), (2), (3), (4)"))).unwrap_err();
    of(session.execute(&statement("COMMIT"))).unwrap();
    bench.publish();
    assert_eq!(
        bench.rows("SELECT a FROM t ORDER BY a"),
        [[Value::Integer(1)], [Value::Integer(2)], [Value::Integer(3)]]
    );
    // Outside a transaction it does so too.
    of(session.execute(&statement("INSERT OR FAIL INTO t VALUES(8), (3)"))).unwrap_err();
    bench.publish();
    assert_eq!(bench.rows("SELECT count(*) FROM t"), [[Value::Integer(4)]]);
    bench.assert_replicates();
}

#[test]
fn raise_in_triggers_ships_what_stays() {
    for (kind, table) in [("ABORT", "a"), ("FAIL", "f"), ("ROLLBACK", "r"), ("IGNORE", "i")] {
        let bench = Bench::leader();
        let trigger = format!(
            "CREATE TRIGGER {table}_no BEFORE INSERT ON {table} BEGIN INSERT INTO log VALUES(new.x); SELECT RAISE({kind}{}) WHERE new.x = 3; END",
            if kind == "IGNORE" { "" } else { ", 'no'" }
        );
        bench.run(&["CREATE TABLE log(x)", &format!("CREATE TABLE {table}(x)"), &trigger]).unwrap();
        let session = bench.database.session();
        for values in ["(1), (2), (3), (4)", "(3)", "(5)"] {
            of(session.execute(&statement("BEGIN"))).unwrap();
            of(session.execute(&statement("INSERT INTO log VALUES('before')"))).unwrap();
            let _ = of(session.execute(&statement(&format!("INSERT INTO {table} VALUES{values}"))));
            let _ = of(session.execute(&statement("INSERT INTO log VALUES('after')")));
            let _ = of(session.execute(&statement("COMMIT")));
            bench.publish();
            assert!(session.is_autocommit(), "{kind}");
        }
        bench.assert_replicates();
    }
}

#[test]
fn or_rollback_discards_the_whole_transaction_and_nothing_of_it_is_shipped() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a UNIQUE)", "INSERT INTO t VALUES(1)"]).unwrap();
    let end = bench.log.end();
    let session = bench.database.session();
    of(session.execute(&statement("BEGIN"))).unwrap();
    of(session.execute(&statement("INSERT INTO t VALUES(2)"))).unwrap();
    of(session.execute(&statement("INSERT OR ROLLBACK INTO t VALUES(1)"))).unwrap_err();
    assert!(session.is_autocommit(), "SQLite has ended the transaction");
    assert_eq!(of(session.execute(&statement("COMMIT"))).unwrap_err().code, "SQLITE_ERROR");
    assert_eq!(bench.log.end(), end);
    bench.run(&["INSERT INTO t VALUES(3)"]).unwrap();
    bench.assert_replicates();
}

#[test]
fn savepoints_take_back_what_came_after_them() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    let session = bench.database.session();
    for sql in [
        "BEGIN",
        "INSERT INTO t VALUES(1)",
        "SAVEPOINT x",
        "INSERT INTO t VALUES(2)",
        "SAVEPOINT X",
        "CREATE TABLE gone(a)",
        "INSERT INTO gone VALUES(1)",
        "ROLLBACK TO x",
        "INSERT INTO t VALUES(3)",
        "RELEASE x",
        "SAVEPOINT y",
        "INSERT INTO t VALUES(4)",
        "ROLLBACK TO y",
        "COMMIT",
    ] {
        of(session.execute(&statement(sql))).unwrap_or_else(|failed| panic!("{sql}: {failed}"));
    }
    bench.publish();
    assert_eq!(
        bench.rows("SELECT a FROM t ORDER BY a"),
        [[Value::Integer(1)], [Value::Integer(2)], [Value::Integer(3)]]
    );
    bench.assert_replicates();
}

#[test]
fn a_savepoint_outside_a_transaction_is_one() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    let session = bench.database.session();
    for sql in [
        "SAVEPOINT s",
        "INSERT INTO t VALUES(1)",
        "SAVEPOINT s",
        "INSERT INTO t VALUES(2)",
        "ROLLBACK TO s",
        "RELEASE s",
    ] {
        of(session.execute(&statement(sql))).unwrap_or_else(|failed| panic!("{sql}: {failed}"));
    }
    assert!(!session.is_autocommit());
    assert_eq!(bench.log.end(), 1);
    of(session.execute(&statement("RELEASE s"))).unwrap();
    assert!(session.is_autocommit());
    assert_eq!(bench.log.end(), 2);
    bench.publish();
    assert_eq!(bench.rows("SELECT a FROM t"), [[Value::Integer(1)]]);
    assert_eq!(of(session.execute(&statement("RELEASE s"))).unwrap_err().code, "SQLITE_ERROR");
    bench.assert_replicates();
}

#[test]
fn a_deferred_foreign_key_fails_at_commit_and_leaves_the_transaction_open() {
    let bench = Bench::leader();
    bench
        .run(&[
            "CREATE TABLE p(id INTEGER PRIMARY KEY)",
            "CREATE TABLE c(p REFERENCES p DEFERRABLE INITIALLY DEFERRED)",
        ])
        .unwrap();
    let end = bench.log.end();
    let session = bench.database.session();
    of(session.execute(&statement("BEGIN"))).unwrap();
    of(session.execute(&statement("INSERT INTO c VALUES(1)"))).unwrap();
    assert_eq!(of(session.execute(&statement("COMMIT"))).unwrap_err().code, "SQLITE_CONSTRAINT");
    assert!(!session.is_autocommit());
    assert_eq!(bench.log.end(), end);
    of(session.execute(&statement("INSERT INTO p VALUES(1)"))).unwrap();
    of(session.execute(&statement("COMMIT"))).unwrap();
    bench.publish();
    let refused = bench.run(&["INSERT INTO c VALUES(9)"]).unwrap_err();
    assert_eq!(refused.code, "SQLITE_CONSTRAINT");
    bench.assert_replicates();
}

#[test]
fn values_of_every_kind_arrive_as_they_are() {
    let bench = Bench::leader();
    bench
        .run(&[
            "CREATE TABLE t(i INTEGER, r REAL, t TEXT, b BLOB, n NUMERIC, x, c TEXT COLLATE NOCASE)",
            "CREATE TABLE s(i INT, r REAL, a ANY) STRICT",
        ])
        .unwrap();
    bench
        .run(&[
            "INSERT INTO t VALUES(9223372036854775807, 1, 'a' || char(0) || 'b', x'00ff', '12', 1.0, 'Ab')",
            "INSERT INTO t VALUES('abc', -0.0, 5, 5, 1e300, x'', 'aB')",
            "INSERT INTO t VALUES(1.5, 9e999, '', NULL, '1e2', cast(x'ff41' as text), NULL)",
            "INSERT INTO s VALUES(1, 2, '3'), (4, 5.5, 6)",
            "UPDATE t SET r = 2, c = 'AB' WHERE c = 'ab' AND i = 'abc'",
            "UPDATE t SET x = x",
        ])
        .unwrap();
    bench.run(&["DELETE FROM t WHERE i = 1.5", "DELETE FROM t WHERE r = 1", "DELETE FROM s WHERE r = 2"]).unwrap();
    bench.assert_replicates();
}

#[test]
fn columns_named_like_the_rowid_do_not_hide_the_rows() {
    let bench = Bench::leader();
    bench
        .run(&[
            "CREATE TABLE t(rowid TEXT, oid)",
            "INSERT INTO t VALUES('a', 1), ('b', 2)",
            "DELETE FROM t WHERE oid = 1",
        ])
        .unwrap();
    bench
        .run(&[
            "CREATE TABLE u(rowid, _rowid_, oid, id INTEGER PRIMARY KEY)",
            "INSERT INTO u VALUES(1, 2, 3, 4)",
            "UPDATE u SET id = 5",
        ])
        .unwrap();
    bench.assert_replicates();
    let refused = bench.run(&["CREATE TABLE w(rowid, _rowid_, oid)"]).unwrap_err();
    assert!(refused.message.contains("give it a primary key"), "{refused}");
    bench.run(&["INSERT INTO t VALUES('c', 3)"]).unwrap();
    bench.assert_replicates();
}

#[test]
fn temporary_objects_stay_in_their_stream_and_their_effects_on_others_are_shipped() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    let end = bench.log.end();
    let session = bench.database.session();
    of(session.execute(&statement("CREATE TEMP TABLE x(a)"))).unwrap();
    of(session.execute(&statement("INSERT INTO x VALUES(1), (2)"))).unwrap();
    assert_eq!(bench.log.end(), end);
    assert_eq!(integer(&of(session.execute(&statement("SELECT count(*) FROM x"))).unwrap()), 2);
    of(session.execute(&statement("CREATE TEMP TRIGGER tx AFTER INSERT ON x BEGIN INSERT INTO t VALUES(new.a); END")))
        .unwrap();
    of(session.execute(&statement("INSERT INTO x VALUES(3)"))).unwrap();
    of(session.execute(&statement("INSERT INTO t SELECT a + 10 FROM x"))).unwrap();
    of(session.execute(&statement("CREATE TABLE copy AS SELECT * FROM x"))).unwrap();
    bench.publish();
    assert_eq!(bench.rows("SELECT count(*) FROM t"), [[Value::Integer(4)]]);
    assert_eq!(of(bench.database.session().execute(&statement("SELECT * FROM x"))).unwrap_err().code, "SQLITE_ERROR");
    bench.assert_replicates();
}

#[test]
fn a_schema_that_changes_by_itself_is_refused_and_not_lost() {
    let bench = Bench::leader();
    // The third version of full-text search makes a table of its own when it is first asked to merge.
    bench.run(&["CREATE VIRTUAL TABLE f USING fts3(a)", "INSERT INTO f VALUES('x')"]).unwrap();
    let end = bench.log.end();
    let merged = bench.run(&["INSERT INTO f(f) VALUES('merge=100,2')"]);
    if let Err(refused) = &merged {
        assert!(refused.message.contains("cannot be replicated"), "{refused}");
        assert_eq!(bench.log.end(), end);
    }
    bench.assert_replicates();
}

#[test]
fn a_query_that_writes_runs_as_a_write() {
    let bench = Bench::leader();
    bench.run(&["CREATE VIRTUAL TABLE f USING fts4(a)"]).unwrap();
    bench.run(&["INSERT INTO f VALUES('one')"]).unwrap();
    bench.run(&["INSERT INTO f VALUES('two')"]).unwrap();
    let end = bench.log.end();
    let optimize = "SELECT optimize(f) FROM f LIMIT 1";
    let session = bench.database.session();
    of(session.execute(&statement(optimize))).unwrap();
    bench.publish();
    assert!(bench.log.end() > end);
    bench.assert_replicates();
    bench.run(&["INSERT INTO f VALUES('three')", optimize]).unwrap();
    bench.run(&["INSERT INTO f VALUES('four')"]).unwrap();
    let end = bench.log.end();
    for sql in ["BEGIN IMMEDIATE", optimize, "COMMIT"] {
        of(session.execute(&statement(sql))).unwrap();
    }
    bench.publish();
    assert!(bench.log.end() > end);
    bench.assert_replicates();
}

#[test]
fn a_row_that_differs_stops_the_replica() {
    use highwater_partition::StateMachine;
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(id INTEGER PRIMARY KEY, a)", "INSERT INTO t VALUES(1, 'x'), (2, 'y')"]).unwrap();
    let follower = Bench::follower();
    bench.ship_to(&follower.database);
    let other = rusqlite::Connection::open(follower.dir.path().join("database.sqlite")).unwrap();
    other.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    other.execute("UPDATE t SET a = 'tampered' WHERE id = 1", []).unwrap();
    bench.run(&["UPDATE t SET a = 'z' WHERE id = 1"]).unwrap();
    let (from, to) = (follower.database.applied(), bench.log.end());
    let stopped = follower.database.apply(from, to, &bench.log.read(from, to), true).unwrap_err();
    assert!(matches!(stopped, highwater_sql::MachineError::Diverged { .. }), "{stopped}");
    assert_eq!(bench.database.failed(), None);
    assert_eq!(
        follower.database.failed(),
        Some(stopped.to_string()).as_deref(),
        "seen by who does not hold the writer"
    );
    assert_eq!(
        follower.database.apply(from, to, &bench.log.read(from, to), true).unwrap_err().to_string(),
        stopped.to_string()
    );
}
