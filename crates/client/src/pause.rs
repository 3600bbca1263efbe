//! How long to wait before all nodes are asked again.

use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_millis(1);

/// The longest while a leader is awaited: a new one is found within this.
const LONGEST: Duration = Duration::from_millis(8);

/// The longest while the nodes have too much to do.
const LONGEST_OVERLOADED: Duration = Duration::from_millis(100);

/// Pauses that double, each shortened at random by up to a half so that clients do not come in step.
pub(crate) struct Pauses {
    next: Duration,
    random: u64,
}

impl Pauses {
    pub(crate) fn new(seed: u64) -> Pauses {
        Pauses { next: FIRST, random: seed }
    }

    /// The next one.
    pub(crate) fn next(&mut self, overloaded: bool) -> Duration {
        let longest = if overloaded { LONGEST_OVERLOADED } else { LONGEST };
        let whole = self.next.min(longest);
        self.next = (whole * 2).min(longest);
        // Knuth's linear congruential generator; its high bits are good enough for this.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let part = (self.random >> 33) as f64 / f64::from(1u32 << 31);
        whole.mul_f64(0.5 + part / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay_below_their_bound() {
        let mut pauses = Pauses::new(7);
        let all: Vec<Duration> = (0..20).map(|_| pauses.next(false)).collect();
        assert!(all[0] <= FIRST && all[0] >= FIRST / 2, "{all:?}");
        assert!(all.iter().all(|pause| *pause <= LONGEST) && all[19] >= LONGEST / 2, "{all:?}");
        assert!(
            (0..20).map(|_| pauses.next(true)).any(|pause| pause > LONGEST),
            "an overloaded node is asked less often"
        );
    }
}
