//! Whether the service goes on: as long as a majority of the nodes runs and is connected, writes are acknowledged.
//!
//! Only time during which that was so counts, and only since it last became so. After a change of leader nothing is acknowledged for a moment, so a *stall* is said to
//! have happened only after a time in which any number of elections would have been over.

use std::time::{Duration, Instant};

/// Nothing acknowledged for so long is a stall.
pub(super) const STALL: Duration = Duration::from_secs(15);

/// What was last seen.
pub(super) struct Watch {
    count: u64,
    /// When the count was last seen to have risen.
    risen: Instant,
    /// Since when a majority has been there; `None` if none is.
    possible_since: Option<Instant>,
}

impl Watch {
    pub(super) fn new(now: Instant) -> Watch {
        Watch { count: 0, risen: now, possible_since: None }
    }

    /// Takes a look: how many writes have been acknowledged so far, and whether a majority is there. Returns for how long nothing has been acknowledged though it
    /// could have been.
    pub(super) fn look(&mut self, now: Instant, count: u64, possible: bool) -> Duration {
        assert!(count >= self.count, "acknowledgements are not taken back");
        if count > self.count {
            (self.count, self.risen) = (count, now);
        }
        self.possible_since = if possible { self.possible_since.or(Some(now)) } else { None };
        self.possible_since.map_or(Duration::ZERO, |since| now.duration_since(since.max(self.risen)))
    }

    /// Since when a majority has been there.
    pub(super) fn possible_since(&self) -> Option<Instant> {
        self.possible_since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_time_with_a_majority_and_without_acknowledgements() {
        let zero = Instant::now();
        let at = |seconds: u64| zero + Duration::from_secs(seconds);
        let mut watch = Watch::new(zero);
        assert_eq!(watch.look(at(1), 5, true), Duration::ZERO);
        assert_eq!(watch.look(at(4), 5, true), Duration::from_secs(3));
        assert_eq!(watch.look(at(20), 5, false), Duration::ZERO, "nobody could have acknowledged anything");
        assert_eq!(watch.look(at(21), 5, true), Duration::ZERO);
        assert_eq!(watch.look(at(37), 5, true), Duration::from_secs(16), "since the majority was back");
        assert_eq!(watch.look(at(38), 6, true), Duration::ZERO);
        assert!(watch.look(at(38) + STALL * 2, 6, true) > STALL);
    }
}
