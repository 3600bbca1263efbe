//! Requests that a page in somebody's browser may make.

use highwater_http::{Limits, ServerConfig, Tokens};
use tempfile::TempDir;

use crate::harness::{Served, exchange};

const BODY: &str = r#"{"sql": "SELECT 1"}"#;

fn send(served: &Served, method: &str, headers: &str) -> String {
    let head = format!("{method} /db/main/sql HTTP/1.1\r\n{headers}content-length: {}\r\n\r\n{BODY}", BODY.len());
    exchange(&mut served.socket(), head.as_bytes()).to_lowercase()
}

fn listed(tokens: Tokens) -> Served {
    Served::configured(TempDir::new().expect("a temporary folder"), |config| ServerConfig {
        origins: vec!["https://app.example".into()],
        tokens,
        ..config
    })
}

#[test]
fn without_a_token_only_names_of_this_machine_are_served() {
    let served = Served::start();
    for host in ["localhost:8080", "127.0.0.1", "[::1]:1"] {
        assert!(send(&served, "POST", &format!("host: {host}\r\n")).starts_with("http/1.1 200"), "{host}");
    }
    for host in ["attacker.example", "10.0.0.1:8080", "localhost.attacker.example"] {
        let refused = send(&served, "POST", &format!("host: {host}\r\n"));
        assert!(refused.starts_with("http/1.1 403") && refused.contains("host_refused"), "{host}: {refused}");
    }
    let guarded = Served::with(Limits::default(), Tokens::new(vec!["full".into()], vec![]));
    let named = send(&guarded, "POST", "host: db.example\r\nauthorization: Bearer full\r\n");
    assert!(named.starts_with("http/1.1 200"), "a token keeps such pages out: {named}");
}

#[test]
fn without_a_token_pages_of_other_origins_are_refused() {
    let served = Served::start();
    let own = send(&served, "POST", "host: localhost:1\r\norigin: http://localhost:1\r\n");
    assert!(own.starts_with("http/1.1 200") && !own.contains("access-control"), "{own}");
    for origin in ["null", "https://attacker.example", "http://localhost:2", "https://app.example"] {
        let refused = send(&served, "POST", &format!("host: localhost:1\r\norigin: {origin}\r\n"));
        assert!(refused.starts_with("http/1.1 403") && refused.contains("origin_refused"), "{origin}: {refused}");
        assert!(!refused.contains("access-control"), "{refused}");
    }
}

#[test]
fn a_listed_origin_may_ask_and_read_the_answer_and_nobody_else() {
    for (tokens, bearer) in
        [(Tokens::default(), ""), (Tokens::new(vec!["full".into()], vec![]), "authorization: Bearer full\r\n")]
    {
        let served = listed(tokens);
        let from = |origin: &str| format!("host: localhost:1\r\norigin: {origin}\r\n");
        let asked = send(&served, "POST", &format!("{}{bearer}", from("https://app.example")));
        assert!(asked.starts_with("http/1.1 200"), "{asked}");
        assert!(asked.contains("access-control-allow-origin: https://app.example"), "{asked}");
        let preflight = "connection: close\r\naccess-control-request-method: POST\r\naccess-control-request-headers: authorization\r\n";
        let may = send(&served, "OPTIONS", &format!("{}{preflight}", from("https://app.example")));
        assert!(
            may.starts_with("http/1.1 204") && may.contains("access-control-allow-headers: authorization"),
            "{may}"
        );
        let not = send(&served, "OPTIONS", &format!("{}{preflight}", from("https://attacker.example")));
        assert!(not.starts_with("http/1.1 403") && !not.contains("access-control-allow"), "{not}");
    }
}
