//! How a call ends that was not answered as asked.

use highwater_wire::Position;

/// Why there is no answer, and what that means for the transaction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The transaction has no effect and never will.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The transaction may have an effect, now or later. Ask again with the same key to learn what became of it; that never does it twice.
    #[error("whether the transaction took effect is not known: {reason}")]
    Unknown {
        /// Where the effect would be, if a node said so: a read with this as its least position tells whether it is there.
        position: Option<Position>,
        /// The idempotency key it was sent with; `None` if it was sent without one, and then never repeated.
        key: Option<String>,
        /// What happened last.
        reason: String,
    },
    /// The transaction is done, and its rows cannot be read: a number is beyond what a double holds, or the answer is longer than is taken.
    #[error("the transaction is done at {position}, and its answer cannot be read: {reason}")]
    Unreadable {
        /// Where it is done.
        position: Position,
        /// What stands in the way.
        reason: String,
    },
}

/// A failure without an effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct Failed {
    /// For programs: the server's code, or `URL_INVALID`, `CA_INVALID`, `TLS_FAILED`, `UNREACHABLE`, `NOT_HIGHWATER`, `NO_ANSWER` (a read alone) of the client's own.
    pub code: String,
    /// For people.
    pub message: String,
    /// The HTTP status, if a node answered.
    pub status: Option<u16>,
    /// Which statement of the transaction it is about, from 0.
    pub statement: Option<usize>,
    /// Whether the same call may succeed later. The client has repeated it until its deadline then.
    pub retryable: bool,
}

impl Failed {
    pub(crate) fn own(code: &str, message: impl Into<String>, retryable: bool) -> Failed {
        Failed { code: code.into(), message: message.into(), status: None, statement: None, retryable }
    }
}
