//! What no well-behaved client sends. Every refusal has a fitting status and says what was wanted and that nothing happened; the node goes on.

use std::io::Read;
use std::net::{Shutdown, TcpStream};

use serde_json::{Value, json};

use crate::http::{Connection, JSON, Response};
use crate::node::Node;

/// That an answer is an error in the form that plain HTTP has, of this status, and that the request had no effect. Returns its code.
fn refused(response: &Response, status: u16, what: &str) -> String {
    let body = String::from_utf8_lossy(&response.body);
    assert_eq!(response.status, status, "{what}: {body}");
    let error = &response.json()["error"];
    assert_eq!(error["outcome"], "failed", "{what}: {body}");
    assert!(error["message"].as_str().is_some_and(|message| message.len() > 10), "{what}: {body}");
    error["code"].as_str().unwrap_or_else(|| panic!("{what} has no code: {body}")).to_owned()
}

/// That the node still runs, and holds what it held.
fn goes_on(node: &mut Node, rows: u64) {
    assert!(node.is_running(), "the node ended:\n{}", node.log());
    assert_eq!(node.rows("SELECT count(*) FROM kept"), json!([[rows]]));
    assert!(!node.log().contains("panicked"), "something panicked:\n{}", node.log());
}

/// A node with one row in the table `kept`.
fn node_with_a_row() -> Node {
    let node = Node::start();
    node.rows("CREATE TABLE kept (id INTEGER PRIMARY KEY, value)");
    node.rows("INSERT INTO kept (value) VALUES ('first')");
    node
}

#[test]
fn malformed_requests_over_plain_http() {
    let mut node = node_with_a_row();
    let mut connection = Connection::open(node.address());
    let bodies: &[&[u8]] = &[
        b"",
        b"{",
        b"{\"sql\": \"SELECT 1\"",
        b"\xff\xfe\x00",
        b"null",
        b"5",
        b"\"SELECT 1\"",
        b"[]",
        b"{}",
        b"{\"sql\": 5}",
        b"{\"sql\": null}",
        b"{\"sql\": [\"DELETE FROM kept\"]}",
        b"{\"sql\": \"DELETE FROM kept\", \"unknown\": 1}",
        b"{\"sql\": \"DELETE FROM kept\", \"args\": 5}",
        b"{\"sql\": \"DELETE FROM kept WHERE id = ?\", \"args\": [[1]]}",
        b"{\"sql\": \"DELETE FROM kept WHERE id = ?\", \"args\": [{\"base64\": \"!\"}]}",
        b"{\"sql\": \"DELETE FROM kept WHERE id = ?\", \"args\": [{\"base32\": \"\"}]}",
        b"{\"sql\": \"DELETE FROM kept WHERE id < ?\", \"args\": [18446744073709551616]}",
        b"{\"sql\": \"DELETE FROM kept WHERE id = ?\"}",
        b"{\"sql\": \"DELETE FROM kept WHERE id = ?\", \"args\": [1, 2]}",
        b"{\"sql\": \"DELETE FROM kept WHERE id = :id\", \"args\": {\"other\": 1}}",
        b"{\"sql\": \"DELETE FROM kept\", \"statements\": [{\"sql\": \"DELETE FROM kept\"}]}",
        b"{\"statements\": []}",
        b"{\"statements\": {}}",
        b"{\"statements\": [\"DELETE FROM kept\"]}",
        b"{\"statements\": [{\"sql\": \"DELETE FROM kept\"}, {}]}",
        b"{\"sql\": \"\"}",
        b"{\"sql\": \"DELETE FROM kept; DELETE FROM kept\"}",
        b"{\"sql\": \"DELETE FRM kept\"}",
        b"{\"sql\": \"DELETE FROM nowhere\"}",
        b"{\"sql\": \"DELETE FROM kept\\u0000 WHERE 0\"}",
    ];
    for body in bodies {
        let response = connection.request("POST", "/db/main/sql", &JSON, body);
        refused(&response, 400, &String::from_utf8_lossy(body));
    }
    // As deep as a stack is not.
    let deep = format!("{{\"sql\": \"SELECT ?\", \"args\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    refused(&connection.request("POST", "/db/main/sql", &JSON, deep.as_bytes()), 400, "deep");
    let nested = json!({ "sql": format!("SELECT {}1{}", "(".repeat(50_000), ")".repeat(50_000)) }).to_string();
    refused(&connection.request("POST", "/db/main/sql", &JSON, nested.as_bytes()), 400, "nested");

    let options = ["ack=maybe", "freshness=yesterday", "wait_ms=-1", "wait_ms=99999999", "integers=roman", "nothing=1"];
    let positions = ["min_position=", "min_position=1", "min_position=1:x:1", "min_position=7:0:1"];
    for query in options.iter().chain(&positions) {
        let path = format!("/db/main/sql?{query}");
        refused(&connection.request("POST", &path, &JSON, b"{\"sql\": \"DELETE FROM kept\"}"), 400, query);
    }
    let long = "k".repeat(256);
    let keyed =
        connection.request("POST", "/db/main/sql", &[("idempotency-key", &long)], b"{\"sql\": \"DELETE FROM kept\"}");
    refused(&keyed, 400, "a key of 256 bytes");
    goes_on(&mut node, 1);
}

#[test]
fn what_is_not_there() {
    let mut node = node_with_a_row();
    let mut connection = Connection::open(node.address());
    let sql = b"{\"sql\": \"SELECT 1\"}";
    for name in ["other", "Main", "main%20", "..", "%2e%2e%2fmain", "%ff"] {
        let response = connection.request("POST", &format!("/db/{name}/sql"), &JSON, sql);
        assert!([400, 404].contains(&response.status), "{name}: {}", response.status);
        assert!(!response.json()["error"]["code"].is_null(), "{name}");
    }
    let unknown = connection.request("POST", "/db/other/sql", &JSON, sql);
    assert_eq!(refused(&unknown, 404, "unknown database"), "DATABASE_UNKNOWN");
    let hrana = connection.request("POST", "/db/other/v2/pipeline", &JSON, b"{\"requests\": []}");
    assert_eq!((hrana.status, hrana.json()["code"].as_str()), (404, Some("DATABASE_UNKNOWN")));
    refused(&connection.request("GET", "/nowhere", &[], b""), 404, "unknown path");
    refused(&connection.request("GET", "/db/main/sql", &[], b""), 405, "wrong method");
    refused(&connection.request("DELETE", "/db/main/sql", &[], b""), 405, "wrong method");

    for arguments in [&["sql", "--db", "other", "-c", "SELECT 1"][..], &["verify", "--db", "other"]] {
        let output = node.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("other"), "{arguments:?}: {said}");
    }
    goes_on(&mut node, 1);
}

#[test]
fn malformed_requests_over_hrana() {
    let mut node = node_with_a_row();
    let mut connection = Connection::open(node.address());
    let bodies = [
        "",
        "{",
        "[]",
        "{\"requests\": 5}",
        "{\"requests\": [5]}",
        "{\"requests\": [{\"type\": \"explode\"}]}",
        "{\"requests\": [{\"type\": \"execute\"}]}",
        "{\"requests\": [{\"type\": \"execute\", \"stmt\": {\"sql\": \"SELECT ?\", \"args\": [{\"type\": \"integer\", \"value\": \"x\"}]}}]}",
        "{\"requests\": [{\"type\": \"execute\", \"stmt\": {\"sql\": \"SELECT ?\", \"args\": [{\"type\": \"moon\"}]}}]}",
    ];
    for body in bodies {
        let response = connection.request("POST", "/v2/pipeline", &JSON, body.as_bytes());
        let answer = response.json();
        assert_eq!(response.header("content-type"), Some("application/json"), "{body}");
        let (code, message) = match response.status {
            // Refused as a whole, or each request for itself.
            400 => (&answer["code"], &answer["message"]),
            200 => (&answer["results"][0]["error"]["code"], &answer["results"][0]["error"]["message"]),
            other => panic!("{body}: {other}: {answer}"),
        };
        assert!(code.is_string() && message.is_string(), "{body}: {answer}");
    }
    // Errors inside a pipeline have each its own place, and what follows them runs.
    let request = |sql: &str| json!({ "type": "execute", "stmt": { "sql": sql } });
    let pipeline = json!({ "requests": [
        request("SELEC"),
        { "type": "execute", "stmt": { "sql_id": 9 } },
        { "type": "batch", "batch": { "steps": [
            { "condition": { "type": "ok", "step": 5 }, "stmt": { "sql": "DELETE FROM kept" } },
        ] } },
        request("INSERT INTO kept (value) VALUES ('second')"),
        { "type": "close" },
    ] });
    let (status, answer) = connection.post("/v3/pipeline", &pipeline);
    assert_eq!(status, 200, "{answer}");
    let types: Vec<&Value> =
        answer["results"].as_array().expect("a list").iter().map(|result| &result["type"]).collect();
    assert_eq!(types, ["error", "error", "error", "ok", "ok"], "{answer}");
    goes_on(&mut node, 2);
}

#[test]
fn batons_that_are_forged_or_used_twice() {
    let mut node = node_with_a_row();
    let mut connection = Connection::open(node.address());
    let select = json!({ "type": "execute", "stmt": { "sql": "SELECT 1" } });
    let (status, first) = connection.post("/v2/pipeline", &json!({ "requests": [select] }));
    assert_eq!(status, 200, "{first}");
    let baton = first["baton"].as_str().expect("the stream stays open").to_owned();
    let mut flipped = baton.clone().into_bytes();
    let middle = flipped.len() / 2;
    flipped[middle] = if flipped[middle] == b'A' { b'B' } else { b'A' };
    let flipped = String::from_utf8(flipped).expect("ASCII stays ASCII");
    let forged = [flipped.as_str(), "", "x", "AAAAAAAAAAAAAAAA", &baton[1..], "\u{1f6a2}"];
    for text in forged {
        let (status, answer) = connection.post("/v2/pipeline", &json!({ "baton": text, "requests": [select] }));
        assert_eq!(status, 400, "{text:?}: {answer}");
        assert!(
            answer["code"].as_str().is_some_and(|code| code.contains("BATON") || code == "STREAM_EXPIRED"),
            "{answer}"
        );
    }
    // The true one still works after all that, and only once.
    let (status, second) = connection.post("/v2/pipeline", &json!({ "baton": baton, "requests": [select] }));
    assert_eq!(status, 200, "{second}");
    assert_ne!(second["baton"], first["baton"]);
    let (status, again) = connection.post("/v2/pipeline", &json!({ "baton": baton, "requests": [select] }));
    assert_eq!(status, 400, "{again}");
    assert!(again["code"].is_string() && again["message"].is_string(), "{again}");
    goes_on(&mut node, 1);
}

#[test]
fn a_body_of_a_hundred_megabytes() {
    let mut node = node_with_a_row();
    let mut connection = Connection::open(node.address());
    let body = vec![b' '; 100 << 20];
    for path in ["/db/main/sql", "/v2/pipeline"] {
        let response = connection.request("POST", path, &JSON, &body);
        assert_eq!(response.status, 413, "{path}");
        assert!(String::from_utf8_lossy(&response.body).contains("limit"), "{path}: the refusal states the limit");
    }
    goes_on(&mut node, 1);
}

#[test]
fn values_up_to_the_limit_are_kept_and_larger_ones_refused() {
    let mut node = node_with_a_row();
    let mut connection = Connection::open(node.address());
    let insert = |value: String| json!({ "sql": "INSERT INTO kept (value) VALUES (?)", "args": [value] });
    let (status, answer) = connection.post("/db/main/sql", &insert("x".repeat(10 << 20)));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(node.rows("SELECT length(value) FROM kept WHERE id = 2"), json!([[10 << 20]]));

    // Beyond the limit, as an argument and as what SQL itself makes of a small one.
    let large = connection.request("POST", "/db/main/sql", &JSON, insert("x".repeat(50 << 20)).to_string().as_bytes());
    refused(&large, 413, "a value of 50 MiB");
    let grown = json!({ "sql": "INSERT INTO kept (value) VALUES (zeroblob(500000000))" }).to_string();
    refused(&connection.request("POST", "/db/main/sql", &JSON, grown.as_bytes()), 413, "a value that SQL made");
    goes_on(&mut node, 2);

    // What was kept is kept over a restart.
    node.kill();
    node.restart();
    assert_eq!(node.rows("SELECT id, length(value) FROM kept ORDER BY id"), json!([[1, 5], [2, 10 << 20]]));
    goes_on(&mut node, 2);
}

#[test]
fn half_a_request() {
    let mut node = node_with_a_row();
    let sql = "{\"sql\": \"DELETE FROM kept\"}";
    let head = format!(
        "POST /db/main/sql HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        sql.len()
    );
    let whole = format!("{head}{sql}");
    // Held open while others are served: a client that sends no more keeps nobody waiting.
    let mut held = Vec::new();
    for end in [0, 1, 10, head.len() - 2, head.len(), head.len() + 1, whole.len() - 1] {
        for close in [false, true] {
            let mut connection = Connection::open(node.address());
            connection.send(&whole.as_bytes()[..end]).expect("the node reads");
            if close {
                drop(connection);
            } else {
                held.push(connection);
            }
        }
    }
    goes_on(&mut node, 1);
    drop(held);
    for bytes in
        [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], b"GET\r\n\r\n", b"\0\0\0\0\r\n\r\n", &[b'A'; 100_000]]
    {
        let mut stream = TcpStream::connect(node.address()).expect("the node accepts a connection");
        // The node may close before all of it was sent; then it has refused it, which is the point.
        let _ = std::io::Write::write_all(&mut stream, bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    }
    goes_on(&mut node, 1);
}

#[test]
fn sql_that_is_refused_changes_nothing() {
    let mut node = node_with_a_row();
    let refusals = [
        "ATTACH DATABASE ':memory:' AS other",
        "DETACH DATABASE main",
        "SELECT load_extension('x')",
        "PRAGMA writable_schema = on",
        "PRAGMA key = 'x'",
        "DELETE FROM sqlite_schema",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT zeroblob(1000000000) FROM r",
    ];
    for sql in refusals {
        let (status, answer) = node.sql(sql);
        assert!((400..500).contains(&status), "{sql}: {status} {answer}");
        assert_eq!(answer["error"]["outcome"], "failed", "{sql}: {answer}");
    }
    let failing = json!({ "statements": [
        { "sql": "DELETE FROM kept" }, { "sql": "CREATE TABLE other (a)" }, { "sql": "INSERT INTO nowhere VALUES (1)" },
    ] });
    let (status, answer) = Connection::open(node.address()).post("/db/main/sql", &failing);
    assert_eq!(status, 400, "{answer}");
    assert_eq!(node.rows("SELECT count(*) FROM sqlite_schema WHERE name = 'other'"), json!([[0]]));
    goes_on(&mut node, 1);
}
