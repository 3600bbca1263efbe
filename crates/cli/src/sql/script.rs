//! Running a script: a file or a pipe, statement by statement, stopped at the first that fails.
//!
//! How a statement travels depends on what it may depend on:
//!
//! - *Writes that stand alone* (INSERT, CREATE TABLE, ...) are sent together, many in one request, as one transaction with an idempotency key. If the
//!   server goes away in the middle, the same request is sent again, and has one effect. If one of them fails, those before it are sent again without
//!   it, so that the effect is as if each had been sent alone.
//! - *A transaction of such writes*, BEGIN to COMMIT, is one request in the same way, unless it is very large.
//! - *Everything else* goes over one stream, in order. From the first statement on whose effect belongs to a connection (a PRAGMA, a temporary table, a
//!   savepoint) everything does.
//!
//! Which statements travel together depends on the script alone, so a run that broke off is gone on with by its name and the line it had reached.

use std::io::Read;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::split::{Piece, Splitter};
use super::stream::{Rows, Stream, StreamError};
use crate::client::{Client, ClientError};

/// Statements and bytes that travel together.
const CHUNK_STATEMENTS: usize = 500;
const CHUNK_BYTES: usize = 512 << 10;
/// A transaction beyond this goes over the stream.
const TRANSACTION_BYTES: usize = 8 << 20;
/// A transaction on the stream is read to its end before it is sent, since the server bounds how long one may hold the writer; up to this size, which is also
/// the most that the server takes in one.
const COLLECTED_BYTES: usize = 256 << 20;
/// What then travels together of it: as much as one request may hold, for a transaction that spans several is held to the bound.
const BATCH_STATEMENTS: usize = 99_000;
const BATCH_BYTES: usize = 40 << 20;

/// What is done with results as they come.
pub(crate) trait Sink {
    /// One statement's result.
    fn rows(&mut self, rows: Rows);
    /// So many statements are done, up to that line.
    fn progress(&mut self, statements: u64, line: usize);
}

/// Where a script broke off.
#[derive(Debug)]
pub(crate) struct Broken {
    /// The line of the statement.
    pub(crate) line: usize,
    /// What is wrong.
    pub(crate) error: StreamError,
    /// The line to go on from, if the run can be gone on with.
    pub(crate) resume: Option<usize>,
}

/// A script that runs.
pub(crate) struct Script<'a> {
    pub(crate) client: Client,
    pub(crate) stream: Stream,
    /// `/db/NAME/sql`, with its parameters.
    pub(crate) path: String,
    /// The name of the run: the beginning of its idempotency keys.
    pub(crate) run: String,
    pub(crate) retry: Duration,
    pub(crate) sink: &'a mut dyn Sink,
    /// Everything goes over the stream from here on.
    on_stream: bool,
    /// Writes that wait to travel together.
    chunk: Vec<Piece>,
    chunk_bytes: usize,
    /// BEGIN was read, and COMMIT not yet.
    in_transaction: bool,
    /// The same, over the stream.
    in_stream_transaction: bool,
    done: u64,
    /// The position of the last answer.
    pub(crate) position: Option<String>,
}

/// How a statement may travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A write that stands alone.
    Alone,
    /// Over the stream, with nothing left behind there.
    Stream,
    /// Over the stream, and everything after it too.
    Sticky,
}

fn kind(piece: &Piece) -> Kind {
    let upper = || piece.sql.to_ascii_uppercase();
    match piece.word.as_str() {
        // What it returns is to be shown, one after the other.
        "INSERT" | "REPLACE" | "UPDATE" | "DELETE" if upper().contains("RETURNING") => Kind::Stream,
        // It may write to a temporary table.
        "INSERT" | "REPLACE" | "UPDATE" | "DELETE" => Kind::Alone,
        "CREATE" | "DROP" | "ALTER" if upper().contains("TEMP") => Kind::Sticky,
        "CREATE" | "DROP" | "ALTER" | "REINDEX" | "ANALYZE" => Kind::Alone,
        "PRAGMA" | "SAVEPOINT" | "ATTACH" | "DETACH" => Kind::Sticky,
        _ => Kind::Stream,
    }
}

impl<'a> Script<'a> {
    pub(crate) fn new(
        client: Client,
        db: &str,
        query: &str,
        run: String,
        retry: Duration,
        sink: &'a mut dyn Sink,
    ) -> Script<'a> {
        Script {
            stream: Stream::new(client.clone(), db, query),
            path: format!("/db/{db}/sql{query}"),
            client,
            run,
            retry,
            sink,
            on_stream: false,
            chunk: Vec::new(),
            chunk_bytes: 0,
            in_transaction: false,
            in_stream_transaction: false,
            done: 0,
            position: None,
        }
    }

    /// Runs all of it, from that line on. Returns how many statements ran.
    pub(crate) fn run(mut self, input: impl Read, from_line: usize) -> Result<(u64, Option<String>), Broken> {
        let result = self.run_all(input, from_line);
        // Whatever is open there does not keep others waiting.
        self.stream.close();
        result.map(|()| (self.done, self.position.or(self.stream.position)))
    }

    fn run_all(&mut self, mut input: impl Read, from_line: usize) -> Result<(), Broken> {
        let mut splitter = Splitter::new();
        let mut found = Vec::new();
        let mut buffer = vec![0; 256 << 10];
        let mut kept = Vec::new();
        let mut line = 1;
        loop {
            let read = input.read(&mut buffer).map_err(|error| Broken {
                line,
                error: StreamError::Statement {
                    code: "READ".into(),
                    message: format!("the script cannot be read: {error}"),
                },
                resume: None,
            })?;
            kept.extend_from_slice(&buffer[..read]);
            // A character that is cut in two waits for its rest.
            let whole = match std::str::from_utf8(&kept) {
                Ok(text) => text.len(),
                Err(error) if error.error_len().is_none() && read > 0 => error.valid_up_to(),
                Err(_) => {
                    let message = "the script is not UTF-8 text".to_string();
                    return Err(Broken {
                        line,
                        error: StreamError::Statement { code: "NOT_TEXT".into(), message },
                        resume: None,
                    });
                }
            };
            let rest = kept.split_off(whole);
            let text = String::from_utf8(std::mem::replace(&mut kept, rest)).expect("it was just looked at");
            splitter.feed(&text, &mut found);
            if read == 0 {
                splitter.finish(&mut found);
            }
            for piece in found.drain(..) {
                line = piece.line;
                if piece.line >= from_line {
                    self.take(piece)?;
                }
            }
            if read == 0 {
                break;
            }
        }
        self.flush()
    }

    fn take(&mut self, piece: Piece) -> Result<(), Broken> {
        if self.on_stream {
            return self.over_stream(piece);
        }
        if self.in_transaction {
            return self.in_transaction(piece);
        }
        match (piece.word.as_str(), kind(&piece)) {
            ("BEGIN", _) => {
                self.flush()?;
                self.in_transaction = true;
                self.push(piece);
                Ok(())
            }
            (_, Kind::Alone) => {
                self.push(piece);
                if self.chunk.len() >= CHUNK_STATEMENTS || self.chunk_bytes >= CHUNK_BYTES {
                    self.flush()?;
                }
                Ok(())
            }
            (_, kind) => {
                self.flush()?;
                self.on_stream = kind == Kind::Sticky;
                self.run_on_stream(vec![piece])
            }
        }
    }

    fn push(&mut self, piece: Piece) {
        self.chunk_bytes += piece.sql.len();
        self.chunk.push(piece);
    }

    /// Between BEGIN and COMMIT: collected to be one request, or handed to the stream if that cannot be.
    fn in_transaction(&mut self, piece: Piece) -> Result<(), Broken> {
        match (piece.word.as_str(), kind(&piece)) {
            ("COMMIT" | "END", _) => {
                self.in_transaction = false;
                // BEGIN and COMMIT are the request's own.
                let begin = self.chunk.remove(0);
                if self.chunk.is_empty() {
                    self.done += 2;
                    return Ok(());
                }
                self.done += 2;
                self.flush_from(begin.line, true)
            }
            ("ROLLBACK", _) => {
                self.in_transaction = false;
                self.chunk.push(piece);
                let all = std::mem::take(&mut self.chunk);
                self.chunk_bytes = 0;
                self.run_on_stream(all)
            }
            (_, Kind::Alone) if self.chunk_bytes < TRANSACTION_BYTES => {
                self.push(piece);
                Ok(())
            }
            _ => {
                // From BEGIN on over the stream, and then to the end: the transaction ends somewhere there.
                self.in_transaction = false;
                self.on_stream = true;
                self.in_stream_transaction = true;
                self.over_stream(piece)
            }
        }
    }

    /// A statement when everything goes over the stream: collected with its neighbours, as far as nobody waits for what it returns.
    fn over_stream(&mut self, piece: Piece) -> Result<(), Broken> {
        let begins = piece.word == "BEGIN";
        let ends = matches!(piece.word.as_str(), "COMMIT" | "END" | "ROLLBACK");
        if begins {
            self.flush_stream()?;
            self.in_stream_transaction = true;
        }
        let collected = begins || kind(&piece) == Kind::Alone;
        self.push(piece);
        let full = match self.in_stream_transaction {
            true => self.chunk_bytes >= COLLECTED_BYTES,
            false => self.chunk.len() >= CHUNK_STATEMENTS || self.chunk_bytes >= CHUNK_BYTES,
        };
        self.in_stream_transaction &= !ends;
        if !collected || full { self.flush_stream() } else { Ok(()) }
    }

    fn flush_stream(&mut self) -> Result<(), Broken> {
        self.chunk_bytes = 0;
        let mut batch = Vec::new();
        let mut bytes = 0;
        for piece in std::mem::take(&mut self.chunk) {
            bytes += piece.sql.len();
            batch.push(piece);
            if batch.len() >= BATCH_STATEMENTS || bytes >= BATCH_BYTES {
                self.run_on_stream(std::mem::take(&mut batch))?;
                bytes = 0;
            }
        }
        self.run_on_stream(batch)
    }

    /// Runs statements over the stream, in order.
    fn run_on_stream(&mut self, pieces: Vec<Piece>) -> Result<(), Broken> {
        if pieces.is_empty() {
            return Ok(());
        }
        let texts: Vec<&str> = pieces.iter().map(|piece| piece.sql.as_str()).collect();
        let (rows, error) = self.stream.run(&texts);
        let ran = rows.len();
        for rows in rows {
            self.sink.rows(rows);
        }
        self.done += ran as u64;
        match error {
            None => {
                let last = pieces.last().expect("there is one").line;
                self.sink.progress(self.done, last);
                Ok(())
            }
            Some(error) => {
                let line = pieces[ran.min(pieces.len() - 1)].line;
                Err(Broken { line, error: error.advised(), resume: None })
            }
        }
    }

    fn flush(&mut self) -> Result<(), Broken> {
        if self.in_transaction || self.on_stream {
            // A script that ends within a transaction leaves it uncommitted, as everywhere.
            return self.flush_stream();
        }
        match self.chunk.first() {
            Some(first) => {
                let line = first.line;
                self.flush_from(line, false)
            }
            None => Ok(()),
        }
    }

    /// Sends what has been collected as one transaction, under the key of this run and the line it begins at. `whole`: it is one, and nothing of it may stay
    /// if one of its statements fails.
    fn flush_from(&mut self, line: usize, whole: bool) -> Result<(), Broken> {
        self.chunk_bytes = 0;
        let pieces = std::mem::take(&mut self.chunk);
        let error = match self.send(&pieces, &format!("{}:{line}", self.run)) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // A statement that failed took its neighbours with it. Sent alone, those before it have their effect, and it says its error again.
        let own = matches!(&error, ClientError::Refused { unknown: false, .. }) && !error.is_transient();
        if whole || !own || pieces.len() < 2 {
            return Err(Broken { line, error: StreamError::Request(error), resume: Some(line) });
        }
        for (at, piece) in pieces.iter().enumerate() {
            self.send(std::slice::from_ref(piece), &format!("{}:{line}/{at}", self.run)).map_err(|error| Broken {
                line: piece.line,
                error: StreamError::Request(error),
                resume: Some(piece.line),
            })?;
        }
        Ok(())
    }

    fn send(&mut self, pieces: &[Piece], key: &str) -> Result<(), ClientError> {
        let statements: Vec<Value> = pieces.iter().map(|piece| json!({"sql": piece.sql})).collect();
        let body = json!({"statements": statements});
        let until = Instant::now() + self.retry;
        let mut pause = Duration::from_millis(50);
        let answer = loop {
            match self.client.post(&self.path, &body, Some(key)) {
                Ok(answer) => break answer,
                Err(error) if error.is_transient() && Instant::now() + pause < until => {
                    // sleep: a server that is away gives no sign when it is back; the wait doubles and has an end.
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                Err(error) => return Err(error),
            }
        };
        for result in answer.document["results"].as_array().into_iter().flatten() {
            self.sink.rows(Rows::from_plain(result));
        }
        self.position = answer.document["position"].as_str().map(str::to_string);
        self.done += pieces.len() as u64;
        self.sink.progress(self.done, pieces.last().expect("a request has a statement").line);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(sql: &str) -> Kind {
        let mut found = Vec::new();
        let mut splitter = Splitter::new();
        splitter.feed(sql, &mut found);
        splitter.finish(&mut found);
        kind(&found[0])
    }

    #[test]
    fn what_belongs_to_a_connection_stays_on_one() {
        assert_eq!(kind_of("insert into t values (1)"), Kind::Alone);
        assert_eq!(kind_of("CREATE TABLE t (a)"), Kind::Alone);
        assert_eq!(kind_of("CREATE TEMP TABLE t (a)"), Kind::Sticky);
        assert_eq!(kind_of("INSERT INTO t VALUES (1) RETURNING a"), Kind::Stream);
        assert_eq!(kind_of("PRAGMA foreign_keys=off"), Kind::Sticky);
        assert_eq!(kind_of("SELECT 1"), Kind::Stream);
        assert_eq!(kind_of("VACUUM"), Kind::Stream);
    }
}
