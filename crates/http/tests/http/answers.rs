//! Answers and backups on their way out: what they take, and that it is given back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use highwater_http::{Limits, Tokens};
use serde_json::{Value, json};

use crate::harness::{Served, exchange, execute};

/// What a socket's buffers on both sides do not hold.
const LARGE_BYTES: usize = 15_000_000;

fn large(bytes: usize) -> String {
    format!("SELECT hex(zeroblob({}))", bytes / 2)
}

/// Sends a request and reads no more than the beginning of its answer.
fn begun(served: &Served, method: &str, path: &str, body: &str) -> (TcpStream, String) {
    let mut socket = served.socket();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    socket.write_all(head.as_bytes()).expect("the request leaves");
    let mut first = [0; 512];
    let count = socket.read(&mut first).expect("the answer begins");
    (socket, String::from_utf8_lossy(&first[..count]).into_owned())
}

#[test]
fn small_answers_leave_whole_and_large_ones_in_pieces_on_every_face() {
    let served = Served::start();
    let small = served.post("/db/main/sql", &json!({"sql": large(60_000)}));
    assert!(small.header("content-length").is_some());
    let wanted = "0".repeat(1_000_000);
    let plain = served.post("/db/main/sql", &json!({"sql": large(1_000_000)}));
    assert!(plain.header("content-length").is_none());
    assert_eq!(plain.json()["results"][0]["rows"], json!([[wanted]]));
    let steps =
        json!({"type": "batch", "batch": {"steps": [{"stmt": {"sql": large(1_000_000)}}, {"stmt": {"sql": "x"}}]}});
    let (_, results) = served.pipeline(&Value::Null, json!([execute(&large(1_000_000)), steps, {"type": "close"}]));
    assert_eq!(results[0]["response"]["result"]["rows"][0][0]["value"], wanted);
    let batch = &results[1]["response"]["result"];
    assert_eq!(batch["step_results"][0]["rows"][0][0]["value"], wanted);
    assert!(batch["step_results"][1].is_null() && batch["step_errors"][0].is_null());
    assert_eq!(batch["step_errors"][1]["code"], "SQL_PARSE_ERROR");
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9000) SELECT i, NULL FROM n";
    let cursor = served.post("/v3/cursor", &json!({"batch": {"steps": [{"stmt": {"sql": many}}]}}));
    let lines: Vec<Value> = cursor
        .body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).expect("JSON"))
        .collect();
    assert_eq!((lines.len(), lines[9001]["row"][0]["value"].as_str()), (9003, Some("9000")));
    served.until("the room of answers", |served| served.metric("highwater_answers_bytes") == 0.0);
}

#[test]
fn unread_answers_are_bounded_and_what_they_took_is_given_back() {
    let served = Served::with(Limits { answers_bytes: 60_000_000, ..Limits::default() }, Tokens::default());
    // Rows of a megabyte: SQLite holds one of them at a time.
    let rows =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 15) SELECT hex(zeroblob(500000)) FROM n";
    let body = json!({ "sql": rows }).to_string();
    let (first, answer) = begun(&served, "POST", "/db/main/sql", &body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    served.until("the first answer", |served| served.metric("highwater_answers_bytes") >= 15_000_000.0);
    // Three quarters of the room are one client's share: a second fits, a third does not.
    let second = begun(&served, "POST", "/db/main/sql", &body);
    let refused = served.post("/db/main/sql", &json!({ "sql": rows }));
    let message = refused.json()["error"]["message"].as_str().unwrap_or_default().to_string();
    assert_eq!(refused.status, 503, "{message}");
    assert!(message.contains("60000000 bytes for answers") && message.contains("45000000"), "{message}");
    drop((first, second));
    served.until("the room of answers", |served| served.metric("highwater_answers_bytes") == 0.0);
    assert_eq!(served.post("/db/main/sql", &json!({ "sql": rows })).status, 200);
}

#[test]
fn backups_are_bounded_until_their_last_byte_and_leave_no_file_behind() {
    let served = Served::with(Limits { backups: 2, ..Limits::default() }, Tokens::default());
    served.sql("CREATE TABLE t (v)");
    served.sql(&format!("INSERT INTO t VALUES (zeroblob({LARGE_BYTES}))"));
    let (socket, answer) = begun(&served, "GET", "/db/main/backup", "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let scratch = std::fs::read_dir(served.data().join("scratch")).expect("the scratch folder").count();
    assert_eq!(scratch, 0, "the copy has no name while it leaves");
    let refused = served.get("/db/main/backup");
    let message = refused.json()["error"]["message"].as_str().unwrap_or_default().to_string();
    assert_eq!(refused.status, 503);
    assert!(message.contains("2 backups under way") && message.contains("may have 1"), "{message}");
    drop(socket);
    served.until("another backup", |served| served.get("/db/main/backup").status == 200);
}

#[test]
fn scratch_files_are_bounded() {
    let served = Served::with(Limits { scratch_bytes: 20 << 20, ..Limits::default() }, Tokens::default());
    served.sql("CREATE TABLE t (v)");
    served.sql(&format!("INSERT INTO t VALUES (zeroblob({LARGE_BYTES}))"));
    for refused in [served.get("/db/main/backup"), served.post_bytes("/db/main/import", &[], &vec![0; 17 << 20])] {
        let message = refused.json()["error"]["message"].as_str().unwrap_or_default().to_string();
        assert_eq!(refused.status, 503, "{message}");
        assert!(message.contains("20 MiB of scratch files"), "{message}");
    }
}

#[test]
fn a_client_that_left_leaves_nothing_running() {
    let served = Served::with(Limits { threads: 1, ..Limits::default() }, Tokens::default());
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    for (path, body) in [
        ("/db/main/sql", json!({"sql": endless})),
        ("/v2/pipeline", json!({"requests": [execute(endless), execute(endless)]})),
        ("/v3/cursor", json!({"batch": {"steps": [{"stmt": {"sql": endless}}]}})),
    ] {
        let body = body.to_string();
        let mut socket = served.socket();
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        socket.write_all(head.as_bytes()).expect("the request leaves");
        served.until("the request", |served| served.metric("highwater_requests_open") == 1.0);
        drop(socket);
        let begun = Instant::now();
        assert_eq!(served.rows("SELECT 1"), json!([[1]]), "the only thread is free again");
        served.sql("CREATE TABLE IF NOT EXISTS t (a)");
        assert!(begun.elapsed() < Duration::from_secs(10), "{path}: {:?}", begun.elapsed());
    }
}

#[test]
fn a_stranger_is_refused_before_his_body_has_come() {
    let served = Served::with(Limits::default(), Tokens::new(vec!["full".into()], vec![]));
    let mut socket = served.socket();
    let begun = Instant::now();
    let head = "POST /db/main/sql HTTP/1.1\r\nhost: x\r\ncontent-length: 60000000\r\n\r\n{";
    let answer = exchange(&mut socket, head.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("connection: close"), "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(20), "the body is not waited for: {:?}", begun.elapsed());
    assert_eq!(socket.read(&mut [0; 64]).unwrap_or(0), 0, "the connection has ended");
    let waits = "POST /db/main/sql HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 60000000\r\n\r\n";
    let answer = exchange(&mut served.socket(), waits.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 401"), "he is not told to go on: {answer}");
}
