//! Health, readiness, status, metrics, verify.

use serde_json::json;

use crate::harness::Served;

#[test]
fn everything_that_is_watched_answers() {
    let served = Served::start();
    served.sql("CREATE TABLE t (a)");
    assert_eq!(served.get("/health").json(), json!({"status": "ok"}));
    assert_eq!(served.get("/ready").json(), json!({"status": "ready"}));
    assert_eq!(served.get("/").json()["name"], "highwater");

    let status = served.get("/status").json();
    assert_eq!(status["nodes"][0]["node"], 1);
    let partition = &status["partitions"][0];
    assert_eq!((&partition["name"], &partition["leader"], &partition["isr"]), (&json!("main"), &json!(1), &json!([1])));
    assert_eq!(partition["commit_rule"], "quorum:1");
    for figure in ["epoch", "version", "hw", "write_rate", "commit_ms_p50", "commit_ms_p99"] {
        assert!(partition[figure].is_number(), "{figure}: {partition}");
    }
    let replica = &partition["replicas"][0];
    assert_eq!((&replica["node"], &replica["in_sync"], &replica["leo"]), (&json!(1), &json!(true), &partition["hw"]));
    for figure in ["leo", "hw", "applied", "lag_entries", "lag_ms", "ms_since_heard", "apply_rate"] {
        assert!(replica[figure].is_number(), "{figure}: {replica}");
    }

    assert!(served.metric("highwater_requests_total{face=\"sql\"}") >= 1.0);
    assert_eq!(served.metric("highwater_leads{database=\"main\"}"), 1.0);
    assert_eq!(
        served.metric("highwater_high_watermark{database=\"main\"}"),
        partition["hw"].as_f64().expect("a number")
    );
}

#[test]
fn the_hash_is_that_of_the_content() {
    let (a, b) = (Served::start(), Served::start());
    for served in [&a, &b] {
        served.sql("CREATE TABLE t (a)");
        served.sql("INSERT INTO t VALUES (1)");
    }
    let hash = |served: &Served| served.get("/verify?db=main").json()["hash"].as_str().map(str::to_string);
    assert!(hash(&a).is_some_and(|hash| hash.len() == 64));
    assert_eq!(hash(&a), hash(&b));
    b.sql("UPDATE t SET a = 2");
    assert_ne!(hash(&a), hash(&b));
    assert_eq!(a.get("/verify?db=nothere").status, 404);
    assert_eq!(a.get("/verify?what=main").status, 400);
}
