//! `POST /db/NAME/sql`.

use serde_json::json;

use crate::harness::Served;

#[test]
fn statements_run_and_every_value_comes_back() {
    let served = Served::start();
    served.sql("CREATE TABLE t (id INTEGER PRIMARY KEY, v)");
    let answer = served.post(
        "/db/main/sql",
        &json!({"statements": [
            {"sql": "INSERT INTO t (v) VALUES (?), (?), (?), (?), (?)", "args": [null, 9007199254740993_i64, 1.0, "ü\n", {"base64": "AP8="}]},
            {"sql": "SELECT v, :x AS x FROM t ORDER BY id", "args": {"x": true}},
        ]}),
    );
    assert_eq!(answer.status, 200);
    let document = answer.json();
    assert_eq!(document["results"][0]["affected"], 5);
    assert_eq!(document["results"][0]["last_insert_rowid"], 5);
    assert_eq!(document["results"][1]["columns"], json!(["v", "x"]));
    assert_eq!(
        document["results"][1]["rows"],
        json!([[null, 1], [9007199254740993_i64, 1], [1.0, 1], ["ü\n", 1], [{"base64": "AP8="}, 1]])
    );
    let text = String::from_utf8(answer.body).expect("JSON is text");
    assert!(text.contains("[1.0,1]"), "a real keeps its fraction: {text}");
    let strings = served.post("/db/main/sql?integers=string", &json!({"sql": "SELECT 9007199254740993, 7"})).json();
    assert_eq!(strings["results"][0]["rows"], json!([["9007199254740993", 7]]));
    let infinite = served.post("/db/main/sql", &json!({"sql": "SELECT 9e999, -9e999"}));
    assert!(String::from_utf8_lossy(&infinite.body).contains("[[1e999,-1e999]]"));
}

#[test]
fn several_statements_are_one_transaction() {
    let served = Served::start();
    served.sql("CREATE TABLE t (id INTEGER PRIMARY KEY)");
    let failed = served.post(
        "/db/main/sql",
        &json!({"statements": [{"sql": "INSERT INTO t VALUES (1)"}, {"sql": "INSERT INTO t VALUES (1)"}]}),
    );
    assert_eq!(failed.status, 409);
    let error = &failed.json()["error"];
    assert_eq!((error["code"].as_str(), error["outcome"].as_str()), (Some("SQLITE_CONSTRAINT"), Some("failed")));
    assert_eq!(served.rows("SELECT count(*) FROM t"), json!([[0]]));
}

#[test]
fn a_position_may_be_asked_for_again() {
    let served = Served::start();
    let written = served.sql("CREATE TABLE t (a)");
    let position = written["position"].as_str().expect("a write returns its position").to_string();
    let path = format!("/db/main/sql?min_position={position}&freshness=eventual");
    assert_eq!(served.post(&path, &json!({"sql": "SELECT * FROM t"})).status, 200);

    let mut parts: Vec<String> = position.split(':').map(str::to_string).collect();
    parts[2] = "1000000".into();
    let later =
        served.post(&format!("/db/main/sql?min_position={}&wait_ms=1", parts.join(":")), &json!({"sql": "SELECT 1"}));
    assert_eq!((later.status, later.json()["error"]["code"].as_str()), (504, Some("POSITION_NOT_YET")));

    let mut parts: Vec<String> = position.split(':').map(str::to_string).collect();
    parts[1] = "77".into();
    let truncated = served.post(&format!("/db/main/sql?min_position={}", parts.join(":")), &json!({"sql": "SELECT 1"}));
    assert_eq!((truncated.status, truncated.json()["error"]["code"].as_str()), (409, Some("POSITION_TRUNCATED")));

    let elsewhere = served.post("/db/main/sql?min_position=99:0:0", &json!({"sql": "SELECT 1"}));
    assert_eq!(elsewhere.json()["error"]["code"], "POSITION_OF_ANOTHER_DATABASE");
}

#[test]
fn an_idempotency_key_has_one_effect() {
    let served = Served::start();
    served.sql("CREATE TABLE t (a)");
    let body = json!({"sql": "INSERT INTO t VALUES (1) RETURNING a"}).to_string();
    let first = served.post_bytes("/db/main/sql", &[("idempotency-key", "k")], body.as_bytes());
    let second = served.post_bytes("/db/main/sql", &[("idempotency-key", "k")], body.as_bytes());
    assert_eq!((first.status, second.status), (200, 200));
    assert_eq!(first.json()["results"], second.json()["results"], "a repetition gets the same answer");
    assert_eq!(served.rows("SELECT count(*) FROM t"), json!([[1]]));
    let other = json!({"sql": "INSERT INTO t VALUES (2)"}).to_string();
    let third = served.post_bytes("/db/main/sql", &[("idempotency-key", "k")], other.as_bytes());
    assert_eq!((third.status, third.json()["error"]["code"].as_str()), (422, Some("IDEMPOTENCY_MISMATCH")));
    let long = "k".repeat(256);
    let refused = served.post_bytes("/db/main/sql", &[("idempotency-key", &long)], body.as_bytes());
    assert_eq!(refused.json()["error"]["code"], "IDEMPOTENCY_KEY_INVALID");
}

#[test]
fn an_early_acknowledgement_says_so() {
    let served = Served::start();
    let early = served.post("/db/main/sql?ack=leader", &json!({"sql": "CREATE TABLE t (a)"})).json();
    assert_eq!(early["ack"], "leader");
    let full = served.post("/db/main/sql?ack=committed", &json!({"sql": "INSERT INTO t VALUES (1)"})).json();
    assert!(full.get("ack").is_none());
}
