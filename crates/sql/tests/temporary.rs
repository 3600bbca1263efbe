//! SQLite's temporary files: where they lie, and what they may have together. One test, since both hold for the whole process.

mod common;

use common::{Bench, statement};
use highwater_sql::{Session, Value, set_temporary_folder, set_temporary_space, temporary_space_used};

/// The room of this test.
const SPACE: u64 = 8 << 20;

fn said(session: &Session, sql: &str) -> Result<Vec<Vec<Value>>, String> {
    session.execute(&statement(sql)).result.map(|answer| answer.rows).map_err(|failed| failed.code)
}

/// Rows of 1,000 bytes that come in no order.
fn rows(count: u32) -> String {
    format!(
        "WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < {count}) \
         SELECT (v * 7919) % 10007 AS a, randomblob(1000) AS b FROM n"
    )
}

fn sorted(count: u32) -> String {
    format!("SELECT count(*) FROM (SELECT a, b, row_number() OVER (ORDER BY a, b) FROM ({}))", rows(count))
}

/// The files without a name that this process has open in a folder.
fn open_in(folder: &std::path::Path) -> usize {
    let folder = folder.to_str().unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok()).filter(|at| at.starts_with(folder)).count()
}

#[test]
fn temporary_files_lie_in_their_folder_and_have_a_bound_together() {
    let folder = tempfile::tempdir().unwrap();
    set_temporary_folder(folder.path()).unwrap();
    set_temporary_folder(folder.path()).expect("the same again is no other");
    let other = tempfile::tempdir().unwrap();
    let refused = set_temporary_folder(other.path()).unwrap_err();
    assert!(refused.contains(other.path().to_str().unwrap()), "{refused}");

    set_temporary_space(SPACE);
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t(a)", "INSERT INTO t VALUES(1)"]).unwrap();
    assert_eq!(temporary_space_used(), 0, "what is no temporary file is not counted");
    let (one, two) = (bench.database.session(), bench.database.session());

    // A sort that fits, and one that does not: its room is given back.
    assert_eq!(said(&one, &sorted(3_000)), Ok(vec![vec![Value::Integer(3_000)]]));
    assert_eq!(said(&one, &sorted(30_000)), Err("TEMPORARY_SPACE_FULL".to_string()));
    assert_eq!(temporary_space_used(), 0);

    // Within a transaction it ends that, and nothing later runs on its own.
    said(&one, "BEGIN").unwrap();
    said(&one, "INSERT INTO t VALUES(3)").unwrap();
    let full = Err("TEMPORARY_SPACE_FULL".to_string());
    for sql in [&sorted(30_000), "INSERT INTO t VALUES(4)", "COMMIT"] {
        assert_eq!(said(&one, sql), full, "{sql}");
    }
    bench.publish();
    assert_eq!(said(&one, "SELECT count(*) FROM t"), Ok(vec![vec![Value::Integer(1)]]));

    // A temporary table takes room for as long as its stream is there.
    said(&one, "CREATE TEMP TABLE large(a, b)").unwrap();
    said(&one, &format!("INSERT INTO large {}", rows(6_000))).unwrap();
    let used = temporary_space_used();
    assert!((3 << 20..=SPACE).contains(&used), "{used}");
    assert!(open_in(folder.path()) > 0 && open_in(other.path()) == 0);
    // Another that wants more than is left is told so, and keeps what it had.
    said(&two, "CREATE TEMP TABLE more(a, b)").unwrap();
    said(&two, "INSERT INTO more VALUES(1, 2)").unwrap();
    assert_eq!(said(&two, &format!("INSERT INTO more {}", rows(9_000))), Err("TEMPORARY_SPACE_FULL".to_string()));
    assert_eq!(said(&two, "SELECT count(*) FROM more"), Ok(vec![vec![Value::Integer(1)]]));
    assert_eq!(said(&one, "SELECT count(*) FROM large"), Ok(vec![vec![Value::Integer(6_000)]]));
    // Whoever needs none goes on.
    bench.run(&["INSERT INTO t VALUES(2)"]).unwrap();
    assert_eq!(bench.rows("SELECT count(*) FROM t"), [[Value::Integer(2)]]);

    drop((one, two));
    assert_eq!(temporary_space_used(), 0);
    let three = bench.database.session();
    assert_eq!(said(&three, &sorted(3_000)), Ok(vec![vec![Value::Integer(3_000)]]));
    bench.assert_sound();
}
