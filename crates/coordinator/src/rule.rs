//! Which commit rules a partition may be created with, and which names.

use highwater_wire::CommitRule;

/// Why a partition cannot be created as it was declared. Nothing was created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// A quorum of none, or of more replicas than there are.
    #[error(
        "quorum:{q} wants from 1 to {replicas} copies, since the database has {replicas} replicas; declare a quorum within that"
    )]
    Quorum {
        /// What was declared.
        q: u32,
        /// How many replicas there are.
        replicas: usize,
    },
    /// An in-sync set of none at least, or of more than there are.
    #[error(
        "isr:{min} wants from 1 to {replicas} members, since the database has {replicas} replicas; declare a minimum within that"
    )]
    Isr {
        /// What was declared.
        min: u32,
        /// How many replicas there are.
        replicas: usize,
    },
    /// A name that would not fit into a path.
    #[error("a database's name has 1 to 64 letters, digits, '-' or '_', and {found:?} has not; choose another")]
    Name {
        /// What was declared.
        found: String,
    },
}

/// Refuses a commit rule that this many replicas cannot keep.
pub fn check_rule(rule: CommitRule, replicas: usize) -> Result<(), RuleError> {
    let fits = |count: u32| count >= 1 && count as usize <= replicas;
    match rule {
        CommitRule::Quorum { q } if !fits(q) => Err(RuleError::Quorum { q, replicas }),
        CommitRule::Isr { min } if !fits(min) => Err(RuleError::Isr { min, replicas }),
        CommitRule::Quorum { .. } | CommitRule::Isr { .. } => Ok(()),
    }
}

/// Refuses a name that could not stand in a URL's path or be a folder's name: 1 to 64 ASCII letters, digits, `-` and `_`.
pub fn check_name(name: &str) -> Result<(), RuleError> {
    let fits =
        (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if fits { Ok(()) } else { Err(RuleError::Name { found: name.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_needs_at_least_one_copy_and_no_more_than_there_are() {
        for replicas in 0..=5_usize {
            for count in 0..=6_u32 {
                let fits = count >= 1 && count as usize <= replicas;
                assert_eq!(check_rule(CommitRule::Quorum { q: count }, replicas).is_ok(), fits);
                assert_eq!(check_rule(CommitRule::Isr { min: count }, replicas).is_ok(), fits);
            }
        }
    }

    #[test]
    fn names_fit_into_paths() {
        for name in ["main", "a", "A-b_9", &"x".repeat(64)] {
            assert_eq!(check_name(name), Ok(()));
        }
        for name in ["", "a/b", "..", "a b", "ä", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }
}
