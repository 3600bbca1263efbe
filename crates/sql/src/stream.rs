//! The state of a stream, and how each statement runs in it.
//!
//! Outside a transaction a statement is prepared at the newest published state. If it reads, it runs there; if it writes (or cannot be prepared, since what
//! it names may be executed and not committed yet), it runs in a transaction of its own on the writer's side. BEGIN alone begins nothing: the first statement
//! decides whether the transaction reads at the published state or takes the writer. One that has read there may still take it, if nothing was written since.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use highwater_wire::{Epoch, Offset};

use crate::api::{Answer, Description, Hold, ResultSet, SqlError, Statement};
use crate::classify::{BeginMode, Class, SavepointOp};
use crate::client::{Client, Prepared};
use crate::database::Database;
use crate::error::{error, from_failure};
use crate::pragma::PER_STREAM;
use crate::run::{self, Savepoints};
use crate::session::description;
use crate::shape::quoted;
use crate::text;
use crate::token::Held;

type Seen = (Option<Epoch>, Offset);
type Outcome<T> = Result<T, SqlError>;

/// What a request comes with.
pub(crate) struct Asked<'a> {
    pub(crate) database: &'a Arc<Database>,
    pub(crate) stream: &'a Arc<Mutex<Stream>>,
    /// Statements that write come after it in the same batch.
    pub(crate) writes_follow: bool,
}

/// A stream.
#[derive(Default)]
pub(crate) struct Stream {
    transaction: Option<Open>,
    client: Option<Client>,
    savepoints: Savepoints,
    /// Savepoints that were begun before the transaction read anything: SQLite is told of them with the first statement.
    pending: Vec<String>,
    lost: Option<Lost>,
    /// It has made temporary objects: what looks like a write may be to one of them.
    has_temporary: bool,
    /// PRAGMAs that hold for the stream, to be set again on another connection.
    settings: BTreeMap<String, String>,
    /// The end of the last write: later reads of the stream see it.
    wrote: Option<Hold>,
}

/// An open transaction.
struct Open {
    reads_only: bool,
    /// It was opened by a SAVEPOINT, whose release commits it.
    by_savepoint: bool,
    deadline: Instant,
    side: Side,
}

/// Where a transaction stands.
enum Side {
    /// Nothing was read yet.
    Undecided,
    /// It reads a state, which waits for a hold if it was not published.
    Reading { seen: Seen, hold: Option<Hold> },
    /// It holds the writer.
    Writing { held: Box<Held>, hold: Hold, schema: i64 },
}

/// What was lost, to be told.
struct Lost {
    error: SqlError,
    in_transaction: bool,
}

fn now_or<T>(result: Outcome<T>, seen: Seen) -> Answer<Outcome<T>> {
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
        self.has_temporary = false;
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

    fn roll_back(&mut self) {
        self.savepoints.clear();
        self.pending.clear();
        let open = self.transaction.take();
        if let Some(client) = &self.client {
            if !client.autocommit() && client.hooks().internally(|| client.run("ROLLBACK", |_| Ok(()))).is_err() {
                // A connection that cannot roll back is of no use.
                self.client = None;
            } else {
                client.hooks().capture.borrow_mut().clear();
                client.hooks().deadline.set(None);
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
    fn tidy(&mut self) {
        let Some(client) = &self.client else { return };
        client.hooks().deadline.set(None);
        let ended = match &self.transaction {
            Some(Open { side: Side::Undecided, .. }) | None => false,
            Some(_) => client.autocommit(),
        };
        if ended {
            self.roll_back();
        }
    }

    /// What is said instead of running a statement, if something was lost.
    fn tell_lost(&mut self, sql: &str) -> Option<Answer<Outcome<ResultSet>>> {
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

    fn connect(&mut self, asked: &Asked<'_>) -> Outcome<()> {
        if self.client.is_some() {
            return Ok(());
        }
        let client = asked.database.open_client().map_err(from_failure)?;
        for (name, value) in &self.settings {
            client.hooks().internally(|| client.exec(&format!("PRAGMA {name}={value}"))).map_err(from_failure)?;
        }
        self.client = Some(client);
        Ok(())
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("a stream is connected before it runs anything")
    }

    fn own(&self, sql: &str) -> Outcome<()> {
        let client = self.client();
        client.hooks().internally(|| client.run(sql, |_| Ok(()))).map_err(from_failure)
    }

    /// Begins to read: at the newest published state, or, if the stream's own last write is not published yet, at what is executed.
    fn begin_reading(&mut self, asked: &Asked<'_>) -> Outcome<(Seen, Option<Hold>)> {
        let database = asked.database;
        if let Some(wrote) = self.wrote {
            if database.snapshots.published().is_none_or(|hw| hw < wrote.until) {
                let held = database.acquire(Instant::now() + database.options.writer_wait)?;
                self.own("BEGIN")?;
                self.client().refresh().map_err(from_failure)?;
                return Ok(((held.epoch, held.end), Some(database.hold(&held))));
            }
            self.wrote = None;
        }
        let seen = database.begin_at_published(self.client())?;
        Ok((seen, None))
    }

    /// A statement outside a transaction.
    fn alone(&mut self, asked: &Asked<'_>, statement: &Statement) -> Answer<Outcome<ResultSet>> {
        let database = asked.database;
        let deadline = Instant::now() + database.options.statement_max;
        self.client().hooks().deadline.set(Some(deadline));
        let words = text::words(&statement.sql, 2);
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        match word(0) {
            "BEGIN" | "COMMIT" | "END" | "ROLLBACK" | "SAVEPOINT" | "RELEASE" => return self.control(asked, statement),
            // These take effect when they are prepared, and some of them only outside a transaction.
            "PRAGMA" if text::pragma_name(&statement.sql).is_some_and(|name| PER_STREAM.contains(&name.as_str())) => {
                let result = self.client().prepare_one(&statement.sql);
                let result = result.and_then(|mut prepared| self.connection_pragma(asked, &mut prepared, statement));
                return now_or(result, (None, 0));
            }
            "CREATE" if word(1).starts_with("TEMP") => {}
            // What writes is not looked at first where only its own transaction can tell anything of it.
            _ if text::looks_like_write(&statement.sql) && !self.has_temporary => {
                return self.write_alone(asked, statement);
            }
            _ => {}
        }
        let (seen, hold) = match self.begin_reading(asked) {
            Ok(begun) => begun,
            Err(failed) => return now_or(Err(failed), (None, 0)),
        };
        let mut prepared = match self.client().prepare_one(&statement.sql) {
            Ok(prepared) => prepared,
            Err(failed) => {
                let ended = self.own("ROLLBACK");
                let final_whatever_is_executed = matches!(
                    failed.code.as_str(),
                    "SQL_PARSE_ERROR" | "SQL_NO_STATEMENT" | "SQL_MANY_STATEMENTS" | "SQLITE_AUTH"
                );
                if final_whatever_is_executed || ended.is_err() {
                    return now_or(Err(failed), seen);
                }
                return self.write_alone(asked, statement);
            }
        };
        self.has_temporary |= prepared.facts.temporary;
        if prepared.class == Class::Read {
            let result = run::fetch(self.client(), &mut prepared, statement, &database.options);
            if result.is_ok() {
                self.client().keep(&statement.sql, prepared);
            }
            // Temporary tables keep what was written to them.
            let ended = self.own(if result.is_ok() { "COMMIT" } else { "ROLLBACK" });
            return Answer { result: result.and_then(|result| ended.map(|()| result)), hold, seen };
        }
        if let Err(failed) = self.own("ROLLBACK") {
            return now_or(Err(failed), seen);
        }
        let result = match prepared.class.clone() {
            Class::Rows | Class::Schema | Class::Vacuum => {
                drop(prepared);
                return self.write_alone(asked, statement);
            }
            Class::IdlePragma(answer) => Ok(run::idle(&prepared, answer.as_deref())),
            other => {
                Err(error("SQLITE_ERROR", format!("a statement of the kind {other:?} that does not begin like one")))
            }
        };
        Answer { result, hold, seen }
    }

    /// BEGIN and its like, outside a transaction. They need no state to be prepared at.
    fn control(&mut self, asked: &Asked<'_>, statement: &Statement) -> Answer<Outcome<ResultSet>> {
        let mut prepared = match self.client().prepare_one(&statement.sql) {
            Ok(prepared) => prepared,
            Err(failed) => return now_or(Err(failed), (None, 0)),
        };
        match prepared.class.clone() {
            Class::Begin(mode) => now_or(self.begin(asked, mode, false), (None, 0)),
            Class::Savepoint(SavepointOp::Begin, _) => {
                drop(prepared);
                let mode = if asked.writes_follow { BeginMode::Immediate } else { BeginMode::Deferred };
                match self.begin(asked, mode, true) {
                    Ok(_) => self.within(asked, statement),
                    Err(failed) => now_or(Err(failed), (None, 0)),
                }
            }
            // SQLite says best what is wrong with the rest.
            _ => now_or(run::fetch(self.client(), &mut prepared, statement, &asked.database.options), (None, 0)),
        }
    }

    fn connection_pragma(
        &mut self,
        asked: &Asked<'_>,
        prepared: &mut Prepared,
        statement: &Statement,
    ) -> Outcome<ResultSet> {
        let result = run::fetch(self.client(), prepared, statement, &asked.database.options)?;
        if let Some((name, Some(value))) = &prepared.facts.pragma {
            // Within a transaction SQLite ignores the first; the second holds until a COMMIT.
            if name != "defer_foreign_keys" && (name != "foreign_keys" || self.transaction.is_none()) {
                self.settings.insert(name.clone(), value.clone());
            }
        }
        Ok(result)
    }

    /// A statement that writes, in a transaction of its own.
    fn write_alone(&mut self, asked: &Asked<'_>, statement: &Statement) -> Answer<Outcome<ResultSet>> {
        let database = asked.database;
        let acquired = database.acquire(Instant::now() + database.options.writer_wait).and_then(|mut held| {
            database.make_room(&mut held)?;
            Ok(held)
        });
        let mut held = match acquired {
            Ok(held) => held,
            Err(failed) => return now_or(Err(failed), (None, 0)),
        };
        let before = database.hold(&held);
        let outcome = self.write_alone_held(database, &mut held, statement);
        if !self.client().autocommit() {
            self.roll_back();
        }
        self.client().hooks().capture.borrow_mut().clear();
        let seen = (held.epoch, held.end);
        match outcome {
            Ok((result, wrote)) => {
                Answer { result: Ok(result), hold: Some(Hold { wrote, ..database.hold(&held) }), seen }
            }
            Err(failed) => Answer { result: Err(failed), hold: Some(before), seen },
        }
    }

    fn write_alone_held(
        &self,
        database: &Database,
        held: &mut Held,
        statement: &Statement,
    ) -> Outcome<(ResultSet, bool)> {
        let client = self.client();
        if text::words(&statement.sql, 1).first().is_some_and(|word| word == "VACUUM") {
            return Ok((database.vacuum(held, client, &statement.sql)?, true));
        }
        self.own("BEGIN IMMEDIATE")?;
        let schema = client.refresh().map_err(from_failure)?;
        let mut prepared = client.prepare_one(&statement.sql)?;
        if !matches!(prepared.class, Class::Read | Class::Rows | Class::Schema) {
            return Err(error("SQLITE_ERROR", "the statement cannot be run on its own: try again"));
        }
        let result = run::run_in_write(client, &statement.sql, &mut prepared, statement, &database.options);
        // A statement that failed may have kept something (OR FAIL): that is its effect, and is committed as it is outside a transaction in SQLite.
        if result.is_err() && (client.autocommit() || client.hooks().capture.borrow().len() == 0) {
            return Err(result.expect_err("looked at"));
        }
        database.check_captured(client, schema)?;
        let wrote = database.commit(held, client).map_err(from_failure)?;
        client.keep(&statement.sql, prepared);
        result.map(|result| (result, wrote))
    }

    fn begin(&mut self, asked: &Asked<'_>, mode: BeginMode, by_savepoint: bool) -> Outcome<ResultSet> {
        let deadline = Instant::now() + asked.database.options.interactive_max;
        let open = Open { reads_only: mode == BeginMode::ReadOnly, by_savepoint, deadline, side: Side::Undecided };
        self.transaction = Some(open);
        let takes_writer = mode == BeginMode::Immediate || (mode == BeginMode::Deferred && asked.writes_follow);
        if takes_writer && let Err(failed) = self.begin_writing(asked) {
            self.roll_back();
            return Err(failed);
        }
        Ok(ResultSet::default())
    }

    /// Takes the writer for the open transaction, which has read nothing, or nothing that is not the newest.
    fn begin_writing(&mut self, asked: &Asked<'_>) -> Outcome<()> {
        let database = asked.database;
        let mut held = database.acquire(Instant::now() + database.options.writer_wait)?;
        let open = self.transaction.as_ref().expect("a transaction is open");
        if open.reads_only {
            return Err(error("SQLITE_READONLY", "the transaction was begun READONLY"));
        }
        match &open.side {
            Side::Undecided => {
                database.make_room(&mut held)?;
                self.own("BEGIN IMMEDIATE")?;
            }
            Side::Reading { seen, .. } => {
                if seen.1 != held.end {
                    return Err(error(
                        "TRANSACTION_BUSY",
                        "others wrote since this transaction began to read, so it can write no more: roll it back and begin it again, best with BEGIN IMMEDIATE",
                    ));
                }
            }
            Side::Writing { .. } => unreachable!("the caller looked"),
        }
        let schema = self.client().refresh().map_err(from_failure)?;
        self.tell_pending()?;
        self.pending.clear();
        let hold = database.hold(&held);
        let deadline = Instant::now() + database.options.interactive_max;
        let stream = Arc::downgrade(asked.stream);
        held.interactive(
            deadline,
            Box::new(move || {
                if let Some(stream) = stream.upgrade() {
                    // If it is in use, its own deadline ends it.
                    let stream = match stream.try_lock() {
                        Ok(stream) => Some(stream),
                        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
                        Err(std::sync::TryLockError::WouldBlock) => None,
                    };
                    if let Some(mut stream) = stream {
                        stream.lose_transaction("TRANSACTION_TIMEOUT", TIMED_OUT);
                    }
                }
            }),
        );
        let open = self.transaction.as_mut().expect("a transaction is open");
        open.deadline = deadline;
        open.side = Side::Writing { held: Box::new(held), hold, schema };
        Ok(())
    }

    /// What an answer within the open transaction waits for, and what it has seen.
    fn standing(&self) -> (Option<Hold>, Seen) {
        match self.transaction.as_ref().map(|open| &open.side) {
            Some(Side::Reading { seen, hold }) => (*hold, *seen),
            Some(Side::Writing { held, hold, .. }) => (Some(*hold), (held.epoch, held.end)),
            Some(Side::Undecided) | None => (None, (None, 0)),
        }
    }

    /// A statement within a transaction.
    fn within(&mut self, asked: &Asked<'_>, statement: &Statement) -> Answer<Outcome<ResultSet>> {
        let deadline = self.transaction.as_ref().map(|open| open.deadline);
        self.client().hooks().deadline.set(deadline);
        let (hold, seen) = self.standing();
        let result = self.try_within(asked, statement);
        if let Ok(Some(answer)) = result {
            return answer;
        }
        // The statement may have moved the transaction on.
        let (now_hold, now_seen) = self.standing();
        let (hold, seen) = if self.transaction.is_some() { (now_hold, now_seen) } else { (hold, seen) };
        match result {
            Ok(_) => unreachable!("answered above"),
            Err(failed) => {
                if let Some(code) = ends_transaction(&failed) {
                    self.roll_back();
                    let told = SqlError { code: code.to_string(), ..failed.clone() };
                    self.lost = Some(Lost { error: told, in_transaction: true });
                }
                Answer { result: Err(failed), hold, seen }
            }
        }
    }

    fn try_within(&mut self, asked: &Asked<'_>, statement: &Statement) -> Outcome<Option<Answer<Outcome<ResultSet>>>> {
        let database = asked.database;
        let words = text::words(&statement.sql, 3);
        let first = words.first().map_or("", String::as_str);
        let undecided = matches!(self.transaction.as_ref().map(|open| &open.side), Some(Side::Undecided));
        if undecided
            && (matches!(first, "COMMIT" | "END") || (first == "ROLLBACK" && !words.iter().any(|word| word == "TO")))
        {
            self.roll_back();
            return Ok(Some(now_or(Ok(ResultSet::default()), (None, 0))));
        }
        if undecided && first == "SAVEPOINT" {
            let prepared = self.client().prepare_one(&statement.sql)?;
            if let Class::Savepoint(SavepointOp::Begin, name) = prepared.class {
                self.pending.push(name);
            }
            return Ok(Some(now_or(Ok(ResultSet::default()), (None, 0))));
        }
        if undecided {
            let (seen, hold) = self.begin_reading(asked)?;
            self.transaction.as_mut().expect("a transaction is open").side = Side::Reading { seen, hold };
            self.tell_pending()?;
        }
        let mut prepared = match self.client().prepare_one(&statement.sql) {
            Ok(prepared) => prepared,
            Err(failed) => {
                if undecided {
                    self.undecide()?;
                }
                return Err(failed);
            }
        };
        self.has_temporary |= prepared.facts.temporary;
        let writing = matches!(self.transaction.as_ref().map(|open| &open.side), Some(Side::Writing { .. }));
        let result = match prepared.class.clone() {
            Class::Begin(_) => return Err(error("SQLITE_ERROR", "cannot start a transaction within a transaction")),
            Class::Vacuum => return Err(error("SQLITE_ERROR", "cannot VACUUM from within a transaction")),
            Class::Commit => {
                drop(prepared);
                return self.commit(asked).map(Some);
            }
            Class::Rollback => {
                drop(prepared);
                let (hold, seen) = self.standing();
                self.roll_back();
                return Ok(Some(Answer { result: Ok(ResultSet::default()), hold, seen }));
            }
            Class::Savepoint(SavepointOp::Release, name) if self.releases_all(&name) => {
                drop(prepared);
                return self.commit(asked).map(Some);
            }
            Class::Savepoint(op, name) => {
                let result = run::fetch(self.client(), &mut prepared, statement, &database.options)?;
                let client = self.client.as_ref().expect("connected");
                self.savepoints.follow(client, op, &name)?;
                result
            }
            Class::ConnectionPragma => self.connection_pragma(asked, &mut prepared, statement)?,
            Class::IdlePragma(answer) => run::idle(&prepared, answer.as_deref()),
            Class::Read if !writing => run::fetch(self.client(), &mut prepared, statement, &database.options)?,
            Class::Read | Class::Rows | Class::Schema => {
                if !writing {
                    if undecided {
                        drop(prepared);
                        self.undecide()?;
                        self.begin_writing(asked)?;
                        prepared = self.client().prepare_one(&statement.sql)?;
                    } else {
                        self.begin_writing(asked)?;
                    }
                }
                let client = self.client();
                let deadline = self.transaction.as_ref().map(|open| open.deadline);
                client.hooks().deadline.set(deadline);
                run::run_in_write(client, &statement.sql, &mut prepared, statement, &database.options)?
            }
        };
        self.client().keep(&statement.sql, prepared);
        self.pending.clear();
        let (hold, seen) = self.standing();
        Ok(Some(Answer { result: Ok(result), hold, seen }))
    }

    /// The first statement did not only read: the state that it was prepared at is left again.
    fn undecide(&mut self) -> Outcome<()> {
        self.savepoints.clear();
        self.own("ROLLBACK")?;
        self.transaction.as_mut().expect("a transaction is open").side = Side::Undecided;
        Ok(())
    }

    /// Begins the savepoints in SQLite that were asked for before.
    fn tell_pending(&mut self) -> Outcome<()> {
        for name in self.pending.clone() {
            self.own(&format!("SAVEPOINT {}", quoted(&name)))?;
            let client = self.client.as_ref().expect("connected");
            self.savepoints.follow(client, SavepointOp::Begin, &name)?;
        }
        Ok(())
    }

    fn releases_all(&self, name: &str) -> bool {
        self.transaction.as_ref().is_some_and(|open| open.by_savepoint) && self.savepoints.is_outermost(name)
    }

    fn commit(&mut self, asked: &Asked<'_>) -> Outcome<Answer<Outcome<ResultSet>>> {
        let database = asked.database;
        let (hold, seen) = self.standing();
        let client = self.client.as_ref().expect("connected");
        let open = self.transaction.as_mut().expect("a transaction is open");
        let Side::Writing { held, schema, .. } = &mut open.side else {
            client.hooks().internally(|| client.run("COMMIT", |_| Ok(()))).map_err(from_failure)?;
            self.roll_back();
            return Ok(Answer { result: Ok(ResultSet::default()), hold, seen });
        };
        if let Err(failed) = database.check_captured(client, *schema) {
            self.roll_back();
            return Err(failed);
        }
        // A deferred foreign key that is violated fails here, and leaves the transaction open, as in SQLite.
        let wrote = database.commit(held, client).map_err(from_failure)?;
        let hold = Hold { wrote, ..database.hold(held) };
        let seen = (held.epoch, held.end);
        self.roll_back();
        Ok(Answer { result: Ok(ResultSet::default()), hold: Some(hold), seen })
    }

    /// See [`crate::Session::describe`].
    pub(crate) fn describe(&mut self, asked: &Asked<'_>, sql: &str) -> Outcome<Description> {
        let database = asked.database;
        self.connect(asked)?;
        let (hold, _) = self.standing();
        let until = Instant::now() + database.options.publish_wait;
        let stop = || database.stop.load(std::sync::atomic::Ordering::Acquire);
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
        database.begin_at_published(self.client())?;
        let described = self.client().prepare_one(sql).map(|prepared| description(&prepared));
        self.own("ROLLBACK")?;
        described
    }
}

/// Whether a failure has ended the transaction by an interrupt, or ends it now: what comes later must not run on its own. Told then by this code.
fn ends_transaction(failed: &SqlError) -> Option<&'static str> {
    match failed.code.as_str() {
        "TRANSACTION_TIMEOUT" => Some("TRANSACTION_TIMEOUT"),
        "TRANSACTION_TOO_LARGE" => Some("TRANSACTION_TOO_LARGE"),
        "NOT_READY" => Some("STREAM_EXPIRED"),
        _ => None,
    }
}

/// Locks a stream. A panic on one request leaves the stream usable: its transaction is rolled back with the next one or with its connection.
pub(crate) fn lock(stream: &Mutex<Stream>) -> MutexGuard<'_, Stream> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

const TIMED_OUT: &str = "the interactive transaction was open for longer than it may be and was rolled back: it had no effect; begin it again, and shorter";
