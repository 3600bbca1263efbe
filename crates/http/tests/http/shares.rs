//! What a reader cannot do to a writer, and one bearer to another.

use std::io::Write;

use highwater_http::{Limits, Tokens};
use serde_json::{Value, json};

use crate::harness::{Served, execute};

fn guarded(limits: Limits) -> Served {
    let tokens = Tokens::new(vec!["full".into(), "other".into()], vec!["read".into(), "reader".into()]);
    Served::with(limits, tokens)
}

fn message(document: &Value) -> &str {
    document["message"].as_str().or(document["error"]["message"].as_str()).unwrap_or_default()
}

#[test]
fn names_of_databases_are_told_to_nobody_without_a_token() {
    let served = guarded(Limits::default());
    for path in ["/db/main/v2", "/db/nothere/v2", "/db/main/v3", "/db/nothere/v3"] {
        assert_eq!(served.get(path).status, 200, "a stranger is told the same of every name: {path}");
    }
    assert_eq!(served.ask("read", "/db/nothere/v2", None).status, 404);
    assert_eq!(served.ask("read", "/db/main/v2", None).status, 200);
    for path in ["/nowhere", "/db/nothere/backup", "/db/main/sql", "/verify", "/metrics"] {
        let refused = served.get(path);
        assert_eq!(refused.status, 401, "{path}");
        assert!(!String::from_utf8_lossy(&refused.body).contains("main"), "{path}");
    }
    let forwarded = served.post_bytes("/db/main/sql", &[("highwater-forwarded", "2")], b"{\"sql\": \"SELECT 1\"}");
    assert_eq!(forwarded.status, 401, "posing as a node is no token");
}

#[test]
fn a_stream_belongs_to_its_token_and_an_attempt_of_another_does_it_no_harm() {
    let served = guarded(Limits::default());
    let ask = |token: &str, path: &str, baton: &Value, sql: &str| {
        let response = served.ask(token, path, Some(&json!({"baton": baton, "requests": [execute(sql)]})));
        (response.status, response.json())
    };
    ask("full", "/v2/pipeline", &Value::Null, "CREATE TABLE t (a)");
    let (_, opened) = ask("full", "/v2/pipeline", &Value::Null, "BEGIN IMMEDIATE");
    for thief in ["other", "read"] {
        let (status, refused) = ask(thief, "/v2/pipeline", &opened["baton"], "ROLLBACK");
        assert_eq!((status, refused["code"].as_str()), (400, Some("BATON_OF_ANOTHER_STREAM")), "{thief}");
        assert!(!message(&refused).contains("main"), "{refused}");
    }
    let (_, inserted) = ask("full", "/v2/pipeline", &opened["baton"], "INSERT INTO t VALUES (1)");
    let (_, committed) = ask("full", "/v2/pipeline", &inserted["baton"], "COMMIT");
    assert_eq!(committed["results"][0]["type"], "ok", "the rightful bearer goes on: {committed}");
}

#[test]
fn readers_have_half_of_the_streams() {
    let served = guarded(Limits { streams: 4, ..Limits::default() });
    let open = |token: &str| {
        let response = served.ask(token, "/v2/pipeline", Some(&json!({"requests": [execute("SELECT 1")]})));
        (response.status, response.json())
    };
    assert_eq!((open("read").0, open("reader").0), (200, 200));
    let (status, refused) = open("read");
    assert_eq!((status, refused["code"].as_str()), (503, Some("OVERLOADED")));
    assert!(message(&refused).contains("4 streams open") && message(&refused).contains("read tokens"), "{refused}");
    assert_eq!((open("full").0, open("full").0), (200, 200), "readers do not lock out a writer");
    assert!(message(&open("full").1).contains("4 streams open is the limit, and it is reached"));
}

#[test]
fn stored_texts_are_bounded_for_a_stream_and_for_all() {
    let served = Served::with(Limits { stored_bytes_all: 400, ..Limits::default() }, Tokens::default());
    let store = |id: usize, length: usize| json!({"type": "store_sql", "sql_id": id, "sql": "x".repeat(length)});
    let stored: Vec<Value> = (0..257).map(|id| store(id, 1)).chain([execute("SELECT 1")]).collect();
    let (baton, results) = served.pipeline(&Value::Null, json!(stored));
    assert_eq!(results[255]["type"], "ok");
    assert_eq!(results[256]["error"]["code"], "STORED_SQL_TOO_LARGE");
    assert!(message(&results[256]["error"]).contains("256 texts"), "{}", results[256]);
    assert_eq!(results[257]["type"], "ok", "the stream goes on");
    let (_, results) = served.pipeline(&Value::Null, json!([store(0, 50), {"type": "close"}]));
    assert_eq!(results[0]["error"]["code"], "OVERLOADED", "one client has 300 of the 400 bytes");
    served.pipeline(&baton, json!([{"type": "close"}]));
    let (_, results) = served.pipeline(&Value::Null, json!([store(0, 50), {"type": "close"}]));
    assert_eq!(results[0]["type"], "ok");
}

#[test]
fn a_batch_copies_stored_texts_up_to_a_bound() {
    let served = Served::start();
    let text = format!("SELECT 1 /*{}*/", "x".repeat(10_000_000));
    let steps: Vec<Value> = (0..7).map(|_| json!({"stmt": {"sql_id": 1}})).collect();
    let (_, results) = served.pipeline(
        &Value::Null,
        json!([{"type": "store_sql", "sql_id": 1, "sql": text}, {"type": "batch", "batch": {"steps": steps}}, {"type": "close"}]),
    );
    assert_eq!(results[1]["error"]["code"], "STORED_SQL_TOO_LARGE", "{}", results[1]);
}

#[test]
fn a_request_that_only_reads_takes_no_key() {
    let served = guarded(Limits::default());
    let keyed = |token: &str, sql: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("idempotency-key", "k")];
        served.post_bytes("/db/main/sql", &headers, json!({"sql": sql}).to_string().as_bytes())
    };
    assert_eq!(served.ask("full", "/db/main/sql", Some(&json!({"sql": "CREATE TABLE t (a)"}))).status, 200);
    let before = served.metric("highwater_log_end_offset");
    for (token, sql) in [("read", "SELECT 1"), ("read", "WITH x AS (SELECT 1) SELECT * FROM x"), ("full", "SELECT 2")] {
        assert_eq!(keyed(token, sql).status, 200, "{sql}");
    }
    assert_eq!(served.metric("highwater_log_end_offset"), before, "nothing was written");
    assert_eq!(keyed("full", "INSERT INTO t VALUES (1)").status, 200, "nobody has taken the key");
    assert_eq!(keyed("full", "INSERT INTO t VALUES (2)").status, 422);
    assert_eq!(keyed("read", "INSERT INTO t VALUES (1)").status, 403, "a reader learns no writer's answer");
}

#[test]
fn a_reader_is_told_what_is_wrong_with_his_statement() {
    let served = guarded(Limits::default());
    for (sql, status, code) in [
        ("SELECT * FROM missing", 400, "SQLITE_ERROR"),
        ("SELEKT 1", 400, "SQL_PARSE_ERROR"),
        ("CREATE TABLE t (a)", 403, "AUTH_READ_ONLY"),
    ] {
        let refused = served.ask("read", "/db/main/sql", Some(&json!({"sql": sql})));
        assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (status, Some(code)), "{sql}");
        let requests = json!({"requests": [execute(sql), {"type": "close"}]});
        let results = served.ask("read", "/v2/pipeline", Some(&requests)).json();
        assert_eq!(results["results"][0]["error"]["code"], code, "{sql}");
    }
}

#[test]
fn what_is_made_of_a_body_takes_room() {
    let served = Served::with(Limits { bodies_bytes: 4 << 20, ..Limits::default() }, Tokens::default());
    let body = format!("{{\"sql\": \"SELECT 1\", \"args\": [{}1]}}", "1,".repeat(500_000));
    let refused = served.post_bytes("/db/main/sql", &[], body.as_bytes());
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (503, Some("OVERLOADED")));
    assert_eq!(served.rows("SELECT 1"), json!([[1]]));
}

#[test]
fn requests_under_way_have_a_limit_and_readers_half_of_it() {
    let served = guarded(Limits { requests: 4, ..Limits::default() });
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    let body = json!({ "sql": endless }).to_string();
    let head = format!(
        "POST /db/main/sql HTTP/1.1\r\nhost: x\r\nauthorization: Bearer read\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let asking: Vec<_> = (0..2)
        .map(|_| {
            let mut socket = served.socket();
            socket.write_all(format!("{head}{body}").as_bytes()).expect("the request leaves");
            socket
        })
        .collect();
    served.until("two requests", |served| served.metric("highwater_requests_open") == 2.0);
    let refused = served.ask("reader", "/db/main/sql", Some(&json!({"sql": "SELECT 1"})));
    assert_eq!(refused.status, 503);
    assert!(message(&refused.json()).contains("4 requests under way"), "{}", refused.json());
    assert_eq!(served.ask("full", "/db/main/sql", Some(&json!({"sql": "SELECT 1"}))).status, 200);
    drop(asking);
    served.until("their end", |served| {
        served.ask("reader", "/db/main/sql", Some(&json!({"sql": "SELECT 1"}))).status == 200
    });
}

#[test]
fn a_reader_who_takes_every_thread_for_reading_keeps_no_writer_out() {
    let served = guarded(Limits { threads: 2, ..Limits::default() });
    served.ask("full", "/db/main/sql", Some(&json!({"sql": "CREATE TABLE t (a)"})));
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    let body = json!({ "sql": endless }).to_string();
    let request = format!(
        "POST /db/main/sql HTTP/1.1\r\nhost: x\r\nauthorization: Bearer read\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let asking: Vec<_> = (0..8)
        .map(|_| {
            let mut socket = served.socket();
            socket.write_all(request.as_bytes()).expect("the request leaves");
            socket
        })
        .collect();
    served.until("the requests", |served| served.metric("highwater_requests_open") == 8.0);
    for sql in ["SELECT count(*) FROM t", "INSERT INTO t VALUES (1)"] {
        assert_eq!(served.ask("full", "/db/main/sql", Some(&json!({ "sql": sql }))).status, 200, "{sql}");
    }
    drop(asking);
}

#[test]
fn what_is_answered_beside_rows_takes_room_and_messages_have_an_end() {
    let served = Served::with(Limits { answers_bytes: 40_000_000, ..Limits::default() }, Tokens::default());
    let long = "a".repeat(1_000_000);
    let refused = served.post("/db/main/sql", &json!({"sql": format!("SELECT t.\"{long}\"")}));
    let text = message(&refused.json()).to_string();
    assert!(refused.status == 400 && text.len() < 2100 && text.ends_with("... (cut)"), "{} bytes", text.len());
    let ask = |sql: String, request: Value| {
        let requests: Vec<Value> = std::iter::once(json!({"type": "store_sql", "sql_id": 1, "sql": sql}))
            .chain(std::iter::repeat_n(request, 10))
            .chain([json!({"type": "close"})])
            .collect();
        let (_, results) = served.pipeline(&Value::Null, json!(requests));
        results[1..11].iter().filter(|result| result["error"]["code"] == "OVERLOADED").count()
    };
    let named = format!("SELECT 1 AS \"{long}\"");
    // Seven times its length each, and what SQLite takes for the text while it runs: three or four fit.
    let executed = ask(named.clone(), json!({"type": "execute", "stmt": {"sql_id": 1}}));
    let described = ask(named, json!({"type": "describe", "sql_id": 1}));
    assert!((6..=8).contains(&executed) && (6..=8).contains(&described), "{executed}, {described} of 10 refused");
    let many = json!({"requests": vec![json!({"type": "get_autocommit"}); 60_000]});
    assert_eq!(served.post("/v2/pipeline", &many).status, 503, "512 bytes for each are more than 30,000,000");
    served.until("the room of answers", |served| served.metric("highwater_answers_bytes") == 0.0);
}
