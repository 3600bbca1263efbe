//! Small histories for the laws' tests, told step by step.

use crate::history::{Held, History};
use crate::laws::Findings;
use crate::record::*;

const MAX: usize = 100_000;

/// A history in the making: every operation ends before the next begins. A row's position is its rowid.
#[derive(Clone)]
pub(crate) struct Story {
    records: Vec<Record>,
    /// What the replicas hold.
    pub(crate) held: Vec<Held>,
    /// What their registers hold.
    pub(crate) registers: Vec<u64>,
    time: u64,
}

pub(crate) fn failed(code: &str) -> Outcome {
    Outcome::Failed { code: code.into() }
}

pub(crate) fn unknown() -> Outcome {
    Outcome::Unknown { code: "Y".into() }
}

pub(crate) fn done_row(rowid: u64, offset: u64) -> Outcome {
    Outcome::Done { position: at(offset), answer: Some(Answer::Rowid(rowid)) }
}

pub(crate) fn changed(count: u64) -> Outcome {
    Outcome::Done { position: at(0), answer: Some(Answer::Changed(count)) }
}

fn at(offset: u64) -> Position {
    Position { epoch: Some(1), offset }
}

fn value(writer: u32, number: u32) -> u32 {
    writer * 1000 + number
}

pub(crate) fn findings_of(history: &History) -> Findings {
    Findings::of(history, MAX)
}

pub(crate) fn findings(story: Story) -> Findings {
    findings_of(&story.history())
}

impl Story {
    pub(crate) fn new() -> Story {
        let run = Run { version: VERSION, command: "a test".into(), nodes: 2, registers: 2 };
        Story { records: vec![Record::Run(run)], held: Vec::new(), registers: vec![0, 0], time: 0 }
    }

    fn tick(&mut self) -> u64 {
        self.time += 1_000_000;
        self.time
    }

    fn op(&mut self, client: u32, what: What, key: Option<String>, outcome: Outcome) {
        let (begin, end) = (self.tick(), self.tick());
        self.records.push(Record::Invoke(Invoke { op: begin, at: begin, client, node: None, what, key }));
        self.records.push(Record::Return(Return { op: begin, at: end, sent: None, node: None, outcome }));
    }

    /// A row that is acknowledged and there.
    pub(crate) fn row(&mut self, writer: u32, number: u32) {
        let rowid = self.held.len() as u64 + 1;
        self.row_that(writer, number, done_row(rowid, rowid));
        self.land(writer, number);
    }

    /// A row that comes to this, and is not there.
    pub(crate) fn row_that(&mut self, writer: u32, number: u32, outcome: Outcome) {
        let what = What::Row { writer, number, value: value(writer, number), ack: Ack::Committed };
        self.op(writer, what, Some(format!("{writer}/{number}")), outcome);
    }

    /// A row that the leader alone acknowledges, and that is there.
    pub(crate) fn leader_row(&mut self, writer: u32, number: u32) {
        let rowid = self.held.len() as u64 + 1;
        let what = What::Row { writer, number, value: value(writer, number), ack: Ack::Leader };
        self.op(writer, what, None, done_row(rowid, rowid));
        self.land(writer, number);
    }

    /// Asks for the row again with its key.
    pub(crate) fn again(&mut self, writer: u32, number: u32, outcome: Outcome) {
        self.row_that(writer, number, outcome);
    }

    /// Puts the row where replicas hold it.
    pub(crate) fn land(&mut self, writer: u32, number: u32) {
        self.held.push((self.held.len() as u64 + 1, writer, number, value(writer, number)));
    }

    pub(crate) fn set(&mut self, register: u32, value: u64) {
        self.op(1, What::Set { register, value }, None, changed(1));
    }

    pub(crate) fn set_that(&mut self, register: u32, value: u64, key: &str, outcome: Outcome) {
        self.op(1, What::Set { register, value }, Some(key.into()), outcome);
    }

    pub(crate) fn swap_that(&mut self, register: u32, expected: u64, value: u64, key: &str, outcome: Outcome) {
        self.op(1, What::Swap { register, expected, value }, Some(key.into()), outcome);
    }

    pub(crate) fn get(&mut self, register: u32, value: u64) {
        let outcome = Outcome::Done { position: at(0), answer: Some(Answer::Value(value)) };
        self.op(1, What::Get { register }, None, outcome);
    }

    /// A read that shows so many of the rows.
    pub(crate) fn look(&mut self, client: u32, freshness: Freshness, count: u64) {
        self.look_with(client, freshness, count, |_, _| {});
    }

    /// The same with something changed.
    pub(crate) fn look_with(
        &mut self,
        client: u32,
        freshness: Freshness,
        count: u64,
        change: fn(&mut Seen, &mut Position),
    ) {
        self.looked(client, freshness, None, count, change);
    }

    /// A read at that position at least.
    pub(crate) fn look_at_least(&mut self, client: u32, freshness: Freshness, count: u64, least: u64) {
        self.looked(client, freshness, Some(at(least)), count, |_, _| {});
    }

    /// A read that comes to this.
    pub(crate) fn look_that(&mut self, client: u32, freshness: Freshness, outcome: Outcome) {
        self.op(client, What::Look { freshness, least: Some(at(1)) }, None, outcome);
    }

    fn looked(
        &mut self,
        client: u32,
        freshness: Freshness,
        least: Option<Position>,
        count: u64,
        change: fn(&mut Seen, &mut Position),
    ) {
        let rows = &self.held[..count as usize];
        let newest = &rows[rows.len().saturating_sub(TAIL as usize)..];
        let mut seen = Seen {
            count,
            chain: rows.iter().fold(0, |sum, row| chain(sum, row.3)),
            rowid: count,
            tail: newest.len() as u64,
            tail_sum: newest.iter().map(|row| u64::from(row.3)).sum(),
        };
        let mut position = at(count);
        change(&mut seen, &mut position);
        let outcome = Outcome::Done { position, answer: Some(Answer::Seen(seen)) };
        self.op(client, What::Look { freshness, least }, None, outcome);
    }

    pub(crate) fn fault(&mut self, kind: &str, led_metadata: bool) {
        let begin = self.tick();
        let (kind, what, in_force, end) = (kind.into(), String::new(), begin + 100_000, Some(begin + 500_000));
        self.records.push(Record::Fault(Fault {
            kind,
            victim: 1,
            led: true,
            led_metadata,
            what,
            begin,
            in_force,
            end,
        }));
    }

    pub(crate) fn history(mut self) -> History {
        for of in ["node 1", "node 2"] {
            let at = self.tick();
            let rows = self.held.clone();
            let (count, chain) = (rows.len() as u64, rows.iter().fold(0, |sum, row| chain(sum, row.3)));
            self.records.push(Record::Rows(Rows { of: of.into(), rows }));
            let (of, registers, integrity) = (of.into(), self.registers.clone(), Some("ok".into()));
            self.records.push(Record::Reading(Reading { of, at, count, chain, registers, integrity }));
        }
        let at = self.tick();
        self.records.push(Record::End { at });
        // Through the text, as a file would be read.
        let lines: Vec<String> = self.records.iter().map(Record::line).collect();
        History::read(lines.join("").as_bytes()).expect("a history")
    }
}
