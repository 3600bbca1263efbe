//! Streams over several requests: transactions, batons, and every way a stream ends.

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use highwater_http::{Limits, Tokens};
use serde_json::{Value, json};

use crate::harness::{Served, execute};

fn refused(served: &Served, baton: &Value) -> (String, String) {
    let response = served.post("/v2/pipeline", &json!({"baton": baton, "requests": [execute("COMMIT")]}));
    let document = response.json();
    assert_eq!(response.status, 400, "{document}");
    let text = |name: &str| document[name].as_str().unwrap_or_default().to_string();
    (text("code"), text("message"))
}

#[test]
fn a_transaction_spans_requests_and_two_interleave() {
    let served = Served::start();
    served.sql("CREATE TABLE t (a)");
    let (writer, _) =
        served.pipeline(&Value::Null, json!([execute("BEGIN IMMEDIATE"), execute("INSERT INTO t VALUES (1)")]));
    let (reader, results) =
        served.pipeline(&Value::Null, json!([execute("BEGIN READONLY"), execute("SELECT count(*) FROM t")]));
    assert_eq!(results[1]["response"]["result"]["rows"][0][0]["value"], "0", "nothing uncommitted is seen");
    let (writer, results) = served.pipeline(&writer, json!([execute("SELECT count(*) FROM t"), execute("COMMIT")]));
    assert_eq!(results[0]["response"]["result"]["rows"][0][0]["value"], "1", "one's own writes are seen");
    let (_, results) = served.pipeline(&reader, json!([execute("SELECT count(*) FROM t"), {"type": "close"}]));
    assert_eq!(results[0]["response"]["result"]["rows"][0][0]["value"], "0", "a read transaction keeps its snapshot");
    assert_eq!(served.rows("SELECT count(*) FROM t"), json!([[1]]));
    let (_, results) = served.pipeline(&writer, json!([execute("BEGIN"), execute("DELETE FROM t"), {"type": "close"}]));
    assert!(results.iter().all(|result| result["type"] == "ok"));
    assert_eq!(served.rows("SELECT count(*) FROM t"), json!([[1]]), "closing rolls back");
}

#[test]
fn a_baton_is_good_for_one_request() {
    let served = Served::start();
    let (first, _) = served.pipeline(&Value::Null, json!([execute("SELECT 1")]));
    let (second, _) = served.pipeline(&first, json!([execute("SELECT 1")]));
    assert_ne!(first, second);
    assert_eq!(refused(&served, &first).0, "BATON_OUTDATED");
    let (_, results) = served.pipeline(&second, json!([execute("SELECT 1"), {"type": "close"}]));
    assert_eq!(results[0]["type"], "ok", "an outdated baton does no harm to its stream");
    assert_eq!(refused(&served, &second).0, "STREAM_EXPIRED");
    assert_eq!(refused(&served, &json!("AAAA")).0, "BATON_INVALID");
    let mut forged = second.as_str().expect("a baton").to_string();
    let flipped = if forged.ends_with('A') { 'B' } else { 'A' };
    forged.replace_range(forged.len() - 2..forged.len() - 1, &flipped.to_string());
    assert_eq!(refused(&served, &json!(forged)).0, "BATON_INVALID");
}

#[test]
fn an_idle_stream_ends_and_says_what_was_lost() {
    let limits = Limits {
        stream_idle: Duration::from_millis(1),
        transaction_idle: Duration::from_millis(1),
        ..Limits::default()
    };
    let served = Served::with(limits, Tokens::default());
    served.sql("CREATE TABLE t (a)");
    let (outside, _) = served.pipeline(&Value::Null, json!([execute("SELECT 1")]));
    let (inside, _) =
        served.pipeline(&Value::Null, json!([execute("BEGIN IMMEDIATE"), execute("INSERT INTO t VALUES (1)")]));
    served.until("the end of the idle streams", |served| served.metric("highwater_streams_open") == 0.0);
    let (code, message) = refused(&served, &outside);
    assert_eq!(code, "STREAM_EXPIRED");
    assert!(message.contains("no transaction was open"), "{message}");
    let (code, message) = refused(&served, &inside);
    assert_eq!(code, "TRANSACTION_TIMEOUT");
    assert!(message.contains("rolled back"), "{message}");
    served.sql("INSERT INTO t VALUES (2)");
    assert_eq!(served.rows("SELECT a FROM t"), json!([[2]]), "the writer was given back");
}

#[test]
fn a_restart_ends_streams_and_keeps_what_was_committed() {
    let served = Served::start();
    served.sql("CREATE TABLE t (a)");
    let (outside, _) = served.pipeline(&Value::Null, json!([execute("INSERT INTO t VALUES (1)")]));
    let (inside, _) = served.pipeline(&Value::Null, json!([execute("BEGIN"), execute("INSERT INTO t VALUES (2)")]));
    let served = Served::on(served.into_folder(), Limits::default(), Tokens::default());
    assert_eq!(served.rows("SELECT a FROM t"), json!([[1]]));
    let (code, message) = refused(&served, &outside);
    assert_eq!(code, "STREAM_EXPIRED");
    assert!(message.contains("restarted") && message.contains("no transaction was open"), "{message}");
    let (code, message) = refused(&served, &inside);
    assert_eq!(code, "STREAM_EXPIRED");
    assert!(message.contains("transaction is lost") && message.contains("unknown"), "{message}");
}

#[test]
fn a_broken_connection_ends_its_stream() {
    let served = Served::start();
    served.sql("CREATE TABLE t (a)");
    let (baton, _) = served.pipeline(&Value::Null, json!([execute("BEGIN IMMEDIATE")]));
    let slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 30000000) SELECT count(*) FROM n";
    let body =
        json!({"baton": baton, "requests": [execute("INSERT INTO t VALUES (1)"), execute(slow), execute("COMMIT")]})
            .to_string();
    let mut socket = served.socket();
    let head = format!("POST /v2/pipeline HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    socket.write_all(format!("{head}{body}").as_bytes()).expect("the request leaves");
    served.until("the request", |served| served.metric("highwater_requests_open") == 1.0);
    socket.shutdown(Shutdown::Both).expect("the connection breaks");
    served.until("the end of the stream", |served| served.metric("highwater_streams_open") == 0.0);
    let (code, message) = refused(&served, &baton);
    assert_eq!(code, "STREAM_EXPIRED", "{message}");
    assert!(message.contains("broke") && message.contains("unknown"), "{message}");
}

#[test]
fn more_streams_than_the_limit_are_refused() {
    let served = Served::with(Limits { streams: 1, ..Limits::default() }, Tokens::default());
    let (baton, _) = served.pipeline(&Value::Null, json!([execute("SELECT 1")]));
    let response = served.post("/v2/pipeline", &json!({"requests": [execute("SELECT 1")]}));
    assert_eq!((response.status, response.json()["code"].as_str()), (503, Some("OVERLOADED")));
    served.pipeline(&baton, json!([{"type": "close"}]));
    served.pipeline(&Value::Null, json!([execute("SELECT 1"), {"type": "close"}]));
}
