//! What must hold of every history. One law, one file, one test that shows it can fail.

mod keys;
mod positions;
mod prefix;
mod realtime;
mod registers;
mod replicas;
mod rows;
mod sessions;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::history::History;

/// How many examples of a law's violations are kept.
const EXAMPLES_MAX: usize = 10;

/// The laws, by name, with what each means.
pub const LAWS: [(&str, &str); 11] = [
    ("whole", "the run went to its end, and replicas were read"),
    ("lost", "what was acknowledged as committed is on every replica"),
    ("duplicated", "no row is there twice"),
    ("phantom", "no row is there that nobody wrote, or that was said to have failed"),
    ("keys", "what was asked twice with one idempotency key was answered alike"),
    ("replicas", "every replica holds the same, and its file is sound"),
    ("positions", "rows lie in the order of the positions, and at the rowids, with which they were acknowledged"),
    ("prefix", "every read shows the state after some prefix of the rows, the one that its position names"),
    ("sessions", "a session never goes back, a read is no older than the position it asked for, and that is never cut"),
    ("real time", "a linearizable read shows whatever was answered before it began"),
    ("registers", "the operations on each register are linearizable"),
];

/// What the laws found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// By law.
    pub violations: BTreeMap<String, Violations>,
    /// What could not be decided.
    pub undecided: Vec<String>,
    /// Rows that were acknowledged by the leader alone and are not there. No violation: that is what this acknowledgement may come to.
    pub lost_leader: u64,
    /// Rows whose outcome is unknown, and how many of them are there.
    pub unknown: u64,
    /// How many of the unknown rows are there.
    pub unknown_there: u64,
}

/// What one law found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Violations {
    /// How many.
    pub count: u64,
    /// The first of them.
    pub examples: Vec<String>,
}

impl Findings {
    /// Everything that is wrong with a history. `configurations_max` bounds the search for an order of the operations on a register.
    pub fn of(history: &History, configurations_max: usize) -> Findings {
        let mut findings = Findings::default();
        if history.end.is_none() {
            findings.add("whole", "the history was broken off: it has no record of its end".into());
        } else if history.readings.is_empty() {
            findings.add("whole", "no replica was read in the end".into());
        }
        rows::check(history, &mut findings);
        keys::check(history, &mut findings);
        replicas::check(history, &mut findings);
        positions::check(history, &mut findings);
        prefix::check(history, &mut findings);
        sessions::check(history, &mut findings);
        realtime::check(history, &mut findings);
        registers::check(history, configurations_max, &mut findings);
        findings
    }

    /// How many violations of that law there are.
    pub fn count(&self, law: &str) -> u64 {
        self.violations.get(law).map_or(0, |violations| violations.count)
    }

    /// Whether no law is broken and everything was decided.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.undecided.is_empty()
    }

    fn add(&mut self, law: &'static str, what: String) {
        assert!(LAWS.iter().any(|(name, _)| *name == law), "{law} is a law");
        let violations = self.violations.entry(law.into()).or_default();
        violations.count += 1;
        if violations.examples.len() < EXAMPLES_MAX {
            violations.examples.push(what);
        }
    }

    /// Adds another run's.
    pub fn merge(&mut self, other: Findings) {
        for (law, theirs) in other.violations {
            let ours = self.violations.entry(law).or_default();
            ours.count += theirs.count;
            ours.examples.extend(theirs.examples);
            ours.examples.truncate(EXAMPLES_MAX);
        }
        self.undecided.extend(other.undecided);
        self.lost_leader += other.lost_leader;
        self.unknown += other.unknown;
        self.unknown_there += other.unknown_there;
    }
}
