//! What one attempt at one node came to.

use highwater_wire::Position;

use crate::answer::{self, Reading, ResultSet};
use crate::error::Failed;
use crate::http::{Broken, Response};

/// One attempt's outcome.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// Done there.
    Done { results: Vec<ResultSet>, position: Position },
    /// Done there; the rows cannot be read.
    Unreadable { position: Position, reason: String },
    /// Without effect.
    Failed(Failed),
    /// Perhaps with an effect.
    Unknown {
        position: Option<Position>,
        reason: String,
        /// Whether to ask again, if that does no harm.
        retryable: bool,
        /// Whether the node was silent until the time ran out.
        silent: bool,
    },
}

impl Attempt {
    /// Reads what an exchange with `url` came to.
    pub(crate) fn of(exchanged: Result<Response, Broken>, url: &str) -> Attempt {
        let response = match exchanged {
            Ok(response) => response,
            Err(Broken { sent: false, tls: true, reason, .. }) => {
                return Attempt::Failed(Failed::own("TLS_FAILED", reason, true));
            }
            Err(Broken { sent: false, reason, .. }) => {
                return Attempt::Failed(Failed::own("UNREACHABLE", format!("{url}: {reason}"), true));
            }
            Err(Broken { timed_out, reason, .. }) => {
                let reason = format!("{url}: {reason}");
                return Attempt::Unknown { position: None, reason, retryable: true, silent: timed_out };
            }
        };
        match answer::read(response.status, &response.body) {
            Reading::Done { results, position } => Attempt::Done { results, position },
            Reading::Unreadable { position, reason } => Attempt::Unreadable { position, reason },
            Reading::Failed(failed) => Attempt::Failed(failed),
            Reading::Unknown { position, reason, retryable } => {
                Attempt::Unknown { position, reason, retryable, silent: false }
            }
            // Whoever it was may have handed the request on.
            Reading::Foreign(reason) => Attempt::Unknown {
                position: None,
                reason: format!("{url} does not answer like Highwater: {reason}"),
                retryable: true,
                silent: false,
            },
        }
    }

    /// The same for what only reads, which never has an effect.
    pub(crate) fn of_a_read(self) -> Attempt {
        match self {
            Attempt::Unknown { reason, retryable, .. } => Attempt::Failed(Failed::own("NO_ANSWER", reason, retryable)),
            other => other,
        }
    }
}
