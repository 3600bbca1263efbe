//! Hrana's requests, one by one.

use serde_json::{Value, json};

use crate::harness::{Served, execute};

fn rows(result: &Value) -> &Value {
    &result["response"]["result"]["rows"]
}

#[test]
fn probes_answer() {
    let served = Served::start();
    for path in ["/v2", "/v3", "/db/main/v2", "/db/main/v3"] {
        assert_eq!(served.get(path).status, 200, "{path}");
    }
    assert_eq!(served.get("/db/nothere/v3").status, 404);
}

#[test]
fn execute_takes_and_gives_every_value() {
    let served = Served::start();
    let args = json!([{"type": "null"}, {"type": "integer", "value": "9223372036854775807"}, {"type": "float", "value": 1},
        {"type": "text", "value": "x"}, {"type": "blob", "base64": "AP8"}]);
    let execute = json!({"type": "execute", "stmt": {"sql": "SELECT ?, ?, ?, ?, ?", "args": args}});
    let named = json!({"type": "execute", "stmt": {"sql": "SELECT :a, @b, $c", "named_args": [
        {"name": "a", "value": {"type": "text", "value": "1"}}, {"name": "@b", "value": {"type": "text", "value": "2"}},
        {"name": "c", "value": {"type": "text", "value": "3"}}]}});
    let (baton, results) = served.pipeline(&Value::Null, json!([execute, named, {"type": "close"}]));
    assert!(baton.is_null(), "a closed stream has no baton");
    assert_eq!(
        rows(&results[0])[0],
        json!([{"type": "null"}, {"type": "integer", "value": "9223372036854775807"}, {"type": "float", "value": 1.0},
            {"type": "text", "value": "x"}, {"type": "blob", "base64": "AP8="}])
    );
    let texts: Vec<_> = rows(&results[1])[0].as_array().expect("a row").iter().map(|v| v["value"].as_str()).collect();
    assert_eq!(texts, [Some("1"), Some("2"), Some("3")]);
    assert_eq!(results[2]["response"], json!({"type": "close"}));
}

#[test]
fn all_requests_run_even_after_one_failed() {
    let served = Served::start();
    let (_, results) = served.pipeline(
        &Value::Null,
        json!([execute("CREATE TABLE t (a UNIQUE)"), execute("INSERT INTO t VALUES (1)"), execute("INSERT INTO t VALUES (1)"),
            execute("INSERT INTO t VALUES (2)"), execute("SELECT a FROM t ORDER BY a"), {"type": "close"}]),
    );
    let kinds: Vec<_> = results.iter().map(|result| result["type"].as_str()).collect();
    assert_eq!(kinds, [Some("ok"), Some("ok"), Some("error"), Some("ok"), Some("ok"), Some("ok")]);
    assert_eq!(results[2]["error"]["code"], "SQLITE_CONSTRAINT");
    assert_eq!(results[1]["response"]["result"]["affected_row_count"], 1);
    assert_eq!(results[3]["response"]["result"]["last_insert_rowid"], "2");
    assert_eq!(rows(&results[4]).as_array().map(Vec::len), Some(2));
}

#[test]
fn a_batch_follows_its_conditions() {
    let served = Served::start();
    served.sql("CREATE TABLE t (a UNIQUE)");
    let step = |condition: Value, sql: &str| json!({"condition": condition, "stmt": {"sql": sql}});
    let batch = json!({"type": "batch", "batch": {"steps": [
        {"stmt": {"sql": "BEGIN IMMEDIATE"}},
        step(json!({"type": "ok", "step": 0}), "INSERT INTO t VALUES (1)"),
        step(json!({"type": "ok", "step": 1}), "INSERT INTO t VALUES (1)"),
        step(json!({"type": "ok", "step": 2}), "COMMIT"),
        step(json!({"type": "not", "cond": {"type": "is_autocommit"}}), "SELECT 'open'"),
        step(json!({"type": "and", "conds": [{"type": "error", "step": 2}, {"type": "not", "cond": {"type": "ok", "step": 3}}]}), "ROLLBACK"),
        step(json!({"type": "or", "conds": [{"type": "ok", "step": 3}, {"type": "ok", "step": 5}]}), "SELECT count(*) FROM t"),
        step(json!({"type": "error", "step": 3}), "SELECT 'a skipped step is no error'"),
    ]}});
    let (_, results) = served.pipeline(&Value::Null, json!([batch, {"type": "get_autocommit"}, {"type": "close"}]));
    let result = &results[0]["response"]["result"];
    let ran: Vec<bool> = result["step_results"].as_array().expect("results").iter().map(|r| !r.is_null()).collect();
    assert_eq!(ran, [true, true, false, false, true, true, true, false]);
    let failed: Vec<bool> = result["step_errors"].as_array().expect("errors").iter().map(|r| !r.is_null()).collect();
    assert_eq!(failed, [false, false, true, false, false, false, false, false]);
    assert_eq!(result["step_errors"][2]["code"], "SQLITE_CONSTRAINT");
    assert_eq!(result["step_results"][6]["rows"][0][0]["value"], "0");
    assert_eq!(results[1]["response"]["is_autocommit"], true);
}

#[test]
fn texts_are_stored_until_they_are_closed() {
    let served = Served::start();
    let store = |id: i32| json!({"type": "store_sql", "sql_id": id, "sql": "SELECT 7"});
    let by_id = json!({"type": "execute", "stmt": {"sql_id": 1}});
    let (baton, results) = served.pipeline(
        &Value::Null,
        json!([store(1), by_id, store(1), {"type": "close_sql", "sql_id": 1}, {"type": "close_sql", "sql_id": 9}, by_id, store(1)]),
    );
    let kinds: Vec<_> = results.iter().map(|result| result["type"].as_str().unwrap_or_default()).collect();
    assert_eq!(kinds, ["ok", "ok", "error", "ok", "ok", "error", "ok"]);
    assert_eq!(rows(&results[1])[0][0]["value"], "7");
    let (_, results) = served.pipeline(&baton, json!([by_id, {"type": "close"}]));
    assert_eq!(rows(&results[0])[0][0]["value"], "7", "a text lives as long as its stream");
}

#[test]
fn describe_sequence_and_autocommit() {
    let served = Served::start();
    let sequence = "CREATE TABLE t (a INTEGER, b TEXT); INSERT INTO t VALUES (1, 'x'); SELECT * FROM t;";
    let (baton, results) = served.pipeline(
        &Value::Null,
        json!([{"type": "sequence", "sql": sequence}, {"type": "describe", "sql": "SELECT a, b, a+1 FROM t WHERE b = :b AND a = ?2"},
            {"type": "describe", "sql": "EXPLAIN DELETE FROM t"}, {"type": "describe", "sql": "DELETE FROM t"},
            {"type": "sequence", "sql": "INSERT INTO t VALUES (2, 'y'); nonsense; INSERT INTO t VALUES (3, 'z')"},
            execute("SELECT max(a) FROM t"), {"type": "get_autocommit"}, execute("BEGIN"), {"type": "get_autocommit"}]),
    );
    assert_eq!(results[0]["response"], json!({"type": "sequence"}));
    let described = &results[1]["response"]["result"];
    assert_eq!(described["params"], json!([{"name": ":b"}, {"name": "?2"}]));
    assert_eq!(described["cols"][0], json!({"name": "a", "decltype": "INTEGER"}));
    assert_eq!(described["cols"][2]["decltype"], Value::Null);
    assert_eq!((&described["is_explain"], &described["is_readonly"]), (&json!(false), &json!(true)));
    assert_eq!(results[2]["response"]["result"]["is_explain"], true);
    assert_eq!(results[3]["response"]["result"]["is_readonly"], false);
    assert_eq!(results[4]["type"], "error");
    assert_eq!(rows(&results[5])[0][0]["value"], "2", "a sequence stops at its first error");
    assert_eq!(results[6]["response"]["is_autocommit"], true);
    assert_eq!(results[8]["response"]["is_autocommit"], false);
    served.pipeline(&baton, json!([{"type": "close"}]));
}

#[test]
fn a_cursor_gives_its_rows_line_by_line() {
    let served = Served::start();
    let steps = json!([{"stmt": {"sql": "SELECT 1 AS a UNION ALL SELECT 2"}}, {"stmt": {"sql": "nonsense"}},
        {"condition": {"type": "ok", "step": 1}, "stmt": {"sql": "SELECT 3"}}]);
    let response = served.post("/v3/cursor", &json!({"batch": {"steps": steps}}));
    assert_eq!(response.status, 200);
    let text = String::from_utf8(response.body).expect("lines of text");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert!(lines[0]["baton"].is_string());
    let kinds: Vec<_> = lines[1..].iter().map(|line| line["type"].as_str().unwrap_or_default()).collect();
    assert_eq!(kinds, ["step_begin", "row", "row", "step_end", "step_error"]);
    assert_eq!(lines[1]["cols"][0]["name"], "a");
    assert_eq!(lines[3]["row"][0]["value"], "2");
    assert_eq!(lines[5]["step"], 1);
    served.pipeline(&lines[0]["baton"], json!([{"type": "close"}]));
}

#[test]
fn the_position_travels_in_a_header() {
    let served = Served::start();
    let body = json!({"requests": [execute("CREATE TABLE t (a)"), {"type": "close"}]});
    let written = served.post("/db/main/v3/pipeline", &body);
    let position = written.header("highwater-position").expect("a position").to_string();
    let body = json!({"requests": [execute("SELECT * FROM t"), {"type": "close"}]}).to_string();
    let read = served.post_bytes("/v2/pipeline", &[("highwater-min-position", &position)], body.as_bytes());
    assert_eq!(read.json()["results"][0]["type"], "ok");
    let later = format!("{}0000", position);
    let refused = served.post_bytes("/v2/pipeline", &[("highwater-min-position", &later)], body.as_bytes());
    assert_eq!((refused.status, refused.json()["code"].as_str()), (504, Some("POSITION_NOT_YET")));
}
