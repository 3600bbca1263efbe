//! Clients' requests as SQL. Each write is a row of the journal, which holds it whole, and what it does to registers and lists; beside these, things
//! that a plain application would have: a trigger, an index, a table without rowids, an AUTOINCREMENT, and rows that come and go and overflow their pages.

use highwater_sim::machine::{Entry, Write, WriteAnswer};
use highwater_sql::{Key, ResultSet, Statement, Value};

/// What the first write of all makes before it.
const SCHEMA: [&str; 9] = [
    "CREATE TABLE registers(key INTEGER PRIMARY KEY, value INTEGER NOT NULL, writes INTEGER NOT NULL DEFAULT 0)",
    "INSERT INTO registers(key, value)
        WITH RECURSIVE keys(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM keys WHERE n < 15) SELECT n, 0 FROM keys",
    "CREATE TABLE elements(list INTEGER, place INTEGER, value INTEGER NOT NULL UNIQUE, PRIMARY KEY(list, place)) WITHOUT ROWID",
    "CREATE TABLE journal(n INTEGER PRIMARY KEY AUTOINCREMENT, op INTEGER NOT NULL, entry BLOB NOT NULL)",
    "CREATE INDEX journal_by_op ON journal(op)",
    "CREATE TABLE filler(n INTEGER PRIMARY KEY, bytes BLOB NOT NULL)",
    "CREATE TABLE totals(what TEXT PRIMARY KEY, n INTEGER NOT NULL)",
    "INSERT INTO totals VALUES('writes', 0)",
    "CREATE TRIGGER counted AFTER UPDATE OF value ON registers BEGIN
        UPDATE totals SET n = n + 1 WHERE what = 'writes'; END",
];

/// A statement of which rows are wanted.
pub(crate) fn statement(sql: &str, args: &[u64]) -> Statement {
    let args = args.iter().map(|number| Value::Integer(*number as i64)).collect();
    Statement { sql: sql.to_owned(), args, want_rows: true, ..Statement::default() }
}

/// Its statements as one transaction; with the schema before them if that is not there yet.
pub(crate) fn statements(entry: &Entry, schema: bool) -> Vec<Statement> {
    let mut all: Vec<Statement> = match schema {
        true => SCHEMA.iter().map(|sql| statement(sql, &[])).collect(),
        false => Vec::new(),
    };
    let journal = |sql: &str, args: &[u64]| {
        let mut journal = statement(sql, args);
        journal.args.insert(0, Value::Blob(entry.marked()));
        journal
    };
    let op = entry.op.0;
    match entry.write {
        Write::Set { key, value } => {
            all.push(journal("INSERT INTO journal(entry, op) VALUES(?1, ?2)", &[op]));
            all.push(statement(
                "UPDATE registers SET value = ?2, writes = writes + 1 WHERE key = ?1",
                &[u64::from(key), value],
            ));
            let (row, bytes) = (value % 13, value % 11 * 700);
            all.push(statement("INSERT OR REPLACE INTO filler VALUES(?1, zeroblob(?2))", &[row, bytes]));
        }
        Write::Cas { key, expect, value } => {
            let key = u64::from(key);
            all.push(journal(
                "INSERT INTO journal(entry, op) SELECT ?1, ?2 FROM registers WHERE key = ?3 AND value = ?4",
                &[op, key, expect],
            ));
            all.push(statement(
                "UPDATE registers SET value = ?3, writes = writes + 1 WHERE key = ?1 AND value = ?2",
                &[key, expect, value],
            ));
            all.push(statement("SELECT value FROM registers WHERE key = ?1", &[key]));
        }
        Write::Append { list, value } => {
            all.push(journal("INSERT INTO journal(entry, op) VALUES(?1, ?2)", &[op]));
            all.push(statement(
                "INSERT INTO elements SELECT ?1, 1 + count(*), ?2 FROM elements WHERE list = ?1 RETURNING place",
                &[u64::from(list), value],
            ));
            if value % 16 == 0 {
                all.push(statement("DELETE FROM filler WHERE n % 2 = ?1", &[value / 16 % 2]));
            }
        }
    }
    all
}

/// What somebody else asks of the leader now and then, of which no client keeps a record: statements about the schema and the whole file, and
/// transactions of which nothing is to be left. They change nothing that a law compares with a request.
pub(crate) const ASIDE: [&[&str]; 6] = [
    &["VACUUM"],
    &["REINDEX"],
    &["CREATE INDEX IF NOT EXISTS filler_by_size ON filler(length(bytes), n)"],
    &["DROP INDEX IF EXISTS filler_by_size", "DELETE FROM filler WHERE n > 9"],
    // The second one repeats a row number, and the first is undone with it.
    &["INSERT OR REPLACE INTO filler VALUES(100, zeroblob(9000))", "INSERT INTO journal SELECT * FROM journal LIMIT 1"],
    &[
        "SAVEPOINT undone",
        "INSERT OR REPLACE INTO filler SELECT n + 200, bytes FROM filler",
        "UPDATE registers SET value = value + 1",
        "ROLLBACK TO undone",
        "RELEASE undone",
    ],
];

/// Its idempotency key, if it has one.
pub(crate) fn key(entry: &Entry) -> Option<Key> {
    let mut request_hash = [0; 32];
    let marked = entry.marked();
    let tail = &marked[marked.len() - 27..];
    request_hash[..tail.len()].copy_from_slice(tail);
    entry.keyed.then(|| Key { key: format!("op-{}", entry.op.0), request_hash })
}

/// What a client is told, from the results of the statements behind the schema. Says what is wrong with results that cannot be.
pub(crate) fn answer(entry: &Entry, results: &[ResultSet]) -> Result<WriteAnswer, String> {
    // A kept result may or may not be of a transaction that made the schema.
    let own = results.len().checked_sub(statements(entry, false).len()).ok_or("there are too few results")?;
    let results = &results[own..];
    let (journal, effect) = (results[0].affected, results[1].affected);
    match entry.write {
        Write::Set { .. } if (journal, effect) == (1, 1) => Ok(WriteAnswer::Written),
        Write::Cas { .. } if (journal, effect) == (1, 1) => Ok(WriteAnswer::Written),
        Write::Cas { .. } if (journal, effect) == (0, 0) => {
            Ok(WriteAnswer::Mismatch { found: number(results[2].rows.first().and_then(|row| row.first()))? })
        }
        Write::Append { .. } if (journal, effect) == (1, 1) => {
            Ok(WriteAnswer::Appended { len: number(results[1].rows.first().and_then(|row| row.first()))? })
        }
        _ => Err(format!("{entry:?} put {journal} rows into the journal and changed {effect} others")),
    }
}

/// A number that SQLite gave.
pub(crate) fn number(value: Option<&Value>) -> Result<u64, String> {
    match value {
        Some(Value::Integer(number)) => u64::try_from(*number).map_err(|_| format!("{number} is no count")),
        other => Err(format!("a number was expected, found {other:?}")),
    }
}
