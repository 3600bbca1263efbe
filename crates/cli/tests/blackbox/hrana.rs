//! One Hrana stream over HTTP, held by its baton.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::http::{Connection, JSON};

/// A stream that was opened by its first request.
pub(crate) struct Stream {
    connection: Connection,
    baton: Option<String>,
}

impl Stream {
    /// A stream of that node's default database.
    pub(crate) fn open(host: SocketAddr) -> Stream {
        Stream { connection: Connection::open(host), baton: None }
    }

    /// Runs requests in order; each has its own result.
    ///
    /// # Panics
    /// If the pipeline as a whole is refused, or the stream does not stay open.
    pub(crate) fn pipeline(&mut self, requests: &[Value]) -> Vec<Result<Value, Value>> {
        let body = json!({ "baton": self.baton, "requests": requests });
        let response = self.connection.request("POST", "/v3/pipeline", &JSON, body.to_string().as_bytes());
        assert_eq!(response.status, 200, "{}", String::from_utf8_lossy(&response.body));
        assert_eq!(response.header("content-type"), Some("application/json"), "clients compare it literally");
        let mut answer = response.json();
        let baton = answer["baton"].as_str().map(str::to_owned);
        assert!(baton.is_some() && baton != self.baton, "a stream that stays open hands out a new baton");
        self.baton = baton;
        let results = answer["results"].as_array_mut().map(std::mem::take).unwrap_or_default();
        assert_eq!(results.len(), requests.len(), "every request has a result");
        results
            .into_iter()
            .map(|mut result| match result["type"].as_str() {
                Some("ok") => Ok(result["response"].take()),
                Some("error") => Err(result["error"].take()),
                _ => panic!("a result is ok or error: {result}"),
            })
            .collect()
    }
}

/// A request that executes one statement.
pub(crate) fn execute(sql: &str) -> Value {
    json!({ "type": "execute", "stmt": { "sql": sql, "want_rows": true } })
}
