//! The exhaustive model: every order of events of three replicas, within stated bounds, over the same step functions that a node runs.
//!
//! A breadth-first search visits every state that can be reached. Messages are a set that only grows: each may arrive at any time, more than once, or
//! never. A log is flushed at any time; a crash loses memory and any tail of what was not flushed. Timers run out at any time. The coordinator
//! is abstract: ballots begin at any time, promises reach it or do not, and any choice that the protocol's text allows may be recorded; it is written
//! down here on its own, so that it checks the real coordinator's rules by another statement of them.
//!
//! What must hold is judged by an oracle that looks at the disks and at what was announced, and not at the replicas' own bookkeeping (`laws`).
//! A violation is reported with the shortest sequence of events that leads to it, in words.
//!
//! To be feasible:
//!
//! - Replicas, messages and sets of messages are interned, and a step of one replica on one input is computed once however many states it occurs in.
//! - The replicas are alike at the beginning, so the first to lead (or, in the self-electing partition, the first to stand) is called replica 0, and of
//!   two states that differ by the names of replicas 1 and 2 one is explored.
//! - A state is not explored if another one has the same replicas and facts, and all its messages and more.
//! - Answers that change nobody are given at once. Refusals are left out, and the question before an election is always answered by yes: both decide
//!   when somebody moves, not what is safe.

mod actions;
mod coordinator;
mod describe;
mod intern;
mod laws;
mod local;
mod outcome;
mod search;
mod symmetry;
mod take;
mod world;

use highwater_wire::CommitRule;

/// How many replicas there are.
pub const REPLICAS: usize = 3;

/// What is explored, and how far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The commit rule of an appointed partition; none for the self-electing one.
    pub rule: Option<CommitRule>,
    /// How many epochs there may be.
    pub epochs: u32,
    /// How many entries clients write, in whatever epochs.
    pub writes: u8,
    /// How often a replica crashes, all together.
    pub crashes: u8,
    /// How many streams one incarnation may open.
    pub streams: u64,
    /// How often a live stream is given up as silent, all together.
    pub silences: u8,
    /// The greatest version of the record: appointments and changes of the ISR raise it.
    pub versions: u64,
    /// How often somebody stands for election, all together.
    pub stands: u8,
    /// Explore the ballot of the first epoch too, in all its orders. Without, it is over when the search begins: all have promised, replica 0 is appointed
    /// and nobody has heard of that. There are no entries yet, so that ballot differs from the next one by losing nothing.
    pub first_ballot: bool,
    /// How many linearizable reads arrive.
    pub reads: u8,
    /// Stop, incomplete, after this many states.
    pub states_max: usize,
}

impl Config {
    /// One write, two epochs, one crash under this rule. Under `quorum` that is some seven million states and a gigabyte of memory, under `isr` under a
    /// million. Under `quorum` a process opens two streams only: a follower of both epochs is not followed through a divergence, a former leader is.
    pub fn appointed(rule: CommitRule) -> Config {
        Config {
            rule: Some(rule),
            epochs: 2,
            writes: 1,
            crashes: 1,
            streams: if matches!(rule, CommitRule::Quorum { .. }) { 2 } else { 3 },
            silences: 0,
            versions: 3,
            stands: 0,
            first_ballot: false,
            reads: 0,
            states_max: 20_000_000,
        }
    }

    /// Two epochs and one crash in the self-electing partition, where twice somebody stands. The leaders' control entries are all that is written.
    pub fn electing() -> Config {
        Config { rule: None, writes: 0, versions: 0, stands: 2, ..Config::appointed(CommitRule::Quorum { q: 2 }) }
    }

    /// The rule by which HW is counted.
    fn commit_rule(&self) -> CommitRule {
        self.rule.unwrap_or(CommitRule::Quorum { q: REPLICAS as u32 / 2 + 1 })
    }
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Different states visited.
    pub states: usize,
    /// Steps taken, those included that led to a state known before.
    pub steps: u64,
    /// The number of events on the longest of the shortest ways to a state.
    pub depth: usize,
    /// Different messages sent.
    pub messages: usize,
    /// Different states of one replica with its disk.
    pub replicas: usize,
    /// Every state within the bounds was visited.
    pub complete: bool,
    /// The first violation, on a shortest way.
    pub violation: Option<Violation>,
}

/// A broken law.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which law, and how.
    pub law: String,
    /// The events that lead to it, in words.
    pub trace: Vec<String>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { states, steps, depth, messages, replicas, complete, violation } = self;
        writeln!(
            f,
            "{states} states{}, depth {depth}, {steps} steps, {replicas} states of one replica, {messages} messages",
            if *complete { "" } else { " (not all)" }
        )?;
        if let Some(Violation { law, trace }) = violation {
            writeln!(f, "broken: {law}")?;
            for (number, event) in trace.iter().enumerate() {
                writeln!(f, "{:>3}. {event}", number + 1)?;
            }
        }
        Ok(())
    }
}

/// Explores every order of events within the bounds, and stops at the first violation.
pub fn run(config: &Config) -> Report {
    assert!(config.epochs > 0, "there is at least one epoch");
    search::Search::new(config.clone()).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One epoch, one write and one crash: small enough for a build without optimisation.
    fn small(config: Config) -> Config {
        Config { epochs: 1, streams: 2, first_ballot: true, ..config }
    }

    fn whole(config: Config) -> Report {
        let report = run(&config);
        assert_eq!(report.violation, None, "{config:?}\n{report}");
        assert!(report.complete, "{config:?}\n{report}");
        assert!(report.depth > 10 && report.states > 1_000, "the bounds leave too little to explore: {report}");
        report
    }

    #[test]
    fn one_epoch_of_quorum_breaks_no_law() {
        whole(small(Config::appointed(CommitRule::Quorum { q: 2 })));
    }

    #[test]
    fn one_epoch_of_isr_breaks_no_law() {
        whole(small(Config::appointed(CommitRule::Isr { min: 2 })));
    }

    #[test]
    fn one_epoch_of_the_self_electing_partition_breaks_no_law() {
        whole(Config { crashes: 0, writes: 1, ..small(Config::electing()) });
    }

    #[test]
    fn the_same_bounds_give_the_same_report() {
        let config = Config { crashes: 0, ..small(Config::appointed(CommitRule::Quorum { q: 2 })) };
        assert_eq!(run(&config), run(&config));
    }

    #[test]
    fn a_search_that_was_stopped_says_so() {
        let report = run(&Config { states_max: 100, ..Config::electing() });
        assert!(!report.complete && report.to_string().contains("(not all)"), "{report}");
    }
}
