//! What all requests share, and how they get to run SQL.
//!
//! SQL blocks: it runs on threads made for that, a bounded number of each kind, so that writers that wait for their turn never keep readers out. A
//! stream that holds a transaction needs no permit, because everybody else may be waiting for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use highwater_node::{Database, Node};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::access::Tokens;
use crate::body::BodyRoom;
use crate::failure::Failure;
use crate::forward::Forwarder;
use crate::hrana::streams::Streams;
use crate::metrics::Metrics;

/// Bounds of what clients may ask. All are stated in the refusals.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request's body, imports aside (64 MiB).
    pub body_bytes: usize,
    /// Bytes of all bodies of requests under way together (512 MiB).
    pub bodies_bytes: usize,
    /// Bytes of an imported file (16 GiB).
    pub import_bytes: u64,
    /// Statements, batch steps or stream requests in one request (100,000).
    pub statements: usize,
    /// Connections of clients at one time (4096); an address may have three quarters of them.
    pub connections: usize,
    /// Connections at one time on which other nodes forward requests to this one (1024).
    pub forwarders: usize,
    /// Requests that this node forwards to another one at one time, for each of the others (256).
    pub forwarded: usize,
    /// Requests under way at one time (4096).
    pub requests: usize,
    /// Threads for requests that may write, and as many for those that only read (32).
    pub threads: usize,
    /// Hrana streams open at one time (1024).
    pub streams: usize,
    /// An idle stream without a transaction ends after this (15 s).
    pub stream_idle: Duration,
    /// An idle stream with an open transaction ends after this, so that it does not keep writers out (5 s).
    pub transaction_idle: Duration,
    /// No statement runs longer than this (30 s).
    pub statement: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes: 64 << 20,
            bodies_bytes: 512 << 20,
            import_bytes: 16 << 30,
            statements: 100_000,
            connections: 4096,
            forwarders: 1024,
            forwarded: 256,
            requests: 4096,
            threads: 32,
            streams: 1024,
            stream_idle: Duration::from_secs(15),
            transaction_idle: Duration::from_secs(5),
            statement: Duration::from_secs(30),
        }
    }
}

/// What all requests share.
pub(crate) struct App {
    pub(crate) node: Arc<Node>,
    pub(crate) tokens: Tokens,
    pub(crate) limits: Limits,
    pub(crate) streams: Streams,
    pub(crate) metrics: Metrics,
    pub(crate) body_room: BodyRoom,
    pub(crate) forwarder: Forwarder,
    requests: Semaphore,
    readers: Semaphore,
    writers: Semaphore,
}

/// Which threads a piece of SQL runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// It only reads.
    Read,
    /// It may write, or the cheap look at its text could not tell.
    Write,
    /// It continues a transaction that others may be waiting for.
    Transaction,
}

impl App {
    pub(crate) fn new(node: Arc<Node>, tokens: Tokens, limits: Limits) -> App {
        App {
            streams: Streams::new(&node, &limits),
            metrics: Metrics::new(),
            body_room: BodyRoom::new(limits.bodies_bytes),
            forwarder: Forwarder::new(node.clone(), limits.forwarded),
            requests: Semaphore::new(limits.requests),
            readers: Semaphore::new(limits.threads),
            writers: Semaphore::new(limits.threads),
            node,
            tokens,
            limits,
        }
    }

    /// A place among the requests under way; refused if there is none.
    pub(crate) fn admit(&self) -> Result<SemaphorePermit<'_>, Failure> {
        self.requests.try_acquire().map_err(|_| {
            let reason = format!("{} requests are under way, which is the limit", self.limits.requests);
            self.metrics.overloaded.inc();
            highwater_node::Unavailable::Overloaded(reason).into()
        })
    }

    /// How many requests are under way.
    pub(crate) fn requests_open(&self) -> usize {
        self.limits.requests - self.requests.available_permits()
    }

    /// The database of that name.
    pub(crate) fn database(&self, name: &str) -> Result<Arc<Database>, Failure> {
        Ok(self.node.database(name)?)
    }

    /// When a statement that begins now must have ended.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.limits.statement
    }

    /// Runs something that blocks.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let _permit = match lane {
            Lane::Read => Some(self.readers.acquire().await),
            Lane::Write => Some(self.writers.acquire().await),
            Lane::Transaction => None,
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| {
            // The panic has been reported where it happened; the transaction it was in was rolled back as its session was dropped.
            tracing::error!(%error, "a request's thread panicked");
            Failure::new(
                axum::http::StatusCode::INTERNAL_SERVER_ERROR,
                "INTERNAL",
                "this request met a bug of the server's, which is in its log",
            )
            .unknown_at(None)
        })
    }
}

/// Whether a statement's text begins like one that only reads. A cheap look, right for everything common; who needs to be sure asks the database.
pub(crate) fn looks_read_only(sql: &str) -> bool {
    const READERS: [&str; 4] = ["SELECT", "VALUES", "EXPLAIN", "PRAGMA"];
    let word = first_word(sql);
    READERS.iter().any(|reader| word.eq_ignore_ascii_case(reader))
}

/// The first word of a statement, behind white space and comments.
pub(crate) fn first_word(sql: &str) -> &str {
    let mut rest = sql;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ';');
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, after)| after);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, after)| after);
        } else {
            break;
        }
    }
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    &rest[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_lies_behind_comments() {
        assert_eq!(first_word("  -- a\n/* b */ ;select(1)"), "select");
        assert_eq!(first_word("-- only a comment"), "");
        assert_eq!(first_word("/* open"), "");
        assert!(looks_read_only("/*x*/ SELECT 1"));
        assert!(!looks_read_only("WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x"));
        assert!(!looks_read_only("INSERT INTO t VALUES (1)"));
    }
}
