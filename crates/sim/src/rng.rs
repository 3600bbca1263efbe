//! The one source of randomness: a seed decides everything that happens.
//!
//! SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014): a few instructions for each number, equal on
//! every platform, and cheap to fork, so that one part of the simulation drawing more numbers does not shift those of another.

/// A generator.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator for a seed.
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed ^ 0x9e37_79b9_7f4a_7c15 }
    }

    /// An independent generator; `tag` tells forks of one generator apart.
    pub fn fork(&mut self, tag: u64) -> Rng {
        let seed = self.next();
        Rng::new(seed ^ tag.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..n`.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "a number below 0 was asked for");
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// A number in `low..=high`.
    ///
    /// # Panics
    /// If `low > high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range {low}..={high}");
        low + self.below(high - low + 1)
    }

    /// True in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// True in `permille` of a thousand cases.
    pub fn permille(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// One of them.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        assert!(!from.is_empty(), "one of nothing was asked for");
        &from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_seed_others() {
        let draw = |seed| {
            (0..8)
                .map({
                    let mut rng = Rng::new(seed);
                    move |_| rng.next()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn ranges_reach_both_ends_and_stay_within() {
        let mut rng = Rng::new(1);
        let drawn: std::collections::BTreeSet<u64> = (0..500).map(|_| rng.range(3, 6)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), vec![3, 4, 5, 6]);
    }

    #[test]
    fn forks_do_not_repeat_their_parent() {
        let mut parent = Rng::new(3);
        let (mut left, mut right) = (parent.fork(1), parent.fork(2));
        assert_ne!(left.next(), right.next());
    }
}
