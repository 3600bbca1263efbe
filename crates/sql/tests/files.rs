//! SQLite files in and out.

mod common;

use common::{Bench, of, soon};
use highwater_sql::Value;

const SCRIPT: &str = "
    PRAGMA foreign_keys=ON;
    CREATE TABLE parent(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT);
    CREATE TABLE child(id INTEGER PRIMARY KEY, parent REFERENCES parent ON DELETE CASCADE, v REAL, b BLOB);
    CREATE TABLE keyed(a TEXT, b INT, c, PRIMARY KEY(b, a)) WITHOUT ROWID;
    CREATE TABLE bare(x, y AS (x + 1), z GENERATED ALWAYS AS (x * 2) STORED);
    INSERT INTO parent(id, name) VALUES(1, 'one'), (7, 'seven'); DELETE FROM parent WHERE id = 7;
    INSERT INTO child VALUES(1, 1, 1.0, x'00ff'), (2, 1, -0.5, NULL);
    INSERT INTO keyed VALUES('a', 1, 'x'), ('b', 1, 'y');
    INSERT INTO bare(rowid, x) VALUES(5, 1), (9, 2);
    CREATE INDEX child_v ON child(v);
    CREATE VIEW seen AS SELECT name FROM parent;
    CREATE TRIGGER no_more BEFORE INSERT ON keyed BEGIN SELECT RAISE(ABORT, 'no'); END;
    CREATE VIRTUAL TABLE words USING fts5(body);
    INSERT INTO words VALUES('high water'), ('low water');
    CREATE VIRTUAL TABLE boxes USING rtree(id, x0, x1);
    INSERT INTO boxes VALUES(1, 0, 2);
    PRAGMA user_version=42;
";

#[test]
fn a_file_taken_in_and_given_out_holds_the_same() {
    let files = tempfile::tempdir().unwrap();
    let (source, copy) = (files.path().join("in.sqlite"), files.path().join("out.sqlite"));
    rusqlite::Connection::open(&source).unwrap().execute_batch(SCRIPT).unwrap();
    let bench = Bench::leader();
    let answer = bench.database.import(&source, soon());
    answer.result.unwrap();
    assert!(answer.hold.unwrap().wrote);
    bench.publish();
    bench.assert_replicates();

    assert_eq!(bench.database.backup(&copy, soon()).unwrap(), bench.log.end());
    common::assert_sound(&copy);
    let out = rusqlite::Connection::open(&copy).unwrap();
    let objects = |conn: &rusqlite::Connection| -> Vec<String> {
        let mut stmt =
            conn.prepare("SELECT name || ':' || coalesce(sql, '') FROM sqlite_schema ORDER BY name").unwrap();
        stmt.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    assert_eq!(objects(&out), objects(&rusqlite::Connection::open(&source).unwrap()), "our own tables are left out");
    let one = |sql: &str| out.query_row(sql, [], |row| row.get::<_, rusqlite::types::Value>(0)).unwrap();
    assert_eq!(one("SELECT seq FROM sqlite_sequence WHERE name = 'parent'"), rusqlite::types::Value::Integer(7));
    assert_eq!(one("SELECT group_concat(body) FROM words WHERE words MATCH 'high'"), "high water".to_string().into());
    assert_eq!(one("SELECT count(*) FROM child"), 2.into());
    assert_eq!(one("SELECT z FROM bare WHERE x = 2"), 4.into());
    assert_eq!(one("PRAGMA user_version"), 42.into());
    assert_eq!(one("PRAGMA journal_mode"), "delete".to_string().into());
    assert_eq!(
        bench.database.backup(&copy, soon()).unwrap_err().code,
        "SQLITE_CANTOPEN",
        "an existing file is not overwritten"
    );
}

#[test]
fn a_database_with_tables_takes_no_file_in() {
    let files = tempfile::tempdir().unwrap();
    let source = files.path().join("in.sqlite");
    rusqlite::Connection::open(&source).unwrap().execute_batch("CREATE TABLE u(a)").unwrap();
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    let end = bench.log.end();
    assert_eq!(of(bench.database.import(&source, soon())).unwrap_err().code, "NOT_EMPTY");
    assert_eq!(bench.log.end(), end);
    std::fs::write(&source, b"not a database, but long enough to be looked at as if it were one").unwrap();
    assert_eq!(of(bench.database.import(&source, soon())).unwrap_err().code, "SQLITE_NOTADB");
    bench.run(&["INSERT INTO t VALUES(1)"]).unwrap();
}

#[test]
fn a_large_file_becomes_several_transactions() {
    let files = tempfile::tempdir().unwrap();
    let source = files.path().join("in.sqlite");
    let conn = rusqlite::Connection::open(&source).unwrap();
    conn.execute_batch(
        "CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20) INSERT INTO t SELECT i, zeroblob(1000000) FROM n",
    )
    .unwrap();
    let bench = Bench::leader();
    let publisher = {
        let (database, log) = (bench.database.clone(), bench.log.clone());
        let (done, stop) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            while stop.recv_timeout(std::time::Duration::from_millis(1))
                == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                database.publish(log.end());
            }
        });
        (done, thread)
    };
    use highwater_partition::StateMachine;
    of(bench.database.import(&source, soon())).unwrap();
    drop(publisher.0);
    publisher.1.join().unwrap();
    bench.publish();
    assert!(bench.log.ends().len() > 3, "{:?}", bench.log.ends());
    assert_eq!(
        bench.rows("SELECT count(*), sum(length(b)) FROM t"),
        [[Value::Integer(20), Value::Integer(20_000_000)]]
    );
    bench.assert_replicates();
}

#[test]
fn a_table_of_as_many_columns_as_there_may_be_has_a_rowid_beside_them() {
    let files = tempfile::tempdir().unwrap();
    let source = files.path().join("in.sqlite");
    let columns = (0..2000).map(|at| format!("c{at}")).collect::<Vec<_>>().join(",");
    rusqlite::Connection::open(&source)
        .unwrap()
        .execute_batch(&format!(
            "CREATE TABLE t({columns}); INSERT INTO t(rowid, c0, c1999) VALUES(9, 1, 2), (5, 3, 4)"
        ))
        .unwrap();
    let bench = Bench::leader();
    of(bench.database.import(&source, soon())).unwrap();
    bench.publish();
    let [five, nine] = [[5, 3, 4], [9, 1, 2]].map(|row| row.map(Value::Integer).to_vec());
    assert_eq!(bench.rows("SELECT rowid, c0, c1999 FROM t"), [five, nine]);
    bench.run(&["UPDATE t SET c7 = 7 WHERE c0 = 1"]).unwrap();
    let all = (0..2000).map(|at| format!("c{at} = {at}")).collect::<Vec<_>>().join(",");
    bench.run(&[&format!("UPDATE t SET {all} WHERE c0 = 1")]).unwrap();
    bench.run(&["DELETE FROM t WHERE c0 = 3"]).unwrap();
    bench.assert_replicates();
}
