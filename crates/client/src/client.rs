//! The client, and the one loop in which it asks until it has an outcome.
//!
//! An attempt that may have had an effect casts its shadow on all that follow: a later attempt that failed proves nothing about it, since a node that was silent
//! may still hold the request and hand it on. From then on the call ends *done* (the key makes that one effect) or *unknown*, never *failed*.
//!
//! Where to ask: the node that led last; when that refuses, or its connection breaks, the next at once, and only after a whole round without success a pause of
//! a few milliseconds. A node that is silent is not waited for once others say that another leads. After a change the leader is looked up anew, so that requests do not go on through a node that only forwards them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use highwater_wire::Position;

use crate::answer::Answer;
use crate::attempt::Attempt;
use crate::config::Config;
use crate::error::{Error, Failed};
use crate::nodes::{LEARN, Nodes};
use crate::pause::Pauses;
use crate::transaction::{Freshness, Transaction};

/// A client of one cluster, for one thread: it has one request under way at a time, and keeps one connection to each node it uses.
///
/// It carries the session of whoever uses it: the greatest position it has written or seen in each database, which [`Freshness::Session`] asks for.
pub struct Client {
    config: Config,
    nodes: Nodes,
    /// By database.
    known: BTreeMap<String, Known>,
    random: u64,
}

/// What is known of a database.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Whom to ask first.
    node: usize,
    /// Whether that was said by a node, or has proved right, since the last change.
    settled: bool,
    /// The greatest position written or seen.
    seen: Option<Position>,
}

/// One call, as it goes to whichever node.
struct Call<'a> {
    database: &'a str,
    path: String,
    key: Option<&'a str>,
    body: &'a [u8],
    reads: bool,
}

impl Client {
    /// A client of the cluster that these nodes (`http://HOST:PORT` or `https://HOST:PORT`) belong to, with the defaults of [`Config::new`]. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with `URL_INVALID` if a URL has another form.
    pub fn new<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Result<Client, Error> {
        Client::with(Config::new(urls))
    }

    /// A client as the configuration says. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with `URL_INVALID`, `TOKEN_INVALID` or `CA_INVALID`.
    pub fn with(config: Config) -> Result<Client, Error> {
        let nodes = Nodes::new(&config)?;
        Ok(Client { config, nodes, known: BTreeMap::new(), random: random_u64() })
    }

    /// Executes a transaction once, and waits until it is committed.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if it has no effect; [`Error::Unknown`], with the key, if the deadline came before it was known; [`Error::Unreadable`].
    pub fn execute(&mut self, database: &str, transaction: &Transaction) -> Result<Answer, Error> {
        let key = self.new_key();
        self.execute_with_key(database, transaction, &key)
    }

    /// The same with a key of the caller's own, of 1 to 255 printable characters of ASCII: however often this is called with the same key and the same transaction,
    /// from wherever, within 24 hours, it is executed at most once, and each time answered with the first result.
    ///
    /// # Errors
    ///
    /// As [`Client::execute`]; `IDEMPOTENCY_MISMATCH` if the key was used for another transaction, `IDEMPOTENCY_KEY_INVALID` if it is none.
    pub fn execute_with_key(&mut self, database: &str, transaction: &Transaction, key: &str) -> Result<Answer, Error> {
        if !(1..=255).contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = format!("an idempotency key is 1 to 255 printable characters of ASCII; found {key:?}");
            return Err(Failed::own("IDEMPOTENCY_KEY_INVALID", message, false).into());
        }
        self.call(database, transaction, Some(key), None)
    }

    /// Executes a transaction without a key. It is sent again only while it is certain that it has had no effect; an attempt whose outcome is not known ends the call.
    ///
    /// # Errors
    ///
    /// As [`Client::execute`]; [`Error::Unknown`] is without a key.
    pub fn execute_unkeyed(&mut self, database: &str, transaction: &Transaction) -> Result<Answer, Error> {
        self.call(database, transaction, None, None)
    }

    /// Executes a transaction that only reads. It may be sent several times, so statements that write do not belong here.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] or [`Error::Unreadable`]. With a freshness that names a position: `POSITION_TRUNCATED` if that state was lost at a failover,
    /// `POSITION_NOT_YET` and `POSITION_TIMED_OUT` if no node showed it before the deadline.
    pub fn query(&mut self, database: &str, transaction: &Transaction, freshness: Freshness) -> Result<Answer, Error> {
        self.call(database, transaction, None, Some(freshness))
    }

    /// The greatest position written or seen in that database: what [`Freshness::Session`] asks for.
    pub fn session(&self, database: &str) -> Option<Position> {
        self.known.get(database)?.seen
    }

    /// Takes over a session from elsewhere: reads with [`Freshness::Session`] see that state or a later one.
    pub fn resume(&mut self, database: &str, position: Position) {
        let known = self.known.entry(database.to_string()).or_default();
        known.seen = known.seen.max(Some(position));
    }

    /// Forgets a session, as is needed after `POSITION_TRUNCATED`.
    pub fn forget_session(&mut self, database: &str) {
        if let Some(known) = self.known.get_mut(database) {
            known.seen = None;
        }
    }

    /// A random idempotency key of 128 bits.
    pub fn new_key(&self) -> String {
        format!("{:016x}{:016x}", random_u64(), random_u64())
    }

    fn call(
        &mut self,
        database: &str,
        transaction: &Transaction,
        key: Option<&str>,
        read: Option<Freshness>,
    ) -> Result<Answer, Error> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if database.is_empty() || !database.bytes().all(good) {
            let message =
                format!("there is no database {database:?}: a name is made of letters, digits, `_`, `-` and `.`");
            return Err(Failed::own("DATABASE_UNKNOWN", message, false).into());
        }
        let query = read.map(|freshness| freshness.query(self.session(database))).unwrap_or_default();
        let body = transaction.body();
        let call =
            Call { database, path: format!("/db/{database}/sql{query}"), key, body: &body, reads: read.is_some() };
        let answer = self.ask(&call)?;
        self.resume(database, answer.position);
        Ok(answer)
    }

    /// Asks until there is an outcome, or until the deadline.
    fn ask(&mut self, call: &Call<'_>) -> Result<Answer, Error> {
        let deadline = Instant::now() + self.config.deadline;
        let mut pauses = Pauses::new(self.random);
        let mut patience = self.config.attempt;
        let mut unknown: Option<Option<Position>> = None;
        let mut node = self.settle(call.database, deadline);
        let first = node;
        let mut attempts = 0;
        let mut overloaded = false;
        // How many nodes in a row could not be spoken to under TLS.
        let mut strangers = 0;
        let doubt = (self.config.discover && (call.reads || call.key.is_some())).then_some(call.database);
        loop {
            attempts += 1;
            let sent = Instant::now();
            let until = deadline.min(sent + patience);
            let exchanged = self.nodes.exchange(node, &call.path, call.key, Some(call.body), doubt, until);
            let instead = exchanged.as_ref().err().and_then(|broken| broken.instead);
            let url = self.nodes.url(node);
            let mut attempt = Attempt::of(exchanged, &url);
            if call.reads {
                attempt = attempt.of_a_read();
            }
            let mut failed = match attempt {
                Attempt::Done { results, position } => {
                    self.found(call.database, node, node == first);
                    return Ok(Answer { results, position, url, attempts, sent });
                }
                Attempt::Unreadable { position, reason } => {
                    self.found(call.database, node, node == first);
                    return Err(Error::Unreadable { position, reason });
                }
                Attempt::Failed(failed) => failed,
                Attempt::Unknown { position, reason, retryable, silent } => {
                    let position = position.or(unknown.flatten());
                    if silent {
                        patience *= 2;
                    }
                    if call.key.is_none() || !retryable {
                        return Err(Error::Unknown { position, key: call.key.map(str::to_string), reason });
                    }
                    unknown = Some(position);
                    Failed::own("NO_ANSWER", reason, true)
                }
            };
            overloaded |= failed.code == "OVERLOADED";
            strangers = if failed.code == "TLS_FAILED" { strangers + 1 } else { 0 };
            // One node with a wrong certificate is passed over; what no node agrees to will not pass.
            failed.retryable &= strangers < self.nodes.count();
            let mut pause = Duration::ZERO;
            if (attempts as usize).is_multiple_of(self.nodes.count()) {
                pause = pauses.next(overloaded);
                overloaded = false;
            }
            if !failed.retryable || Instant::now() + pause >= deadline {
                return Err(match unknown {
                    None => failed.into(),
                    Some(position) => Error::Unknown {
                        position,
                        key: call.key.map(str::to_string),
                        reason: format!("an earlier attempt was not answered, and the last one failed: {failed}"),
                    },
                });
            }
            // sleep: a cluster without a leader gives no sign when it has one again; all nodes have just been asked.
            std::thread::sleep(pause);
            node = instead.unwrap_or((node + 1) % self.nodes.count());
        }
    }

    /// Whom to ask first: looked up once, and again after every change.
    fn settle(&mut self, database: &str, deadline: Instant) -> usize {
        let known = self.known.get(database).copied().unwrap_or_default();
        if known.settled || !self.config.discover {
            return known.node;
        }
        let mut leader = None;
        for at in 0..self.nodes.count() {
            let node = (known.node + at) % self.nodes.count();
            leader = self.nodes.learn(node, database, deadline.min(Instant::now() + LEARN));
            if leader.is_some() {
                break;
            }
        }
        let node = leader.unwrap_or(known.node);
        let known = self.known.entry(database.to_string()).or_default();
        (known.node, known.settled) = (node, leader.is_some());
        node
    }

    fn found(&mut self, database: &str, node: usize, at_first: bool) {
        let known = self.known.entry(database.to_string()).or_default();
        // Another than the one asked first may lead, or forward to the leader: the next call looks it up.
        known.settled &= at_first;
        known.node = node;
    }
}

fn random_u64() -> u64 {
    getrandom::u64().expect("the system's random source works")
}
