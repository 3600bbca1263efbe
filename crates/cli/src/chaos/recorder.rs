//! The history of a run on its way to its file.
//!
//! One lock orders the lines, so that numbers of operations grow from line to line. A file that cannot be written to spoils the run, which is said at its end: what is
//! not in the history was not checked.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use anyhow::Context;
use highwater_history::{Invoke, Outcome, Record, Return, Run, What};

/// Writes the history. Shared by all clients.
pub(crate) struct Recorder {
    begun: Instant,
    path: PathBuf,
    out: Mutex<Out>,
}

struct Out {
    file: BufWriter<File>,
    next: u64,
    /// The first that went wrong.
    error: Option<io::Error>,
}

impl Out {
    fn put(&mut self, record: &Record) {
        if let Err(error) = self.file.write_all(record.line().as_bytes()) {
            self.error.get_or_insert(error);
        }
    }
}

impl Recorder {
    /// Begins the history of a run in that file, which must not exist.
    pub(crate) fn create(path: &Path, begun: Instant, run: Run) -> anyhow::Result<Recorder> {
        let file = File::create_new(path)
            .with_context(|| format!("cannot make {}, which must not exist yet", path.display()))?;
        let mut out = Out { file: BufWriter::new(file), next: 1, error: None };
        out.put(&Record::Run(run));
        Ok(Recorder { begun, path: path.to_path_buf(), out: Mutex::new(out) })
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().expect("nobody panics while writing a line")
    }

    /// That instant on the history's clock, in nanoseconds.
    pub(crate) fn at(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.begun).as_nanos() as u64
    }

    /// An operation is about to be sent. Returns its number.
    pub(crate) fn invoke(&self, client: u32, node: Option<u32>, what: What, key: Option<&str>) -> u64 {
        let mut out = self.out();
        let op = out.next;
        out.next += 1;
        let at = self.at(Instant::now());
        out.put(&Record::Invoke(Invoke { op, at, client, node, what, key: key.map(str::to_string) }));
        op
    }

    /// An operation has just ended that was sent to one node once.
    pub(crate) fn end(&self, op: u64, outcome: Outcome) {
        self.ended(op, None, None, outcome);
    }

    /// An operation has just ended. `sent` is when the attempt left that was answered, and `node` who answered, if there may have been several.
    pub(crate) fn ended(&self, op: u64, sent: Option<Instant>, node: Option<u32>, outcome: Outcome) {
        let at = self.at(Instant::now());
        let sent = sent.map(|sent| self.at(sent));
        self.put(&Record::Return(Return { op, at, sent, node, outcome }));
    }

    /// Any other line.
    pub(crate) fn put(&self, record: &Record) {
        self.out().put(record);
    }

    /// Writes the last line, and makes sure that all are there.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        self.put(&Record::End { at: self.at(Instant::now()) });
        self.abandon()
    }

    /// Makes sure that all lines are there, without a last one: the history cannot be judged.
    pub(crate) fn abandon(self) -> anyhow::Result<()> {
        let mut out = self.out.into_inner().expect("nobody panics while writing a line");
        let flushed = out.file.flush();
        let written = out.error.map_or(flushed, Err);
        written.with_context(|| format!("the history cannot be written to {}", self.path.display()))
    }
}
