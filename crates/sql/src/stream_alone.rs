//! Statements outside a transaction.
//!
//! What reads is prepared and run at the newest published state. What writes, or cannot be prepared there, runs in a transaction of its own on the writer's
//! side. BEGIN and its like, and PRAGMAs of the stream, need no state at all.

use std::time::Instant;

use crate::api::{Answer, Hold, ResultSet, Statement};
use crate::classify::{BeginMode, Class, SavepointOp};
use crate::client::Prepared;
use crate::database::Database;
use crate::error::{error, from_failure};
use crate::pragma::PER_STREAM;
use crate::run;
use crate::stream::{Asked, Outcome, Stream, now_or};
use crate::text;
use crate::token::Held;

impl Stream {
    /// A statement outside a transaction.
    pub(crate) fn alone(&mut self, asked: &Asked<'_>, statement: &Statement) -> Answer<Outcome<ResultSet>> {
        let database = asked.database;
        self.client().hooks().allow(&asked.allowance.until(Instant::now() + database.options.statement_max));
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
            _ if text::looks_like_write(&statement.sql) && !self.has_temporary.get() => {
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
        self.note_temporary(&prepared);
        if prepared.class == Class::Read {
            let result = run::read_only(self.client(), &mut prepared, statement, &database.options);
            if result.is_ok() {
                self.client().keep(&statement.sql, prepared);
            }
            // Temporary tables keep what was written to them.
            let ended = match &result {
                Ok(_) => self.own("COMMIT"),
                Err(_) if self.client().autocommit() => Ok(()),
                Err(_) => self.own("ROLLBACK"),
            };
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
    pub(crate) fn control(&mut self, asked: &Asked<'_>, statement: &Statement) -> Answer<Outcome<ResultSet>> {
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

    pub(crate) fn connection_pragma(
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
    pub(crate) fn write_alone(&mut self, asked: &Asked<'_>, statement: &Statement) -> Answer<Outcome<ResultSet>> {
        let database = asked.database;
        let acquired = database.acquire(&asked.allowance).and_then(|mut held| {
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

    pub(crate) fn write_alone_held(
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
        self.note_temporary(&prepared);
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
}
