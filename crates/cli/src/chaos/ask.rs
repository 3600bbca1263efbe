//! One request to one node, once: no search for a leader, no second attempt, nothing of the Rust client's, so that what nodes answer is seen as they answer it.

use std::io::ErrorKind;
use std::time::Duration;

use highwater_history::Position;
use serde_json::Value;
use ureq::{Error, Timeout};

/// How long a connection may take to open.
const CONNECT_MAX: Duration = Duration::from_millis(500);

/// How long a node may take to answer; longer than it is told to wait itself.
const ANSWER_MAX: Duration = Duration::from_secs(4);

/// How long a node is told to wait for an acknowledgement, in milliseconds.
pub(crate) const WAIT_MS: u64 = 2500;

/// A node, with a connection of one client's own.
pub(crate) struct Node {
    agent: ureq::Agent,
    pub(crate) id: u32,
    url: String,
}

/// What a node said.
pub(crate) enum Said {
    /// It is done: the results, and the position as its text.
    Done {
        results: Value,
        position: String,
    },
    Failed(String),
    Unknown(String),
}

impl Node {
    /// Connections to each of the nodes at these URLs.
    pub(crate) fn all(urls: &[String]) -> Vec<Node> {
        let node = |(id, url): (u32, &String)| {
            let config = ureq::Agent::config_builder()
                .http_status_as_error(false)
                .timeout_connect(Some(CONNECT_MAX))
                .timeout_global(Some(ANSWER_MAX))
                .build();
            Node { agent: config.into(), id, url: url.clone() }
        };
        (1..).zip(urls).map(node).collect()
    }

    /// Asks for a transaction. `query` is what follows the question mark.
    pub(crate) fn ask(&self, query: &str, body: &[u8], key: Option<&str>) -> Said {
        let url = format!("{}/db/main/sql?{query}", self.url);
        let mut request = self.agent.post(url).header("content-type", "application/json");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let mut response = match request.send(body) {
            Ok(response) => response,
            Err(error) if nothing_was_sent(&error) => return Said::Failed("UNREACHABLE".into()),
            Err(Error::Timeout(_)) => return Said::Unknown("NO_ANSWER".into()),
            Err(_) => return Said::Unknown("CONNECTION_BROKEN".into()),
        };
        let good = response.status().is_success();
        let document = response.body_mut().read_to_vec().ok().and_then(|body| serde_json::from_slice(&body).ok());
        read(good, document.unwrap_or_default())
    }
}

fn nothing_was_sent(error: &Error) -> bool {
    match error {
        Error::Io(error) => error.kind() == ErrorKind::ConnectionRefused,
        Error::Timeout(Timeout::Connect) | Error::ConnectionFailed => true,
        _ => false,
    }
}

/// Whatever is not said clearly is unknown.
fn read(good: bool, mut document: Value) -> Said {
    if good {
        return match document["position"].as_str().map(str::to_string) {
            Some(position) => Said::Done { results: document["results"].take(), position },
            None => Said::Unknown("MALFORMED".into()),
        };
    }
    let error = &document["error"];
    let code = error["code"].as_str().unwrap_or("MALFORMED").to_string();
    if error["outcome"] == "failed" { Said::Failed(code) } else { Said::Unknown(code) }
}

/// A position's text, `PARTITION:EPOCH:OFFSET`, as histories have it.
pub(crate) fn position(text: &str) -> Option<Position> {
    let mut parts = text.split(':').skip(1);
    let epoch = match parts.next()? {
        "-" => None,
        number => Some(number.parse().ok()?),
    };
    Some(Position { epoch, offset: parts.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_said_to_have_failed_has() {
        let said = |good, document| match read(good, document) {
            Said::Done { position, .. } => format!("done at {position}"),
            Said::Failed(code) => format!("failed: {code}"),
            Said::Unknown(code) => format!("unknown: {code}"),
        };
        assert_eq!(said(true, json!({"results": [], "position": "1:2:3"})), "done at 1:2:3");
        assert_eq!(said(true, json!({"results": []})), "unknown: MALFORMED");
        assert_eq!(said(false, json!({"error": {"code": "X", "outcome": "failed"}})), "failed: X");
        assert_eq!(said(false, json!({"error": {"code": "X", "outcome": "unknown"}})), "unknown: X");
        assert_eq!(said(false, json!({"error": {"code": "X"}})), "unknown: X");
        assert_eq!(said(false, Value::Null), "unknown: MALFORMED");
    }

    #[test]
    fn positions_lose_their_partition() {
        assert_eq!(position("1:4:9"), Some(Position { epoch: Some(4), offset: 9 }));
        assert_eq!(position("1:-:0"), Some(Position { epoch: None, offset: 0 }));
        assert_eq!((position("1:4"), position("x")), (None, None));
    }
}
