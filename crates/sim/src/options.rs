//! The profiles: how many nodes a seed runs, and under which rule.

use highwater_replica::Timing;
use highwater_wire::{CommitRule, NodeId};

use crate::rng::Rng;

/// How many nodes, under which rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Each seed draws one of the others.
    #[default]
    Mixed,
    /// One node, `quorum:1`.
    One,
    /// Three nodes, `quorum:2`.
    Quorum3,
    /// Three nodes, `isr:2`.
    Isr3,
    /// Five nodes, `quorum:3`.
    Quorum5,
    /// Five nodes, `isr:2`.
    Isr5,
    /// Three nodes, `isr:1`, so that no copy can be spared.
    Isr1,
    /// Five nodes in three places far from each other, `quorum:3`, with durations as a deployment there would set them.
    Wan,
    /// Three nodes with slow disks, `isr:2`.
    SlowDisk,
    /// Three nodes, `quorum:2`, whose elections always misbehave.
    Elections,
    /// Three nodes, `quorum:2`, whose databases are SQLite on a simulated disk. Not drawn by the mixture, since a seed takes many times as long.
    Sqlite,
}

impl Profile {
    /// Those that the mixture draws from.
    pub const ALL: [Profile; 9] = [
        Profile::One,
        Profile::Quorum3,
        Profile::Isr3,
        Profile::Quorum5,
        Profile::Isr5,
        Profile::Isr1,
        Profile::Wan,
        Profile::SlowDisk,
        Profile::Elections,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Mixed => "mixed",
            Profile::One => "one",
            Profile::Quorum3 => "quorum3",
            Profile::Isr3 => "isr3",
            Profile::Quorum5 => "quorum5",
            Profile::Isr5 => "isr5",
            Profile::Isr1 => "isr1",
            Profile::Wan => "wan",
            Profile::SlowDisk => "slow-disk",
            Profile::Elections => "elections",
            Profile::Sqlite => "sqlite",
        }
    }

    /// The one that a seed runs.
    pub fn drawn(self, rng: &mut Rng) -> Profile {
        match (self, rng.below(100)) {
            (Profile::Mixed, 0..=5) => Profile::One,
            (Profile::Mixed, 6..=34) => Profile::Quorum3,
            (Profile::Mixed, 35..=59) => Profile::Isr3,
            (Profile::Mixed, 60..=67) => Profile::Quorum5,
            (Profile::Mixed, 68..=75) => Profile::Isr5,
            (Profile::Mixed, 76..=81) => Profile::Isr1,
            (Profile::Mixed, 82..=86) => Profile::Wan,
            (Profile::Mixed, 87..=92) => Profile::SlowDisk,
            (Profile::Mixed, _) => Profile::Elections,
            (one, _) => one,
        }
    }

    /// The number of nodes.
    ///
    /// # Panics
    /// For the mixture, which has none.
    pub fn nodes(self) -> u32 {
        match self {
            Profile::Mixed => panic!("a seed draws its profile before it asks for its nodes"),
            Profile::One => 1,
            Profile::Quorum3 | Profile::Isr3 | Profile::Isr1 | Profile::SlowDisk | Profile::Elections => 3,
            Profile::Sqlite => 3,
            Profile::Quorum5 | Profile::Isr5 | Profile::Wan => 5,
        }
    }

    /// The database's commit rule.
    pub fn rule(self) -> CommitRule {
        match self {
            Profile::Isr3 | Profile::Isr5 | Profile::SlowDisk => CommitRule::Isr { min: 2 },
            Profile::Isr1 => CommitRule::Isr { min: 1 },
            other => CommitRule::Quorum { q: other.nodes() / 2 + 1 },
        }
    }

    /// By how much everything that waits for somebody waits longer than it does in one data centre.
    pub fn pace(self) -> u64 {
        if self == Profile::Wan { 5 } else { 1 }
    }

    /// Durations of replication.
    pub fn timing(self) -> Timing {
        let (usual, pace) = (Timing::default(), self.pace());
        Timing {
            heartbeat_ms: usual.heartbeat_ms * pace,
            election_ms: (usual.election_ms.0 * pace, usual.election_ms.1 * pace),
            replica_lag_max_ms: usual.replica_lag_max_ms * pace,
            ..usual
        }
    }

    /// Without a heartbeat for this long a node is taken for dead.
    pub fn session_ms(self) -> u64 {
        600 * self.pace()
    }

    /// How long a message between two nodes takes beyond what it takes in one place: the shortest and the longest time, in microseconds.
    pub fn distance_us(self, one: NodeId, other: NodeId) -> (u64, u64) {
        let place = |node: NodeId| (node.0 - 1) / 2;
        match (self, place(one).min(place(other)), place(one).max(place(other))) {
            (Profile::Wan, near, far) if near == far => (0, 500),
            (Profile::Wan, 0, 1) => (18_000, 30_000),
            (Profile::Wan, 0, _) => (45_000, 70_000),
            (Profile::Wan, ..) => (90_000, 160_000),
            _ => (0, 0),
        }
    }

    /// How long a flush takes: the shortest and the longest time, in microseconds.
    pub fn flush_us(self) -> (u64, u64) {
        if self == Profile::SlowDisk { (4_000, 40_000) } else { (100, 3_000) }
    }
}

impl std::str::FromStr for Profile {
    type Err = String;

    fn from_str(name: &str) -> Result<Profile, String> {
        let all = || [Profile::Mixed, Profile::Sqlite].into_iter().chain(Profile::ALL);
        all().find(|profile| profile.name() == name).ok_or_else(|| {
            let names: Vec<_> = all().map(Profile::name).collect();
            format!("a profile is one of {}; found {name:?}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_a_wrong_one_is_told_the_right_ones() {
        for profile in Profile::ALL.into_iter().chain([Profile::Sqlite]) {
            assert_eq!(profile.name().parse(), Ok(profile));
        }
        assert!("seven".parse::<Profile>().unwrap_err().contains("quorum3"));
    }

    #[test]
    fn the_mixture_draws_every_profile() {
        let drawn: std::collections::BTreeSet<_> =
            (0..200).map(|seed| Profile::Mixed.drawn(&mut Rng::new(seed)).name()).collect();
        assert_eq!(drawn.len(), Profile::ALL.len());
    }
}
