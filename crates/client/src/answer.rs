//! What is answered, and how an HTTP response is read as one of the three outcomes.

use std::time::Instant;

use highwater_wire::Position;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::error::Failed;

/// The rows of one statement.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ResultSet {
    /// The columns' names.
    pub columns: Vec<String>,
    /// The rows. INTEGER, REAL and TEXT are JSON's numbers and strings, a blob is `{"base64": "..."}`.
    pub rows: Vec<Vec<Value>>,
    /// How many rows were inserted, changed or deleted.
    pub affected: u64,
    /// SQLite's last inserted rowid after the statement.
    pub last_insert_rowid: i64,
}

/// A transaction that is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// One for each statement.
    pub results: Vec<ResultSet>,
    /// The state that the answer shows; after a write, the end of the transaction.
    pub position: Position,
    /// The node that answered, as `http://HOST:PORT`.
    pub url: String,
    /// How often it was asked, until this answer.
    pub attempts: u32,
    /// When the attempt that was answered was sent.
    pub sent: Instant,
}

/// An HTTP response, read.
#[derive(Debug, PartialEq)]
pub(crate) enum Reading {
    Done {
        results: Vec<ResultSet>,
        position: Position,
    },
    /// Done, and the rows cannot be read.
    Unreadable {
        position: Position,
        reason: String,
    },
    Failed(Failed),
    Unknown {
        position: Option<Position>,
        reason: String,
        /// Whether it makes sense to ask again.
        retryable: bool,
    },
    /// An answer that is none of Highwater's: it says nothing of the outcome.
    Foreign(String),
}

#[derive(Deserialize)]
struct Good {
    results: Vec<ResultSet>,
    position: String,
}

#[derive(Deserialize)]
struct GoodWithoutRows {
    #[serde(rename = "results")]
    _results: IgnoredAny,
    position: String,
}

#[derive(Deserialize)]
struct Bad {
    error: BadInner,
}

#[derive(Deserialize)]
struct BadInner {
    code: String,
    message: String,
    outcome: String,
    #[serde(default)]
    position: Option<String>,
    #[serde(default)]
    statement: Option<usize>,
}

/// Reads a response. 503 and 504 are what passes; every other failure is the request's own, and meets every node alike.
pub(crate) fn read(status: u16, body: &[u8]) -> Reading {
    if (200..300).contains(&status) {
        return good(status, body);
    }
    let bad: Bad = match serde_json::from_slice(body) {
        Ok(bad) => bad,
        Err(error) => return Reading::Foreign(format!("status {status} and a body that is no error ({error})")),
    };
    let Bad { error: BadInner { code, message, outcome, position, statement } } = bad;
    let retryable = matches!(status, 503 | 504);
    match outcome.as_str() {
        "failed" => Reading::Failed(Failed { code, message, status: Some(status), statement, retryable }),
        "unknown" => Reading::Unknown {
            position: position.and_then(|text| text.parse().ok()),
            reason: format!("{message} ({code})"),
            retryable,
        },
        other => Reading::Foreign(format!("an error whose outcome is {other:?}, neither failed nor unknown")),
    }
}

fn good(status: u16, body: &[u8]) -> Reading {
    let reason = match serde_json::from_slice::<Good>(body) {
        Ok(Good { results, position }) => match position.parse() {
            Ok(position) => return Reading::Done { results, position },
            Err(reason) => return Reading::Foreign(reason),
        },
        Err(error) => error.to_string(),
    };
    let position = serde_json::from_slice::<GoodWithoutRows>(body).ok().and_then(|good| good.position.parse().ok());
    match position {
        Some(position) => Reading::Unreadable { position, reason },
        None => Reading::Foreign(format!("status {status} and a body that is no answer ({reason})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(text: &str) -> Position {
        text.parse().expect("a position")
    }

    #[test]
    fn a_good_answer_is_done() {
        let body =
            br#"{"results":[{"columns":["a"],"rows":[[1]],"affected":0,"last_insert_rowid":3}],"position":"1:2:3"}"#;
        let Reading::Done { results, position: at } = read(200, body) else { panic!("not done") };
        assert_eq!((results[0].rows.len(), results[0].last_insert_rowid, at), (1, 3, position("1:2:3")));
    }

    #[test]
    fn rows_that_cannot_be_read_do_not_hide_that_it_is_done() {
        let body = br#"{"results":[{"columns":["a"],"rows":[[1e999]],"affected":0,"last_insert_rowid":3}],"position":"1:2:3"}"#;
        let reading = read(200, body);
        assert!(matches!(reading, Reading::Unreadable { position: at, .. } if at == position("1:2:3")), "{reading:?}");
    }

    #[test]
    fn errors_say_whether_they_failed_and_whether_they_pass() {
        let passing = read(503, br#"{"error":{"code":"NOT_LEADER","message":"m","outcome":"failed"}}"#);
        assert!(matches!(&passing, Reading::Failed(failed) if failed.retryable && failed.code == "NOT_LEADER"));
        let wrong =
            read(409, br#"{"error":{"code":"SQLITE_CONSTRAINT","message":"m","outcome":"failed","statement":1}}"#);
        assert!(matches!(&wrong, Reading::Failed(failed) if !failed.retryable && failed.statement == Some(1)));
        let unknown = read(503, br#"{"error":{"code":"X","message":"m","outcome":"unknown","position":"1:2:3"}}"#);
        assert!(
            matches!(unknown, Reading::Unknown { position: Some(at), retryable: true, .. } if at == position("1:2:3"))
        );
        let bug = read(500, br#"{"error":{"code":"INTERNAL","message":"m","outcome":"unknown"}}"#);
        assert!(matches!(bug, Reading::Unknown { position: None, retryable: false, .. }));
    }

    #[test]
    fn what_is_not_highwater_says_nothing() {
        for (status, body) in
            [(200, "hello"), (502, "<html>"), (503, r#"{"error":{"code":"X","message":"m","outcome":"?"}}"#)]
        {
            assert!(matches!(read(status, body.as_bytes()), Reading::Foreign(_)), "{status} {body}");
        }
    }
}
