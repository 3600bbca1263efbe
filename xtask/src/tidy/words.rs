//! Line by line: what no file may hold, whoever wrote it.

use super::{Source, Violation, code_of};

/// The most lines a file may have. One procedure to a file; a file that outgrows this holds two.
const LINES_MAX: usize = 600;

/// Left-overs of work in progress, and tests that are not run.
const UNFINISHED: [&str; 4] =
    [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("dbg", "!("), concat!("#[", "ignore")];

/// Places on one particular machine.
const FOREIGN_PATHS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/tm", "p/")];

/// Waits that must say why no condition could be waited for instead.
const SLEEPS: [&str; 2] = [concat!("thread::", "sleep"), concat!("time::", "sleep")];

/// What of a file breaks these rules.
pub fn check(source: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    let is_rust = source.path.ends_with(".rs");
    let lines = source.text.lines().count();
    if lines > LINES_MAX {
        found.push(format!("{}: {lines} lines, at most {LINES_MAX}; split it by procedure", source.path));
    }
    if !source.text.is_empty() && !source.text.ends_with('\n') {
        found.push(format!("{}: the last line has no end", source.path));
    }
    let mut above = "";
    for (number, line) in source.text.split_terminator('\n').enumerate() {
        let mut complain = |what: String| found.push(format!("{}:{}: {what}", source.path, number + 1));
        if line.ends_with([' ', '\t', '\r']) {
            complain("white space at the end of the line".to_owned());
        }
        for path in FOREIGN_PATHS {
            if line.contains(path) {
                complain(format!("{path} is a place on one machine; ask the environment or use tempfile"));
            }
        }
        if names_an_issue(line) {
            complain("names an issue by number; say what was wrong instead".to_owned());
        }
        if is_rust {
            let code = code_of(line);
            for word in UNFINISHED {
                if code.contains(word) {
                    complain(format!("{word} is left over from work in progress"));
                }
            }
            let waits = SLEEPS.iter().any(|sleep| code.contains(sleep));
            if waits && !above.trim_start().starts_with("// sleep: ") {
                complain("a sleep without `// sleep: REASON` above it; wait for a condition instead".to_owned());
            }
        }
        above = line;
    }
    found
}

/// Whether a line speaks of an issue or change by its number: the word followed by a number, or a number sign followed by one at a word's start.
fn names_an_issue(line: &str) -> bool {
    let lower = line.to_lowercase();
    let after_word = ["issue ", "issue #", "pull request ", "session "].iter().any(|word| {
        lower.match_indices(word).any(|(at, _)| lower[at + word.len()..].starts_with(|c: char| c.is_ascii_digit()))
    });
    let bare = lower.match_indices('#').any(|(at, _)| {
        let starts_a_word = lower[..at].chars().next_back().is_none_or(|c| c == ' ' || c == '(');
        starts_a_word && lower[at + 1..].starts_with(|c: char| c.is_ascii_digit())
    });
    after_word || bare
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(path: &str, text: &str) -> Vec<Violation> {
        check(&Source { path: path.to_owned(), text: text.to_owned() })
    }

    #[test]
    fn a_long_file_is_found() {
        let longest = "x\n".repeat(LINES_MAX);
        assert!(check_text("docs/a.md", &longest).is_empty());
        assert_eq!(check_text("docs/a.md", &format!("{longest}x\n")).len(), 1);
    }

    #[test]
    fn white_space_at_an_end_and_a_missing_end_are_found() {
        for text in ["a \n", "a\t\n", "a\r\n", "a"] {
            assert_eq!(check_text("docs/a.md", text).len(), 1, "{text:?}");
        }
        assert!(check_text("docs/a.md", "a\n").is_empty());
        assert!(check_text("docs/a.md", "").is_empty());
    }

    #[test]
    fn every_left_over_is_found_in_code_and_not_in_comments() {
        for word in UNFINISHED {
            assert_eq!(check_text("a.rs", &format!("    {word}x)\n")).len(), 1, "{word}");
            assert!(check_text("a.rs", &format!("// never {word}x)\n")).is_empty(), "{word}");
        }
    }

    #[test]
    fn every_foreign_path_is_found_in_code_and_documents() {
        for path in FOREIGN_PATHS {
            assert_eq!(check_text("a.rs", &format!("// see {path}x\n")).len(), 1, "{path}");
            assert_eq!(check_text("a.md", &format!("see {path}x\n")).len(), 1, "{path}");
        }
        assert!(check_text("a.md", "the network/ folder\n").is_empty());
    }

    #[test]
    fn a_sleep_needs_its_reason_on_the_line_above() {
        for sleep in SLEEPS {
            assert_eq!(check_text("a.rs", &format!("    {sleep}(x);\n")).len(), 1, "{sleep}");
            let reasoned = format!("    // sleep: the child has no other sign\n    {sleep}(x);\n");
            assert!(check_text("a.rs", &reasoned).is_empty(), "{sleep}");
        }
    }

    #[test]
    fn issue_numbers_are_found_and_other_numbers_are_not() {
        for line in [concat!("fixes #", "12"), concat!("(#", "7)"), concat!("see issue ", "3"), concat!("Issue #", "3")]
        {
            assert!(names_an_issue(line), "{line}");
        }
        for line in ["#[cfg(test)]", "r#\"1\"#", "# 1. A heading", "a tissue of 3 layers", "the issue of 3 nodes"] {
            assert!(!names_an_issue(line), "{line}");
        }
    }
}
