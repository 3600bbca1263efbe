//! The profiles: how many nodes a seed runs, and under which rule.

use highwater_wire::CommitRule;

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
    /// Three nodes, `quorum:2`, whose databases are SQLite on a simulated disk. Not drawn by the mixture, since a seed takes many times as long.
    Sqlite,
}

impl Profile {
    /// Those that the mixture draws from.
    pub const ALL: [Profile; 5] = [Profile::One, Profile::Quorum3, Profile::Isr3, Profile::Quorum5, Profile::Isr5];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Mixed => "mixed",
            Profile::One => "one",
            Profile::Quorum3 => "quorum3",
            Profile::Isr3 => "isr3",
            Profile::Quorum5 => "quorum5",
            Profile::Isr5 => "isr5",
            Profile::Sqlite => "sqlite",
        }
    }

    /// The one that a seed runs.
    pub fn drawn(self, rng: &mut Rng) -> Profile {
        match (self, rng.below(100)) {
            (Profile::Mixed, 0..=9) => Profile::One,
            (Profile::Mixed, 10..=49) => Profile::Quorum3,
            (Profile::Mixed, 50..=79) => Profile::Isr3,
            (Profile::Mixed, 80..=89) => Profile::Quorum5,
            (Profile::Mixed, _) => Profile::Isr5,
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
            Profile::Quorum3 | Profile::Isr3 | Profile::Sqlite => 3,
            Profile::Quorum5 | Profile::Isr5 => 5,
        }
    }

    /// The database's commit rule.
    pub fn rule(self) -> CommitRule {
        match self {
            Profile::Isr3 | Profile::Isr5 => CommitRule::Isr { min: 2 },
            other => CommitRule::Quorum { q: other.nodes() / 2 + 1 },
        }
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
