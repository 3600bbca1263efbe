//! What a run of seeds found. It adds seeds up as they end, so that a hundred thousand of them take no more memory than one; details are kept of those
//! that broke a law, and of the others only on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::faults::Fault;
use crate::marks::Mark;
use crate::options::Profile;
use crate::plan::Strike;

/// Of so many broken seeds the details are kept. The rest is counted.
const KEPT: usize = 100;

/// A law that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The seed.
    pub seed: u64,
    /// The profile that the seed ran.
    pub profile: Profile,
    /// The law's name.
    pub law: String,
    /// What was seen.
    pub what: String,
    /// The command that shows it again.
    pub replay: String,
}

/// One seed.
#[derive(Clone, Debug)]
pub struct SeedReport {
    /// The seed.
    pub seed: u64,
    /// The profile that it ran.
    pub profile: Profile,
    /// The classes of faults that it drew, less those left out.
    pub classes: Vec<Fault>,
    /// Simulated microseconds.
    pub simulated_us: u64,
    /// Things that happened and were noted in the trace.
    pub steps: u64,
    /// Client calls that ended.
    pub operations: u64,
    /// Of them, acknowledged writes and answered reads.
    pub succeeded: u64,
    /// Leaders of the database after the first.
    pub leader_changes: u64,
    /// Strikes by kind.
    pub faults: BTreeMap<Fault, u64>,
    /// Those that struck at a moment, one by one.
    pub strikes: Vec<Strike>,
    /// The hash of everything that happened.
    pub trace_hash: u64,
    /// The text of it, if it was asked for.
    pub trace: String,
    /// The situations it came into.
    pub marks: BTreeSet<Mark>,
    /// The law that did not hold.
    pub violation: Option<Violation>,
}

/// All seeds.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many.
    pub seeds: u64,
    /// How many of each profile.
    pub profiles: BTreeMap<&'static str, u64>,
    /// Simulated microseconds.
    pub simulated_us: u64,
    /// Client calls that ended.
    pub operations: u64,
    /// Of them, acknowledged writes and answered reads.
    pub succeeded: u64,
    /// The fewest client calls of any seed, and that seed.
    pub operations_min: Option<(u64, u64)>,
    /// Leaders after the first.
    pub leader_changes: u64,
    /// Seeds with at least one change of leader.
    pub seeds_with_leader_change: u64,
    /// Strikes by kind.
    pub faults: BTreeMap<Fault, u64>,
    /// Seeds that came into each situation.
    pub marks: BTreeMap<Mark, u64>,
    /// Seeds that drew their profile, and from which nothing was left out: what marks are owed by.
    pub mixed: u64,
    /// A hash over the traces of all seeds, in whatever order they ended: two runs of the same seeds of the same build agree in it.
    pub trace_hash: u64,
    /// Seeds that broke a law, by law.
    pub broken: BTreeMap<String, u64>,
    /// The details of the first of them, in order of the seeds.
    pub violations: Vec<Violation>,
    /// Each seed, in order, if that was asked for.
    pub each: Vec<SeedReport>,
}

impl Report {
    /// Adds a seed; `mixed` if it drew its profile and nothing was left out, `keep` if its own report is to be kept.
    pub fn add(&mut self, seed: SeedReport, mixed: bool, keep: bool) {
        self.seeds += 1;
        *self.profiles.entry(seed.profile.name()).or_default() += 1;
        self.simulated_us += seed.simulated_us;
        self.operations += seed.operations;
        self.succeeded += seed.succeeded;
        let operations = (seed.operations, seed.seed);
        self.operations_min = Some(self.operations_min.map_or(operations, |least| least.min(operations)));
        self.leader_changes += seed.leader_changes;
        self.seeds_with_leader_change += u64::from(seed.leader_changes > 0);
        add_all(&mut self.faults, &seed.faults);
        self.trace_hash = self.trace_hash.wrapping_add(seed.trace_hash);
        self.mixed += u64::from(mixed);
        for mark in &seed.marks {
            *self.marks.entry(*mark).or_default() += 1;
        }
        if let Some(violation) = &seed.violation {
            *self.broken.entry(violation.law.clone()).or_default() += 1;
            self.violations.push(violation.clone());
        }
        if keep {
            self.each.push(seed);
        }
        self.keep_the_first();
    }

    /// Adds what another thread has added up.
    pub fn merge(&mut self, other: Report) {
        self.seeds += other.seeds;
        add_all(&mut self.profiles, &other.profiles);
        self.simulated_us += other.simulated_us;
        self.operations += other.operations;
        self.succeeded += other.succeeded;
        self.operations_min = self.operations_min.into_iter().chain(other.operations_min).min();
        self.leader_changes += other.leader_changes;
        self.seeds_with_leader_change += other.seeds_with_leader_change;
        add_all(&mut self.faults, &other.faults);
        self.trace_hash = self.trace_hash.wrapping_add(other.trace_hash);
        add_all(&mut self.marks, &other.marks);
        self.mixed += other.mixed;
        add_all(&mut self.broken, &other.broken);
        self.violations.extend(other.violations);
        self.each.extend(other.each);
        self.each.sort_by_key(|seed| seed.seed);
        self.keep_the_first();
    }

    fn keep_the_first(&mut self) {
        self.violations.sort_by_key(|violation| violation.seed);
        self.violations.truncate(KEPT);
    }

    /// How many seeds broke a law.
    pub fn broken_seeds(&self) -> u64 {
        self.broken.values().sum()
    }

    /// The situations that so many seeds should have come into and none did.
    pub fn unreached(&self) -> Vec<Mark> {
        let owed = |mark: &Mark| mark.within() <= self.mixed && !self.marks.contains_key(mark);
        Mark::ALL.iter().copied().filter(owed).collect()
    }

    /// Whether nothing is wrong: no law was broken, and no situation is missing.
    pub fn passed(&self) -> bool {
        self.broken.is_empty() && self.unreached().is_empty()
    }

    /// Simulated hours.
    pub fn simulated_hours(&self) -> f64 {
        self.simulated_us as f64 / 3.6e9
    }
}

fn add_all<K: Ord + Clone>(to: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
    for (key, count) in from {
        *to.entry(key.clone()).or_default() += count;
    }
}

/// `name count, name count`, or `none`.
fn listed<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> String {
    let all: Vec<String> = counts.map(|(name, count)| format!("{name} {count}")).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, of_seed) = self.operations_min.unwrap_or_default();
        writeln!(
            f,
            "{} seeds, {:.2} simulated hours, {} client operations ({} answered; at least {least} in a seed, in seed {of_seed})",
            self.seeds,
            self.simulated_hours(),
            self.operations,
            self.succeeded,
        )?;
        writeln!(f, "{} changes of leader, in {} of the seeds", self.leader_changes, self.seeds_with_leader_change)?;
        writeln!(f, "profiles: {}", listed(self.profiles.iter().map(|(name, count)| (*name, *count))))?;
        writeln!(f, "faults: {}", listed(self.faults.iter().map(|(fault, count)| (fault.name(), *count))))?;
        writeln!(f, "marks: {}", listed(self.marks.iter().map(|(mark, seeds)| (mark.name(), *seeds))))?;
        for mark in self.unreached() {
            writeln!(
                f,
                "MISSING {}: {} At least one of {} seeds should have come into that, and none of {} did: either the generator no longer gets there, or what it takes is rarer than `marks` says.",
                mark.name(),
                mark.what(),
                mark.within(),
                self.mixed
            )?;
        }
        for violation in &self.violations {
            writeln!(
                f,
                "seed {} broke {}: {}\n  again with: {}",
                violation.seed, violation.law, violation.what, violation.replay
            )?;
        }
        match self.broken_seeds() {
            0 => write!(f, "all laws held"),
            broken => {
                let laws = listed(self.broken.iter().map(|(law, count)| (law.as_str(), *count)));
                write!(f, "{broken} seeds broke a law: {laws}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(seed: u64, law: Option<&str>) -> SeedReport {
        let violation = law.map(|law| Violation {
            seed,
            profile: Profile::One,
            law: law.to_owned(),
            what: "so".to_owned(),
            replay: format!("seed {seed}"),
        });
        SeedReport {
            seed,
            profile: Profile::One,
            classes: vec![Fault::Kill],
            simulated_us: 3_600_000_000,
            steps: 1,
            operations: 500 + seed,
            succeeded: 400,
            leader_changes: seed % 2,
            faults: BTreeMap::from([(Fault::Kill, 2)]),
            strikes: Vec::new(),
            trace_hash: seed,
            trace: String::new(),
            marks: BTreeSet::new(),
            violation,
        }
    }

    #[test]
    fn seeds_add_up_the_same_whichever_thread_ran_them() {
        let (mut one, mut other, mut all) = (Report::default(), Report::default(), Report::default());
        for number in 1..=300 {
            let law = (number % 2 == 0).then_some("some-law");
            all.add(seed(number, law), false, false);
            let part = if number % 3 == 0 { &mut one } else { &mut other };
            part.add(seed(number, law), false, false);
        }
        other.merge(one);
        assert_eq!(other.to_string(), all.to_string());
        assert_eq!((other.seeds, other.broken_seeds(), other.operations_min), (300, 150, Some((501, 1))));
        assert!(other.each.is_empty(), "details of each seed are kept only on demand");
        assert_eq!(other.violations.len(), KEPT);
        assert_eq!((other.violations[0].seed, other.violations[KEPT - 1].seed), (2, 200));
        assert!(!other.passed());
    }

    #[test]
    fn a_situation_that_should_have_been_reached_and_was_not_fails_the_run() {
        let soonest = Mark::ALL.iter().copied().min_by_key(|mark| mark.within()).expect("there are marks");
        let runs = |seeds: u64, mixed: bool, reached: bool| {
            let mut report = Report::default();
            for number in 1..=seeds {
                let all = Mark::ALL.iter().copied().filter(|mark| reached || *mark != soonest).collect();
                report.add(SeedReport { marks: all, ..seed(number, None) }, mixed, false);
            }
            report
        };
        let missed = runs(soonest.within(), true, false);
        assert_eq!((missed.unreached(), missed.passed()), (vec![soonest], false));
        assert!(missed.to_string().contains(&format!("MISSING {}: {}", soonest.name(), soonest.what())), "{missed}");
        assert!(runs(soonest.within() - 1, true, false).passed(), "too few seeds to tell");
        assert!(runs(soonest.within(), false, false).passed(), "one profile, or a reduced run, owes nothing");
        assert!(runs(soonest.within(), true, true).passed());
    }
}
