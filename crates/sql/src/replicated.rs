//! Running the text of a statement that came with a log or a file: one statement, of a kind that a leader takes down, and nothing else.
//!
//! It is looked at as a client's would be: no ATTACH, no VACUUM INTO, no extensions, no PRAGMA but those that are shipped, virtual tables of known modules.

use crate::classify::{self, Class};
use crate::ffi::{Conn, Failure, Step};
use crate::text;

/// Why a text was not run.
pub(crate) enum Refused {
    /// It is not what may come from a log or a file.
    Text(String),
    /// SQLite failed.
    Sqlite(Failure),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused::Sqlite(failure)
    }
}

/// Runs it; `class` is what it must be. VACUUM, which attaches a database of its own, is taken in its one form alone.
pub(crate) fn run(conn: &Conn, sql: &str, class: &Class) -> Result<(), Refused> {
    conn.hooks().externally(|| {
        conn.hooks().collector.borrow_mut().begin();
        let prepared = conn.prepare(sql, false);
        let facts = conn.hooks().collector.borrow_mut().finish();
        if let Some(reason) = &facts.refused {
            return Err(Refused::Text(reason.clone()));
        }
        let (stmt, used) = prepared?;
        let Some(mut stmt) = stmt else { return Err(Refused::Text("it holds no statement".to_string())) };
        if !text::skip_blanks(&sql[used..]).is_empty() {
            return Err(Refused::Text("it holds more than one statement".to_string()));
        }
        let found =
            classify::classify(&sql[..used], &facts, stmt.readonly(), stmt.is_explain()).map_err(Refused::Text)?;
        // `IF EXISTS` and `IF NOT EXISTS` may have nothing to do. A leader takes nothing down of an index then; earlier ones did.
        let does_nothing = found == Class::Rows
            && *class == Class::Schema
            && !(facts.rows_main || facts.schema_main || facts.temporary || facts.temporary_schema)
            && text::words(sql, 1).first().is_some_and(|word| word == "CREATE" || word == "DROP");
        if found != *class && !does_nothing {
            return Err(Refused::Text(format!(
                "a statement of the kind {class:?} was expected, and this is {found:?}"
            )));
        }
        if *class != Class::Vacuum {
            while stmt.step()? == Step::Row {}
        }
        Ok(())
    })?;
    match class {
        Class::Vacuum if sql != "VACUUM" => Err(Refused::Text("VACUUM takes no more words".to_string())),
        Class::Vacuum => Ok(conn.hooks().internally(|| conn.exec("VACUUM"))?),
        _ => Ok(()),
    }
}
