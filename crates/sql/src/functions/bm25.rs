//! How well a row fits a query, as FTS5's `bm25` tells it.

use super::Pace;
use super::excerpt::{Code, SearchedRow};

const K1: f64 = 1.2;
const B: f64 = 0.75;

/// What all rows of one query share.
pub(crate) struct Bm25 {
    average_size: f64,
    /// For each phrase the weight of its rarity.
    rarity: Vec<f64>,
    /// For each phrase how often the present row has it.
    frequency: Vec<f64>,
}

impl Bm25 {
    pub(crate) fn of<R: SearchedRow>(row: &R) -> Result<Bm25, Code> {
        let phrases = row.phrases()?;
        let rows = row.row_count()?;
        let average_size = row.total_size()? as f64 / rows as f64;
        let mut rarity = Vec::with_capacity(phrases);
        for phrase in 0..phrases {
            let with = row.rows_with(phrase)?;
            let weight = (((rows - with) as f64 + 0.5) / (with as f64 + 0.5)).ln();
            rarity.push(if weight <= 0.0 { 1e-6 } else { weight });
        }
        Ok(Bm25 { average_size, rarity, frequency: vec![0.0; phrases] })
    }

    /// The score of a row, better the smaller it is.
    pub(crate) fn score<R: SearchedRow>(
        &mut self,
        row: &R,
        weight: impl Fn(usize) -> f64,
        pace: &mut Pace<'_>,
    ) -> Result<f64, Code> {
        self.frequency.fill(0.0);
        for at in 0..row.hits()? {
            pace.step()?;
            let hit = row.hit(at)?;
            self.frequency[hit.phrase] += weight(hit.column.max(0) as usize);
        }
        let size = row.column_size(-1)? as f64;
        let mut score = 0.0;
        for (rarity, frequency) in self.rarity.iter().zip(&self.frequency) {
            pace.step()?;
            score += rarity * ((frequency * (K1 + 1.0)) / (frequency + K1 * (1.0 - B + B * size / self.average_size)));
        }
        Ok(-score)
    }
}
