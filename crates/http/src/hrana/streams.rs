//! Streams between their requests, and what is told of those that are gone.
//!
//! A request takes its stream out of the table and puts it back with the next baton; meanwhile nobody else can. A stream ends by `close`, by idling, or
//! because the connection of its request broke. Of ended streams a short memory is kept, so that a late baton is answered with what was lost:
//!
//! | The baton | Answer |
//! |---|---|
//! | was not made by this cluster | `BATON_INVALID` |
//! | is of another node | `STREAM_ELSEWHERE` |
//! | is of an earlier process of this node | `STREAM_EXPIRED`; says whether a transaction is lost |
//! | was used already | `BATON_OUTDATED` |
//! | is of a stream that idled out in a transaction | `TRANSACTION_TIMEOUT` |
//! | is of a stream that ended otherwise | `STREAM_EXPIRED` |

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use highwater_node::{Database, Node};
use highwater_sql::Session;
use highwater_wire::{Incarnation, NodeId};

use super::baton::Baton;
use super::texts::Texts;
use crate::app::Limits;
use crate::failure::Failure;
use crate::party::Party;
use crate::shares::{Share, Shares};

/// How many ended streams are remembered.
const ENDED_MAX: usize = 10_000;

/// A stream: one logical connection.
pub(crate) struct Stream {
    /// Its database.
    pub(crate) db: Arc<Database>,
    /// Its connection.
    pub(crate) session: Session,
    /// Texts stored under numbers.
    pub(crate) texts: Texts,
    /// Whoever opened it: nobody else may use it.
    pub(crate) party: Party,
    /// Its place among those open.
    _place: Share,
}

/// Why a stream is no more.
#[derive(Clone, Copy, Debug)]
enum Ended {
    /// By `close`.
    Closed,
    /// Nothing came for that long.
    Idle { after: Duration, in_transaction: bool },
    /// The connection of one of its requests broke before the answer.
    Broken { in_transaction: bool },
}

enum Slot {
    /// Waits for its next request, which must bear this sequence.
    Idle { sequence: u64, since: Instant, in_transaction: bool, stream: Box<Stream> },
    /// A request runs on it.
    Busy,
}

#[derive(Default)]
struct Table {
    open: BTreeMap<u64, Slot>,
    ended: BTreeMap<u64, Ended>,
    next: u64,
}

/// All streams of this node.
pub(crate) struct Streams {
    node: NodeId,
    incarnation: Incarnation,
    /// The keys of the moment: a cluster secret may be replaced.
    node_of: Arc<Node>,
    places: Arc<Shares>,
    texts: Arc<Shares>,
    limits: Limits,
    stream_idle: Duration,
    transaction_idle: Duration,
    table: Mutex<Table>,
}

/// A stream that a request has taken. Dropped without being put back or closed, it counts as broken.
pub(crate) struct Taken<'a> {
    streams: &'a Streams,
    id: u64,
    sequence: u64,
    in_transaction: bool,
    done: bool,
}

impl Streams {
    pub(crate) fn new(node: &Arc<Node>, limits: &Limits) -> Streams {
        Streams {
            node: node.id(),
            incarnation: node.incarnation(),
            node_of: node.clone(),
            places: Shares::new("streams open", limits.streams),
            texts: Shares::new("bytes of stored texts", limits.stored_bytes_all),
            limits: limits.clone(),
            stream_idle: limits.stream_idle,
            transaction_idle: limits.transaction_idle,
            table: Mutex::new(Table { next: 1, ..Table::default() }),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no holder of this lock panics")
    }

    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        self.table().open.len()
    }

    /// A new stream on that database, with its place in the table.
    pub(crate) fn open(&self, db: &Arc<Database>, party: &Party) -> Result<(Taken<'_>, Box<Stream>), Failure> {
        let place = self.places.take(party, 1)?;
        let session = db.sql()?.clone().session();
        let texts = Texts::new(self.texts.nothing(party), &self.limits);
        let stream = Box::new(Stream { db: db.clone(), session, texts, party: *party, _place: place });
        let mut table = self.table();
        let id = table.next;
        table.next += 1;
        table.open.insert(id, Slot::Busy);
        Ok((Taken { streams: self, id, sequence: 0, in_transaction: false, done: false }, stream))
    }

    /// The stream that a baton names, or what became of it. It is given only to the party that opened it, for the database it is on; an attempt of another
    /// changes nothing, so that the rightful bearer goes on with the same baton.
    pub(crate) fn take(&self, text: &str, db: &Database, party: &Party) -> Result<(Taken<'_>, Box<Stream>), Failure> {
        let baton = Baton::open_by_any(text, &self.node_of.baton_keys()).ok_or_else(|| {
            Failure::bad("BATON_INVALID", "this baton was not made by this cluster; send null to open a new stream")
        })?;
        if baton.node != self.node {
            let message = format!("this stream lives on node {}, and this is node {}", baton.node, self.node);
            return Err(Failure::bad("STREAM_ELSEWHERE", message));
        }
        if baton.incarnation != self.incarnation {
            let message = format!("the server was restarted and this stream is gone: {}", lost(baton.in_transaction));
            return Err(Failure::bad("STREAM_EXPIRED", message));
        }
        let mut table = self.table();
        let outdated = || {
            Failure::bad(
                "BATON_OUTDATED",
                "this baton was used already; each is good for one request, and the next one is in that request's response",
            )
        };
        match table.open.remove(&baton.stream) {
            Some(Slot::Idle { sequence, since, in_transaction, stream })
                if stream.db.name() != db.name() || !stream.party.id.owns_with(&party.id) =>
            {
                table.open.insert(baton.stream, Slot::Idle { sequence, since, in_transaction, stream });
                let message = "this baton is of a stream that was opened on another path or with another token; use the path and the token it was opened with";
                Err(Failure::bad("BATON_OF_ANOTHER_STREAM", message))
            }
            Some(Slot::Idle { sequence, stream, in_transaction, .. }) if sequence == baton.sequence => {
                table.open.insert(baton.stream, Slot::Busy);
                let taken = Taken { streams: self, id: baton.stream, sequence, in_transaction, done: false };
                Ok((taken, stream))
            }
            Some(slot) => {
                table.open.insert(baton.stream, slot);
                Err(outdated())
            }
            None => Err(match table.ended.get(&baton.stream).copied() {
                Some(Ended::Idle { after, in_transaction: true }) => Failure::bad(
                    "TRANSACTION_TIMEOUT",
                    format!(
                        "this stream's transaction was idle for {} s, was rolled back and has no effect; the stream is closed, begin anew on another",
                        after.as_secs_f64()
                    ),
                ),
                Some(Ended::Idle { after, in_transaction: false }) => Failure::bad(
                    "STREAM_EXPIRED",
                    format!(
                        "this stream was idle for {} s and is closed; no transaction was open, so nothing but its temporary tables and settings is lost; open a new one",
                        after.as_secs_f64()
                    ),
                ),
                Some(Ended::Closed) => Failure::bad("STREAM_EXPIRED", "this stream was closed; open a new one"),
                Some(Ended::Broken { in_transaction }) => Failure::bad(
                    "STREAM_EXPIRED",
                    format!(
                        "the connection of this stream's last request broke before its answer, and the stream is closed: {}",
                        lost(in_transaction || baton.in_transaction)
                    ),
                ),
                None => Failure::bad(
                    "STREAM_EXPIRED",
                    format!("this stream ended too long ago to say why: {}", lost(baton.in_transaction)),
                ),
            }),
        }
    }

    fn end(&self, id: u64, reason: Ended) {
        let mut table = self.table();
        table.open.remove(&id);
        table.ended.insert(id, reason);
        while table.ended.len() > ENDED_MAX {
            table.ended.pop_first();
        }
    }

    /// Takes out the streams that have idled out, for somebody who may block to close.
    #[expect(clippy::vec_box, reason = "streams live in boxes, and stay in them")]
    pub(crate) fn expire(&self, now: Instant) -> Vec<Box<Stream>> {
        let mut expired = Vec::new();
        let due: Vec<(u64, Duration, bool)> = self
            .table()
            .open
            .iter()
            .filter_map(|(id, slot)| match slot {
                Slot::Idle { since, in_transaction, .. } => {
                    let after = if *in_transaction { self.transaction_idle } else { self.stream_idle };
                    (now.saturating_duration_since(*since) >= after).then_some((*id, after, *in_transaction))
                }
                Slot::Busy => None,
            })
            .collect();
        for (id, after, in_transaction) in due {
            // A request may have come in between.
            let slot = self.table().open.remove(&id);
            match slot {
                Some(Slot::Idle { stream, since, .. }) if now.saturating_duration_since(since) >= after => {
                    self.end(id, Ended::Idle { after, in_transaction });
                    expired.push(stream);
                }
                Some(slot) => {
                    self.table().open.insert(id, slot);
                }
                None => {}
            }
        }
        expired
    }

    /// Takes out all that are idle, when the server stops.
    #[expect(clippy::vec_box, reason = "streams live in boxes, and stay in them")]
    pub(crate) fn drain(&self) -> Vec<Box<Stream>> {
        let open = std::mem::take(&mut self.table().open);
        open.into_values()
            .filter_map(|slot| match slot {
                Slot::Idle { stream, .. } => Some(stream),
                Slot::Busy => None,
            })
            .collect()
    }
}

/// What is lost with a stream.
pub(crate) fn lost(in_transaction: bool) -> &'static str {
    if in_transaction {
        "its open transaction is lost and has no effect, unless a COMMIT was sent and not answered: then its outcome is unknown"
    } else {
        "no transaction was open when its last answer left; a write that was sent and not answered has an unknown outcome"
    }
}

impl Taken<'_> {
    /// Whether a transaction was open when the request began.
    pub(crate) fn in_transaction(&self) -> bool {
        self.in_transaction
    }

    /// Puts the stream back to wait for its next request; returns the baton for it.
    pub(crate) fn put_back(mut self, stream: Box<Stream>, in_transaction: bool) -> String {
        self.done = true;
        let sequence = self.sequence + 1;
        let slot = Slot::Idle { sequence, since: Instant::now(), in_transaction, stream };
        let replaced = self.streams.table().open.insert(self.id, slot);
        debug_assert!(matches!(replaced, Some(Slot::Busy) | None), "a taken stream has no other user");
        let Streams { node, incarnation, node_of, .. } = self.streams;
        let key = node_of.baton_keys()[0];
        Baton { node: *node, incarnation: *incarnation, stream: self.id, sequence, in_transaction }.seal(&key)
    }

    /// Notes that the stream was closed.
    pub(crate) fn closed(mut self) {
        self.done = true;
        self.streams.end(self.id, Ended::Closed);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.streams.end(self.id, Ended::Broken { in_transaction: self.in_transaction });
        }
    }
}
