//! Tokens.

use highwater_http::{BindError, Limits, Server, ServerConfig, Tokens};
use serde_json::json;

use crate::harness::{Served, execute};

#[test]
fn readers_read_and_nobody_comes_in_without_a_token() {
    let tokens = Tokens::new(vec!["full".into()], vec!["read".into()]);
    let served = Served::with(Limits::default(), tokens);
    let ask = |token: &str, path: &str, body: serde_json::Value| {
        let bearer = format!("Bearer {token}");
        let response = served.post_bytes(path, &[("authorization", &bearer)], body.to_string().as_bytes());
        (response.status, response.json())
    };
    let refused = served.post("/db/main/sql", &json!({"sql": "SELECT 1"}));
    assert_eq!(refused.status, 401);
    assert_eq!(refused.header("connection"), Some("close"), "its body was not read, so nothing may follow it");
    assert_eq!(served.get("/status").status, 401);
    assert_eq!(served.get("/db/main/backup").status, 401);
    assert_eq!(served.get("/ready").status, 200, "probes need no token");
    assert_eq!(ask("wrong", "/db/main/sql", json!({"sql": "SELECT 1"})).0, 401);

    assert_eq!(ask("full", "/db/main/sql", json!({"sql": "CREATE TABLE t (a)"})).0, 200);
    assert_eq!(ask("read", "/db/main/sql", json!({"sql": "SELECT * FROM t"})).0, 200);
    for sql in ["INSERT INTO t VALUES (1)", "WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x", "DROP TABLE t"] {
        let (status, document) = ask("read", "/db/main/sql", json!({"sql": sql}));
        assert_eq!((status, document["error"]["code"].as_str()), (403, Some("AUTH_READ_ONLY")), "{sql}");
    }

    let requests = json!({"requests": [execute("BEGIN"), execute("SELECT count(*) FROM t"), execute("INSERT INTO t VALUES (1)"),
        execute("COMMIT"), {"type": "sequence", "sql": "DELETE FROM t"}, execute("BEGIN IMMEDIATE")]});
    let (status, document) = ask("read", "/v2/pipeline", requests);
    let codes: Vec<_> =
        document["results"].as_array().expect("results").iter().map(|r| r["error"]["code"].as_str()).collect();
    let refused = Some("AUTH_READ_ONLY");
    assert_eq!((status, codes), (200, vec![None, None, refused, None, refused, refused]));
    assert_eq!(
        ask("full", "/db/main/sql", json!({"sql": "SELECT count(*) FROM t"})).1["results"][0]["rows"],
        json!([[0]])
    );
    let (status, document) = ask("none", "/v2/pipeline", json!({"requests": []}));
    assert_eq!((status, document["code"].as_str()), (401, Some("AUTH_TOKEN_INVALID")));
}

#[tokio::test]
async fn an_address_that_others_reach_is_not_listened_on_without_tokens_a_secret_and_tls() {
    let bind = |tokens: Tokens, has_cluster_secret, plain| {
        let listen = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
        Server::bind(ServerConfig { tokens, has_cluster_secret, plain, ..ServerConfig::new(listen) })
    };
    let tokens = Tokens::new(vec!["t".into()], vec![]);
    assert!(matches!(bind(Tokens::default(), true, true).await, Err(BindError::Refused(_))));
    assert!(matches!(bind(tokens.clone(), false, true).await, Err(BindError::Refused(_))));
    assert!(matches!(bind(tokens.clone(), true, false).await, Err(BindError::Refused(_))));
    assert!(bind(tokens, true, true).await.is_ok());
}
