//! What a run of seeds found.

use std::collections::BTreeMap;
use std::fmt;

use crate::faults::Fault;
use crate::options::Profile;

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
    /// The hash of everything that happened.
    pub trace_hash: u64,
    /// The text of it, if it was asked for.
    pub trace: String,
    /// The law that did not hold.
    pub violation: Option<Violation>,
}

/// All seeds.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Each seed, in order.
    pub seeds: Vec<SeedReport>,
}

impl Report {
    /// The laws that did not hold.
    pub fn violations(&self) -> impl Iterator<Item = &Violation> {
        self.seeds.iter().filter_map(|seed| seed.violation.as_ref())
    }

    /// Simulated hours.
    pub fn simulated_hours(&self) -> f64 {
        self.seeds.iter().map(|seed| seed.simulated_us as f64).sum::<f64>() / 3.6e9
    }

    /// Client calls that ended.
    pub fn operations(&self) -> u64 {
        self.seeds.iter().map(|seed| seed.operations).sum()
    }

    /// Leaders after the first, over all seeds.
    pub fn leader_changes(&self) -> u64 {
        self.seeds.iter().map(|seed| seed.leader_changes).sum()
    }

    /// Seeds with at least one change of leader.
    pub fn seeds_with_leader_change(&self) -> usize {
        self.seeds.iter().filter(|seed| seed.leader_changes > 0).count()
    }

    /// The fewest client calls of any seed.
    pub fn operations_min(&self) -> u64 {
        self.seeds.iter().map(|seed| seed.operations).min().unwrap_or(0)
    }

    /// Strikes by kind.
    pub fn faults(&self) -> BTreeMap<Fault, u64> {
        let mut faults = BTreeMap::new();
        for (fault, count) in self.seeds.iter().flat_map(|seed| &seed.faults) {
            *faults.entry(*fault).or_default() += count;
        }
        faults
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let succeeded: u64 = self.seeds.iter().map(|seed| seed.succeeded).sum();
        writeln!(
            f,
            "{} seeds, {:.2} simulated hours, {} client operations ({} answered, at least {} in a seed)",
            self.seeds.len(),
            self.simulated_hours(),
            self.operations(),
            succeeded,
            self.operations_min()
        )?;
        writeln!(
            f,
            "{} changes of leader, in {} of the seeds",
            self.leader_changes(),
            self.seeds_with_leader_change()
        )?;
        let mut profiles: BTreeMap<&str, usize> = BTreeMap::new();
        for seed in &self.seeds {
            *profiles.entry(seed.profile.name()).or_default() += 1;
        }
        let profiles: Vec<_> = profiles.iter().map(|(name, count)| format!("{name} {count}")).collect();
        writeln!(f, "profiles: {}", profiles.join(", "))?;
        let faults: Vec<_> = self.faults().iter().map(|(fault, count)| format!("{} {count}", fault.name())).collect();
        writeln!(f, "faults: {}", if faults.is_empty() { "none".to_owned() } else { faults.join(", ") })?;
        let violations: Vec<_> = self.violations().collect();
        for violation in &violations {
            writeln!(
                f,
                "seed {} broke {}: {}\n  again with: {}",
                violation.seed, violation.law, violation.what, violation.replay
            )?;
        }
        match violations.len() {
            0 => write!(f, "all laws held"),
            broken => write!(f, "{broken} seeds broke a law"),
        }
    }
}
