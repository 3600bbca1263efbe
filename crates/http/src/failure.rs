//! Errors as clients meet them: a code, a message, and whether the request had no effect (*failed*) or may have one (*unknown*).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use highwater_node::{Outcome, ProposeError, Unavailable};
use highwater_sql::SqlError;
use highwater_wire::Position;
use serde::Serialize;

/// A request that was not answered as asked.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The HTTP status.
    pub(crate) status: StatusCode,
    /// For programs.
    pub(crate) code: String,
    /// For people: what was wanted, what was found, what to do.
    pub(crate) message: String,
    /// The request may have an effect, now or later. Otherwise it has none and never will.
    pub(crate) unknown: bool,
    /// Where the effect would be: ask for this position to learn what became of it.
    pub(crate) position: Option<Position>,
    /// Which statement of the request it is about, from 0.
    pub(crate) statement: Option<usize>,
}

/// The most bytes of a message that a client is told. Some name what the client sent, which may be megabytes.
const MESSAGE_MAX_BYTES: usize = 2 << 10;

/// Cuts a message that is longer than any should be.
pub(crate) fn shorten(message: &mut String) {
    if message.len() > MESSAGE_MAX_BYTES {
        let end = (0..=MESSAGE_MAX_BYTES).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
        message.push_str("... (cut)");
        message.shrink_to_fit();
    }
}

impl Failure {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Failure {
        let mut message = message.into();
        shorten(&mut message);
        Failure { status, code: code.into(), message, unknown: false, position: None, statement: None }
    }

    /// 400: the request itself is wrong.
    pub(crate) fn bad(code: &str, message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// 401: there are tokens, and the request bears none.
    pub(crate) fn token_missing() -> Failure {
        Failure::new(
            StatusCode::UNAUTHORIZED,
            "AUTH_TOKEN_MISSING",
            "this cluster wants a token: send the header `authorization: Bearer TOKEN`",
        )
    }

    /// What a request that wrote and whose wait ended without an outcome must say.
    pub(crate) fn unknown_at(mut self, position: Option<Position>) -> Failure {
        self.unknown = true;
        self.position = position;
        self
    }

    /// An error of SQL's, at that statement.
    pub(crate) fn sql(error: SqlError, statement: Option<usize>) -> Failure {
        Failure { statement, ..Failure::new(status_of(&error.code), &error.code, error.message) }
    }

    /// The same as an error in the place of one Hrana request's response.
    pub(crate) fn into_sql_error(self) -> SqlError {
        SqlError { code: self.code, message: self.message, offset: None }
    }

    /// `{"error": {"code", "message", "outcome", "position"?, "statement"?}}`.
    pub(crate) fn plain(self) -> Response {
        #[derive(Serialize)]
        struct Inner<'a> {
            code: &'a str,
            message: &'a str,
            outcome: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            position: Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            statement: Option<usize>,
        }
        #[derive(Serialize)]
        struct Outer<'a> {
            error: Inner<'a>,
        }
        let body = Outer {
            error: Inner {
                code: &self.code,
                message: &self.message,
                outcome: if self.unknown { "unknown" } else { "failed" },
                position: self.position.map(|position| position.to_string()),
                statement: self.statement,
            },
        };
        respond(self.status, &body)
    }

    /// `{"message", "code"}`, as Hrana's clients read the body of a status that is not 200.
    pub(crate) fn hrana(self) -> Response {
        respond(self.status, &serde_json::json!({"message": self.message, "code": self.code}))
    }
}

impl From<Unavailable> for Failure {
    fn from(reason: Unavailable) -> Failure {
        let message = reason.to_string();
        let (status, code) = match reason {
            Unavailable::UnknownDatabase { .. } => (StatusCode::NOT_FOUND, "DATABASE_UNKNOWN"),
            Unavailable::NotServing { .. } => (StatusCode::SERVICE_UNAVAILABLE, "DATABASE_NOT_SERVING"),
            Unavailable::Overloaded(_) => (StatusCode::SERVICE_UNAVAILABLE, "OVERLOADED"),
            Unavailable::TimedOut { .. } => (StatusCode::GATEWAY_TIMEOUT, "TIMED_OUT"),
            Unavailable::ShuttingDown => (StatusCode::SERVICE_UNAVAILABLE, "SHUTTING_DOWN"),
        };
        Failure::new(status, code, message)
    }
}

/// What an outcome that is not `Done` says. Whether a lost answer had an effect of its own, `wrote` tells.
pub(crate) fn of_outcome(outcome: Outcome, wrote: bool) -> Failure {
    let unavailable = |code: &str, message: String| Failure::new(StatusCode::SERVICE_UNAVAILABLE, code, message);
    match outcome {
        Outcome::Done(_) => unreachable!("an outcome that is done is no failure"),
        Outcome::Refused(error) => {
            let code = match &error {
                ProposeError::NotLeader { .. } => "NOT_LEADER",
                ProposeError::TooFewInReach { .. } => "TOO_FEW_REPLICAS",
                _ => "REFUSED",
            };
            unavailable(code, format!("the write was not appended and has no effect: {error}"))
        }
        Outcome::Full(reason) => Failure::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "DISK_FULL",
            format!("the write has no effect: {reason}; reads go on, and writes again when there is space"),
        ),
        Outcome::Unknown(position) => unavailable(
            "OUTCOME_UNKNOWN",
            format!("leadership was lost before the write was acknowledged: it may be committed later, or cut. Read with min_position={position} to learn which"),
        )
        .unknown_at(Some(position)),
        Outcome::Lost(error) if wrote => {
            unavailable("OUTCOME_UNKNOWN", format!("the write may be committed or not: {error}")).unknown_at(None)
        }
        Outcome::Lost(error) => unavailable("LEADERSHIP_LOST", format!("nothing happened; ask again: {error}")),
        Outcome::Truncated { found } => Failure::new(
            StatusCode::CONFLICT,
            "POSITION_TRUNCATED",
            match found {
                Some(epoch) => format!("that position was truncated at a failover: the log is of epoch {epoch} there"),
                None => "that position was truncated at a failover: the log holds nothing there".to_string(),
            },
        ),
        Outcome::Halted(reason) => {
            let failure = unavailable("PARTITION_HALTED", format!("this replica has stopped: {reason}"));
            if wrote { failure.unknown_at(None) } else { failure }
        }
    }
}

/// The status that fits an error of SQL's.
fn status_of(code: &str) -> StatusCode {
    match code {
        "SQLITE_CONSTRAINT" | "NOT_EMPTY" => StatusCode::CONFLICT,
        "IDEMPOTENCY_MISMATCH" => StatusCode::UNPROCESSABLE_ENTITY,
        "VALUE_TOO_LARGE"
        | "STORED_SQL_TOO_LARGE"
        | "STATEMENT_TOO_LARGE"
        | "TRANSACTION_TOO_LARGE"
        | "RESPONSE_TOO_LARGE" => StatusCode::PAYLOAD_TOO_LARGE,
        "SQLITE_FULL" | "TEMPORARY_SPACE_FULL" => StatusCode::INSUFFICIENT_STORAGE,
        "CANCELLED"
        | "SQLITE_BUSY"
        | "SQLITE_LOCKED"
        | "TRANSACTION_BUSY"
        | "TRANSACTION_TIMEOUT"
        | "NOT_LEADER"
        | "NOT_READY"
        | "CLOSED"
        | "OVERLOADED" => StatusCode::SERVICE_UNAVAILABLE,
        "SQLITE_AUTH" | "SQLITE_READONLY" | "SQLITE_PERM" => StatusCode::FORBIDDEN,
        "SQLITE_IOERR" | "SQLITE_CORRUPT" | "SQLITE_NOTADB" | "SQLITE_NOMEM" | "SQLITE_INTERNAL"
        | "SQLITE_CANTOPEN" | "DATABASE_DAMAGED" => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// Whether a path is one of Hrana's, whose clients look for errors at the top of the body.
pub(crate) fn is_hrana(path: &str) -> bool {
    ["/v2", "/v3", "/pipeline", "/cursor"].iter().any(|end| path.ends_with(end))
}

/// A JSON answer. The content type is exactly `application/json`: a client in wide use ignores error codes under any other.
pub(crate) fn respond(status: StatusCode, body: &impl Serialize) -> Response {
    let bytes = serde_json::to_vec(body).expect("answers are made of strings, numbers and lists");
    let mut response = (status, bytes).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
