//! A stream as clients know it: one logical connection, and what may be asked of it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use highwater_wire::{Epoch, Offset};

use crate::allowance::Allowance;
use crate::api::{Answer, BatchStep, Column, Condition, Description, Hold, ResultSet, SqlError, Statement};
use crate::database::Database;
use crate::error::error;
use crate::gate::Entered;
pub(crate) use crate::stream::Stream;
use crate::stream::{Asked, lock};
use crate::text;

/// One logical connection: temporary objects, PRAGMAs and interactive transactions live in it. Requests on it are served one at a time. Its SQLite
/// connection is opened with the first request.
///
/// What is lost is said once, by `STREAM_EXPIRED` (leadership ended, the database was closed) or `TRANSACTION_TIMEOUT`; if a transaction was open, until the
/// client ends it by COMMIT or ROLLBACK, so that no later statement of it runs on its own.
pub struct Session {
    database: Arc<Database>,
    stream: Arc<Mutex<Stream>>,
    /// What is allowed to whatever is asked next.
    allowance: Mutex<Option<Allowance>>,
}

impl Database {
    /// Opens a stream.
    pub fn session(self: &Arc<Database>) -> Session {
        let stream = Arc::new(Mutex::new(Stream::default()));
        let mut streams = self.streams.lock().expect("nothing under this lock panics");
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(&stream));
        Session { database: self.clone(), stream, allowance: Mutex::new(None) }
    }
}

impl Session {
    fn lock(&self) -> MutexGuard<'_, Stream> {
        lock(&self.stream)
    }

    fn asked(&self) -> Asked<'_> {
        let allowance = self.allowance.lock().expect("nothing under this lock panics").clone();
        let allowance = allowance.unwrap_or_else(|| (Instant::now() + self.database.options.statement_max).into());
        Asked { database: &self.database, stream: &self.stream, writes_follow: false, allowance }
    }

    /// Allows so much to everything that is asked from now on, until the next call. Each statement has the time that the stream's own limits leave it, and no
    /// more than the allowance does. A transaction whose statement was interrupted is rolled back; one that is merely open stays so.
    pub fn allow(&self, allowance: impl Into<Allowance>) {
        *self.allowance.lock().expect("nothing under this lock panics") = Some(allowance.into());
    }

    fn with<T>(
        &self,
        run: impl FnOnce(&mut Stream, &Asked<'_>) -> Answer<Result<T, SqlError>>,
    ) -> Answer<Result<T, SqlError>> {
        match self.database.enter() {
            Ok(entered) => {
                let asked = self.asked();
                let mut stream = self.lock();
                let answer = run(&mut stream, &asked);
                abandon_if_given_up(&entered, &mut stream);
                answer
            }
            Err(failed) => Answer { result: Err(failed), hold: None, seen: (None, 0) },
        }
    }

    /// Runs one statement.
    ///
    /// # Errors
    /// Any of the codes of [`SqlError`]; besides those of SQLite: `NOT_LEADER`, `NOT_READY`, `TRANSACTION_BUSY`, `TRANSACTION_TIMEOUT`, `STREAM_EXPIRED`,
    /// `ARGS_INVALID`, `SQL_NO_STATEMENT`, `SQL_MANY_STATEMENTS`, `VALUE_TOO_LARGE`, `RESPONSE_TOO_LARGE`, `TRANSACTION_TOO_LARGE`, `OVERLOADED`, `CLOSED`.
    pub fn execute(&self, statement: &Statement) -> Answer<Result<ResultSet, SqlError>> {
        self.with(|stream, asked| stream.execute(asked, statement))
    }

    /// Runs the steps of a batch whose conditions hold. A skipped step gives `None`. A batch that contains a write takes the writer at its BEGIN.
    pub fn batch(&self, steps: &[BatchStep]) -> Answer<Vec<Option<Result<ResultSet, SqlError>>>> {
        let mut results: Vec<Option<Result<ResultSet, SqlError>>> = Vec::with_capacity(steps.len());
        let mut together = Together::default();
        let Ok(entered) = self.database.enter() else {
            let closed = || Some(Err(error("CLOSED", "the database has been closed on this node")));
            return Answer { result: steps.iter().map(|_| closed()).collect(), hold: None, seen: (None, 0) };
        };
        let mut stream = self.lock();
        let last_write = steps.iter().rposition(|step| text::looks_like_write(&step.statement.sql));
        for (at, step) in steps.iter().enumerate() {
            let runs =
                step.condition.as_ref().is_none_or(|condition| holds(condition, &results, stream.is_autocommit()));
            if !runs {
                results.push(None);
                continue;
            }
            let writes_follow = last_write.is_some_and(|last| last > at);
            let asked = Asked { writes_follow, ..self.asked() };
            let answer = stream.execute(&asked, &step.statement);
            together.add(answer.hold, answer.seen);
            results.push(Some(answer.result));
        }
        abandon_if_given_up(&entered, &mut stream);
        together.answer(results)
    }

    /// Runs the statements of a script one after the other, dropping their rows, until one fails.
    pub fn sequence(&self, sql: &str) -> Answer<Result<(), SqlError>> {
        let mut together = Together::default();
        let mut outcome = Ok(());
        for part in text::split_script(sql) {
            let statement = Statement { sql: part.to_string(), ..Statement::default() };
            let answer = self.execute(&statement);
            together.add(answer.hold, answer.seen);
            if let Err(failed) = answer.result {
                outcome = Err(failed);
                break;
            }
        }
        together.answer(outcome)
    }

    /// Tells about a statement without running it. What it tells is committed, or is of the stream's own transaction.
    pub fn describe(&self, sql: &str) -> Result<Description, SqlError> {
        let entered = self.database.enter()?;
        let asked = self.asked();
        let mut stream = self.lock();
        let described = stream.describe(&asked, sql);
        abandon_if_given_up(&entered, &mut stream);
        described
    }

    /// Whether no transaction is open.
    pub fn is_autocommit(&self) -> bool {
        self.lock().is_autocommit()
    }

    /// Ends the stream; an open transaction is rolled back. Dropping it does the same.
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.lock().end();
    }
}

/// A stream that was given up has its connection on files that were replaced.
fn abandon_if_given_up(entered: &Entered, stream: &mut Stream) {
    if entered.is_given_up() {
        let lost = "the stream ran a statement that could not be interrupted, and was given up: open another";
        stream.lose_transaction("STREAM_EXPIRED", lost);
        stream.close_connection();
    }
}

/// Several answers as one.
#[derive(Default)]
struct Together {
    hold: Option<Hold>,
    seen: (Option<Epoch>, Offset),
}

impl Together {
    fn add(&mut self, hold: Option<Hold>, seen: (Option<Epoch>, Offset)) {
        if seen.1 >= self.seen.1 {
            self.seen = seen;
        }
        self.hold = match (self.hold, hold) {
            (Some(a), Some(b)) if a.reign == b.reign => {
                Some(Hold { reign: a.reign, until: a.until.max(b.until), wrote: a.wrote || b.wrote })
            }
            // What was computed in an older reign is lost, and that must come out.
            (Some(a), Some(b)) => Some(if a.reign < b.reign { a } else { b }),
            (a, b) => a.or(b),
        };
    }

    fn answer<T>(self, result: T) -> Answer<T> {
        Answer { result, hold: self.hold, seen: self.seen }
    }
}

fn holds(condition: &Condition, results: &[Option<Result<ResultSet, SqlError>>], autocommit: bool) -> bool {
    match condition {
        Condition::Ok(step) => matches!(results.get(*step), Some(Some(Ok(_)))),
        Condition::Error(step) => matches!(results.get(*step), Some(Some(Err(_)))),
        Condition::Not(condition) => !holds(condition, results, autocommit),
        Condition::And(conditions) => conditions.iter().all(|condition| holds(condition, results, autocommit)),
        Condition::Or(conditions) => conditions.iter().any(|condition| holds(condition, results, autocommit)),
        Condition::IsAutocommit => autocommit,
    }
}

/// The description of a prepared statement.
pub(crate) fn description(prepared: &crate::client::Prepared) -> Description {
    let stmt = &prepared.stmt;
    Description {
        params: (1..=stmt.parameter_count()).map(|index| stmt.parameter_name(index)).collect(),
        columns: (0..stmt.column_count())
            .map(|column| Column { name: stmt.column_name(column), decl_type: stmt.column_decl_type(column) })
            .collect(),
        is_explain: stmt.is_explain(),
        is_readonly: stmt.readonly(),
    }
}
