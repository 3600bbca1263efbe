//! What all requests share.

use std::sync::Arc;
use std::time::Duration;

use highwater_node::{Database, Node};

use crate::access::Tokens;
use crate::answers::AnswerRoom;
use crate::failure::Failure;
use crate::forward::Forwarder;
use crate::hrana::streams::Streams;
use crate::metrics::Metrics;
use crate::net::Counted;
use crate::shares::Shares;
use crate::work::Lanes;

/// Bounds of what clients may ask. All are stated in the refusals. Where one is shared, one token (or, without tokens, one address) has at most three quarters of
/// it unless something else is said here, and all bearers of read tokens together have at most half.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request's body, imports aside (64 MiB).
    pub body_bytes: usize,
    /// Bytes of all bodies of requests under way together (512 MiB), shared.
    pub bodies_bytes: usize,
    /// Bytes of all answers from their computation until the client has taken them (512 MiB), shared.
    pub answers_bytes: usize,
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
    /// Requests under way at one time (4096), shared.
    pub requests: usize,
    /// Threads for requests that may write, and as many for those that only read (32 each), shared.
    pub threads: usize,
    /// Threads for requests of streams in a transaction (256), shared.
    pub transaction_threads: usize,
    /// Threads cut off past their deadline that give their places to others (8).
    pub cut_off_threads: usize,
    /// Hrana streams open at one time (1024), shared.
    pub streams: usize,
    /// Texts that one stream may store (256).
    pub stored_texts: usize,
    /// Bytes of the texts that one stream may store (16 MiB).
    pub stored_bytes: usize,
    /// Bytes of the stored texts of all streams (256 MiB), shared.
    pub stored_bytes_all: usize,
    /// Backups under way at one time, until the last byte has left (4); half of them for one party.
    pub backups: usize,
    /// Imports under way at one time (2), shared.
    pub imports: usize,
    /// Bytes of the scratch files of backups and imports (64 GiB), shared.
    pub scratch_bytes: u64,
    /// An idle stream without a transaction ends after this (15 s).
    pub stream_idle: Duration,
    /// An idle stream with an open transaction ends after this, so that it does not keep writers out (5 s).
    pub transaction_idle: Duration,
    /// No statement runs longer than this (30 s).
    pub statement: Duration,
    /// Neither the copying of a backup nor the taking in of a whole import file lasts longer than this (1 h).
    pub transfer: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes: 64 << 20,
            bodies_bytes: 512 << 20,
            answers_bytes: 512 << 20,
            import_bytes: 16 << 30,
            statements: 100_000,
            connections: 4096,
            forwarders: 1024,
            forwarded: 256,
            requests: 4096,
            threads: 32,
            transaction_threads: 256,
            cut_off_threads: 8,
            streams: 1024,
            stored_texts: 256,
            stored_bytes: 16 << 20,
            stored_bytes_all: 256 << 20,
            backups: 4,
            imports: 2,
            scratch_bytes: 64 << 30,
            stream_idle: Duration::from_secs(15),
            transaction_idle: Duration::from_secs(5),
            statement: Duration::from_secs(30),
            transfer: Duration::from_secs(3600),
        }
    }
}

/// Descriptors kept back for connections between nodes, logs, and the connections of SQLite's that all requests share.
const FILES_KEPT: usize = 256;
/// The descriptors that a stream's connection of SQLite's may take: the database, its log, and temporary files.
const FILES_OF_A_STREAM: usize = 4;

impl Limits {
    /// The defaults, made smaller where a process may open fewer files than these need: of what is left when 256 are kept back, half goes to connections of clients, a
    /// quarter to streams, and an eighth each to requests forwarded to others and by others.
    pub fn for_open_files(files: u64) -> Limits {
        let default = Limits::default();
        let free = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(FILES_KEPT).max(64);
        Limits {
            connections: default.connections.min(free / 2),
            streams: default.streams.min(free / 4 / FILES_OF_A_STREAM),
            forwarders: default.forwarders.min(free / 8),
            // Four peers and more are rare, and few of them are forwarded to at one time.
            forwarded: default.forwarded.min(free / 16),
            ..default
        }
    }
}

/// What all requests share.
pub(crate) struct App {
    pub(crate) node: Arc<Node>,
    pub(crate) tokens: Tokens,
    /// The origins whose pages may ask from a browser.
    pub(crate) origins: Vec<String>,
    pub(crate) limits: Limits,
    pub(crate) streams: Streams,
    pub(crate) metrics: Metrics,
    pub(crate) connections: Counted,
    pub(crate) forwarder: Forwarder,
    pub(crate) lanes: Lanes,
    pub(crate) answers: AnswerRoom,
    pub(crate) bodies: Arc<Shares>,
    pub(crate) requests: Arc<Shares>,
    pub(crate) backups: Arc<Shares>,
    pub(crate) imports: Arc<Shares>,
    /// In MiB.
    pub(crate) scratch: Arc<Shares>,
}

impl App {
    pub(crate) fn new(
        node: Arc<Node>,
        tokens: Tokens,
        origins: Vec<String>,
        limits: Limits,
        connections: Counted,
    ) -> App {
        App {
            connections,
            streams: Streams::new(&node, &limits),
            metrics: Metrics::new(),
            forwarder: Forwarder::new(node.clone(), limits.forwarded),
            lanes: Lanes::new(&limits),
            answers: AnswerRoom::new(limits.answers_bytes),
            bodies: Shares::new("bytes for bodies of requests under way", limits.bodies_bytes),
            requests: Shares::new("requests under way", limits.requests),
            backups: Shares::with("backups under way", limits.backups, limits.backups.div_ceil(2)),
            imports: Shares::new("imports under way", limits.imports),
            scratch: Shares::new("MiB of scratch files", (limits.scratch_bytes >> 20) as usize),
            node,
            tokens,
            origins,
            limits,
        }
    }

    /// The database of that name.
    pub(crate) fn database(&self, name: &str) -> Result<Arc<Database>, Failure> {
        Ok(self.node.database(name)?)
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

#[cfg(test)]
mod limits_tests {
    use super::Limits;

    #[test]
    fn limits_fit_into_the_files_that_may_be_open() {
        let few = Limits::for_open_files(1024);
        assert_eq!((few.connections, few.streams, few.forwarders, few.forwarded), (384, 48, 96, 48));
        let many = Limits::for_open_files(1 << 20);
        assert_eq!((many.connections, many.streams, many.forwarders, many.forwarded), (4096, 1024, 1024, 256));
        assert!(Limits::for_open_files(20).streams >= 4, "something is served on the smallest machine");
    }
}
