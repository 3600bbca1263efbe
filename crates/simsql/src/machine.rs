//! The product's state machine as the simulator drives it: one command at a time.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use highwater_partition::{Reign, StateMachine};
use highwater_sim::machine::{Entry, Executed, Machine, OpId, Shown, State, View, fold};
use highwater_sim::rng::Rng;
use highwater_sql::{Answer, Database, Proposer, ResultSet, SqlError, Statement, Transaction, Value};
use highwater_wire::batch::Record;
use highwater_wire::{Epoch, Offset};

use crate::folder::lock;
use crate::requests::{self, number, statement};

thread_local! {
    /// What the clock of this thread's run shows.
    static NOW_MS: Cell<i64> = const { Cell::new(0) };
}

/// The clock that databases are given.
pub(crate) fn clock() -> i64 {
    NOW_MS.get()
}

/// What a database proposes, until it is fetched.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Mutex<Vec<(Reign, Offset, BytesMut)>>);

impl Proposer for Outbox {
    fn propose(&self, reign: Reign, base: Offset, batches: BytesMut) {
        lock(&self.0).push((reign, base, batches));
    }
}

/// A database in a process.
pub(crate) struct SqlMachine {
    database: Arc<Database>,
    outbox: Arc<Outbox>,
    /// Whether the disk is to fail for good, so that the process ends with the first failure.
    doomed: Rc<Cell<bool>>,
    rng: Rng,
    /// How much of the journal has been read from what is published, and the content hash of that much.
    read: (u64, u64),
    /// What it was told to apply reaches this far. Of a transaction that has not ended by then the database has applied nothing.
    told: Offset,
}

/// What a query found, if there were tables to be looked into, and where the state ends that it saw.
struct Found {
    results: Option<Vec<ResultSet>>,
    end: End,
}

/// Where a state ends: the epoch of its last entry, and the offset after it.
type End = (Option<Epoch>, Offset);

impl SqlMachine {
    pub(crate) fn new(database: Arc<Database>, outbox: Arc<Outbox>, doomed: Rc<Cell<bool>>, rng: Rng) -> SqlMachine {
        SqlMachine { database, outbox, doomed, rng, read: (0, 0), told: 0 }
    }

    fn run(&self, entry: &Entry, schema: bool) -> Answer<Result<Vec<ResultSet>, SqlError>> {
        let transaction = Transaction { statements: requests::statements(entry, schema), key: requests::key(entry) };
        self.database.transaction(&transaction, far())
    }

    /// Does what somebody else asks for right afterwards.
    fn aside(&mut self) -> Result<(), String> {
        let statements = self.rng.pick(&requests::ASIDE).iter().map(|sql| statement(sql, &[])).collect();
        match self.database.transaction(&Transaction { statements, key: None }, far()).result {
            Err(failed) if failed.code != "SQLITE_CONSTRAINT" && !no_table(&failed) && !self.goes_on(&failed) => {
                Err(format!("{}: {failed}", failed.code))
            }
            _ => Ok(()),
        }
    }

    /// Whether a client is told that its write failed, and nothing else comes of it.
    fn goes_on(&self, failed: &SqlError) -> bool {
        match failed.code.as_str() {
            "NOT_LEADER" | "OVERLOADED" => true,
            "SQLITE_IOERR" | "SQLITE_FULL" | "SQLITE_CANTOPEN" => !self.doomed.get(),
            _ => false,
        }
    }

    /// Reads the published state; `None` if nothing may be seen.
    fn query(&self, statements: Vec<Statement>) -> Result<Option<(Vec<ResultSet>, End)>, String> {
        let answer = self.database.transaction(&Transaction { statements, key: None }, far());
        match (answer.result, answer.hold) {
            (Ok(results), None) => Ok(Some((results, answer.seen))),
            // Before the first publication it is run on the writer, where one leads: what that gives is not published.
            (Ok(_), Some(_)) => Ok(None),
            (Err(failed), None) if failed.code == "NOT_LEADER" || failed.code == "NOT_READY" => Ok(None),
            (Err(failed), _) => Err(format!("{}: {failed}", failed.code)),
        }
    }

    /// The same once it is known whether the first write has been published: without its tables there are no results.
    fn query_tables(&self, statements: Vec<Statement>) -> Result<Option<Found>, String> {
        let there = statement("SELECT count(*) FROM sqlite_schema WHERE name = 'journal'", &[]);
        let Some((results, end)) = self.query(vec![there])? else { return Ok(None) };
        if first(&results[0])? == 0 {
            return Ok(Some(Found { results: None, end }));
        }
        match self.query(statements)? {
            Some((results, again)) if again == end => Ok(Some(Found { results: Some(results), end })),
            found => Err(format!("after a read up to {end:?} the next one sees {:?}", found.map(|(_, again)| again))),
        }
    }
}

impl Machine for SqlMachine {
    fn applied(&self) -> Offset {
        self.database.applied()
    }

    fn apply(&mut self, from: Offset, to: Offset, batches: &Bytes, committed: bool) -> Result<(), String> {
        self.told = to;
        self.database.apply(from, to, batches, committed).map_err(|error| error.to_string())
    }

    fn lead(&mut self, reign: Reign, end: Offset) -> Result<(), String> {
        self.database.lead(reign, end).map_err(|error| error.to_string())
    }

    fn execute(&mut self, entry: &Entry, timestamp_ms: i64) -> Result<Option<Executed>, String> {
        NOW_MS.set(timestamp_ms);
        let mut answer = self.run(entry, false);
        if answer.result.as_ref().is_err_and(no_table) {
            answer = self.run(entry, true);
        }
        let results = match answer.result {
            Ok(results) => results,
            // A refusal, or a failure of the disk after which the database goes on: certainly no effect.
            Err(failed) if lock(&self.outbox.0).is_empty() && self.goes_on(&failed) => return Ok(None),
            Err(failed) => return Err(format!("{}: {failed}", failed.code)),
        };
        let hold = answer.hold.ok_or("the answer to a write is not held")?;
        if self.rng.percent(6) {
            self.aside()?;
        }
        let proposals = std::mem::take(&mut *lock(&self.outbox.0));
        if let Some((reign, ..)) = proposals.iter().find(|(reign, ..)| *reign != hold.reign) {
            return Err(format!("a proposal of {reign:?} in {:?}", hold.reign));
        }
        Ok(Some(Executed {
            answer: requests::answer(entry, &results)?,
            reign: hold.reign,
            until: hold.until,
            wrote: hold.wrote,
            before: None,
            proposals: proposals.into_iter().map(|(_, base, batches)| (base, batches)).collect(),
        }))
    }

    fn publish(&mut self, hw: Offset) -> Result<(), String> {
        let applied = self.database.applied().max(self.told);
        if hw > applied {
            return Err(format!("told to publish {hw}, while only {applied} is applied"));
        }
        self.database.publish(hw);
        Ok(())
    }

    fn rewind(&mut self, to: Offset) -> Result<Offset, String> {
        self.told = 0;
        self.database.rewind(to).map_err(|error| error.to_string())
    }

    fn shown(&mut self) -> Result<Option<Shown>, String> {
        let journal = statement("SELECT n, entry FROM journal WHERE n > ?1 ORDER BY n", &[self.read.0]);
        let Some(Found { results, end: (epoch, at) }) = self.query_tables(vec![journal])? else { return Ok(None) };
        for row in results.iter().flat_map(|results| &results[0].rows) {
            let (Ok(n), Some(Value::Blob(bytes))) = (number(row.first()), row.get(1)) else {
                return Err(format!("a row of the journal is {row:?}"));
            };
            if n != self.read.0 + 1 {
                return Err(format!("the journal's row {n} comes after {}", self.read.0));
            }
            let record = Record { key: None, value: Some(Bytes::copy_from_slice(bytes)) };
            let entry = Entry::find(&[record])?.ok_or("a row of the journal holds no write")?;
            self.read = (n, fold(self.read.1, &entry));
        }
        Ok(Some(Shown { at, epoch, content: self.read.1 }))
    }

    fn look(&mut self, key: u8, list: u8) -> Result<Option<View>, String> {
        let (key, list) = (u64::from(key), u64::from(list));
        let statements = vec![
            statement("SELECT coalesce(max(n), 0) FROM journal", &[]),
            statement("SELECT value FROM registers WHERE key = ?1", &[key]),
            statement("SELECT count(*) FROM elements WHERE list = ?1", &[list]),
            statement(
                "SELECT coalesce((SELECT value FROM elements WHERE list = ?1 ORDER BY place DESC LIMIT 1), 0)",
                &[list],
            ),
        ];
        let Some(Found { results, end: (epoch, at) }) = self.query_tables(statements)? else { return Ok(None) };
        let mut view = View { at, epoch, effects: 0, register: 0, list_len: 0, list_last: 0 };
        if let Some(results) = results {
            view.effects = first(&results[0])?;
            view.register = first(&results[1])?;
            view.list_len = first(&results[2])?;
            view.list_last = first(&results[3])?;
        }
        Ok(Some(view))
    }

    fn everything(&mut self) -> Result<Option<(Offset, State)>, String> {
        let statements = vec![
            statement("SELECT key, value FROM registers WHERE value > 0", &[]),
            statement("SELECT list, value FROM elements ORDER BY list, place", &[]),
            statement("SELECT op, n FROM journal ORDER BY n", &[]),
        ];
        let Some(Found { results, end: (_, at) }) = self.query_tables(statements)? else { return Ok(None) };
        let (hashed_at, digest) =
            self.database.content_hash().map_err(|failed| format!("{}: {failed}", failed.code))?;
        if hashed_at != at {
            return Err(format!("the content hash is of {hashed_at}, and readers see {at}"));
        }
        let (mut registers, mut lists, mut journal) = (BTreeMap::new(), BTreeMap::<u8, Vec<u64>>::new(), Vec::new());
        if let Some(results) = &results {
            for (key, value) in pairs(&results[0])? {
                registers.insert(key as u8, value);
            }
            for (list, value) in pairs(&results[1])? {
                lists.entry(list as u8).or_default().push(value);
            }
            journal = pairs(&results[2])?.into_iter().map(|(op, _)| OpId(op)).collect();
        }
        Ok(Some((at, State::read(registers, lists, journal, digest.to_vec()))))
    }

    fn keep(&mut self) -> Result<(), String> {
        self.database.checkpoint_if_due().map_err(|error| error.to_string())
    }
}

/// A deadline that no run reaches.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(24 * 3600)
}

fn no_table(failed: &SqlError) -> bool {
    failed.message.contains("no such table")
}

/// The first number of a result.
fn first(result: &ResultSet) -> Result<u64, String> {
    number(result.rows.first().and_then(|row| row.first()))
}

/// A result of two columns of numbers.
fn pairs(result: &ResultSet) -> Result<Vec<(u64, u64)>, String> {
    result.rows.iter().map(|row| Ok((number(row.first())?, number(row.get(1))?))).collect()
}
