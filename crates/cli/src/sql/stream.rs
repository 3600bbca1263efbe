//! A Hrana stream as the shell uses it: statements in order, temporary tables, settings and transactions kept.

use serde_json::{Value, json};

use crate::client::{Client, ClientError};

/// What one statement gave, in the form of plain JSON.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rows {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<Value>>,
    pub(crate) affected: u64,
    pub(crate) last_insert_rowid: Option<i64>,
}

impl Rows {
    /// As the JSON of `POST /db/NAME/sql`.
    pub(crate) fn document(&self) -> Value {
        json!({"columns": self.columns, "rows": self.rows, "affected": self.affected, "last_insert_rowid": self.last_insert_rowid})
    }

    /// From the JSON of `POST /db/NAME/sql`.
    pub(crate) fn from_plain(result: &Value) -> Rows {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        Rows {
            columns: list(&result["columns"]).iter().filter_map(|name| name.as_str().map(str::to_string)).collect(),
            rows: list(&result["rows"]).iter().map(list).collect(),
            affected: result["affected"].as_u64().unwrap_or(0),
            last_insert_rowid: result["last_insert_rowid"].as_i64(),
        }
    }

    fn from_hrana(result: &Value) -> Rows {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        Rows {
            columns: list(&result["cols"])
                .iter()
                .map(|column| column["name"].as_str().unwrap_or_default().to_string())
                .collect(),
            rows: list(&result["rows"]).iter().map(|row| list(row).iter().map(plain).collect()).collect(),
            affected: result["affected_row_count"].as_u64().unwrap_or(0),
            last_insert_rowid: result["last_insert_rowid"].as_str().and_then(|text| text.parse().ok()),
        }
    }
}

/// A value of Hrana's in its plain form.
fn plain(value: &Value) -> Value {
    match value["type"].as_str() {
        Some("integer") => {
            value["value"].as_str().and_then(|text| text.parse::<i64>().ok()).map_or(Value::Null, Value::from)
        }
        Some("float") | Some("text") => value["value"].clone(),
        Some("blob") => json!({"base64": value["base64"]}),
        _ => Value::Null,
    }
}

/// An error of one statement, or of the request that carried it.
#[derive(Clone, Debug)]
pub(crate) enum StreamError {
    /// The statement's own.
    Statement { code: String, message: String },
    /// The request's: the stream is gone, and with it whatever was open on it.
    Request(ClientError),
}

impl std::fmt::Display for StreamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StreamError::Statement { code, message } => write!(f, "{message} ({code})"),
            StreamError::Request(error) => error.fmt(f),
        }
    }
}

impl StreamError {
    /// With what to do instead, where the way it was tried cannot work.
    pub(crate) fn advised(mut self) -> StreamError {
        let (StreamError::Statement { code, message }
        | StreamError::Request(ClientError::Refused { code, message, .. })) = &mut self
        else {
            return self;
        };
        if code == "TRANSACTION_TIMEOUT" || code == "TRANSACTION_TOO_LARGE" {
            message.push_str(
                ". A transaction as large as this is better made on a SQLite file, to be taken in by `highwater db import FILE`",
            );
        }
        self
    }

    /// As a JSON document.
    pub(crate) fn document(&self) -> Value {
        match self {
            StreamError::Statement { code, message } => {
                let outcome = if code == "OUTCOME_UNKNOWN" || code == "TIMED_OUT" { "unknown" } else { "failed" };
                json!({"error": {"code": code, "message": message, "outcome": outcome}})
            }
            StreamError::Request(error) => error.document(),
        }
    }
}

/// A stream, opened by its first request.
pub(crate) struct Stream {
    client: Client,
    path: String,
    baton: Option<String>,
    /// The position of the last answer.
    pub(crate) position: Option<String>,
}

impl Stream {
    pub(crate) fn new(client: Client, db: &str, query: &str) -> Stream {
        Stream { client, path: format!("/db/{db}/v3/pipeline{query}"), baton: None, position: None }
    }

    fn pipeline(&mut self, requests: Vec<Value>) -> Result<Vec<Value>, ClientError> {
        let body = json!({"baton": self.baton, "requests": requests});
        let answer = match self.client.post(&self.path, &body, None) {
            Ok(answer) => answer,
            Err(error) => {
                self.baton = None;
                return Err(error);
            }
        };
        self.baton = answer.document["baton"].as_str().map(str::to_string);
        if answer.position.is_some() {
            self.position = answer.position;
        }
        Ok(answer.document["results"].as_array().cloned().unwrap_or_default())
    }

    /// Runs statements in order up to the first that fails. Returns what those before it gave, and its error.
    pub(crate) fn run(&mut self, statements: &[&str]) -> (Vec<Rows>, Option<StreamError>) {
        let steps: Vec<Value> = statements
            .iter()
            .enumerate()
            .map(|(at, sql)| match at {
                0 => json!({"stmt": {"sql": sql}}),
                _ => json!({"condition": {"type": "ok", "step": at - 1}, "stmt": {"sql": sql}}),
            })
            .collect();
        let request = match statements {
            [sql] => json!({"type": "execute", "stmt": {"sql": sql}}),
            _ => json!({"type": "batch", "batch": {"steps": steps}}),
        };
        let mut results = match self.pipeline(vec![request]) {
            Ok(results) => results,
            Err(error) => return (Vec::new(), Some(StreamError::Request(error))),
        };
        let mut result = results.pop().unwrap_or_default();
        let failed = |error: &Value| {
            let text = |name: &str| error[name].as_str().unwrap_or_default().to_string();
            Some(StreamError::Statement { code: text("code"), message: text("message") })
        };
        if result["type"] != "ok" {
            return (Vec::new(), failed(&result["error"]));
        }
        let result = result["response"]["result"].take();
        if statements.len() == 1 {
            return (vec![Rows::from_hrana(&result)], None);
        }
        let given = result["step_results"].as_array().into_iter().flatten();
        let rows = given.take_while(|step| !step.is_null()).map(Rows::from_hrana).collect();
        let error = result["step_errors"].as_array().into_iter().flatten().find(|error| !error.is_null());
        (rows, error.and_then(failed))
    }

    /// Ends the stream; what is open on it is rolled back.
    pub(crate) fn close(&mut self) {
        if self.baton.is_some() {
            // A stream that cannot be closed idles out.
            let _ = self.pipeline(vec![json!({"type": "close"})]);
        }
        self.baton = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_faces_give_the_same_rows() {
        let hrana = json!({"cols": [{"name": "a"}], "rows": [[{"type": "integer", "value": "9007199254740993"}],
            [{"type": "float", "value": 0.5}], [{"type": "text", "value": "x"}], [{"type": "blob", "base64": "AQ"}], [{"type": "null"}]],
            "affected_row_count": 2, "last_insert_rowid": "7"});
        let plain = json!({"columns": ["a"], "rows": [[9007199254740993_i64], [0.5], ["x"], [{"base64": "AQ"}], [null]],
            "affected": 2, "last_insert_rowid": 7});
        assert_eq!(Rows::from_hrana(&hrana), Rows::from_plain(&plain));
        assert_eq!(Rows::from_plain(&plain).document(), plain);
    }
}
