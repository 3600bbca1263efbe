//! One-shot transactions on the shared writer, and reads on pooled connections.

use std::time::Instant;

use crate::allowance::Allowance;
use crate::api::{Answer, Hold, ResultSet, SqlError, Statement, Transaction};
use crate::classify::Class;
use crate::client::Client;
use crate::core::Core;
use crate::database::Database;
use crate::error::{error, from_failure};
use crate::keys;
use crate::rowlog::OUTSIDE_TRANSACTION;
use crate::run::{self, Savepoints};
use crate::text;

impl Database {
    /// Whether all statements only read, as far as the newest published state tells.
    ///
    /// # Errors
    /// The error of the first statement that cannot be prepared. A leader may have executed what it lacks without its being published yet: so for whoever may
    /// write this is no final word. `NOT_READY` before the first publication.
    pub fn read_only(&self, statements: &[Statement], allowance: impl Into<Allowance>) -> Result<bool, SqlError> {
        let allowance = allowance.into().until(Instant::now() + self.options.statement_max);
        self.read(&allowance, |client, _| all_read(client, statements)).result
    }

    /// Runs statements as one transaction, all or nothing. If all only read, they run at the newest published state, and the answer may leave at once;
    /// otherwise on the shared writer, as far as the allowance goes.
    ///
    /// # Errors
    /// The first statement's that failed; `NOT_LEADER` for a write where this replica does not lead; `TRANSACTION_BUSY` if the writer was not to be had;
    /// `TRANSACTION_TIMEOUT`, `CANCELLED`, `TRANSACTION_TOO_LARGE`, `RESPONSE_TOO_LARGE`, `OVERLOADED`; `IDEMPOTENCY_MISMATCH` for a key that was used for another request.
    pub fn transaction(
        &self,
        transaction: &Transaction,
        allowance: impl Into<Allowance>,
    ) -> Answer<Result<Vec<ResultSet>, SqlError>> {
        let allowance = &allowance.into();
        if transaction.key.is_some()
            || transaction.statements.iter().any(|statement| text::looks_like_write(&statement.sql))
        {
            return self.write(transaction, allowance);
        }
        let read = self.read(allowance, |client, _| {
            // What cannot be prepared here may be on the writer's side of HW.
            if !all_read(client, &transaction.statements).unwrap_or(false) {
                return Ok(None);
            }
            transaction
                .statements
                .iter()
                .map(|statement| self.read_one(client, statement))
                .collect::<Result<_, _>>()
                .map(Some)
        });
        match read.result {
            Ok(Some(results)) => Answer { result: Ok(results), hold: None, seen: read.seen },
            Ok(None) => self.write(transaction, allowance),
            // A leader that has not published yet may still execute.
            Err(failed) if failed.code == "NOT_READY" => self.write(transaction, allowance),
            Err(failed) => Answer { result: Err(failed), hold: None, seen: read.seen },
        }
    }

    fn read_one(&self, client: &Client, statement: &Statement) -> Result<ResultSet, SqlError> {
        let mut prepared = client.prepare_one(&statement.sql)?;
        let result = run::read_only(client, &mut prepared, statement, &self.options)?;
        client.keep(&statement.sql, prepared);
        Ok(ResultSet { last_insert_rowid: 0, affected: 0, ..result })
    }

    fn write(&self, transaction: &Transaction, allowance: &Allowance) -> Answer<Result<Vec<ResultSet>, SqlError>> {
        let refused = |failed| Answer { result: Err(failed), hold: None, seen: (None, 0) };
        let _gate = match self.enter() {
            Ok(gate) => gate,
            Err(failed) => return refused(failed),
        };
        let mut held = match self.acquire(allowance) {
            Ok(held) => held,
            Err(failed) => return refused(failed),
        };
        let core = &mut *held;
        if let Err(failed) = self.make_room(core) {
            return refused(failed);
        }
        let before = self.hold(core);
        let writer = match core.writer.take().map_or_else(|| self.open_shared(), Ok) {
            Ok(writer) => writer,
            Err(failure) => return refused(from_failure(failure)),
        };
        writer.hooks().allow(allowance);
        let outcome = self.write_on(core, &writer, transaction);
        writer.hooks().end_allowance();
        writer.hooks().capture.borrow_mut().clear();
        // Temporary objects end with the request that made them: the next client's INSERT must not go into a temporary table of the same name.
        if writer.autocommit() && !writer.touched_temporary() {
            core.writer = Some(writer);
        }
        let seen = (core.epoch, core.end);
        match outcome {
            Ok(Done { results, hold }) => Answer { result: Ok(results), hold: Some(hold), seen },
            Err(failed) => Answer { result: Err(failed), hold: Some(before), seen },
        }
    }

    fn write_on(&self, core: &mut Core, writer: &Client, transaction: &Transaction) -> Result<Done, SqlError> {
        if let [statement] = transaction.statements.as_slice()
            && text::words(&statement.sql, 1).first().is_some_and(|word| word == "VACUUM")
        {
            let results = vec![self.vacuum(core, writer, &statement.sql)?];
            return Ok(Done { results, hold: Hold { wrote: true, ..self.hold(core) } });
        }
        writer.hooks().undisturbed(|| writer.run("BEGIN IMMEDIATE", |_| Ok(()))).map_err(from_failure)?;
        let outcome = self.write_within(core, writer, transaction);
        if !writer.autocommit() {
            writer.hooks().undisturbed(|| writer.run("ROLLBACK", |_| Ok(()))).map_err(from_failure)?;
        }
        outcome
    }

    fn write_within(&self, core: &mut Core, writer: &Client, transaction: &Transaction) -> Result<Done, SqlError> {
        writer.set_last_insert_rowid(0);
        let schema = writer.refresh().map_err(from_failure)?;
        if let Some(key) = &transaction.key
            && let Some(kept) = keys::find(writer, key, core, &self.options)?
        {
            let hold = Hold { until: kept.position.min(core.end), wrote: true, ..self.hold(core) };
            return Ok(Done { results: kept.results, hold });
        }
        let mut savepoints = Savepoints::default();
        let mut results = Vec::with_capacity(transaction.statements.len());
        for statement in &transaction.statements {
            results.push(self.write_one(writer, statement, &mut savepoints)?);
        }
        if let Some(key) = &transaction.key {
            writer.flush().map_err(from_failure)?;
            keys::keep(writer, key, &results, core, &self.options)?;
        }
        self.check_captured(writer, schema)?;
        let wrote = self.commit(core, writer).map_err(from_failure)?;
        Ok(Done { results, hold: Hold { wrote, ..self.hold(core) } })
    }

    fn write_one(
        &self,
        writer: &Client,
        statement: &Statement,
        savepoints: &mut Savepoints,
    ) -> Result<ResultSet, SqlError> {
        let mut prepared = writer.prepare_one(&statement.sql)?;
        let result = match prepared.class.clone() {
            Class::Begin(_) | Class::Commit | Class::Rollback => {
                return Err(error(
                    "SQLITE_ERROR",
                    "the statements of one request are one transaction already: BEGIN, COMMIT and ROLLBACK belong into a stream",
                ));
            }
            Class::Vacuum => return Err(error("SQLITE_ERROR", "cannot VACUUM from within a transaction")),
            // On a connection that is shared it would hold for others; there it is ignored.
            Class::ConnectionPragma
                if prepared.facts.pragma.as_ref().is_some_and(|(_, argument)| argument.is_some()) =>
            {
                ResultSet::default()
            }
            Class::Savepoint(op, name) => {
                let result = run::fetch(writer, &mut prepared, statement, &self.options)?;
                savepoints.follow(writer, op, &name)?;
                result
            }
            _ => run::run_in_write(writer, &statement.sql, &mut prepared, statement, &self.options)?,
        };
        writer.keep(&statement.sql, prepared);
        Ok(result)
    }

    /// Runs VACUUM, outside a transaction, and ships it as a statement.
    pub(crate) fn vacuum(&self, core: &mut Core, client: &Client, sql: &str) -> Result<ResultSet, SqlError> {
        let prepared = client.prepare_one(sql)?;
        assert_eq!(prepared.class, Class::Vacuum, "the caller looked");
        drop(prepared);
        let applier = core.applier.as_mut().expect("the applying connection is open");
        applier.forget();
        applier.conn.exec("VACUUM").map_err(from_failure)?;
        client.hooks().undisturbed(|| client.run("BEGIN IMMEDIATE", |_| Ok(()))).map_err(from_failure)?;
        client.hooks().capture.borrow_mut().statement(OUTSIDE_TRANSACTION, "VACUUM");
        let committed = self.commit(core, client).map_err(from_failure);
        if !client.autocommit() {
            client.hooks().undisturbed(|| client.run("ROLLBACK", |_| Ok(()))).map_err(from_failure)?;
        }
        if committed.is_err() {
            // The database was rebuilt and nobody will hear of it: rowids may differ from here on.
            core.failed.get_or_insert_with(|| "a VACUUM could not be shipped".to_string());
        }
        committed.map(|_| ResultSet::default())
    }
}

/// What a write transaction gave, and what its answer waits for.
struct Done {
    results: Vec<ResultSet>,
    hold: Hold,
}

fn all_read(client: &Client, statements: &[Statement]) -> Result<bool, SqlError> {
    let mut all = true;
    for statement in statements {
        let prepared = client.prepare_one(&statement.sql)?;
        all &= prepared.class == Class::Read && !prepared.facts.temporary;
        client.keep(&statement.sql, prepared);
    }
    Ok(all)
}
