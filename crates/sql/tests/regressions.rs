//! What once went wrong.

mod common;

use common::{Bench, integer, of, soon, statement, transaction};
use highwater_partition::StateMachine;
use highwater_sql::Value;

#[test]
fn temporary_objects_of_a_request_hide_nothing_from_later_ones() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE orders(a)", "INSERT INTO orders VALUES(1), (2)"]).unwrap();
    for sql in
        ["CREATE TEMP TABLE orders(a)", "CREATE TABLE temp.orders(a)", "CREATE TEMP VIEW orders AS SELECT 7 AS a"]
    {
        let results = bench.run(&["UPDATE orders SET a = a", sql]).unwrap();
        assert_eq!(results[1].affected, 0, "{sql}");
    }
    let trigger = "CREATE TEMP TRIGGER tr BEFORE INSERT ON main.orders BEGIN SELECT raise(IGNORE); END";
    bench.run(&[trigger]).unwrap();
    assert_eq!(bench.run(&["INSERT INTO orders VALUES(3)"]).unwrap()[0].affected, 1);
    assert_eq!(bench.rows("SELECT count(*) FROM orders"), [[Value::Integer(3)]]);
    // Within the request they are of use.
    bench.run(&["CREATE TEMP TABLE x(a)", "INSERT INTO x VALUES(4)", "INSERT INTO orders SELECT a FROM x"]).unwrap();
    assert_eq!(bench.run(&["SELECT * FROM x"]).unwrap_err().code, "SQLITE_ERROR");
    assert_eq!(bench.rows("SELECT count(*) FROM orders"), [[Value::Integer(4)]]);
    bench.assert_replicates();
}

#[test]
fn transactions_that_leave_nothing_keep_nobody_from_writing() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a UNIQUE)", "INSERT INTO t VALUES(0)"]).unwrap();
    let streamed = |scripts: &[&str]| {
        let session = bench.database.session();
        let code = |sql: &&str| of(session.execute(&statement(sql))).err().map(|failed| failed.code);
        scripts.iter().map(code).collect::<Vec<_>>()
    };
    let mut value = 0;
    let mut check = |what: &str| {
        value += 1;
        let insert = format!("INSERT INTO t VALUES({value})");
        assert_eq!(streamed(&["BEGIN", "SELECT 1", &insert, "COMMIT"]), [None, None, None, None], "{what}");
        bench.publish();
        assert_eq!(bench.rows("SELECT count(*) FROM t"), [[Value::Integer(value + 1)]], "{what}");
    };
    check("at first");
    let end = bench.log.end();
    let undone = ["SAVEPOINT a", "INSERT INTO t VALUES(99)", "ROLLBACK TO a"];
    of(bench.database.transaction(&transaction(&undone), soon())).unwrap();
    assert_eq!(bench.log.end(), end, "nothing is left of it");
    check("one request");
    streamed(&["BEGIN IMMEDIATE", "SAVEPOINT a", "INSERT INTO t VALUES(99)", "ROLLBACK TO a", "COMMIT"]);
    check("COMMIT");
    streamed(&["SAVEPOINT a", "INSERT INTO t VALUES(99)", "ROLLBACK TO a", "RELEASE a"]);
    check("RELEASE");
    let failing = streamed(&["BEGIN", "INSERT INTO t VALUES(98), (0)", "COMMIT"]);
    assert_eq!(failing, [None, Some("SQLITE_CONSTRAINT".to_string()), None]);
    check("a failed statement");
    streamed(&["INSERT OR FAIL INTO t VALUES(0)", "UPDATE t SET a = 1 WHERE a = -1", "DELETE FROM t WHERE a = -1"]);
    check("statements of their own");
    bench.assert_replicates();

    // What a stream keeps to itself is kept, though nothing of it is shipped.
    let session = bench.database.session();
    for sql in ["CREATE TEMP TABLE x(a)", "BEGIN IMMEDIATE", "INSERT INTO x VALUES(1)", "COMMIT"] {
        of(session.execute(&statement(sql))).unwrap();
    }
    assert_eq!(integer(&of(session.execute(&statement("SELECT count(*) FROM x"))).unwrap()), 1);
}

#[test]
fn a_rewind_to_an_end_after_which_nothing_was_left_goes_there() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    let (at, hash) = (bench.log.end(), bench.database.content_hash().unwrap());
    bench.run(&["SAVEPOINT a", "INSERT INTO t VALUES(1)", "ROLLBACK TO a"]).unwrap();
    of(bench.database.transaction(&transaction(&["INSERT INTO t VALUES(2)"]), soon())).unwrap();
    assert_eq!(bench.database.rewind(at).unwrap(), at);
    bench.database.publish(at);
    assert_eq!(bench.database.content_hash().unwrap(), hash);
}

#[test]
fn a_schema_statement_is_applied_to_the_schema_as_it_is_now() {
    let first = Bench::leader();
    first.run(&["CREATE TABLE t(a)", "CREATE INDEX i ON t(a)"]).unwrap();
    let (second, third) = (Bench::follower(), Bench::follower());
    first.ship_to(&second.database);
    first.ship_to(&third.database);
    // The second leads for a while, and changes the schema by another connection than the one that applies.
    second.log.start_at(first.log.end());
    second.database.lead(common::reign(2, 2), second.log.end()).unwrap();
    second.run(&["DROP INDEX i"]).unwrap();
    second.database.rewind(second.log.end()).unwrap();
    second.ship_to(&third.database);
    third.log.start_at(second.log.end());
    third.database.lead(common::reign(3, 3), third.log.end()).unwrap();
    third.run(&["CREATE INDEX IF NOT EXISTS i ON t(a)"]).unwrap();
    third.ship_to(&second.database);
    assert_eq!(second.database.content_hash().unwrap(), third.database.content_hash().unwrap());
}

#[test]
fn an_index_that_is_there_or_gone_already_is_not_taken_down() {
    let bench = Bench::leader();
    let session = bench.database.session();
    let run = |sql: &str| {
        of(session.execute(&statement(sql))).unwrap();
        bench.run(&[sql]).unwrap();
        bench.log.end()
    };
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    for sql in ["CREATE INDEX IF NOT EXISTS i ON t(a)", "DROP INDEX IF EXISTS i"] {
        let once = run(sql);
        assert_eq!(run(sql), once, "{sql}");
    }
    // Of a table SQLite says that it will be made; it is taken down, and has no effect anywhere.
    run("CREATE TABLE IF NOT EXISTS u(a)");
    run("CREATE TABLE IF NOT EXISTS u(a)");
    bench.assert_replicates();
}
