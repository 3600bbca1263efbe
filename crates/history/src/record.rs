//! The records of a history, one JSON object on each line.

use serde::{Deserialize, Serialize};

/// The version of the format that is written, and the only one that is read.
pub const VERSION: u32 = 1;

/// How many of the newest rows a [`Seen`] adds up.
pub const TAIL: u64 = 100;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The first line: what was run.
    Run(Run),
    /// A client begins an operation.
    Invoke(Invoke),
    /// An operation ends. One that was begun and never ends is unknown.
    Return(Return),
    /// Something that was done to a node. The lines of faults may lie anywhere; their times say when.
    Fault(Fault),
    /// Part of what one replica holds in the end, in the order of the rows.
    Rows(Rows),
    /// The end of one reading of a replica.
    Reading(Reading),
    /// The last line. A history without it was broken off, and cannot be judged.
    End {
        /// When, in nanoseconds.
        at: u64,
    },
}

/// What was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`VERSION`].
    pub version: u32,
    /// The command line that does it again.
    pub command: String,
    /// How many nodes there are; their ids are 1 to that.
    pub nodes: u32,
    /// How many registers there are, numbered from 0; each holds 0 at first.
    pub registers: u32,
}

/// The start of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Invoke {
    /// The operation, unique in the history.
    pub op: u64,
    /// When, in nanoseconds of the run's monotonic clock; before anything was sent.
    pub at: u64,
    /// Whose it is. A client has one operation under way at a time.
    pub client: u32,
    /// The node asked; `None` if the client chose, perhaps several.
    pub node: Option<u32>,
    /// What is asked for.
    pub what: What,
    /// The idempotency key, if there is one. Operations with one key ask for the same thing.
    pub key: Option<String>,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum What {
    /// Inserts a row, and adds it to the tally in the same transaction.
    Row {
        /// Whose row; with `number` it names the row.
        writer: u32,
        /// The writer's how manieth, from 0.
        number: u32,
        /// What it holds, drawn at random.
        value: u32,
        /// When it is acknowledged.
        ack: Ack,
    },
    /// Sets a register.
    Set {
        /// Which.
        register: u32,
        /// To what: no two operations of a history write the same value.
        value: u64,
    },
    /// Sets a register if it holds what is expected.
    Swap {
        /// Which.
        register: u32,
        /// What it must hold.
        expected: u64,
        /// To what; unique like a set's.
        value: u64,
    },
    /// Reads a register, linearizably.
    Get {
        /// Which.
        register: u32,
    },
    /// Reads the tally and the newest rows.
    Look {
        /// How fresh.
        freshness: Freshness,
        /// The position asked for, with [`Freshness::AtLeast`] and [`Freshness::Session`].
        least: Option<Position>,
    },
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ack {
    /// Once the commit rule is met: it must never be lost.
    Committed,
    /// Once the leader has it on its disk: it may be lost with its leadership.
    Leader,
}

/// How fresh a read asks to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Freshness {
    /// Everything acknowledged before it was invoked.
    Linearizable,
    /// At least everything this client has seen.
    Session,
    /// At least a position that some client was given.
    AtLeast,
    /// Whatever the node has.
    Eventual,
}

/// A place in the log: the offset after the last entry that is seen, and that entry's epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// The epoch; `None` for an empty log.
    pub epoch: Option<u32>,
    /// The offset.
    pub offset: u64,
}

/// The end of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Return {
    /// Which operation.
    pub op: u64,
    /// When, in nanoseconds; after the answer had arrived.
    pub at: u64,
    /// When the attempt was sent that was answered, if there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// The node that answered, if the client chose whom to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It was done.
    Done {
        /// The state that the answer shows; after a write, the end of its transaction.
        position: Position,
        /// What was answered; `None` if that could not be read.
        answer: Option<Answer>,
    },
    /// It was not done and never will be.
    Failed {
        /// The server's code, or the client's.
        code: String,
    },
    /// It may have been done, or may be done later, or never.
    Unknown {
        /// The server's code, or the client's.
        code: String,
    },
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The row's rowid.
    Rowid(u64),
    /// How many registers were changed: 0 or 1.
    Changed(u64),
    /// What a register holds.
    Value(u64),
    /// The tally and the newest rows.
    Seen(Seen),
}

/// What a look at the rows shows, all of one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// How many rows the tally counts.
    pub count: u64,
    /// The tally's checksum of all of them in their order ([`chain`]).
    pub chain: u64,
    /// The greatest rowid.
    pub rowid: u64,
    /// How many rows have one of the [`TAIL`] greatest rowids.
    pub tail: u64,
    /// Those rows' values, added up.
    pub tail_sum: u64,
}

/// The checksum of rows after one more, as the SQL of the tally computes it.
pub fn chain(before: u64, value: u32) -> u64 {
    (before * 31 + u64::from(value)) % 2_147_483_647
}

/// Something that was done to a node, or to what lies between nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// The fault's name, as the command line has it.
    pub kind: String,
    /// The node it was done to.
    pub victim: u32,
    /// Whether that led the database.
    pub led: bool,
    /// Whether that led the metadata.
    pub led_metadata: bool,
    /// More about it, for people.
    pub what: String,
    /// When, in nanoseconds.
    pub begin: u64,
    /// When it was in force: a write that was sent before may have escaped it.
    pub in_force: u64,
    /// When it was taken back; `None` if that is not known.
    pub end: Option<u64>,
}

/// Some of the rows that one reading of a replica found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// The reading: `node 1`, or `node 1, its file`.
    pub of: String,
    /// Rowid, writer, number and value of each, in the order of the rowids.
    pub rows: Vec<(u64, u32, u32, u32)>,
}

/// The rest of what a reading found, once everything was applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The reading.
    pub of: String,
    /// When it began, in nanoseconds.
    pub at: u64,
    /// The tally's count.
    pub count: u64,
    /// The tally's checksum.
    pub chain: u64,
    /// What each register holds.
    pub registers: Vec<u64>,
    /// What SQLite says of the file's integrity, if it was asked: `ok`.
    pub integrity: Option<String>,
}

impl Record {
    /// The record as a line of a history, with its end.
    pub fn line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("a record is made of strings, numbers and lists");
        line.push('\n');
        line
    }
}
