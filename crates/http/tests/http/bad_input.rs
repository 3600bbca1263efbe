//! What no client should send: each is answered with a clear error, and the node goes on.

use std::io::Write;
use std::net::Shutdown;

use highwater_http::{Limits, Tokens};
use serde_json::{Value, json};

use crate::harness::{Served, exchange};

fn code(document: &Value) -> &str {
    document["error"]["code"].as_str().unwrap_or_else(|| panic!("an error has a code: {document}"))
}

#[test]
fn requests_that_are_wrong_are_refused_and_the_next_one_works() {
    let served = Served::start();
    for (path, body, status, wanted) in [
        ("/db/main/sql", "", 400, "REQUEST_INVALID"),
        ("/db/main/sql", "{\"sql\": \"SELECT", 400, "REQUEST_INVALID"),
        ("/db/main/sql", "\u{0}\u{1}", 400, "REQUEST_INVALID"),
        ("/db/main/sql", "{\"sql\": 7}", 400, "REQUEST_INVALID"),
        ("/db/main/sql", "{\"sql\": \"SELECT ?\", \"args\": [[]]}", 400, "ARGS_INVALID"),
        ("/db/main/sql", "{\"sql\": \"SELEKT 1\"}", 400, "SQL_PARSE_ERROR"),
        ("/db/main/sql", "{\"sql\": \"SELECT * FROM missing\"}", 400, "SQLITE_ERROR"),
        ("/db/main/sql", "{\"sql\": \"\"}", 400, "SQL_NO_STATEMENT"),
        ("/db/main/sql", "{\"sql\": \"SELECT 1; SELECT 2\"}", 400, "SQL_MANY_STATEMENTS"),
        ("/db/main/sql?ack=maybe", "{\"sql\": \"SELECT 1\"}", 400, "OPTION_INVALID"),
        ("/db/main/sql?wait=1", "{\"sql\": \"SELECT 1\"}", 400, "OPTION_UNKNOWN"),
        ("/db/nothere/sql", "{\"sql\": \"SELECT 1\"}", 404, "DATABASE_UNKNOWN"),
        ("/nowhere", "{}", 404, "PATH_UNKNOWN"),
        ("/status", "{}", 405, "METHOD_NOT_ALLOWED"),
    ] {
        let response = served.post_bytes(path, &[], body.as_bytes());
        assert_eq!(response.header("content-type"), Some("application/json"), "{path} {body}");
        let document = response.json();
        assert_eq!((response.status, code(&document)), (status, wanted), "{path} {body}: {document}");
        assert_eq!(document["error"]["outcome"], "failed");
        assert!(!document["error"]["message"].as_str().unwrap_or_default().is_empty());
    }
    assert_eq!(served.rows("SELECT 1"), json!([[1]]));
}

#[test]
fn wrong_hrana_requests_have_a_code_at_the_top_where_clients_look() {
    let served = Served::start();
    for (path, body, status, wanted) in [
        ("/v2/pipeline", "", 400, "HRANA_PROTO_ERROR"),
        ("/v2/pipeline", "{\"requests\": [{\"type\": \"dance\"}]}", 400, "HRANA_PROTO_ERROR"),
        ("/v3/pipeline", "{\"baton\": \"forged\", \"requests\": []}", 400, "BATON_INVALID"),
        ("/v3/cursor", "{\"batch\": {}}", 400, "HRANA_PROTO_ERROR"),
        ("/db/nothere/v2/pipeline", "{\"requests\": []}", 404, "DATABASE_UNKNOWN"),
    ] {
        let response = served.post_bytes(path, &[], body.as_bytes());
        assert_eq!(response.header("content-type"), Some("application/json"), "{path} {body}");
        let document = response.json();
        assert_eq!((response.status, document["code"].as_str()), (status, Some(wanted)), "{path} {body}: {document}");
        assert!(!document["message"].as_str().unwrap_or_default().is_empty());
    }
}

#[test]
fn a_body_over_the_limit_is_refused_and_its_connection_survives() {
    let served = Served::with(Limits { body_bytes: 100_000, ..Limits::default() }, Tokens::default());
    let mut socket = served.socket();
    let body = vec![b'x'; 1_000_000];
    let head = format!("POST /db/main/sql HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    let answer = exchange(&mut socket, &[head.as_bytes(), &body].concat());
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("BODY_TOO_LARGE") && answer.contains("100000 bytes"), "{answer}");
    let body = json!({"sql": "SELECT 1"}).to_string();
    let head = format!("POST /db/main/sql HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    let answer = exchange(&mut socket, format!("{head}{body}").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200"), "the same connection is answered: {answer}");
}

#[test]
fn half_a_request_harms_nobody() {
    let served = Served::start();
    let mut socket = served.socket();
    socket
        .write_all(b"POST /db/main/sql HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{\"sql\"")
        .expect("half leaves");
    socket.shutdown(Shutdown::Write).expect("the rest never comes");
    let answer = exchange(&mut socket, b"");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    let mut socket = served.socket();
    let answer = exchange(&mut socket, b"no such protocol\r\n\r\n");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(served.rows("SELECT 1"), json!([[1]]));
}

#[test]
fn ten_megabytes_in_one_value_are_stored_and_what_is_beyond_the_limit_is_refused() {
    let served = Served::start();
    served.sql("CREATE TABLE t (v)");
    let value = "x".repeat(10_000_000);
    let stored = served.post("/db/main/sql", &json!({"sql": "INSERT INTO t VALUES (?)", "args": [value]}));
    assert_eq!(stored.status, 200);
    assert_eq!(served.rows("SELECT length(v) FROM t"), json!([[10_000_000]]));
    let beyond = "x".repeat(20_000_000);
    let refused = served.post("/db/main/sql", &json!({"sql": "INSERT INTO t VALUES (?)", "args": [beyond]}));
    let document = refused.json();
    assert_eq!((refused.status, code(&document)), (413, "VALUE_TOO_LARGE"));
    assert_eq!(served.rows("SELECT count(*) FROM t"), json!([[1]]));
}

#[test]
fn too_many_statements_are_refused_with_the_limit() {
    let served = Served::with(Limits { statements: 3, ..Limits::default() }, Tokens::default());
    let statements: Vec<Value> = (0..4).map(|_| json!({"sql": "SELECT 1"})).collect();
    let refused = served.post("/db/main/sql", &json!({"statements": statements})).json();
    assert_eq!(code(&refused), "TOO_MANY_STATEMENTS");
    let steps: Vec<Value> = (0..4).map(|_| json!({"stmt": {"sql": "SELECT 1"}})).collect();
    let batch = json!({"requests": [{"type": "batch", "batch": {"steps": steps}}]});
    let refused = served.post("/v2/pipeline", &batch).json();
    assert_eq!(refused["code"], "TOO_MANY_STATEMENTS");
}

#[test]
fn more_requests_than_the_limit_are_overloaded() {
    let served = Served::with(Limits { requests: 0, ..Limits::default() }, Tokens::default());
    let refused = served.post("/db/main/sql", &json!({"sql": "SELECT 1"}));
    assert_eq!((refused.status, code(&refused.json())), (503, "OVERLOADED"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(served.get("/health").status, 200);
}
