//! A history as the laws look at it: small, so that an hour of hundreds of operations a second fits into memory.
//!
//! [`History::read`] takes the lines one after the other. What it cannot understand is an error; what a run can have done wrong is left to the laws.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

use crate::linear::{Did, Op};
use crate::record::{
    Ack, Answer, Fault, Freshness, Invoke, Outcome, Position, Reading, Record, Return, Run, Seen, VERSION, What,
};

/// A row that somebody wanted to write.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Who.
    pub writer: u32,
    /// The writer's how manieth.
    pub number: u32,
    /// What it holds.
    pub value: u32,
    /// When it was to be acknowledged.
    pub ack: Ack,
    /// When it was first asked for.
    pub invoke: u64,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a row, by all that was answered about it.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// It was acknowledged.
    Acknowledged(Acknowledged),
    /// It may be there.
    Unknown,
    /// It must not be there; the code.
    Failed(String),
}

/// The first acknowledgement of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// When the attempt was sent that was answered.
    pub sent: u64,
    /// When the answer arrived.
    pub at: u64,
    /// Where it is, if the answer could be read.
    pub rowid: Option<u64>,
    /// The end of its transaction, or a later place.
    pub position: Position,
}

/// A look at the rows that was answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// The operation.
    pub op: u64,
    /// Whose.
    pub client: u32,
    /// When it began.
    pub invoke: u64,
    /// When it was answered.
    pub at: u64,
    /// How fresh it was to be.
    pub freshness: Freshness,
    /// The least position asked for.
    pub least: Option<Position>,
    /// The position that was shown.
    pub position: Position,
    /// What was shown.
    pub seen: Seen,
}

/// An answered operation that takes part in the order of real time: what is begun after it ended must not be older.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The operation.
    pub op: u64,
    /// When it began.
    pub invoke: u64,
    /// When it ended.
    pub at: u64,
    /// The position it was answered at.
    pub offset: u64,
    /// Whether it is a linearizable read, which must show everything that ended before it began.
    pub reads: bool,
}

/// A row as a replica holds it: rowid, writer, number, value.
pub type Held = (u64, u32, u32, u32);

/// How often an operation came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Outcomes {
    /// Done.
    pub done: u64,
    /// Failed: without effect.
    pub failed: u64,
    /// Unknown.
    pub unknown: u64,
}

/// A whole history.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Its first line.
    pub run: Option<Run>,
    /// All rows, in the order in which they were first asked for.
    pub rows: Vec<Row>,
    /// The rows by writer and number.
    pub by_name: BTreeMap<(u32, u32), u32>,
    /// What was done to each register; what failed is left out.
    pub registers: BTreeMap<u32, Vec<Op>>,
    /// All looks that were answered.
    pub looks: Vec<Look>,
    /// All that was acknowledged as committed, or read linearizably.
    pub moments: Vec<Moment>,
    /// When the attempt was sent that was acknowledged as committed, and when that arrived; writes of all kinds.
    pub acknowledgements: Vec<(u64, u64)>,
    /// The faults.
    pub faults: Vec<Fault>,
    /// The readings, each with the place of its rows in `contents`.
    pub readings: Vec<(Reading, usize)>,
    /// Every different content that a reading found; one, if all is well.
    pub contents: Vec<Vec<Held>>,
    /// Answers with one key that contradict each other.
    pub contradictions: Vec<String>,
    /// Answers that no register can give.
    pub absurdities: Vec<String>,
    /// Reads that were told that the position they asked for, at which somebody had been shown something committed, was cut.
    pub truncated: Vec<u64>,
    /// How often each kind of operation came to what.
    pub outcomes: BTreeMap<String, Outcomes>,
    /// How often each code was answered, by whether it failed or is unknown.
    pub codes: BTreeMap<String, u64>,
    /// The time of the last line; `None` if the history was broken off.
    pub end: Option<u64>,
}

impl History {
    /// Reads the lines of a history.
    ///
    /// # Errors
    ///
    /// In words, with the number of the line: one that is no record, another version, an answer without a question.
    pub fn read(lines: impl BufRead) -> Result<History, String> {
        let mut gathering = Gathering::default();
        for (number, line) in (1u64..).zip(lines.lines()) {
            let line = line.map_err(|error| format!("line {number} cannot be read: {error}"))?;
            let record = serde_json::from_str(&line)
                .map_err(|error| format!("line {number} is no record of a history: {error}"))?;
            gathering.take(record).map_err(|reason| format!("line {number}: {reason}"))?;
        }
        gathering.finish()
    }

    /// A history of these records.
    ///
    /// # Errors
    ///
    /// As [`History::read`].
    pub fn of(records: impl IntoIterator<Item = Record>) -> Result<History, String> {
        let mut gathering = Gathering::default();
        records.into_iter().try_for_each(|record| gathering.take(record))?;
        gathering.finish()
    }

    /// The row of that name.
    pub fn row(&self, writer: u32, number: u32) -> Option<&Row> {
        self.by_name.get(&(writer, number)).map(|at| &self.rows[*at as usize])
    }
}

#[derive(Default)]
struct Gathering {
    history: History,
    /// Begun and not ended.
    open: BTreeMap<u64, Invoke>,
    /// Rows of which an attempt was unknown, or still is under way.
    doubtful: BTreeSet<usize>,
    /// Writes to registers, by key: their place among the register's operations.
    keyed: BTreeMap<String, usize>,
    /// The last operation that was begun.
    last: Option<u64>,
    /// The rows of the reading that is being read.
    rows: Vec<Held>,
    reading: Option<String>,
}

impl Gathering {
    fn take(&mut self, record: Record) -> Result<(), String> {
        if self.history.run.is_none() != matches!(record, Record::Run(_)) {
            return Err("a history begins with one record of its run".into());
        }
        if self.history.end.is_some() {
            return Err("a history ends with its record of the end".into());
        }
        match record {
            Record::Run(run) if run.version != VERSION => {
                return Err(format!("the history is of version {}; this program reads {VERSION}", run.version));
            }
            Record::Run(run) => self.history.run = Some(run),
            Record::Invoke(invoke) => self.invoke(invoke)?,
            Record::Return(end) => {
                let Some(invoke) = self.open.remove(&end.op) else {
                    return Err(format!("operation {} ends and is not under way", end.op));
                };
                if end.at < invoke.at {
                    return Err(format!("operation {} ends before it began", end.op));
                }
                self.ended(&invoke, &end);
            }
            Record::Fault(fault) => self.history.faults.push(fault),
            Record::Rows(rows) => {
                if self.reading.get_or_insert_with(|| rows.of.clone()) != &rows.of {
                    return Err(format!("rows of {} within another reading", rows.of));
                }
                self.rows.extend(rows.rows);
            }
            Record::Reading(reading) => self.reading(reading)?,
            Record::End { at } => self.history.end = Some(at),
        }
        Ok(())
    }

    fn invoke(&mut self, invoke: Invoke) -> Result<(), String> {
        // Numbers are given and lines written under one lock.
        if self.last.is_some_and(|last| last >= invoke.op) {
            return Err(format!("operation {} begins after a later one", invoke.op));
        }
        self.last = Some(invoke.op);
        if let What::Row { writer, number, value, ack } = invoke.what {
            let next = self.history.rows.len() as u32;
            let at = *self.history.by_name.entry((writer, number)).or_insert(next);
            if at == next {
                let fate = Fate::Unknown;
                self.history.rows.push(Row { writer, number, value, ack, invoke: invoke.at, fate });
            } else {
                let row = &mut self.history.rows[at as usize];
                if invoke.key.is_none() || (row.value, row.ack) != (value, ack) {
                    return Err(format!("row {number} of writer {writer} is asked for twice without being the same"));
                }
                if !matches!(row.fate, Fate::Acknowledged(_)) {
                    row.fate = Fate::Unknown;
                    self.doubtful.insert(at as usize);
                }
            }
        }
        self.open.insert(invoke.op, invoke);
        Ok(())
    }

    fn ended(&mut self, invoke: &Invoke, end: &Return) {
        let outcomes = self.history.outcomes.entry(kind(&invoke.what)).or_default();
        match &end.outcome {
            Outcome::Done { .. } => outcomes.done += 1,
            Outcome::Failed { code } => {
                outcomes.failed += 1;
                *self.history.codes.entry(format!("failed: {code}")).or_default() += 1;
            }
            Outcome::Unknown { code } => {
                outcomes.unknown += 1;
                *self.history.codes.entry(format!("unknown: {code}")).or_default() += 1;
            }
        }
        match invoke.what {
            What::Row { writer, number, ack, .. } => self.row_ended(writer, number, ack, end),
            What::Set { register, .. } | What::Swap { register, .. } | What::Get { register } => {
                self.register_ended(register, invoke, end);
            }
            What::Look { freshness, least } => {
                if matches!(&end.outcome, Outcome::Failed { code } if code == "POSITION_TRUNCATED") {
                    self.history.truncated.push(invoke.op);
                }
                if let Outcome::Done { position, answer: Some(Answer::Seen(seen)) } = end.outcome {
                    let (op, client, invoke, at) = (invoke.op, invoke.client, invoke.at, end.at);
                    self.history.looks.push(Look { op, client, invoke, at, freshness, least, position, seen });
                }
            }
        }
        if let Outcome::Done { position, .. } = end.outcome {
            let reads = match invoke.what {
                What::Get { .. } => true,
                What::Look { freshness: Freshness::Linearizable, .. } => true,
                What::Row { ack: Ack::Committed, .. } | What::Set { .. } | What::Swap { .. } => false,
                What::Row { ack: Ack::Leader, .. } | What::Look { .. } => return,
            };
            let moment = Moment { op: invoke.op, invoke: invoke.at, at: end.at, offset: position.offset, reads };
            self.history.moments.push(moment);
            if !reads {
                self.history.acknowledgements.push((end.sent.unwrap_or(invoke.at), end.at));
            }
        }
    }

    fn row_ended(&mut self, writer: u32, number: u32, ack: Ack, end: &Return) {
        let at = self.history.by_name[&(writer, number)] as usize;
        let row = &mut self.history.rows[at];
        match &end.outcome {
            Outcome::Done { position, answer } => {
                let rowid = if let Some(Answer::Rowid(rowid)) = answer { Some(*rowid) } else { None };
                let now = Acknowledged { sent: end.sent.unwrap_or(row.invoke), at: end.at, rowid, position: *position };
                match &mut row.fate {
                    Fate::Acknowledged(before) => {
                        if ack == Ack::Committed && before.rowid.zip(rowid).is_some_and(|(a, b)| a != b) {
                            self.history.contradictions.push(format!(
                                "row {number} of writer {writer} was answered with rowid {:?} and, with the same key, with {rowid:?}",
                                before.rowid
                            ));
                        }
                        before.rowid = before.rowid.or(rowid);
                    }
                    fate => *fate = Fate::Acknowledged(now),
                }
            }
            // What failed later proves nothing about an earlier attempt.
            Outcome::Failed { code } => {
                if row.fate == Fate::Unknown && !self.doubtful.contains(&at) {
                    row.fate = Fate::Failed(code.clone());
                }
            }
            Outcome::Unknown { .. } => {
                self.doubtful.insert(at);
            }
        }
    }

    fn register_ended(&mut self, register: u32, invoke: &Invoke, end: &Return) {
        let answer = match &end.outcome {
            Outcome::Failed { .. } => return,
            Outcome::Unknown { .. } | Outcome::Done { answer: None, .. } => None,
            Outcome::Done { answer, .. } => *answer,
        };
        let op = |did, known: bool| Op { id: invoke.op, invoke: invoke.at, end: known.then_some(end.at), did };
        // What was done and cannot be read is taken as unknown, which claims less.
        let op = match (&invoke.what, answer) {
            (What::Set { value, .. }, None | Some(Answer::Changed(1))) => op(Did::Wrote(*value), answer.is_some()),
            (What::Swap { expected, value, .. }, Some(Answer::Changed(1))) => op(Did::Swapped(*expected, *value), true),
            (What::Swap { expected, .. }, Some(Answer::Changed(0))) => op(Did::Refused(*expected), true),
            (What::Swap { expected, value, .. }, None) => op(Did::Swapped(*expected, *value), false),
            (What::Get { .. }, Some(Answer::Value(value))) => op(Did::Read(value), true),
            (What::Get { .. }, None) => return,
            (what, answer) => {
                self.history.absurdities.push(format!("operation {} was {what:?}, and answered {answer:?}", invoke.op));
                return;
            }
        };
        let ops = self.history.registers.entry(register).or_default();
        let before = invoke.key.as_ref().and_then(|key| self.keyed.get(key));
        let Some(before) = before.map(|at| &mut ops[*at]) else {
            self.keyed.extend(invoke.key.clone().map(|key| (key, ops.len())));
            ops.push(op);
            return;
        };
        // The same write once more: it has one effect, and took from the first time it was asked for to the first time it was answered.
        if before.end.is_none() {
            *before = Op { id: before.id, invoke: before.invoke, ..op };
        } else if op.end.is_some() && op.did != before.did {
            self.history.contradictions.push(format!(
                "operation {} {:?}, and operation {}, with the same key, {:?}",
                before.id, before.did, op.id, op.did
            ));
        }
    }

    fn reading(&mut self, reading: Reading) -> Result<(), String> {
        if self.reading.take().is_some_and(|of| of != reading.of) {
            return Err(format!("the reading of {} ends within another", reading.of));
        }
        let rows = std::mem::take(&mut self.rows);
        let contents = &mut self.history.contents;
        let at = contents.iter().position(|content| *content == rows).unwrap_or_else(|| {
            contents.push(rows);
            contents.len() - 1
        });
        self.history.readings.push((reading, at));
        Ok(())
    }

    fn finish(mut self) -> Result<History, String> {
        if self.history.run.is_none() {
            return Err("the history is empty".into());
        }
        for invoke in std::mem::take(&mut self.open).into_values() {
            let outcome = Outcome::Unknown { code: "NEVER_ENDED".into() };
            self.ended(&invoke, &Return { op: invoke.op, at: u64::MAX, sent: None, node: None, outcome });
        }
        self.history.faults.sort_by_key(|fault| fault.begin);
        Ok(self.history)
    }
}

/// What kind of operation it is, for counts.
fn kind(what: &What) -> String {
    match what {
        What::Row { ack: Ack::Committed, .. } => "row".into(),
        What::Row { ack: Ack::Leader, .. } => "row, acknowledged by the leader".into(),
        What::Set { .. } => "set".into(),
        What::Swap { .. } => "compare-and-set".into(),
        What::Get { .. } => "linearizable read of a register".into(),
        What::Look { freshness, .. } => format!("{} read of the rows", name(*freshness)),
    }
}

/// A freshness as people say it.
pub(crate) fn name(freshness: Freshness) -> &'static str {
    match freshness {
        Freshness::Linearizable => "linearizable",
        Freshness::Session => "session",
        Freshness::AtLeast => "at-least-position",
        Freshness::Eventual => "eventual",
    }
}
