//! What is measured all the time: commit latency, and how fast offsets move.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use highwater_wire::Offset;

/// How long one window of latencies is. Figures are of the last one to two windows.
const WINDOW: Duration = Duration::from_secs(60);

/// How far back a rate looks.
const RATE_SPAN: Duration = Duration::from_secs(10);

struct Windows {
    began: Instant,
    current: Histogram<u64>,
    previous: Histogram<u64>,
}

/// Latencies from the end of a write's execution to its acknowledgement, over the last one to two minutes.
pub struct CommitLatency(Mutex<Windows>);

fn histogram() -> Histogram<u64> {
    // Microseconds from 1 to ten minutes, to two significant digits.
    Histogram::new_with_bounds(1, 600_000_000, 2).expect("these bounds are legal")
}

impl CommitLatency {
    pub(crate) fn new() -> CommitLatency {
        CommitLatency(Mutex::new(Windows { began: Instant::now(), current: histogram(), previous: histogram() }))
    }

    pub(crate) fn record(&self, took: Duration) {
        let mut windows = self.0.lock().expect("no holder of this lock panics");
        windows.roll();
        windows.current.saturating_record(took.as_micros() as u64);
    }

    /// Milliseconds below which that part (0 to 1) of the acknowledgements took; `None` if there was none lately.
    pub fn quantile_ms(&self, part: f64) -> Option<f64> {
        let mut windows = self.0.lock().expect("no holder of this lock panics");
        windows.roll();
        let mut both = windows.current.clone();
        both.add(&windows.previous).expect("both have the same bounds");
        (!both.is_empty()).then(|| both.value_at_quantile(part) as f64 / 1000.0)
    }
}

impl Windows {
    fn roll(&mut self) {
        let age = self.began.elapsed();
        if age < WINDOW {
            return;
        }
        std::mem::swap(&mut self.current, &mut self.previous);
        self.current.reset();
        if age >= 2 * WINDOW {
            self.previous.reset();
        }
        self.began = Instant::now();
    }
}

/// How fast an offset moves, over the last ten seconds. Offsets that fall back begin anew.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    samples: VecDeque<(Instant, Offset)>,
}

impl Rate {
    pub(crate) fn sample(&mut self, now: Instant, offset: Offset) {
        if self.samples.back().is_some_and(|(_, last)| *last > offset) {
            self.samples.clear();
        }
        self.samples.push_back((now, offset));
        while self.samples.front().is_some_and(|(at, _)| now.duration_since(*at) > RATE_SPAN) {
            self.samples.pop_front();
        }
    }

    /// Entries per second; 0 until there are two samples.
    pub(crate) fn per_second(&self) -> f64 {
        match (self.samples.front(), self.samples.back()) {
            (Some((t0, from)), Some((t1, to))) if t1 > t0 => (to - from) as f64 / t1.duration_since(*t0).as_secs_f64(),
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_what_moved_over_the_time_it_took() {
        let mut rate = Rate::default();
        let t0 = Instant::now();
        assert_eq!(rate.per_second(), 0.0);
        rate.sample(t0, 10);
        rate.sample(t0 + Duration::from_secs(2), 30);
        assert_eq!(rate.per_second(), 10.0);
        rate.sample(t0 + Duration::from_secs(3), 5);
        assert_eq!(rate.per_second(), 0.0, "a cut log begins anew");
    }

    #[test]
    fn quantiles_are_in_milliseconds() {
        let latency = CommitLatency::new();
        assert_eq!(latency.quantile_ms(0.5), None);
        for ms in 1..=100 {
            latency.record(Duration::from_millis(ms));
        }
        let p50 = latency.quantile_ms(0.5).expect("there are samples");
        assert!((49.0..=51.0).contains(&p50), "{p50}");
        let p99 = latency.quantile_ms(0.99).expect("there are samples");
        assert!((98.0..=100.5).contains(&p99), "{p99}");
    }
}
