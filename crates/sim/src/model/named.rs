//! The configurations that have names, and running several of them.
//!
//! Those of [`Size::Ci`] are run by every check; those of [`Size::Large`] on demand.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use highwater_wire::CommitRule;

use super::report::{Progress, Report};
use super::{Beginning, Config, run_and_tell};

/// For whom a configuration is small enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Minutes, all together: run by every check.
    Ci,
    /// Minutes to hours, and gigabytes, each.
    Large,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        match text {
            "ci" => Ok(Size::Ci),
            "large" => Ok(Size::Large),
            other => Err(format!("there is no size {other:?}; there are ci and large")),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Size::Ci => "ci",
            Size::Large => "large",
        })
    }
}

/// A configuration that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name: the rule, and what it has more of than others.
    pub name: &'static str,
    /// For whom it is small enough.
    pub size: Size,
    /// The bounds.
    pub config: Config,
}

/// All of them, within a size the longest first, so that several threads end at about the same time.
pub fn named() -> Vec<Named> {
    const QUORUM: CommitRule = CommitRule::Quorum { q: 2 };
    const ISR_1: CommitRule = CommitRule::Isr { min: 1 };
    const ISR_2: CommitRule = CommitRule::Isr { min: 2 };
    let of = Config::appointed;
    let ci = |name, config: Config| Named {
        name,
        size: Size::Ci,
        config: Config { live_every: if config.live_every > 0 { config.live_every } else { 5_000 }, ..config },
    };
    let large = |name, config| Named {
        name,
        size: Size::Large,
        config: Config { live_every: 5_000, states_max: 100_000_000, ..config },
    };
    let two_writes = |config| Config { writes: 2, ..config };
    let two_changes = |rule| Config { versions: 4, crashes: 0, ..of(rule) };
    let late = |config| Config { late_machine: true, ..config };
    let look = |config| Config { looks: 1, crashes: 0, ..config };
    let parted = |config| Config {
        beginning: Beginning::Parted,
        epochs: 5,
        versions: 2,
        writes: 0,
        crashes: 0,
        streams: 3,
        ..config
    };
    let read = |config| Config { reads: 1, crashes: 0, ..config };
    vec![
        ci("quorum:2", of(QUORUM)),
        ci("isr:1", of(ISR_1)),
        ci("isr:2", of(ISR_2)),
        ci("self-electing", Config::electing()),
        ci("isr:1+changes", two_changes(ISR_1)),
        ci("isr:2+changes", two_changes(ISR_2)),
        ci("isr:2+late", Config { crashes: 0, ..late(of(ISR_2)) }),
        ci("quorum:2+parted", Config { streams: 5, ..parted(of(QUORUM)) }),
        ci("isr:2+parted", Config { epochs: 4, versions: 1, writes: 1, ..parted(of(ISR_2)) }),
        ci("self-electing+parted", Config { epochs: 6, live_every: 50, ..parted(Config::electing()) }),
        large("quorum:2+parted+old", Config { streams: 5, keeps_old: true, ..parted(of(QUORUM)) }),
        large("quorum:2+write", two_writes(of(QUORUM))),
        large("quorum:2+epoch", Config { epochs: 3, writes: 0, ..of(QUORUM) }),
        large("quorum:2+read", read(of(QUORUM))),
        large("isr:1+write", two_writes(of(ISR_1))),
        large("isr:2+write", two_writes(of(ISR_2))),
        large("isr:2+epoch", Config { epochs: 3, versions: 4, ..of(ISR_2) }),
        large("isr:1+changes+crash", Config { crashes: 1, ..two_changes(ISR_1) }),
        large("isr:2+changes+crash", Config { crashes: 1, ..two_changes(ISR_2) }),
        large("isr:2+read", read(of(ISR_2))),
        large("isr:2+look", look(of(ISR_2))),
        large("quorum:2+late", late(of(QUORUM))),
        large("isr:1+late", late(of(ISR_1))),
        large("isr:2+late+crash", late(of(ISR_2))),
        large("isr:2+late+look", Config { looks: 1, crashes: 0, ..late(of(ISR_2)) }),
        large("self-electing+write", Config { writes: 1, ..Config::electing() }),
        large("self-electing+epoch", Config { epochs: 3, stands: 3, ..Config::electing() }),
    ]
}

/// What is told of one configuration while several are run.
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// Its search begins.
    Begins,
    /// Its search goes on.
    GoesOn(Progress),
    /// Its search is over.
    Ended(&'a Report),
}

/// Runs each configuration, on `jobs` threads, and tells what happens, on whatever thread it happens. Returns the reports in the order of the list.
///
/// # Panics
/// If there are no jobs.
pub fn run_all(list: &[Named], jobs: usize, tell: &(dyn Fn(&Named, Told<'_>) + Sync)) -> Vec<Report> {
    assert!(jobs > 0, "configurations are run on at least one thread");
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = list.get(at) else { return done };
            tell(one, Told::Begins);
            let report = run_and_tell(&one.config, &mut |progress| tell(one, Told::GoesOn(progress)));
            tell(one, Told::Ended(&report));
            done.push((at, report));
        }
    };
    let mut reports: Vec<(usize, Report)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.min(list.len())).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a search does not panic")).collect()
    });
    reports.sort_by_key(|(at, _)| *at);
    reports.into_iter().map(|(_, report)| report).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_rule_is_in_the_checks_and_names_are_told_apart() {
        let all = named();
        let names: BTreeSet<&str> = all.iter().map(|one| one.name).collect();
        assert_eq!(names.len(), all.len());
        let checked: BTreeSet<String> =
            all.iter().filter(|one| one.size == Size::Ci).map(|one| one.config.rule_name()).collect();
        assert_eq!(checked.into_iter().collect::<Vec<_>>(), ["isr:1", "isr:2", "quorum:2", "self-electing"]);
        assert!(all.iter().all(|one| one.name.starts_with(&one.config.rule_name())), "a name begins with its rule");
    }

    #[test]
    fn reports_come_in_the_order_of_the_list_and_each_search_begins_and_ends() {
        let list: Vec<Named> = [300, 200, 100]
            .into_iter()
            .map(|states_max| Named {
                name: "self-electing",
                size: Size::Ci,
                config: Config { states_max, ..Config::electing() },
            })
            .collect();
        let told = Mutex::new(Vec::new());
        let reports = run_all(&list, 2, &|one, what| {
            let ended = matches!(what, Told::Ended(_));
            told.lock().expect("nobody panics").push((one.config.states_max, ended));
        });
        let states: Vec<usize> = reports.iter().map(|report| report.states).collect();
        assert!(states.is_sorted_by(|a, b| a > b), "{states:?}");
        let mut told = told.into_inner().expect("nobody panics");
        told.sort_unstable();
        assert_eq!(told, [(100, false), (100, true), (200, false), (200, true), (300, false), (300, true)]);
    }
}
