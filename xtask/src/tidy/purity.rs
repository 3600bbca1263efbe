//! The pure crates: what their source may not mention. A dependency can be seen in a manifest; the standard library's clock, threads and randomly
//! seeded maps cannot, so they are looked for in the text. Only code counts, not comments; tests inside these crates are held to the same rule.

use super::{Source, Violation, code_of};

/// A word that pure code may not use, why, and the crates it is forbidden in.
struct Rule {
    word: &'static str,
    why: &'static str,
    crates: &'static [&'static str],
}

/// Decide without doing: time is an argument, effects are data.
const PURE: &[&str] = &["wire", "replica", "partition", "coordinator", "host", "history"];

/// Must behave the same on every run: the pure crates, the log's core, and the simulator.
const DETERMINISTIC: &[&str] = &["wire", "replica", "partition", "coordinator", "host", "history", "log", "sim"];

/// What a comment above a line begins with to say why an unordered map does no harm there: it is looked up and never walked. Only the simulator may; its
/// exhaustive search spends most of its time in such maps.
const LOOKED_UP_ONLY: (&str, &str) = ("sim", "// looked up only: ");

const RULES: &[Rule] = &[
    Rule { word: "Instant", why: "time comes in as an argument", crates: PURE },
    Rule { word: "SystemTime", why: "time comes in as an argument", crates: DETERMINISTIC },
    Rule {
        word: concat!("std::", "thread"),
        why: "threads belong to node and to the log's flush thread",
        crates: PURE,
    },
    Rule { word: concat!("std::", "fs"), why: "disks are reached through the log's Io trait", crates: PURE },
    Rule { word: concat!("std::", "net"), why: "messages leave as effects", crates: DETERMINISTIC },
    Rule {
        word: concat!("Hash", "Map"),
        why: "its order differs from run to run; use BTreeMap",
        crates: DETERMINISTIC,
    },
    Rule {
        word: concat!("Hash", "Set"),
        why: "its order differs from run to run; use BTreeSet",
        crates: DETERMINISTIC,
    },
    Rule { word: "RandomState", why: "it is seeded from outside", crates: DETERMINISTIC },
    Rule { word: "getrandom", why: "randomness comes in as a seed", crates: DETERMINISTIC },
    Rule { word: "rand", why: "randomness comes in as a seed", crates: DETERMINISTIC },
];

/// What of a file breaks the rules of its crate. Files outside `crates/NAME/src` have none.
pub fn check(source: &Source) -> Vec<Violation> {
    let Some((name, _)) = source.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut above = "";
    for (number, line) in source.text.lines().enumerate() {
        let code = code_of(line);
        let excused = name == LOOKED_UP_ONLY.0 && above.trim_start().starts_with(LOOKED_UP_ONLY.1);
        above = line;
        for rule in RULES.iter().filter(|rule| rule.crates.contains(&name)) {
            if has_word(code, rule.word) && !(excused && rule.why.starts_with("its order")) {
                found.push(format!("{}:{}: {} in `{name}`: {}", source.path, number + 1, rule.word, rule.why));
            }
        }
    }
    found
}

/// Whether `code` holds `word` with no letter, digit or underscore on either side.
fn has_word(code: &str, word: &str) -> bool {
    let part_of_a_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(part_of_a_name) && !after.is_some_and(part_of_a_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_line(path: &str, line: &str) -> usize {
        check(&Source { path: path.to_owned(), text: format!("//! A file.\n{line}\n") }).len()
    }

    #[test]
    fn every_forbidden_word_is_found_in_every_crate_it_is_forbidden_in() {
        for rule in RULES {
            assert!(!rule.crates.is_empty());
            for name in rule.crates {
                let line = format!("    let x = {}::new();", rule.word);
                let path = format!("crates/{name}/src/lib.rs");
                assert_eq!(check_line(&path, &line), 1, "{line} in {path}");
            }
        }
    }

    #[test]
    fn only_maps_of_the_simulator_can_be_excused_and_only_line_by_line() {
        let excused = |word: &str| format!("    {}because.\n    let x: {word} = y;", LOOKED_UP_ONLY.1);
        let map = concat!("Hash", "Map");
        assert_eq!(check_line("crates/sim/src/lib.rs", &excused(map)), 0);
        assert_eq!(check_line("crates/replica/src/lib.rs", &excused(map)), 1);
        assert_eq!(check_line("crates/sim/src/lib.rs", &excused("SystemTime")), 1);
        assert_eq!(check_line("crates/sim/src/lib.rs", &format!("{}\n    let z: {map} = y;", excused(map))), 1);
    }

    #[test]
    fn what_only_looks_like_a_forbidden_word_is_let_pass() {
        assert_eq!(check_line("crates/replica/src/lib.rs", "// no Instant here"), 0);
        assert_eq!(check_line("crates/replica/src/lib.rs", "let Instantly = operand;"), 0);
        assert_eq!(check_line("crates/node/src/lib.rs", "use std::time::Instant;"), 0);
        assert_eq!(check_line("xtask/src/main.rs", "use std::time::Instant;"), 0);
    }
}
