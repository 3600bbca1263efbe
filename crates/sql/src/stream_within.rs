//! Statements within a transaction.
//!
//! BEGIN alone begins nothing: the first statement decides whether the transaction reads at the published state or takes the writer. One that has read there
//! may still take it, if nothing was written since.

use std::sync::Arc;
use std::time::Instant;

use crate::api::{Answer, Hold, ResultSet, SqlError, Statement};
use crate::classify::{BeginMode, Class, SavepointOp};
use crate::error::{error, from_failure};
use crate::run;
use crate::shape::quoted;
use crate::stream::{Asked, Lost, Open, Outcome, Seen, Side, Stream, TIMED_OUT, now_or, try_lock};
use crate::text;

impl Stream {
    pub(crate) fn begin(&mut self, asked: &Asked<'_>, mode: BeginMode, by_savepoint: bool) -> Outcome<ResultSet> {
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
    pub(crate) fn begin_writing(&mut self, asked: &Asked<'_>) -> Outcome<()> {
        let database = asked.database;
        let mut held = database.acquire(&asked.allowance)?;
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
        let undecided = matches!(open.side, Side::Undecided);
        let refreshed = self.client().refresh().map_err(from_failure);
        let schema = match refreshed.and_then(|schema| self.tell_pending().map(|()| schema)) {
            Ok(schema) => schema,
            Err(failed) => {
                // SQLite's transaction must not outlive the hold of the writer.
                if undecided {
                    self.undecide()?;
                }
                return Err(failed);
            }
        };
        self.pending.clear();
        let hold = database.hold(&held);
        let deadline = Instant::now() + database.options.interactive_max;
        let stream = Arc::downgrade(asked.stream);
        held.interactive(
            deadline,
            Box::new(move || {
                if let Some(stream) = stream.upgrade() {
                    // If it is in use, its own deadline ends it.
                    if let Some(mut stream) = try_lock(&stream) {
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
    pub(crate) fn standing(&self) -> (Option<Hold>, Seen) {
        match self.transaction.as_ref().map(|open| &open.side) {
            Some(Side::Reading { seen, hold }) => (*hold, *seen),
            Some(Side::Writing { held, hold, .. }) => (Some(*hold), (held.epoch, held.end)),
            Some(Side::Undecided) | None => (None, (None, 0)),
        }
    }

    /// What runs next may use what was allowed, until the open transaction's time is over.
    fn allow(&self, asked: &Asked<'_>) {
        let open = self.transaction.as_ref().expect("a transaction is open");
        self.client().hooks().allow(&asked.allowance.until(open.deadline));
    }

    /// A statement within a transaction.
    pub(crate) fn within(&mut self, asked: &Asked<'_>, statement: &Statement) -> Answer<Outcome<ResultSet>> {
        self.allow(asked);
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
                let ended_by_sqlite =
                    !matches!(self.transaction.as_ref().map(|open| &open.side), Some(Side::Undecided) | None)
                        && self.client().autocommit();
                if let Some(code) = ends_transaction(&failed, ended_by_sqlite) {
                    self.roll_back();
                    let told = SqlError { code: code.to_string(), ..failed.clone() };
                    self.lost = Some(Lost { error: told, in_transaction: true });
                }
                Answer { result: Err(failed), hold, seen }
            }
        }
    }

    pub(crate) fn try_within(
        &mut self,
        asked: &Asked<'_>,
        statement: &Statement,
    ) -> Outcome<Option<Answer<Outcome<ResultSet>>>> {
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
            let begun = self.begin_reading(asked).and_then(|(seen, hold)| {
                self.transaction.as_mut().expect("a transaction is open").side = Side::Reading { seen, hold };
                self.tell_pending()
            });
            if let Err(failed) = begun {
                self.undecide()?;
                return Err(failed);
            }
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
        self.note_temporary(&prepared);
        if undecided && !matches!(prepared.class, Class::Rows | Class::Schema) {
            // The transaction reads from here on, whether this statement fails or not: what SQLite was told must not be told again.
            self.pending.clear();
        }
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
            Class::Read if !writing => run::read_only(self.client(), &mut prepared, statement, &database.options)?,
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
                self.allow(asked);
                let client = self.client();
                run::run_in_write(client, &statement.sql, &mut prepared, statement, &database.options)?
            }
        };
        self.client().keep(&statement.sql, prepared);
        let (hold, seen) = self.standing();
        Ok(Some(Answer { result: Ok(result), hold, seen }))
    }

    /// The first statement did not only read, or could not be begun: the state that it was prepared at is left again. The savepoints stay pending.
    pub(crate) fn undecide(&mut self) -> Outcome<()> {
        self.savepoints.clear();
        if !self.client().autocommit()
            && let Err(failed) = self.own("ROLLBACK")
        {
            // What SQLite holds is not known then, so nothing more may run in it.
            self.lose_transaction(&failed.code, &failed.message);
            return Err(failed);
        }
        self.transaction.as_mut().expect("a transaction is open").side = Side::Undecided;
        Ok(())
    }

    /// Begins the savepoints in SQLite that were asked for before. They stay pending until it is settled that the transaction stays where it told them: the
    /// caller then clears them, or else undecides.
    pub(crate) fn tell_pending(&mut self) -> Outcome<()> {
        for name in self.pending.clone() {
            self.own(&format!("SAVEPOINT {}", quoted(&name)))?;
            let client = self.client.as_ref().expect("connected");
            self.savepoints.follow(client, SavepointOp::Begin, &name)?;
        }
        Ok(())
    }

    pub(crate) fn releases_all(&self, name: &str) -> bool {
        self.transaction.as_ref().is_some_and(|open| open.by_savepoint) && self.savepoints.is_outermost(name)
    }

    pub(crate) fn commit(&mut self, asked: &Asked<'_>) -> Outcome<Answer<Outcome<ResultSet>>> {
        let database = asked.database;
        let (hold, seen) = self.standing();
        let client = self.client.as_ref().expect("connected");
        let open = self.transaction.as_mut().expect("a transaction is open");
        let Side::Writing { held, schema, .. } = &mut open.side else {
            client.hooks().undisturbed(|| client.run("COMMIT", |_| Ok(()))).map_err(from_failure)?;
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
}

/// Whether a failure has ended the transaction, or ends it now: what comes later must not run on its own. Told then by this code. SQLite itself ends one when
/// it has no room or no memory; where a constraint asks for it (`OR ROLLBACK`), what comes later does run on its own, as in SQLite.
fn ends_transaction(failed: &SqlError, ended_by_sqlite: bool) -> Option<&'static str> {
    match failed.code.as_str() {
        "TRANSACTION_TIMEOUT" => Some("TRANSACTION_TIMEOUT"),
        "TRANSACTION_TOO_LARGE" => Some("TRANSACTION_TOO_LARGE"),
        "CANCELLED" => Some("CANCELLED"),
        "NOT_READY" => Some("STREAM_EXPIRED"),
        "TEMPORARY_SPACE_FULL" => Some("TEMPORARY_SPACE_FULL"),
        "SQLITE_FULL" if ended_by_sqlite => Some("SQLITE_FULL"),
        "SQLITE_NOMEM" if ended_by_sqlite => Some("SQLITE_NOMEM"),
        "SQLITE_IOERR" if ended_by_sqlite => Some("SQLITE_IOERR"),
        "STATEMENT_TOO_LARGE" if ended_by_sqlite => Some("STATEMENT_TOO_LARGE"),
        "OVERLOADED" if ended_by_sqlite => Some("OVERLOADED"),
        _ => None,
    }
}
