//! The exhaustive model: every order of events of three replicas, within stated bounds, over the same
//! `Partition` that a node runs: log, replica and the driver of the state machine, joined.
//!
//! A breadth-first search visits every state that can be reached. Messages are a set that only grows: each may arrive at any time, more than once, or
//! never. A log is flushed at any time; a crash loses memory and any tail of what was not flushed. Timers run out at any time. The coordinator
//! is abstract: ballots begin at any time, promises reach it or do not, and any choice that the protocol's text allows may be recorded; it is written
//! down here on its own, so that it checks the real coordinator's rules by another statement of them.
//!
//! The log is a list of entries in memory (`disk`). The state machine (`machine`) executes a leader's writes ahead of the log, as SQL does, or in the self-electing partition follows
//! HW, as the metadata do; it carries out what it is told within the step that told it, or where it may be late at any time after. Clients write and read as they do at a node: a proposal with a held
//! answer, an answer that only looked, a linearizable read. What they are answered, what readers are shown and what the machine holds is judged.
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
//! - Answers that change nobody are given at once, the coordinator's confirmations of a leader among them. Refusals are left out, and the question before an election is always answered by yes: both decide
//!   when somebody moves, not what is safe.

mod actions;
mod begin;
mod config;
mod coordinator;
mod describe;
mod disk;
mod heal;
mod intern;
mod laws;
mod live;
mod local;
mod machine;
mod named;
mod outcome;
mod report;
mod search;
mod seen;
mod symmetry;
mod take;
mod world;

pub use begin::Beginning;
pub use config::Config;
pub use named::{Named, Size, Told, named, run_all};
pub use report::{Progress, Report, Violation};

/// How many replicas there are.
pub const REPLICAS: usize = 3;

/// Explores every order of events within the bounds, and stops at the first violation.
pub fn run(config: &Config) -> Report {
    run_and_tell(config, &mut |_| {})
}

/// As [`run`], telling now and then how far it has come.
pub fn run_and_tell(config: &Config, tell: &mut dyn FnMut(Progress)) -> Report {
    assert!(config.epochs > 0, "there is at least one epoch");
    search::Search::new(config.clone()).run(tell)
}

#[cfg(test)]
mod tests {
    use highwater_wire::CommitRule;

    use super::*;

    /// One epoch, one write and one crash: small enough for a build without optimisation.
    fn small(config: Config) -> Config {
        Config { epochs: 1, streams: 2, first_ballot: true, live_every: 500, ..config }
    }

    fn whole(config: Config) -> Report {
        let report = run(&config);
        assert_eq!(report.violation, None, "{config:?}\n{report}");
        assert!(report.complete, "{config:?}\n{report}");
        assert!(report.healed > 4, "no state was healed: {report}");
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
    fn one_epoch_with_machines_that_are_late_and_a_look_breaks_no_law() {
        let config =
            Config { late_machine: true, looks: 1, crashes: 0, ..Config::appointed(CommitRule::Isr { min: 2 }) };
        whole(small(config));
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
