//! Whether a licence expression, as SPDX writes it, can be met by licences that are allowed.
//!
//! `OR` offers a choice, `AND` asks for both and binds closer, `WITH` names an exception that only adds permissions and so is passed over, and `/` is how old
//! manifests write `OR`.

use anyhow::{Result, bail};

/// Whether the licences in `allowed` are enough for that expression.
///
/// # Errors
/// If it is no expression.
pub fn is_met(expression: &str, allowed: &[&str]) -> Result<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    let met = any(&mut words, allowed, expression)?;
    match words.is_empty() {
        true => Ok(met),
        false => {
            bail!("{expression:?} is no licence expression: nothing is expected before {:?}", words[words.len() - 1])
        }
    }
}

fn any(words: &mut Vec<&str>, allowed: &[&str], whole: &str) -> Result<bool> {
    let mut met = all(words, allowed, whole)?;
    while words.last() == Some(&"OR") {
        words.pop();
        met |= all(words, allowed, whole)?;
    }
    Ok(met)
}

fn all(words: &mut Vec<&str>, allowed: &[&str], whole: &str) -> Result<bool> {
    let mut met = one(words, allowed, whole)?;
    while words.last() == Some(&"AND") {
        words.pop();
        met &= one(words, allowed, whole)?;
    }
    Ok(met)
}

fn one(words: &mut Vec<&str>, allowed: &[&str], whole: &str) -> Result<bool> {
    match words.pop() {
        Some("(") => {
            let met = any(words, allowed, whole)?;
            if words.pop() != Some(")") {
                bail!("{whole:?} is no licence expression: a parenthesis is not closed");
            }
            Ok(met)
        }
        Some(licence) if !["OR", "AND", "WITH", ")"].contains(&licence) => {
            if words.last() == Some(&"WITH") {
                words.truncate(words.len().saturating_sub(2));
            }
            Ok(allowed.contains(&licence))
        }
        found => bail!("{whole:?} is no licence expression: a licence is wanted, found {found:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_by_what_they_offer_and_by_all_they_ask_for() {
        let allowed = ["MIT", "ISC", "Apache-2.0"];
        for (expression, wanted) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("GPL-3.0-only OR MIT", true),
            ("MIT/GPL-3.0-only", true),
            ("MIT AND GPL-3.0-only", false),
            ("MIT AND ISC", true),
            ("GPL-3.0-only OR MIT AND GPL-2.0-only", false),
            ("(MIT OR GPL-3.0-only) AND ISC", true),
            ("(MIT OR ISC) AND GPL-3.0-only", false),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0-only", true),
            ("GPL-2.0-only WITH Classpath-exception-2.0", false),
        ] {
            assert_eq!(is_met(expression, &allowed).expect("an expression"), wanted, "{expression}");
        }
        for wrong in ["", "MIT OR", "(MIT", "MIT)", "MIT MIT", "AND"] {
            assert!(is_met(wrong, &allowed).is_err(), "{wrong:?}");
        }
    }
}
