//! One writer, and its memory of what became of each row.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use highwater_client::{Client, Error, Transaction};

/// Where the rows go.
pub(crate) const TABLE: &str = "chaos";

/// What became of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is there exactly once.
    Acknowledged,
    /// It is nowhere, and never will be.
    Failed(String),
    /// It is there once or not at all. Asking again with the key tells.
    Unknown { key: String },
}

/// An acknowledgement, for the times from a fault to the next one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    /// When the attempt was sent that was acknowledged.
    pub(crate) sent: Instant,
    /// When the acknowledgement arrived.
    pub(crate) at: Instant,
}

/// A writer. Its rows are numbered from 0, and nobody else writes them.
pub(crate) struct Writer {
    pub(crate) id: u32,
    /// By number.
    pub(crate) fates: Vec<Fate>,
    pub(crate) acknowledged: Vec<Acknowledged>,
    /// How many calls were unknown when they ended; some of them are known by now.
    pub(crate) once_unknown: u64,
    /// How many calls needed more than one attempt.
    pub(crate) repeated: u64,
}

impl Writer {
    pub(crate) fn new(id: u32) -> Writer {
        Writer { id, fates: Vec::new(), acknowledged: Vec::new(), once_unknown: 0, repeated: 0 }
    }

    /// The text of that row.
    pub(crate) fn value(&self, number: usize) -> String {
        format!("writer {} number {number}", self.id)
    }

    fn insert(&self, number: usize) -> Transaction {
        let sql = format!("INSERT INTO {TABLE} (writer, number, value) VALUES (?, ?, ?)");
        Transaction::of(sql, [self.id.into(), number.into(), self.value(number).into()])
    }

    /// Writes one row after the other until told to stop; counts what is acknowledged.
    pub(crate) fn run(&mut self, client: &mut Client, stop: &AtomicBool, acknowledged: &AtomicU64) {
        while !stop.load(Ordering::Relaxed) {
            let number = self.fates.len();
            let key = client.new_key();
            let fate = match client.execute_with_key("main", &self.insert(number), &key) {
                Ok(answer) => {
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                    self.acknowledged.push(Acknowledged { sent: answer.sent, at: Instant::now() });
                    self.repeated += u64::from(answer.attempts > 1);
                    Fate::Acknowledged
                }
                Err(Error::Unreadable { .. }) => Fate::Acknowledged,
                Err(Error::Failed(failed)) => Fate::Failed(failed.to_string()),
                Err(Error::Unknown { .. }) => {
                    self.once_unknown += 1;
                    Fate::Unknown { key }
                }
            };
            let failed = matches!(fate, Fate::Failed(_));
            self.fates.push(fate);
            if failed {
                // sleep: what fails at once would fail a hundred thousand times.
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Asks about what is still unknown, with the same keys.
    pub(crate) fn ask_again(&mut self, client: &mut Client) {
        for number in 0..self.fates.len() {
            let Fate::Unknown { key } = &self.fates[number] else { continue };
            match client.execute_with_key("main", &self.insert(number), &key.clone()) {
                Ok(_) | Err(Error::Unreadable { .. }) => self.fates[number] = Fate::Acknowledged,
                // It failed now and may have been done then: that proves nothing about the first time.
                Err(_) => {}
            }
        }
    }
}
