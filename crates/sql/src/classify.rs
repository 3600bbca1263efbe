//! What a statement is, as SQLite's authorizer and its own flags tell while it is prepared.

use rusqlite::ffi;

use crate::ffi::AuthorizerEvent;
use crate::names;
use crate::pragma::{self, PragmaPolicy};
use crate::text;

/// What the authorizer has told since the last [`Collector::begin`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Collector {
    facts: Facts,
    /// The connection serves many clients, so that no PRAGMA may set anything on it.
    shared: bool,
}

/// What becomes of something that a statement is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    /// A PRAGMA that does nothing. Many take effect when they are merely prepared.
    Ignored,
    Denied,
}

/// What a statement is going to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// BEGIN, COMMIT or ROLLBACK.
    pub(crate) transaction: Option<&'static str>,
    /// BEGIN (of a savepoint), RELEASE or ROLLBACK, and its name.
    pub(crate) savepoint: Option<(SavepointOp, String)>,
    /// A PRAGMA's name in lower case, and its argument.
    pub(crate) pragma: Option<(String, Option<String>)>,
    /// It changes the schema of `main`.
    pub(crate) schema_main: bool,
    /// It inserts into, updates or deletes from tables of `main`.
    pub(crate) rows_main: bool,
    /// It changes only what is temporary.
    pub(crate) temporary: bool,
    /// It changes what temporary objects there are, which counts as no change of rows.
    pub(crate) temporary_schema: bool,
    /// The table of `main` it makes.
    pub(crate) creates_table: Option<String>,
    /// The table it alters.
    pub(crate) alters_table: Option<String>,
    /// It makes a virtual table.
    pub(crate) creates_virtual: bool,
    /// It reads rows of a query.
    pub(crate) selects: bool,
    /// The tables it reads.
    pub(crate) reads: Vec<String>,
    /// It calls the function of full-text search that writes while it is read from.
    pub(crate) optimizes: bool,
    /// The tables of `main` it inserts into, itself or by triggers.
    pub(crate) inserts_into: Vec<String>,
    /// Why it is refused.
    pub(crate) refused: Option<String>,
}

/// What is done to a savepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SavepointOp {
    Begin,
    Release,
    RollbackTo,
}

/// Modules of virtual tables whose content lies in ordinary tables, or nowhere.
const MODULES: [&str; 8] = ["fts3", "fts4", "fts5", "fts4aux", "fts5vocab", "rtree", "rtree_i32", "geopoly"];

impl Collector {
    /// Forgets what was seen.
    pub(crate) fn begin(&mut self) {
        self.facts = Facts::default();
    }

    /// What was seen since.
    pub(crate) fn finish(&mut self) -> Facts {
        std::mem::take(&mut self.facts)
    }

    /// From now on the connection serves many clients, or one.
    pub(crate) fn set_shared(&mut self, shared: bool) {
        self.shared = shared;
    }

    fn refuse(&mut self, reason: String) -> Verdict {
        self.facts.refused.get_or_insert(reason);
        Verdict::Denied
    }

    fn pragma(&mut self, name: &str, argument: Option<&str>) -> Verdict {
        let name = name.to_ascii_lowercase();
        let verdict = match pragma::policy(&name, argument) {
            PragmaPolicy::Refused(reason) => return self.refuse(reason),
            PragmaPolicy::Idle(_) => Verdict::Ignored,
            PragmaPolicy::Connection if self.shared && argument.is_some() => Verdict::Ignored,
            _ => Verdict::Allowed,
        };
        self.facts.pragma.get_or_insert((name, argument.map(str::to_string)));
        verdict
    }

    /// Notes one event, and says what becomes of it.
    pub(crate) fn see(&mut self, event: &AuthorizerEvent<'_>) -> Verdict {
        let (first, second) = (event.first.unwrap_or_default(), event.second.unwrap_or_default());
        let temporary = event.database == Some("temp");
        match event.action {
            ffi::SQLITE_TRANSACTION => {
                self.facts.transaction = match first {
                    "BEGIN" => Some("BEGIN"),
                    "COMMIT" => Some("COMMIT"),
                    _ => Some("ROLLBACK"),
                };
            }
            ffi::SQLITE_SAVEPOINT => {
                let op = match first {
                    "BEGIN" => SavepointOp::Begin,
                    "RELEASE" => SavepointOp::Release,
                    _ => SavepointOp::RollbackTo,
                };
                self.facts.savepoint = Some((op, second.to_string()));
            }
            ffi::SQLITE_PRAGMA => return self.pragma(first, event.second),
            ffi::SQLITE_ATTACH | ffi::SQLITE_DETACH => {
                return self.refuse("ATTACH and DETACH are refused: a database stands alone".to_string());
            }
            ffi::SQLITE_FUNCTION if second.eq_ignore_ascii_case("load_extension") => {
                return self.refuse("extensions are refused".to_string());
            }
            ffi::SQLITE_FUNCTION if second.eq_ignore_ascii_case("optimize") => {
                self.facts.optimizes = true;
                self.facts.rows_main = true;
            }
            ffi::SQLITE_READ | ffi::SQLITE_INSERT | ffi::SQLITE_UPDATE | ffi::SQLITE_DELETE => {
                if names::is_ours(first) || first.eq_ignore_ascii_case("sqlite_dbpage") {
                    return self.refuse(format!("the table {first} is not for clients"));
                }
                if is_path_of_a_file(first, second) {
                    return Verdict::Ignored;
                }
                if event.action == ffi::SQLITE_READ {
                    if self.facts.reads.last().is_none_or(|table| table != first) {
                        self.facts.reads.push(first.to_string());
                    }
                } else {
                    if event.within.is_some() && !temporary && first.eq_ignore_ascii_case("sqlite_sequence") {
                        return self.refuse(
                            "a trigger may not write to sqlite_sequence: write to it by a statement of its own"
                                .to_string(),
                        );
                    }
                    if temporary {
                        self.facts.temporary = true;
                    } else if !is_schema_table(first) {
                        self.facts.rows_main = true;
                        if event.action == ffi::SQLITE_INSERT && !self.facts.inserts_into.iter().any(|t| t == first) {
                            self.facts.inserts_into.push(first.to_string());
                        }
                    }
                }
            }
            ffi::SQLITE_SELECT => self.facts.selects = true,
            ffi::SQLITE_CREATE_VTABLE => {
                if !MODULES.iter().any(|module| module.eq_ignore_ascii_case(second)) {
                    return self.refuse(format!(
                        "virtual tables of the module {second} are refused: their content is not replicated"
                    ));
                }
                self.facts.creates_virtual = true;
                self.schema(temporary);
            }
            ffi::SQLITE_CREATE_TABLE => {
                if !temporary {
                    self.facts.creates_table = Some(first.to_string());
                }
                self.schema(temporary);
            }
            ffi::SQLITE_CREATE_TEMP_INDEX
            | ffi::SQLITE_CREATE_TEMP_TABLE
            | ffi::SQLITE_CREATE_TEMP_TRIGGER
            | ffi::SQLITE_CREATE_TEMP_VIEW
            | ffi::SQLITE_DROP_TEMP_INDEX
            | ffi::SQLITE_DROP_TEMP_TABLE
            | ffi::SQLITE_DROP_TEMP_TRIGGER
            | ffi::SQLITE_DROP_TEMP_VIEW => self.schema(true),
            ffi::SQLITE_ALTER_TABLE => {
                self.facts.alters_table = Some(second.to_string());
                self.schema(first.eq_ignore_ascii_case("temp"));
            }
            ffi::SQLITE_CREATE_INDEX
            | ffi::SQLITE_CREATE_TRIGGER
            | ffi::SQLITE_CREATE_VIEW
            | ffi::SQLITE_DROP_INDEX
            | ffi::SQLITE_DROP_TABLE
            | ffi::SQLITE_DROP_TRIGGER
            | ffi::SQLITE_DROP_VIEW
            | ffi::SQLITE_DROP_VTABLE
            | ffi::SQLITE_REINDEX
            | ffi::SQLITE_ANALYZE => self.schema(temporary),
            _ => {}
        }
        Verdict::Allowed
    }

    fn schema(&mut self, temporary: bool) {
        if temporary {
            self.facts.temporary = true;
            self.facts.temporary_schema = true;
        } else {
            self.facts.schema_main = true;
        }
    }
}

/// Where files lie is nobody's business: the column is NULL.
fn is_path_of_a_file(table: &str, column: &str) -> bool {
    table.eq_ignore_ascii_case("pragma_database_list") && column.eq_ignore_ascii_case("file")
}

fn is_schema_table(table: &str) -> bool {
    ["sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_temp_schema"]
        .iter()
        .any(|name| name.eq_ignore_ascii_case(table))
}

/// How a statement is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// It changes nothing outside the connection: a query, EXPLAIN, an informational PRAGMA, a write to temporary tables.
    Read,
    /// It changes rows.
    Rows,
    /// It changes the schema (or what is shipped like it): replicas run it themselves.
    Schema,
    /// VACUUM, which runs outside a transaction.
    Vacuum,
    /// BEGIN.
    Begin(BeginMode),
    /// COMMIT or END.
    Commit,
    /// ROLLBACK.
    Rollback,
    /// Something with a savepoint.
    Savepoint(SavepointOp, String),
    /// A PRAGMA that sets something for this connection, natively.
    ConnectionPragma,
    /// A PRAGMA that is answered as SQLite would and changes nothing: its one value, if it answers one.
    IdlePragma(Option<String>),
}

/// Which kind of transaction is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BeginMode {
    Deferred,
    Immediate,
    ReadOnly,
}

/// Classifies a statement by its text, its facts and SQLite's flags.
pub(crate) fn classify(sql: &str, facts: &Facts, readonly: bool, explain: bool) -> Result<Class, String> {
    if let Some(reason) = &facts.refused {
        return Err(reason.clone());
    }
    if facts.pragma.as_ref().is_some_and(|(name, _)| name == "database_list") {
        return Err("this way of asking for database_list would tell a path: use PRAGMA database_list".to_string());
    }
    if explain {
        return Ok(Class::Read);
    }
    let words = text::words(sql, 4);
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    if word(0) == "VACUUM" {
        return if words.iter().any(|word| word == "INTO") {
            Err("VACUUM INTO is refused: use the backup".to_string())
        } else {
            Ok(Class::Vacuum)
        };
    }
    if let Some(transaction) = facts.transaction {
        return Ok(match transaction {
            "BEGIN" if words.iter().any(|word| word == "READONLY") => Class::Begin(BeginMode::ReadOnly),
            "BEGIN" if words.iter().any(|word| word == "IMMEDIATE" || word == "EXCLUSIVE") => {
                Class::Begin(BeginMode::Immediate)
            }
            "BEGIN" => Class::Begin(BeginMode::Deferred),
            "COMMIT" => Class::Commit,
            _ => Class::Rollback,
        });
    }
    if let Some((op, name)) = &facts.savepoint {
        return Ok(Class::Savepoint(*op, name.clone()));
    }
    if word(0) == "PRAGMA"
        && let Some((name, argument)) = &facts.pragma
    {
        return Ok(match pragma::policy(name, argument.as_deref()) {
            PragmaPolicy::Refused(reason) => return Err(reason),
            PragmaPolicy::Informational => Class::Read,
            PragmaPolicy::Connection => Class::ConnectionPragma,
            PragmaPolicy::Idle(answer) => Class::IdlePragma(answer),
            PragmaPolicy::Replicated => Class::Schema,
        });
    }
    if facts.schema_main && facts.optimizes {
        return Err("optimize writes: call it in a query of its own".to_string());
    }
    if facts.schema_main {
        return Ok(Class::Schema);
    }
    if facts.rows_main {
        return Ok(Class::Rows);
    }
    if readonly || facts.temporary {
        return Ok(Class::Read);
    }
    // SQLite says that it writes and nothing above says what: whatever it is, its rows are taken down.
    Ok(Class::Rows)
}
