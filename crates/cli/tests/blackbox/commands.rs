//! The command line: exactly one JSON document with `--json`, exit codes, and errors that say what to do.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::node::{HIGHWATER, Node};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The one document on standard output.
fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("one JSON document: {error}\n{}\n{}", text(&output.stdout), text(&output.stderr))
    })
}

/// Runs `highwater sql` with that on its standard input.
fn piped(node: &Node, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(HIGHWATER)
        .args(["sql", "--url", &node.url()])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary can be started");
    child.stdin.take().expect("it was piped").write_all(input.as_bytes()).expect("the command reads");
    child.wait_with_output().expect("the command ends")
}

#[test]
fn sql_prints_tables_for_people_and_one_document_for_scripts() {
    let node = Node::start();
    let output =
        node.run(&["sql", "-c", "CREATE TABLE t (a, b); INSERT INTO t VALUES (1, 'x')", "-c", "SELECT * FROM t"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "a  b\n-  -\n1  x\n");
    let output = node.run(&["sql", "--json", "-c", "SELECT a, x'00ff' AS c FROM t"]);
    let answer = document(&output);
    assert_eq!(answer["results"][0]["columns"], json!(["a", "c"]));
    assert_eq!(answer["results"][0]["rows"], json!([[1, {"base64": "AP8="}]]));
    assert!(answer["position"].is_string());

    let output = node.run(&["sql", "--json", "-c", "SELECT * FROM missing"]);
    assert_eq!(output.status.code(), Some(1));
    let answer = document(&output);
    assert_eq!((&answer["error"]["code"], &answer["error"]["outcome"]), (&json!("SQLITE_ERROR"), &json!("failed")));
    assert!(text(&output.stderr).contains("no such table"), "{}", text(&output.stderr));
}

#[test]
fn a_script_runs_in_order_and_stops_at_its_first_error() {
    let node = Node::start();
    let script = "CREATE TABLE t (a UNIQUE); -- a comment; with a semicolon
        CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT 1; END;
        INSERT INTO t VALUES (1);
        INSERT INTO t VALUES (2);
        INSERT INTO t VALUES (1);
        INSERT INTO t VALUES (3);";
    let output = piped(&node, &[], script);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("standard input:5:") && said.contains("UNIQUE"), "{said}");
    assert_eq!(
        node.rows("SELECT a FROM t ORDER BY a"),
        json!([[1], [2]]),
        "those before it are done, those after it are not"
    );

    let transactions = "BEGIN; INSERT INTO t VALUES (4); INSERT INTO t VALUES (5); COMMIT;
        BEGIN; INSERT INTO t VALUES (6); ROLLBACK;
        CREATE TEMP TABLE own (a); INSERT INTO own SELECT a FROM t; SELECT count(*) AS n FROM own;
        BEGIN; INSERT INTO t VALUES (7);";
    let output = piped(&node, &["--json"], transactions);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results = document(&output)["results"].as_array().cloned().unwrap_or_default();
    assert!(
        results.iter().any(|result| result["rows"] == json!([[4]])),
        "a temporary table lives on one connection: {results:?}"
    );
    assert_eq!(
        node.rows("SELECT a FROM t ORDER BY a"),
        json!([[1], [2], [4], [5]]),
        "what was not committed is not there"
    );

    let output = piped(&node, &[], "BEGIN; INSERT INTO t VALUES (8); INSERT INTO t VALUES (1); COMMIT;");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(node.rows("SELECT count(*) FROM t WHERE a = 8"), json!([[0]]), "a transaction is whole or not at all");
}

#[test]
fn a_run_that_broke_off_is_gone_on_with() {
    let node = Node::start();
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("script.sql");
    std::fs::write(
        &file,
        "CREATE TABLE t (a);\nINSERT INTO t VALUES (1);\nINSERT INTO nowhere VALUES (1);\nINSERT INTO t VALUES (2);\n",
    )
    .expect("a script");
    let path = file.to_str().expect("a path of text");
    let output = node.run(&["sql", "--file", path]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("script.sql:3:") && said.contains("--from-line 3 --run "), "{said}");
    node.rows("CREATE TABLE nowhere (a)");
    let run = said.split("--run ").nth(1).map(str::trim).expect("the run has a name").to_owned();
    for _ in 0..2 {
        let output = node.run(&["sql", "--file", path, "--from-line", "3", "--run", &run]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(node.rows("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM nowhere)"), json!([[2, 1]]));
    }
}

#[test]
fn status_verify_backup_and_import_speak_json() {
    let node = Node::start();
    node.rows("CREATE TABLE t (a)");
    let status = document(&node.run(&["status", "--json"]));
    assert_eq!(status["nodes"].as_array().map(Vec::len), Some(1));
    let partition = &status["partitions"][0];
    for name in [
        "name",
        "leader",
        "epoch",
        "version",
        "commit_rule",
        "isr",
        "hw",
        "replicas",
        "write_rate",
        "commit_ms_p50",
        "commit_ms_p99",
    ] {
        assert!(partition.get(name).is_some(), "{name}: {partition}");
    }
    for name in ["node", "leo", "hw", "applied", "in_sync", "lag_entries", "lag_ms", "ms_since_heard", "apply_rate"] {
        assert!(partition["replicas"][0].get(name).is_some(), "{name}: {partition}");
    }
    let people = text(&node.run(&["status"]).stdout);
    assert!(people.contains("commit_rule") && people.contains("quorum:1"), "{people}");

    let hash = node.content_hash();
    assert_eq!(text(&node.run(&["verify"]).stdout).trim(), hash);
    let missing = node.run(&["verify", "--db", "missing", "--json"]);
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(document(&missing)["error"]["code"], "DATABASE_UNKNOWN");

    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("copy.db");
    let path = file.to_str().expect("a path of text");
    let output = node.run(&["db", "backup", path, "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(document(&output)["bytes"].as_u64().is_some_and(|bytes| bytes > 0));
    let again = node.run(&["db", "backup", path]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("never replaces"), "{}", text(&again.stderr));
    let other = Node::start();
    let output = other.run(&["db", "import", path, "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(document(&output)["position"].is_string());
    assert_eq!(other.content_hash(), hash);
}

#[test]
fn a_log_is_shown_while_its_node_runs() {
    let node = Node::start();
    node.rows("CREATE TABLE shown (a)");
    let folder = node.data().join("db/main/log");
    let output =
        Command::new(HIGHWATER).args(["log", "dump", "--json"]).arg(&folder).output().expect("the binary runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let dump = document(&output);
    assert!(dump["log"]["end"].as_u64().is_some_and(|end| end > 1), "{dump}");
    assert!(dump["batches"].to_string().contains("CREATE TABLE shown"), "{dump}");
    let output = Command::new(HIGHWATER).args(["log", "dump"]).arg(node.data()).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("DATA/meta"), "{}", text(&output.stderr));
}

#[test]
fn what_cannot_be_done_says_what_to_do() {
    let run = |arguments: &[&str]| {
        Command::new(HIGHWATER).args(arguments).stdin(Stdio::null()).output().expect("the binary runs")
    };
    let nobody = crate::node::free_address();
    let output = run(&["status", "--url", &format!("http://{nobody}"), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(document(&output)["error"]["code"], "NO_ANSWER");
    assert!(text(&output.stderr).contains("highwater serve"), "{}", text(&output.stderr));
    let output = run(&["sql", "--url", "localhost:8080", "-c", "SELECT 1"]);
    assert!(text(&output.stderr).contains("http://HOST:PORT"), "{}", text(&output.stderr));
    assert_eq!(run(&["sql", "--nonsense"]).status.code(), Some(2));
    let output = run(&["sim", "no-such-story"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("worked-example"), "{}", text(&output.stderr));
    let output = run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--token"), "{}", text(&output.stderr));
    let output = run(&["serve", "--config", "/nonexistent.toml"]);
    assert!(text(&output.stderr).contains("/nonexistent.toml"), "{}", text(&output.stderr));
}
