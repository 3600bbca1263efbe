//! Names of our own tables. They begin with `sqlite_`, so that schema tools leave them out and SQLite refuses to drop or alter them; the authorizer
//! closes them to clients.

/// One row: how far this database has applied.
pub(crate) const STATE: &str = "sqlite_highwater_state";

/// A row for each idempotency key.
pub(crate) const KEYS: &str = "sqlite_highwater_keys";

/// Makes that table, of one row, and another with a row for each idempotency key. Run with `writable_schema` on, without which the names are refused.
pub(crate) const CREATE: &str = "
    CREATE TABLE sqlite_highwater_state(
        id INTEGER PRIMARY KEY CHECK (id = 1),
        format INTEGER NOT NULL, applied INTEGER NOT NULL, epoch INTEGER, log_time_ms INTEGER NOT NULL, opened INTEGER NOT NULL);
    CREATE TABLE sqlite_highwater_keys(
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, request_hash BLOB NOT NULL, result BLOB NOT NULL,
        position INTEGER NOT NULL, log_time_ms INTEGER NOT NULL);
    INSERT INTO sqlite_highwater_state VALUES(1, 1, 0, NULL, 0, 0);
";

/// Whether a table is ours.
pub(crate) fn is_ours(table: &str) -> bool {
    table.get(..17).is_some_and(|start| start.eq_ignore_ascii_case("sqlite_highwater_"))
}

/// Whether rows of a table may come with a log. Of SQLite's own tables, those that clients may
/// change by hand; others are changed by statements, or by nobody.
pub(crate) fn is_shipped(table: &str) -> bool {
    let lower = table.to_ascii_lowercase();
    !lower.starts_with("sqlite_") || lower.starts_with("sqlite_stat") || lower == "sqlite_sequence" || lower == KEYS
}
