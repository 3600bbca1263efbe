//! What is asked of a database and what it answers, whatever the face: plain HTTP, Hrana or the shell.

use bytes::BytesMut;
use highwater_partition::Reign;
use highwater_wire::{Epoch, Offset};

use crate::charge::Charge;
use crate::value::Value;

/// Where a leading database puts the transactions it has executed. Never blocks.
pub trait Proposer: Send + Sync {
    /// Appends batches (not yet stamped) that were executed in `reign` on a log that ends at `base`. Calls come in the order of execution. A refusal
    /// is not told here: it comes as a `Rewind`, and as the outcome of the [`Hold`] on what was proposed.
    fn propose(&self, reign: Reign, base: Offset, batches: BytesMut);
}

/// One statement with its arguments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statement {
    /// The text: one statement; a trailing semicolon and comments are fine.
    pub sql: String,
    /// Arguments for `?`, `?1` and, in order of appearance, named parameters that are not in `named`.
    pub args: Vec<Value>,
    /// Arguments by name; the name may omit its `:`, `@` or `$`.
    pub named: Vec<(String, Value)>,
    /// Whether rows are wanted back.
    pub want_rows: bool,
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The type it was declared with, if it comes straight from a table.
    pub decl_type: Option<String>,
}

/// What a statement gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultSet {
    /// The columns; none for statements that return nothing.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Vec<Value>>,
    /// Rows inserted, updated or deleted by it, not counting triggers.
    pub affected: u64,
    /// The connection's last inserted rowid after it.
    pub last_insert_rowid: i64,
    /// The room that the rows take, until the result is dropped.
    pub charge: Charge,
}

/// What `describe` tells of a statement without running it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The parameters in order; nameless ones are `None`.
    pub params: Vec<Option<String>>,
    /// The columns.
    pub columns: Vec<Column>,
    /// Whether it is an EXPLAIN.
    pub is_explain: bool,
    /// Whether it reads only.
    pub is_readonly: bool,
}

/// An error of SQL's. It never says whether anything had an effect on its own: the answer it comes in does, by its [`Hold`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SqlError {
    /// A code that clients know: `SQLITE_CONSTRAINT`, `SQL_PARSE_ERROR`, `TRANSACTION_BUSY`, ... (the list is in `docs/` under Hrana's errors).
    pub code: String,
    /// What was wanted, what was found, what to do.
    pub message: String,
    /// Where in the SQL text the error is, in bytes, if SQLite says.
    pub offset: Option<usize>,
}

/// What an answer waits for. Everything computed on the writer's side of HW is held: rows, affected counts, errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The reign whose state it was computed from.
    pub reign: Reign,
    /// HW must have reached this: the end of what the answer could have seen.
    pub until: Offset,
    /// It has an effect of its own, which ends at `until`: if it is lost while held, its outcome is *unknown*; otherwise it is *failed*.
    pub wrote: bool,
}

/// A result and what must happen before it may leave. `None`: it was computed from what is committed, and may leave now.
#[derive(Clone, Debug)]
#[must_use]
pub struct Answer<T> {
    /// The result. May not be shown before `hold` is satisfied.
    pub result: T,
    /// What to wait for.
    pub hold: Option<Hold>,
    /// Everything below this is in the state the result was computed from; with the epoch of the entry before it. For the answer's position.
    pub seen: (Option<Epoch>, Offset),
}

/// An idempotency key: one effect for each, within a day of log time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The client's key, 1 to 255 bytes.
    pub key: String,
    /// A hash of the request: the same key with another request is an error.
    pub request_hash: [u8; 32],
}

/// Statements to be run as one transaction, all or nothing.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// The statements, in order.
    pub statements: Vec<Statement>,
    /// If given: one effect, and the same answer for a repetition.
    pub key: Option<Key>,
}

/// A step of a Hrana batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchStep {
    /// The step runs only if this holds.
    pub condition: Option<Condition>,
    /// What it runs.
    pub statement: Statement,
}

/// A condition on earlier steps of the same batch. A skipped step is neither ok nor error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// That step ran and succeeded.
    Ok(usize),
    /// That step ran and failed.
    Error(usize),
    /// Negation.
    Not(Box<Condition>),
    /// All of them.
    And(Vec<Condition>),
    /// Any of them.
    Or(Vec<Condition>),
    /// No transaction is open.
    IsAutocommit,
}
