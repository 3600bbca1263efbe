//! One test for each trap of shipping changes of the schema: what a leader did must be what a follower holds.

mod common;

use common::{Bench, integer, of, soon, statement, transaction};
use highwater_sql::Value;

fn text(value: &str) -> Value {
    Value::Text(value.to_string())
}

#[test]
fn create_table_as_select_ships_the_rows_it_found() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a INTEGER PRIMARY KEY, b)", "INSERT INTO t(b) VALUES('x'), ('y')"]).unwrap();
    let answer = bench.database.transaction(
        &highwater_sql::Transaction {
            statements: vec![highwater_sql::Statement {
                sql: "CREATE TABLE u AS SELECT b, random() AS r, ?1 AS p FROM t".into(),
                args: vec![Value::Real(0.5)],
                ..Default::default()
            }],
            key: None,
        },
        soon(),
    );
    of(answer).unwrap();
    bench.run(&["CREATE TABLE IF NOT EXISTS u AS SELECT 1", "CREATE TABLE e AS SELECT * FROM t WHERE 0"]).unwrap();
    assert_eq!(bench.rows("SELECT count(*), sum(p) FROM u"), [[Value::Integer(2), Value::Real(1.0)]]);
    bench.assert_replicates();
}

#[test]
fn virtual_tables_and_their_shadow_tables() {
    let bench = Bench::leader();
    bench
        .run(&[
            "CREATE VIRTUAL TABLE ft USING fts5(a, b)",
            "INSERT INTO ft VALUES('one two', 'three'), ('four', 'five six')",
            "CREATE VIRTUAL TABLE box USING rtree(id, x0, x1, +note)",
            "INSERT INTO box VALUES(1, 0, 1, 'small'), (2, 5, 9, 'large')",
            "CREATE VIRTUAL TABLE old USING fts4(body)",
            "INSERT INTO old VALUES('some words')",
        ])
        .unwrap();
    bench
        .run(&[
            "UPDATE ft SET b = 'seven' WHERE a = 'four'",
            "DELETE FROM box WHERE id = 1",
            "INSERT INTO ft(ft) VALUES('optimize')",
        ])
        .unwrap();
    assert_eq!(bench.rows("SELECT a FROM ft WHERE ft MATCH 'seven'"), [[text("four")]]);
    bench.assert_replicates();
    bench
        .run(&[
            "ALTER TABLE ft RENAME TO words",
            "DROP TABLE box",
            "INSERT INTO words VALUES('eight', 'nine')",
            "DELETE FROM old",
        ])
        .unwrap();
    assert_eq!(bench.rows("SELECT a FROM words WHERE words MATCH 'nine'"), [[text("eight")]]);
    bench.assert_replicates();
}

#[test]
fn dropping_a_parent_ships_the_deletion_of_its_children() {
    let bench = Bench::leader();
    bench
        .run(&[
            "CREATE TABLE p(id INTEGER PRIMARY KEY)",
            "CREATE TABLE c(id INTEGER PRIMARY KEY, p REFERENCES p ON DELETE CASCADE)",
            "INSERT INTO p VALUES(1), (2)",
            "INSERT INTO c(p) VALUES(1), (2), (NULL)",
            "DROP TABLE p",
        ])
        .unwrap();
    assert_eq!(bench.rows("SELECT count(*) FROM c"), [[Value::Integer(1)]]);
    bench.assert_replicates();
}

#[test]
fn a_delete_without_a_condition_ships_every_row_also_when_it_was_prepared_before() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    for _ in 0..3 {
        bench.run(&["INSERT INTO t VALUES(1), (2)"]).unwrap();
        assert_eq!(bench.run(&["DELETE FROM t"]).unwrap()[0].affected, 2);
    }
    bench.assert_replicates();
}

#[test]
fn vacuum_is_an_entry_of_its_own_and_renumbers_alike() {
    let bench = Bench::leader();
    bench
        .run(&[
            "CREATE TABLE t(a)",
            "INSERT INTO t(rowid, a) VALUES(5, 'x'), (9, 'y')",
            "CREATE TABLE k(id INTEGER PRIMARY KEY)",
            "INSERT INTO k VALUES(70)",
        ])
        .unwrap();
    bench.run(&["VACUUM"]).unwrap();
    bench.run(&["INSERT INTO t VALUES('z')", "UPDATE t SET a = 'w' WHERE rowid = 1"]).unwrap();
    let session = bench.database.session();
    of(session.execute(&statement("VACUUM"))).unwrap();
    bench.publish();
    assert_eq!(
        bench.rows("SELECT rowid, a FROM t"),
        [[Value::Integer(1), text("w")], [Value::Integer(2), text("y")], [Value::Integer(3), text("z")]]
    );
    assert_eq!(
        of(bench.database.transaction(&transaction(&["INSERT INTO t VALUES(1)", "VACUUM"]), soon())).unwrap_err().code,
        "SQLITE_ERROR"
    );
    assert_eq!(of(session.execute(&statement("VACUUM INTO 'elsewhere'"))).unwrap_err().code, "SQLITE_AUTH");
    bench.assert_replicates();
}

#[test]
fn every_kind_of_schema_statement_is_shipped() {
    let bench = Bench::leader();
    bench
        .run(&[
            "CREATE TABLE t(a, b)",
            "INSERT INTO t VALUES(1, 2)",
            "CREATE UNIQUE INDEX i ON t(a) WHERE b > 0",
            "ALTER TABLE t ADD COLUMN c DEFAULT 'd'",
            "UPDATE t SET b = 3",
            "ALTER TABLE t RENAME COLUMN b TO bb",
            "DELETE FROM t",
            "INSERT INTO t VALUES(1, 2, 3)",
            "ALTER TABLE t DROP COLUMN c",
            "ALTER TABLE t RENAME TO tt",
            "CREATE VIEW v AS SELECT a FROM tt",
            "DROP VIEW v",
            "REINDEX",
            "ANALYZE",
            "PRAGMA user_version = 5",
            "PRAGMA application_id = 77",
            "DROP INDEX i",
            "UPDATE tt SET a = a + 1",
        ])
        .unwrap();
    assert_eq!(integer(&bench.run(&["PRAGMA user_version"]).unwrap()[0]), 5);
    bench.assert_replicates();
}

#[test]
fn a_table_renamed_under_legacy_rules_is_renamed_alike() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE p(id INTEGER PRIMARY KEY)", "CREATE TABLE c(p REFERENCES p)"]).unwrap();
    let session = bench.database.session();
    for sql in [
        "PRAGMA foreign_keys=off",
        "PRAGMA legacy_alter_table=on",
        "ALTER TABLE p RENAME TO q",
        "PRAGMA foreign_keys=on",
        "ALTER TABLE q RENAME TO r",
    ] {
        of(session.execute(&statement(sql))).unwrap();
    }
    bench.publish();
    assert_eq!(
        bench.rows("SELECT sql FROM sqlite_schema WHERE name = 'c'"),
        [[text("CREATE TABLE c(p REFERENCES p)")]]
    );
    bench.assert_replicates();
}

#[test]
fn a_migration_that_rebuilds_a_table_with_foreign_keys_off_keeps_its_children() {
    let bench = Bench::leader();
    bench
        .run(&[
            "CREATE TABLE p(id INTEGER PRIMARY KEY, name)",
            "CREATE TABLE c(id INTEGER PRIMARY KEY, p NOT NULL REFERENCES p ON DELETE CASCADE)",
            "INSERT INTO p VALUES(1, 'a'), (2, 'b')",
            "INSERT INTO c(p) VALUES(1), (1), (2)",
        ])
        .unwrap();
    let session = bench.database.session();
    for sql in [
        "PRAGMA foreign_keys=off",
        "BEGIN DEFERRED",
        "CREATE TABLE p_new(id INTEGER PRIMARY KEY, name TEXT NOT NULL)",
        "INSERT INTO p_new SELECT * FROM p",
        "DROP TABLE p",
        "ALTER TABLE p_new RENAME TO p",
        "COMMIT",
        "PRAGMA foreign_keys=on",
    ] {
        of(session.execute(&statement(sql))).unwrap_or_else(|failed| panic!("{sql}: {failed}"));
        bench.publish();
    }
    assert_eq!(bench.rows("SELECT count(*) FROM c"), [[Value::Integer(3)]]);
    assert_eq!(of(session.execute(&statement("INSERT INTO c(p) VALUES(9)"))).unwrap_err().code, "SQLITE_CONSTRAINT");
    bench.assert_replicates();
}
