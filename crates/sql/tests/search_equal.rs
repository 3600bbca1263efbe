//! `highlight`, `snippet` and `bm25` of ours give the answers of SQLite's: compared with a plain connection on random texts and queries.

mod common;

use common::{Bench, statement};
use highwater_sql::{Statement, Value};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rusqlite::types::Value as Theirs;

/// Tables of every kind that matters: what divides texts, what is kept of positions, and whether the text is kept.
const TABLES: [&str; 6] = [
    "x, y",
    "x, y, tokenize = 'porter ascii'",
    "x, y, tokenize = 'trigram'",
    "x, y, detail = column",
    "x, y, detail = none",
    "x, y, content = ''",
];

const WORDS: [&str; 12] =
    ["a", "b", "c", "a b", "running", "runs", ". ", ": ", "\u{e9}t\u{e9}", "\u{1f600}", "abcab", "\0"];

const QUERIES: [&str; 16] = [
    "a",
    "a b",
    "a OR b OR c",
    "\"a b\"",
    "\"a b a\" OR \"b a\"",
    "\"a a\" OR a",
    "NEAR(a b, 3)",
    "a NOT c",
    "run*",
    "running",
    "x:a",
    "y:b OR x:a",
    "ab*",
    "abc OR cab OR bca",
    "\u{e9}t\u{e9}",
    "^a OR b",
];

const CALLS: [&str; 12] = [
    "highlight(f, 0, '<', '>')",
    "highlight(f, 1, '[[', NULL)",
    "highlight(f, 7, '<', '>')",
    "highlight(f, -1, '<', '>')",
    "snippet(f, -1, '<', '>', '...', 5)",
    "snippet(f, 0, '<', '>', '...', 2)",
    "snippet(f, 1, '<', NULL, '', 64)",
    "snippet(f, 0, '<', '>', '...', 0)",
    "snippet(f, 7, '<', '>', '...', 3)",
    "bm25(f)",
    "bm25(f, 10.0, 0.5, 3)",
    "rank",
];

fn text() -> impl Strategy<Value = Theirs> {
    let words = proptest::collection::vec(proptest::sample::select(&WORDS[..]), 0..40);
    prop_oneof![
        15 => (words, proptest::sample::select(vec![" ", "  ", "\n", ""])).prop_map(|(words, by)| Theirs::Text(words.join(by))),
        1 => Just(Theirs::Null),
    ]
}

fn ours(value: &Theirs) -> Value {
    match value {
        Theirs::Text(text) => Value::Text(text.clone()),
        Theirs::Real(value) => Value::Real(*value),
        Theirs::Integer(value) => Value::Integer(*value),
        Theirs::Blob(bytes) => Value::Blob(bytes.clone()),
        Theirs::Null => Value::Null,
    }
}

/// The rows that SQLite gives, or what it says.
fn theirs(conn: &rusqlite::Connection, sql: &str) -> Result<Vec<Vec<Value>>, String> {
    let mut stmt = conn.prepare(sql).map_err(|failed| failed.to_string())?;
    let rows = stmt.query_map([], |row| Ok(vec![ours(&row.get(0)?)])).map_err(|failed| failed.to_string())?;
    rows.collect::<Result<_, _>>().map_err(|failed| failed.to_string())
}

#[test]
fn what_is_found_is_marked_and_ranked_as_by_sqlite() {
    let agreed = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config { cases: 60, failure_persistence: None, ..Config::default() });
    let rows = proptest::collection::vec((text(), text()), 1..8);
    runner
        .run(&(rows, 0..TABLES.len()), |(rows, table)| {
            let bench = Bench::leader();
            let plain = rusqlite::Connection::open_in_memory().unwrap();
            let create = format!("CREATE VIRTUAL TABLE f USING fts5({})", TABLES[table]);
            bench.run(&[&create]).unwrap();
            plain.execute_batch(&create).unwrap();
            let session = bench.database.session();
            for (x, y) in &rows {
                let insert = "INSERT INTO f VALUES(?1, ?2)";
                let args = vec![ours(x), ours(y)];
                session.execute(&Statement { args, ..statement(insert) }).result.unwrap();
                bench.publish();
                plain.execute(insert, rusqlite::params![x, y]).unwrap();
            }
            for query in QUERIES {
                for call in CALLS {
                    let sql = format!("SELECT {call} FROM f WHERE f MATCH '{query}' ORDER BY rowid");
                    let found = session.execute(&statement(&sql)).result;
                    match (found, theirs(&plain, &sql)) {
                        (Ok(found), Ok(wanted)) => {
                            prop_assert_eq!(&found.rows, &wanted, "{} of {:?}", sql, rows);
                            agreed.set(agreed.get() + wanted.len());
                        }
                        (Err(_), Err(_)) => {}
                        (found, wanted) => prop_assert!(false, "{sql} of {rows:?}: {found:?}, and SQLite: {wanted:?}"),
                    }
                }
            }
            Ok(())
        })
        .unwrap();
    assert!(agreed.get() > 3_000, "{}", agreed.get());
}
