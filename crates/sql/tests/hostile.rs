//! What no leader made, what asks too much, and whoever has left: all are answered by errors, and nobody waits for them.

mod common;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Bench, of, quick, reign, soon, statement, transaction};
use highwater_partition::StateMachine;
use highwater_sql::{Allowance, Cancel, Options, ResultRoom, Value};
use highwater_wire::batch::{Record, build, stamp};
use highwater_wire::record::{Kind, RecordHeader};

const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

/// Applies one transaction of one record to a fresh replica, and gives its error.
fn refused(kind: Kind, payload: &[u8]) -> String {
    let follower = Bench::follower();
    let mut value = Vec::new();
    RecordHeader { kind, ends_transaction: true, ack: None }.encode_into(&mut value);
    value.extend_from_slice(payload);
    let mut batch = build(&[Record { key: None, value: Some(value.into()) }], 0);
    let end = stamp(&mut batch, 0, reign(1, 1).epoch).unwrap();
    match follower.database.apply(0, end, &batch.freeze(), true) {
        Ok(()) => panic!("{} was applied", String::from_utf8_lossy(payload)),
        Err(failed) => failed.to_string(),
    }
}

#[test]
fn records_that_no_leader_takes_down_are_errors() {
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().join("x.sqlite");
    for sql in [
        format!("ATTACH '{}' AS x", path.display()),
        format!("VACUUM INTO '{}'", path.display()),
        format!("VACUUM \"main\" INTO '{}'", path.display()),
        "SELECT load_extension('x')".to_string(),
        "PRAGMA writable_schema=ON".to_string(),
        "PRAGMA journal_mode=DELETE".to_string(),
        "CREATE TABLE a(b); CREATE TABLE c(d)".to_string(),
        "CREATE TEMP TABLE a(b)".to_string(),
        "INSERT INTO sqlite_highwater_state DEFAULT VALUES".to_string(),
        "CREATE TRIGGER x AFTER INSERT ON sqlite_highwater_keys BEGIN DELETE FROM sqlite_highwater_keys; END"
            .to_string(),
        "CREATE VIRTUAL TABLE x USING dbstat".to_string(),
        "COMMIT".to_string(),
        "ROLLBACK".to_string(),
        String::new(),
    ] {
        for flags in [0, 1] {
            refused(Kind::Statement, &[&[flags], sql.as_bytes()].concat());
        }
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0, "nothing was written elsewhere");
    for table in ["sqlite_highwater_state", "sqlite_schema", "sqlite_master", "sqlite_dbpage", "nowhere"] {
        let insert = [&[1, table.len() as u8][..], table.as_bytes(), &[2, 1, 1, 2]].concat();
        refused(Kind::Row, &insert);
    }
    for kind in [Kind::Row, Kind::Statement, Kind::Meta, Kind::Pages, Kind::Idempotency] {
        for payload in [&b""[..], b"\xff", b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"] {
            refused(kind, payload);
        }
    }
}

#[test]
fn whoever_leaves_leaves_nothing_running() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)"]).unwrap();
    let asked = |sql: &str| {
        let cancel = Cancel::default();
        let allowance = Allowance { cancel: cancel.clone(), ..soon().into() };
        let running = transaction(&[sql]);
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| of(bench.database.transaction(&running, allowance)));
            // sleep: that it runs by then is likely and not needed.
            std::thread::sleep(Duration::from_millis(100));
            cancel.cancel();
            let begun = Instant::now();
            let failed = answer.join().unwrap().unwrap_err();
            assert!(begun.elapsed() < Duration::from_secs(2));
            failed.code
        })
    };
    assert_eq!(asked(ENDLESS), "CANCELLED");
    assert_eq!(asked(&format!("INSERT INTO t {ENDLESS}")), "CANCELLED");
    // One who waits for the writer.
    let holder = bench.database.session();
    of(holder.execute(&statement("BEGIN IMMEDIATE"))).unwrap();
    assert_eq!(asked("INSERT INTO t VALUES(1)"), "CANCELLED");
    of(holder.execute(&statement("ROLLBACK"))).unwrap();
    of(bench.database.transaction(&transaction(&["INSERT INTO t VALUES(1)"]), soon())).unwrap();
}

#[test]
fn a_stream_has_what_is_allowed_to_it() {
    let bench = Bench::leader();
    let session = bench.database.session();
    session.allow(Instant::now() + Duration::from_millis(50));
    assert_eq!(of(session.execute(&statement(ENDLESS))).unwrap_err().code, "TRANSACTION_TIMEOUT");
    session.allow(soon());
    assert_eq!(of(session.execute(&statement("SELECT 1"))).unwrap().rows, [[Value::Integer(1)]]);
}

#[derive(Debug)]
struct Room(Mutex<usize>);

impl ResultRoom for Room {
    fn take(&self, bytes: usize) -> Result<(), String> {
        let mut left = self.0.lock().unwrap();
        *left = left.checked_sub(bytes).ok_or("no room for results")?;
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        *self.0.lock().unwrap() += bytes;
    }
}

#[test]
fn results_take_room_while_they_exist() {
    const BYTES: usize = 1 << 20;
    let bench = Bench::leader();
    let room = Arc::new(Room(Mutex::new(BYTES)));
    let left = || *room.0.lock().unwrap();
    let ask = |sql: &str| {
        let allowance = Allowance { room: Some(room.clone()), ..soon().into() };
        of(bench.database.transaction(&transaction(&[sql]), allowance))
    };
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) SELECT i, i FROM n";
    let results = ask(many).unwrap();
    assert!(BYTES - left() > 5000 * (2 * size_of::<Value>() + size_of::<Vec<Value>>()), "{} taken", BYTES - left());
    drop(results);
    assert_eq!(left(), BYTES);
    assert_eq!(ask("SELECT zeroblob(2000000)").unwrap_err().code, "OVERLOADED");
    assert_eq!(left(), BYTES);
    // Many small values take more memory than they have bytes: the limit of one result is met first.
    let narrow = Bench::leader_with(Options { result_memory_max: 1 << 18, ..quick() });
    let failed = of(narrow.database.transaction(&transaction(&[many]), soon())).map(|_| ()).unwrap_err();
    assert!(failed.message.contains("262144 bytes of memory"), "{failed}");
    assert_eq!(failed.code, "RESPONSE_TOO_LARGE");
    // So do long names of columns, also of a result without rows.
    let named = |bytes: usize| format!("SELECT 1 AS \"{}\" WHERE 0", "n".repeat(bytes));
    let failed = of(narrow.database.transaction(&transaction(&[&named(1 << 18)]), soon())).map(|_| ()).unwrap_err();
    assert!(failed.message.contains("262144 bytes of memory"), "{failed}");
    assert_eq!(ask(&named(BYTES)).unwrap_err().code, "OVERLOADED");
    assert_eq!(left(), BYTES);
    // A row of many large values is refused before it is copied.
    let wide = format!("SELECT {} FROM (SELECT zeroblob(16000000) AS z)", ["z"; 100].join(","));
    let refused = of(bench.database.transaction(&transaction(&[&wide]), soon())).map(|_| ()).unwrap_err();
    assert_eq!(refused.code, "RESPONSE_TOO_LARGE");
}

#[test]
fn nobody_is_told_where_files_lie() {
    let bench = Bench::leader();
    let session = bench.database.session();
    for sql in [
        "PRAGMA database_list",
        "pragma main.database_list;",
        "/* x */ PRAGMA database_list -- y",
        "SELECT * FROM pragma_database_list",
        "SELECT upper(file) FROM pragma_database_list()",
        "SELECT * FROM (SELECT file AS f FROM pragma_database_list) WHERE f IS NOT NULL",
        "EXPLAIN PRAGMA database_list",
        "PRAGMA \"database_list\"",
        "PRAGMA database_list(1)",
    ] {
        for answer in [of(session.execute(&statement(sql))), bench.run(&[sql]).map(|mut results| results.remove(0))] {
            let shown = format!("{answer:?}").to_lowercase();
            assert!(!shown.contains("sqlite\"") && !shown.contains("/tmp"), "{sql}: {shown}");
        }
    }
    let listed = of(session.execute(&statement("PRAGMA database_list"))).unwrap();
    assert_eq!(listed.rows[0][1..], [Value::Text("main".into()), Value::Text(String::new())]);
    assert_eq!(listed.columns[2].name, "file");
}

#[test]
fn a_file_to_take_in_smuggles_nothing_and_leaves_nothing_behind() {
    let bench = Bench::leader();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a file %.sqlite");
    let plain = rusqlite::Connection::open(&file).unwrap();
    plain.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(a); INSERT INTO t VALUES(1)").unwrap();
    plain
        .execute_batch(
            "PRAGMA writable_schema=ON;
             UPDATE sqlite_schema SET sql = 'CREATE TABLE t(a); CREATE TABLE smuggled(b)' WHERE name = 't'",
        )
        .unwrap();
    drop(plain);
    let failed = of(bench.database.import(&file, soon())).unwrap_err();
    assert!(["SQLITE_ERROR", "SQLITE_CORRUPT"].contains(&failed.code.as_str()), "{failed:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    std::fs::remove_file(&file).unwrap();
    let plain = rusqlite::Connection::open(&file).unwrap();
    plain.execute_batch("CREATE VIRTUAL TABLE v USING dbstat; CREATE TABLE t(a)").unwrap();
    drop(plain);
    let failed = of(bench.database.import(&file, soon())).unwrap_err();
    assert!(failed.message.contains("dbstat"), "{failed:?}");
    assert_eq!(
        bench.rows("SELECT count(*) FROM sqlite_schema WHERE name IN ('t', 'v', 'smuggled')"),
        [[Value::Integer(0)]]
    );
}
