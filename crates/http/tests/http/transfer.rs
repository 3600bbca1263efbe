//! Backups and imports.

use serde_json::json;

use crate::harness::Served;

#[test]
fn what_one_node_gives_out_another_takes_in() {
    let from = Served::start();
    from.sql("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT UNIQUE)");
    from.sql("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5000) INSERT INTO t SELECT i, 'value ' || i FROM n");
    let backup = from.get("/db/main/backup");
    assert_eq!((backup.status, backup.header("content-type")), (200, Some("application/vnd.sqlite3")));
    assert!(backup.header("highwater-offset").is_some_and(|offset| offset.parse::<u64>().is_ok()));
    assert!(backup.body.starts_with(b"SQLite format 3\0"));

    let to = Served::start();
    let imported = to.post_bytes("/db/main/import", &[], &backup.body);
    assert_eq!(imported.status, 200, "{}", String::from_utf8_lossy(&imported.body));
    assert_eq!(to.rows("SELECT count(*), max(v) FROM t"), json!([[5000, "value 999"]]));
    assert_eq!(to.get("/verify").json()["hash"], from.get("/verify").json()["hash"]);

    let again = to.post_bytes("/db/main/import", &[], &backup.body);
    assert_eq!((again.status, again.json()["error"]["code"].as_str()), (409, Some("NOT_EMPTY")));
    let scratch = std::fs::read_dir(to.data().join("scratch")).expect("the scratch folder").count();
    assert_eq!(scratch, 0, "nothing is left lying about");
}

#[test]
fn what_is_no_database_is_refused() {
    let served = Served::start();
    let refused = served.post_bytes("/db/main/import", &[], b"this is no database, however long it may go on");
    assert_eq!(refused.json()["error"]["outcome"], "failed");
    assert!(refused.status >= 400 && refused.status < 500, "{}", refused.status);
    assert_eq!(served.get("/db/nothere/backup").status, 404);
    served.sql("CREATE TABLE t (a)");
}
