//! A node's monotonic clock: it begins anywhere and runs at its own rate.

use highwater_wire::Millis;

use crate::clients::Instant;
use crate::rng::Rng;

/// A clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// What it showed at `since`, a true time; before that it stands still.
    shown_ms: u64,
    since: Instant,
    /// Parts in a million of true time.
    rate_ppm: u64,
}

impl Clock {
    /// A clock; with `skew` it runs up to 20 % too slow or too fast, otherwise up to 0.01 %.
    pub(super) fn new(rng: &mut Rng, skew: bool) -> Clock {
        let off = if skew { 200_000 } else { 100 };
        let shown_ms = rng.below(1_000_000);
        Clock { shown_ms, since: 0, rate_ppm: rng.range(1_000_000 - off, 1_000_000 + off) }
    }

    /// What it shows at a true time.
    pub(super) fn shows(&self, now: Instant) -> Millis {
        let runs = u128::from(now.saturating_sub(self.since));
        self.shown_ms + (runs * u128::from(self.rate_ppm) / 1_000_000_000) as u64
    }

    /// It jumps forward.
    pub(super) fn jump(&mut self, now: Instant, by_ms: u64) {
        (self.shown_ms, self.since) = (self.shows(now) + by_ms, now.max(self.since));
    }

    /// It stands still until then, and goes on from there.
    pub(super) fn freeze(&mut self, now: Instant, until: Instant) {
        assert!(now <= until, "a clock stands still for a while");
        (self.shown_ms, self.since) = (self.shows(now), until.max(self.since));
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

    #[test]
    fn a_clock_that_jumps_or_stands_still_does_not_go_back() {
        let mut clock = Clock::new(&mut Rng::new(7), false);
        let before = clock.shows(1_000_000);
        clock.freeze(1_000_000, 3_000_000);
        assert_eq!((clock.shows(2_000_000), clock.shows(3_000_000)), (before, before));
        assert!((990..=1010).contains(&(clock.shows(4_000_000) - before)));
        clock.jump(4_000_000, 500);
        assert!((1490..=1510).contains(&(clock.shows(4_000_000) - before)));
    }
}
