//! The state of a stream, and how each statement runs in it.
//!
//! Outside a transaction a statement is prepared at the newest published state. If it reads, it runs there; if it writes (or cannot be prepared, since what
//! it names may be executed and not committed yet), it runs in a transaction of its own on the writer's side. BEGIN alone begins nothing: the first statement
//! decides whether the transaction reads at the published state or takes the writer. One that has read there may still take it, if nothing was written since.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use highwater_wire::{Epoch, Offset};

use crate::allowance::Allowance;
use crate::api::{Answer, Description, Hold, ResultSet, SqlError, Statement};
use crate::client::{Client, Prepared};
use crate::database::Database;
use crate::error::{error, from_failure};
use crate::run::Savepoints;
use crate::session::description;
use crate::text;
use crate::token::Held;

pub(crate) type Seen = (Option<Epoch>, Offset);
pub(crate) type Outcome<T> = Result<T, SqlError>;

/// What a request comes with.
pub(crate) struct Asked<'a> {
    pub(crate) database: &'a Arc<Database>,
    pub(crate) stream: &'a Arc<Mutex<Stream>>,
    /// Statements that write come after it in the same batch.
    pub(crate) writes_follow: bool,
    /// What it may use.
    pub(crate) allowance: Allowance,
}

/// A stream.
#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) transaction: Option<Open>,
    pub(crate) client: Option<Client>,
    pub(crate) savepoints: Savepoints,
    /// Savepoints that were begun before the transaction read anything: SQLite is told of them with the first statement.
    pub(crate) pending: Vec<String>,
    pub(crate) lost: Option<Lost>,
    /// It has made temporary objects: what looks like a write may be to one of them.
    pub(crate) has_temporary: Cell<bool>,
    /// PRAGMAs that hold for the stream, to be set again on another connection.
    pub(crate) settings: BTreeMap<String, String>,
    /// The end of the last write: later reads of the stream see it.
    pub(crate) wrote: Option<Hold>,
}

/// An open transaction.
pub(crate) struct Open {
    pub(crate) reads_only: bool,
    /// It was opened by a SAVEPOINT, whose release commits it.
    pub(crate) by_savepoint: bool,
    pub(crate) deadline: Instant,
    pub(crate) side: Side,
}

/// Where a transaction stands.
pub(crate) enum Side {
    /// Nothing was read yet.
    Undecided,
    /// It reads a state, which waits for a hold if it was not published.
    Reading { seen: Seen, hold: Option<Hold> },
    /// It holds the writer.
    Writing { held: Box<Held>, hold: Hold, schema: i64 },
}

/// What was lost, to be told.
pub(crate) struct Lost {
    pub(crate) error: SqlError,
    pub(crate) in_transaction: bool,
}

pub(crate) fn now_or<T>(result: Outcome<T>, seen: Seen) -> Answer<Outcome<T>> {
    Answer { result, hold: None, seen }
}

impl Stream {
    pub(crate) fn is_autocommit(&self) -> bool {
        self.transaction.is_none() && !self.lost.as_ref().is_some_and(|lost| lost.in_transaction)
    }

    /// Ends an open transaction without its client, who is told with the next request.
    pub(crate) fn lose_transaction(&mut self, code: &str, message: &str) {
        self.wrote = None;
        if self.transaction.is_some() {
            self.roll_back();
            self.lost = Some(Lost { error: error(code, message), in_transaction: true });
        }
    }

    /// Ends an open transaction whose time is over.
    pub(crate) fn lose_if_overdue(&mut self) {
        if self.transaction.as_ref().is_some_and(|open| Instant::now() >= open.deadline) {
            self.lose_transaction("TRANSACTION_TIMEOUT", TIMED_OUT);
        }
    }

    /// Closes the connection; temporary objects are lost with it, which the client is told.
    pub(crate) fn close_connection(&mut self) {
        assert!(self.transaction.is_none(), "a transaction is ended first");
        let Some(client) = self.client.take() else { return };
        self.has_temporary.set(false);
        let temporary = client
            .hooks()
            .internally(|| client.query_integer("SELECT count(*) FROM sqlite_temp_schema"))
            .unwrap_or_default()
            .unwrap_or_default();
        if temporary > 0 && self.lost.is_none() {
            let lost = "the stream's connection was closed, and its temporary tables are lost: make them again";
            self.lost = Some(Lost { error: error("STREAM_EXPIRED", lost), in_transaction: false });
        }
        if let Err(failure) = client.close() {
            tracing::warn!(%failure, "a stream's connection did not close");
        }
    }

    /// Ends the stream.
    pub(crate) fn end(&mut self) {
        self.roll_back();
        self.client = None;
    }

    pub(crate) fn roll_back(&mut self) {
        self.savepoints.clear();
        self.pending.clear();
        let open = self.transaction.take();
        if let Some(client) = &self.client {
            if !client.autocommit() && client.hooks().undisturbed(|| client.run("ROLLBACK", |_| Ok(()))).is_err() {
                // A connection that cannot roll back is of no use.
                self.client = None;
            } else {
                client.hooks().capture.borrow_mut().clear();
                client.hooks().end_allowance();
            }
        }
        // The writer is given back after the transaction has ended.
        drop(open);
    }

    /// Runs one statement.
    pub(crate) fn execute(&mut self, asked: &Asked<'_>, statement: &Statement) -> Answer<Outcome<ResultSet>> {
        self.lose_if_overdue();
        if let Some(answer) = self.tell_lost(&statement.sql) {
            return answer;
        }
        if let Err(failed) = self.connect(asked) {
            return now_or(Err(failed), (None, 0));
        }
        let answer =
            if self.transaction.is_some() { self.within(asked, statement) } else { self.alone(asked, statement) };
        if let Some(hold) = answer.hold.filter(|hold| hold.wrote) {
            self.wrote = Some(hold);
        }
        self.tidy();
        answer
    }

    /// After a statement: if SQLite has ended the transaction by itself, so do we.
    pub(crate) fn tidy(&mut self) {
        let Some(client) = &self.client else { return };
        client.hooks().end_allowance();
        let ended = match &self.transaction {
            Some(Open { side: Side::Undecided, .. }) | None => false,
            Some(_) => client.autocommit(),
        };
        if ended {
            self.roll_back();
        }
    }

    /// What is said instead of running a statement, if something was lost.
    pub(crate) fn tell_lost(&mut self, sql: &str) -> Option<Answer<Outcome<ResultSet>>> {
        let lost = self.lost.as_ref()?;
        let words = text::words(sql, 3);
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let ends =
            matches!(word(0), "COMMIT" | "END") || (word(0) == "ROLLBACK" && !words.iter().any(|word| word == "TO"));
        let result = if lost.in_transaction && word(0) == "ROLLBACK" && ends {
            Ok(ResultSet::default())
        } else if lost.in_transaction && word(0) == "BEGIN" {
            self.lost = None;
            return None;
        } else {
            Err(lost.error.clone())
        };
        if ends || !lost.in_transaction {
            self.lost = None;
        }
        Some(now_or(result, (None, 0)))
    }

    pub(crate) fn connect(&mut self, asked: &Asked<'_>) -> Outcome<()> {
        if self.client.is_some() {
            return Ok(());
        }
        let client = asked.database.open_client().map_err(from_failure)?;
        for (name, value) in &self.settings {
            client.hooks().internally(|| client.exec(&format!("PRAGMA {name}={value}"))).map_err(from_failure)?;
        }
        client.follow_like().map_err(from_failure)?;
        self.client = Some(client);
        Ok(())
    }

    pub(crate) fn client(&self) -> &Client {
        self.client.as_ref().expect("a stream is connected before it runs anything")
    }

    pub(crate) fn note_temporary(&self, prepared: &Prepared) {
        if prepared.facts.temporary {
            self.has_temporary.set(true);
        }
    }

    pub(crate) fn own(&self, sql: &str) -> Outcome<()> {
        let client = self.client();
        client.hooks().undisturbed(|| client.run(sql, |_| Ok(()))).map_err(from_failure)
    }

    /// Begins to read: at the newest published state, or, if the stream's own last write is not published yet, at what is executed.
    pub(crate) fn begin_reading(&mut self, asked: &Asked<'_>) -> Outcome<(Seen, Option<Hold>)> {
        let database = asked.database;
        if let Some(wrote) = self.wrote {
            if database.snapshots.published().is_none_or(|hw| hw < wrote.until) {
                let held = database.acquire(&asked.allowance)?;
                self.own("BEGIN")?;
                self.client().refresh().map_err(from_failure)?;
                return Ok(((held.epoch, held.end), Some(database.hold(&held))));
            }
            self.wrote = None;
        }
        let seen = database.begin_at_published(self.client(), &asked.allowance)?;
        Ok((seen, None))
    }

    /// See [`crate::Session::describe`].
    pub(crate) fn describe(&mut self, asked: &Asked<'_>, sql: &str) -> Outcome<Description> {
        self.connect(asked)?;
        self.client().hooks().allow(&asked.allowance);
        let described = self.describe_within(asked, sql);
        self.client().hooks().end_allowance();
        described
    }

    fn describe_within(&mut self, asked: &Asked<'_>, sql: &str) -> Outcome<Description> {
        let database = asked.database;
        let (hold, _) = self.standing();
        let until = asked.allowance.deadline.min(Instant::now() + database.options.publish_wait);
        let cancel = &asked.allowance.cancel;
        let stop = || database.stop.load(std::sync::atomic::Ordering::Acquire) || cancel.is_cancelled();
        if let Some(hold) = hold.or(self.wrote)
            && !database.snapshots.wait_published(hold.until, until, &stop)
        {
            return Err(error("TRANSACTION_BUSY", "what the description would tell is not committed yet: try again"));
        }
        let open = self.transaction.as_ref().is_some_and(|open| !matches!(open.side, Side::Undecided));
        if open {
            let prepared = self.client().prepare_one(sql)?;
            return Ok(description(&prepared));
        }
        database.begin_at_published(self.client(), &asked.allowance)?;
        let described = self.client().prepare_one(sql).map(|prepared| description(&prepared));
        self.own("ROLLBACK")?;
        described
    }
}

/// Locks a stream. A panic on one request leaves the stream usable: its transaction is rolled back with the next one or with its connection.
pub(crate) fn lock(stream: &Mutex<Stream>) -> MutexGuard<'_, Stream> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same unless it is in use.
pub(crate) fn try_lock(stream: &Mutex<Stream>) -> Option<MutexGuard<'_, Stream>> {
    match stream.try_lock() {
        Ok(stream) => Some(stream),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// What is said of an interactive transaction whose time is over.
pub(crate) const TIMED_OUT: &str = "the interactive transaction was open for longer than it may be and was rolled back: it had no effect; begin it again, and shorter";
