//! Distributions of many numbers in little memory, which can be added up over runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How many buckets there are for each doubling. A quantile is so at most 9 % above the number that was meant.
const BUCKETS_PER_DOUBLING: f64 = 8.0;

/// Below this, numbers are not told apart.
const SMALLEST: f64 = 0.001;

/// A distribution of numbers from 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many there are.
    pub count: u64,
    /// The greatest, exactly.
    pub max: f64,
    /// How many lie in each bucket; bucket 0 holds what is below [`SMALLEST`].
    buckets: BTreeMap<u32, u64>,
}

impl Spread {
    /// Adds a number.
    ///
    /// # Panics
    ///
    /// If it is below 0 or none.
    pub fn add(&mut self, number: f64) {
        assert!(number >= 0.0, "a spread is of numbers from 0; found {number}");
        let bucket = if number < SMALLEST { 0 } else { 1 + ((number / SMALLEST).log2() * BUCKETS_PER_DOUBLING) as u32 };
        *self.buckets.entry(bucket).or_default() += 1;
        self.count += 1;
        self.max = self.max.max(number);
    }

    /// The number that at least that part (0 to 1) does not exceed, rounded up to its bucket's end; `None` if there is none.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let rank = ((self.count as f64 * part).ceil() as u64).max(1);
        let mut below = 0;
        for (bucket, count) in &self.buckets {
            below += count;
            if below >= rank {
                let end =
                    if *bucket == 0 { 0.0 } else { SMALLEST * (f64::from(*bucket) / BUCKETS_PER_DOUBLING).exp2() };
                return Some(end.min(self.max));
            }
        }
        None
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Spread) {
        self.count += other.count;
        self.max = self.max.max(other.max);
        for (bucket, count) in &other.buckets {
            *self.buckets.entry(*bucket).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_close_from_above_and_add_up() {
        let (mut low, mut high, mut all) = (Spread::default(), Spread::default(), Spread::default());
        for number in 0..10_000u32 {
            let number = f64::from(number) / 10.0;
            if number < 300.0 {
                low.add(number)
            } else {
                high.add(number)
            }
            all.add(number);
        }
        low.merge(&high);
        assert_eq!(low, all);
        for part in [0.1, 0.5, 0.9, 0.99] {
            let (is, found) = (1000.0 * part, all.quantile(part).expect("numbers"));
            assert!(found >= is - 0.2 && found <= is * 1.1, "{part}: {found}");
        }
        assert_eq!(all.quantile(1.0), Some(all.max));
        assert_eq!(Spread::default().quantile(0.5), None);
        let mut zero = Spread::default();
        zero.add(0.0);
        assert_eq!(zero.quantile(0.5), Some(0.0));
    }
}
