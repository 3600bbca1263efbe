//! `highwater sql`: statements given with -c, a script, or a shell.

mod script;
mod shell;
mod split;
mod stream;

use std::io::{IsTerminal, Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};

use crate::args::{Ack, Freshness, SqlArgs};
use crate::client::Client;
use crate::output::{document, line, table};
use script::{Broken, Script, Sink};
use split::Splitter;
use stream::{Rows, Stream};

/// A longer run says how far it is this often.
const PROGRESS: Duration = Duration::from_secs(2);

/// Runs the command.
pub(crate) fn run(args: &SqlArgs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.cluster)?;
    let query = query(args);
    if !args.commands.is_empty() {
        return Ok(run_commands(args, Stream::new(client, &args.db, &query)));
    }
    if let Some(file) = &args.file {
        let input = std::fs::File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
        return run_script(args, client, &query, input, &file.display().to_string());
    }
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return shell::run(Stream::new(client.clone(), &args.db, &query), &client, &args.db, args.cluster.json);
    }
    run_script(args, client, &query, stdin, "standard input")
}

/// The parameters that every request carries.
fn query(args: &SqlArgs) -> String {
    let mut pairs = Vec::new();
    match args.ack {
        Some(Ack::Committed) => pairs.push("ack=committed".to_string()),
        Some(Ack::Leader) => pairs.push("ack=leader".to_string()),
        None => {}
    }
    match args.freshness {
        Some(Freshness::Linearizable) => pairs.push("freshness=linearizable".to_string()),
        Some(Freshness::Eventual) => pairs.push("freshness=eventual".to_string()),
        None => {}
    }
    if let Some(position) = &args.min_position {
        pairs.push(format!(
            "min_position={}",
            position.replace('%', "%25").replace('&', "%26").replace('#', "%23").replace(' ', "%20")
        ));
    }
    if let Some(ms) = args.wait_ms {
        pairs.push(format!("wait_ms={ms}"));
    }
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

/// What is done with results: printed as they come, or kept for the one document.
struct Printer {
    keep: Option<Vec<Value>>,
    progress: Option<Instant>,
    begun: Instant,
}

impl Printer {
    fn new(json: bool, progress: bool) -> Printer {
        let begun = Instant::now();
        Printer { keep: json.then(Vec::new), progress: progress.then_some(begun), begun }
    }
}

/// Prints one statement's result for people: rows as a table, nothing for a statement that returns none.
pub(crate) fn print_rows(rows: &Rows) {
    if !rows.columns.is_empty() {
        line(&table(&rows.columns, &rows.rows));
    }
}

impl Sink for Printer {
    fn rows(&mut self, rows: Rows) {
        match &mut self.keep {
            Some(kept) => kept.push(rows.document()),
            None => print_rows(&rows),
        }
    }

    fn progress(&mut self, statements: u64, line: usize) {
        if let Some(last) = &mut self.progress
            && last.elapsed() >= PROGRESS
        {
            *last = Instant::now();
            let seconds = self.begun.elapsed().as_secs();
            // Progress that nobody can read is no reason to stop.
            let _ = writeln!(std::io::stderr(), "... {statements} statements, up to line {line}, after {seconds} s");
        }
    }
}

/// -c: each text on the same stream, statement by statement.
fn run_commands(args: &SqlArgs, mut stream: Stream) -> ExitCode {
    let mut printer = Printer::new(args.cluster.json, false);
    for text in &args.commands {
        let mut found = Vec::new();
        let mut splitter = Splitter::new();
        splitter.feed(text, &mut found);
        splitter.finish(&mut found);
        for piece in found {
            let (rows, error) = stream.run(&[&piece.sql]);
            rows.into_iter().for_each(|rows| printer.rows(rows));
            if let Some(error) = error {
                stream.close();
                if args.cluster.json {
                    document(&error.document());
                }
                complain(&format!("error: {error}"));
                return ExitCode::FAILURE;
            }
        }
    }
    stream.close();
    if let Some(kept) = printer.keep {
        document(&json!({"results": kept, "position": stream.position}));
    }
    ExitCode::SUCCESS
}

fn complain(text: &str) {
    // Without a standard error there is the exit code.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A name for a run that nobody else's has.
fn run_name() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", now.as_nanos(), std::process::id())
}

fn run_script(args: &SqlArgs, client: Client, query: &str, input: impl Read, name: &str) -> anyhow::Result<ExitCode> {
    let run = args.run.clone().unwrap_or_else(run_name);
    if run.len() > 200 || !run.chars().all(|c| c.is_ascii_graphic()) || run.is_empty() {
        anyhow::bail!("--run must be 1 to 200 printable characters without spaces; found {run:?}");
    }
    let mut printer = Printer::new(args.cluster.json, args.file.is_some());
    let begun = Instant::now();
    let script = Script::new(client, &args.db, query, run.clone(), Duration::from_secs(args.retry), &mut printer);
    match script.run(input, args.from_line) {
        Ok((statements, position)) => {
            match printer.keep {
                Some(kept) => document(&json!({"statements": statements, "results": kept, "position": position})),
                None if args.file.is_some() => {
                    complain(&format!("{statements} statements in {:.1} s", begun.elapsed().as_secs_f64()));
                }
                None => {}
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(Broken { line, error, resume }) => {
            if args.cluster.json {
                let mut document_ = error.document();
                document_["error"]["line"] = json!(line);
                document(&document_);
            }
            complain(&format!("{name}:{line}: {error}"));
            match (resume, &args.file) {
                (Some(from), Some(file)) => complain(&format!(
                    "what lies before line {from} is done; to go on: highwater sql --db {} --file {} --from-line {from} --run {run}",
                    args.db,
                    file.display()
                )),
                _ => complain("statements before it are done, but for an open transaction, which has no effect"),
            }
            Ok(ExitCode::FAILURE)
        }
    }
}
