//! A node's monotonic clock: it begins anywhere and runs at its own rate.

use highwater_wire::Millis;

use crate::clients::Instant;
use crate::rng::Rng;

/// A clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    begins_ms: u64,
    /// Parts in a million of true time.
    rate_ppm: u64,
}

impl Clock {
    /// A clock; with `skew` it runs up to 20 % too slow or too fast, otherwise up to 0.01 %.
    pub(super) fn new(rng: &mut Rng, skew: bool) -> Clock {
        let off = if skew { 200_000 } else { 100 };
        Clock { begins_ms: rng.below(1_000_000), rate_ppm: rng.range(1_000_000 - off, 1_000_000 + off) }
    }

    /// What it shows at a true time.
    pub(super) fn shows(&self, now: Instant) -> Millis {
        self.begins_ms + (u128::from(now) * u128::from(self.rate_ppm) / 1_000_000_000) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_run_at_their_own_rates_and_never_back() {
        let mut rng = Rng::new(5);
        let clocks: Vec<_> = (0..20).map(|_| Clock::new(&mut rng, true)).collect();
        let elapsed = |clock: &Clock| clock.shows(10_000_000) - clock.shows(0);
        assert!(clocks.iter().all(|clock| (8_000..=12_000).contains(&elapsed(clock))));
        assert!(clocks.iter().any(|clock| elapsed(clock) < 9_500));
        assert!(clocks.iter().any(|clock| elapsed(clock) > 10_500));
        assert!((0..1000).all(|now| clocks[0].shows(now) <= clocks[0].shows(now + 1)));
    }
}
