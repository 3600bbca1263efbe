//! The shell: statements from a terminal, each run when its semicolon comes.

use std::io::{BufRead, Write};
use std::process::ExitCode;

use super::print_rows;
use super::split::Splitter;
use super::stream::{Stream, StreamError};
use crate::client::Client;
use crate::output::{document, line};

const HELP: &str = "Statements end with a semicolon.
.tables   the tables and views
.schema   how everything was created
.quit     leave (as does the end of input)";

/// Reads and runs until the input ends.
pub(crate) fn run(mut stream: Stream, client: &Client, db: &str, json: bool) -> anyhow::Result<ExitCode> {
    line(&format!("Connected to {} (database {db}). Type .help for help.", client.url()));
    let mut splitter = Splitter::new();
    let stdin = std::io::stdin();
    loop {
        prompt(if splitter.is_open() { "   ...> " } else { "highwater> " })?;
        let mut text = String::new();
        if stdin.lock().read_line(&mut text)? == 0 {
            break;
        }
        if !splitter.is_open() && text.trim_start().starts_with('.') {
            match text.trim() {
                ".quit" | ".exit" => break,
                ".help" => line(HELP),
                ".tables" => {
                    one(
                        &mut stream,
                        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
                        json,
                    );
                }
                ".schema" => {
                    one(&mut stream, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid", json)
                }
                other => line(&format!("there is no command {other}; .help lists them")),
            }
            continue;
        }
        let mut found = Vec::new();
        splitter.feed(&text, &mut found);
        for piece in found {
            one(&mut stream, &piece.sql, json);
        }
    }
    stream.close();
    Ok(ExitCode::SUCCESS)
}

fn prompt(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    write!(out, "{text}")?;
    out.flush()
}

fn one(stream: &mut Stream, sql: &str, json: bool) {
    let (rows, error) = stream.run(&[sql]);
    for rows in rows {
        if json {
            document(&rows.document());
        } else if rows.columns.is_empty() {
            line(&format!("ok, {} affected", rows.affected));
        } else {
            print_rows(&rows);
        }
    }
    if let Some(error) = error {
        line(&format!("error: {error}"));
        if matches!(error, StreamError::Request(_)) {
            line("the connection begins anew: an open transaction, temporary tables and settings are gone");
        }
    }
}
