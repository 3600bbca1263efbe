//! The little that must be known of a text before SQLite reads it.

use crate::ffi::complete_statement;

/// The first words of a text in upper case: comments and blanks are skipped, and it ends at anything that is not a bare word.
pub(crate) fn words(sql: &str, at_most: usize) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = sql;
    while words.len() < at_most {
        rest = skip_blanks(rest);
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        if end == 0 {
            break;
        }
        words.push(rest[..end].to_ascii_uppercase());
        rest = &rest[end..];
    }
    words
}

/// The text without the blanks, comments and semicolons at its beginning.
pub(crate) fn skip_blanks(sql: &str) -> &str {
    let mut rest = sql;
    loop {
        let trimmed = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ';' || c == '\u{feff}');
        rest = if let Some(comment) = trimmed.strip_prefix("--") {
            comment.find('\n').map_or("", |end| &comment[end..])
        } else if let Some(comment) = trimmed.strip_prefix("/*") {
            comment.find("*/").map_or("", |end| &comment[end + 2..])
        } else {
            return trimmed;
        };
    }
}

/// `BEGIN READONLY`, which some clients send, is a syntax error to SQLite; it is prepared as the form that is not.
pub(crate) fn readonly_begin(sql: &str) -> bool {
    let words = words(sql, 3);
    let word = |at: usize| words.get(at).map(String::as_str);
    word(0) == Some("BEGIN") && word(1) == Some("READONLY") && word(2).is_none()
}

/// Whether a text is the bare `PRAGMA database_list`, in `main` or without a schema.
pub(crate) fn is_database_list(sql: &str) -> bool {
    if pragma_name(sql).as_deref() != Some("database_list") {
        return false;
    }
    let rest = &skip_blanks(sql)["PRAGMA".len()..];
    let name = skip_blanks(rest);
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.').unwrap_or(name.len());
    skip_blanks(&name[end..]).is_empty()
}

/// The name of the PRAGMA that a text is, in lower case.
pub(crate) fn pragma_name(sql: &str) -> Option<String> {
    if words(sql, 1).first().is_none_or(|word| word != "PRAGMA") {
        return None;
    }
    let rest = skip_blanks(&skip_blanks(sql)["PRAGMA".len()..]);
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.').unwrap_or(rest.len());
    let name = rest[..end].rsplit('.').next().unwrap_or_default();
    Some(name.to_ascii_lowercase())
}

/// Whether a statement may change rows or the schema, by its words alone. Better yes than no: whoever asks takes the writer early.
pub(crate) fn looks_like_write(sql: &str) -> bool {
    let words = words(sql, 1);
    match words.first().map_or("", String::as_str) {
        "" | "SELECT" | "VALUES" | "EXPLAIN" | "PRAGMA" | "BEGIN" | "COMMIT" | "END" | "ROLLBACK" | "SAVEPOINT"
        | "RELEASE" => false,
        "WITH" => {
            let upper = sql.to_ascii_uppercase();
            ["INSERT", "UPDATE", "DELETE", "REPLACE"].iter().any(|word| upper.contains(word))
        }
        _ => true,
    }
}

/// Splits a script where SQLite would: at semicolons outside quotes, comments and trigger bodies. Parts without a statement are left out.
pub(crate) fn split_script(sql: &str) -> Vec<&str> {
    let bytes = sql.as_bytes();
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        at = match bytes[at] {
            quote @ (b'\'' | b'"' | b'`') => find(bytes, at + 1, &[quote]),
            b'[' => find(bytes, at + 1, b"]"),
            b'-' if bytes.get(at + 1) == Some(&b'-') => find(bytes, at + 2, b"\n"),
            b'/' if bytes.get(at + 1) == Some(&b'*') => find(bytes, at + 2, b"*/"),
            b';' => {
                let part = &sql[start..=at];
                if complete_statement(part) {
                    parts.push(part);
                    start = at + 1;
                }
                at + 1
            }
            _ => at + 1,
        };
    }
    parts.push(&sql[start..]);
    parts.retain(|part| !skip_blanks(part).is_empty());
    parts
}

/// The place behind the next `end` at or after `from`, or the end of all.
fn find(bytes: &[u8], from: usize, end: &[u8]) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    rest.windows(end.len()).position(|window| window == end).map_or(bytes.len(), |at| from + at + end.len())
}

/// Whether a word (in lower case) stands anywhere in a text, in whatever case: also in a comment or between quotes, for whoever would rather see one too many.
pub(crate) fn has_word(sql: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii();
    sql.split(|c| !is_part(c)).any(|found| found.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_behind_comments_and_end_at_anything_else() {
        assert_eq!(words(" -- x\n /* y */ begin; immediate", 3), ["BEGIN", "IMMEDIATE"]);
        assert_eq!(words("select(1)", 3), ["SELECT"]);
        assert_eq!(words("/* open", 3), Vec::<String>::new());
        assert_eq!(skip_blanks(" ;; -- only\n"), "");
        assert!(readonly_begin("begin readonly;"));
        assert!(!readonly_begin("begin transaction readonly"));
    }

    #[test]
    fn a_pragma_is_known_by_its_name() {
        assert_eq!(pragma_name(" /* x */ pragma Foreign_Keys = off").as_deref(), Some("foreign_keys"));
        assert_eq!(pragma_name("PRAGMA main.foreign_keys").as_deref(), Some("foreign_keys"));
        assert_eq!(pragma_name("select 1"), None);
    }

    #[test]
    fn a_script_is_split_where_sqlite_would() {
        let script = "create table \"a;b\"(x); -- no; \n insert into t values(';'); /* ; */;
            create trigger r after insert on t begin delete from u; select 1; end; select 2";
        let parts = split_script(script);
        assert_eq!(parts.len(), 4, "{parts:?}");
        assert!(parts[2].contains("delete") && parts[2].trim_end().ends_with("end;"));
        assert_eq!(parts[3].trim(), "select 2");
        assert!(split_script(" ; -- nothing\n").is_empty());
        assert_eq!(split_script("select 'open").len(), 1);
    }

    #[test]
    fn what_may_write_is_told_by_its_words() {
        assert!(looks_like_write("insert into t values(1)"));
        assert!(looks_like_write("with x as (select 1) delete from t"));
        assert!(!looks_like_write("with x as (select 1) select * from x"));
        assert!(!looks_like_write("commit"));
    }
}
