//! What `snippet` of full-text search gives: the answers of SQLite's FTS5, where each hit costs as much as lies near it, and not as all others.

use std::ffi::c_int;

use super::Pace;
use super::excerpt::{Code, Marker, Merged, SearchedRow, TokenSink};

/// What FTS5 says of an index that does not fit its table.
const CORRUPT: Code = rusqlite::ffi::SQLITE_CORRUPT_VTAB;

/// Finds the first token of each sentence.
struct Sentences<'a, 'p> {
    text: &'a [u8],
    position: i64,
    firsts: Vec<i64>,
    pace: &'a mut Pace<'p>,
}

impl TokenSink for Sentences<'_, '_> {
    fn token(&mut self, start: usize, _: usize) -> Result<(), Code> {
        self.pace.step()?;
        let mut before = self.text.get(..start).unwrap_or_default();
        while let [rest @ .., b' ' | b'\t' | b'\n' | b'\r'] = before {
            self.pace.step()?;
            before = rest;
        }
        let ends = before.len() < start && matches!(before.last(), Some(b'.' | b':'));
        if self.position == 0 || ends {
            self.firsts.push(self.position);
        }
        self.position += 1;
        Ok(())
    }
}

/// Tells how good a part of a text is: whether it has many phrases.
struct Scores<'a, R> {
    row: &'a R,
    count: usize,
    /// For each phrase the last part in which it was seen.
    seen: Vec<u64>,
    part: u64,
    tokens: i64,
}

impl<R: SearchedRow> Scores<'_, R> {
    /// The score of the tokens from one on, and where to begin so that the hits lie in the middle.
    fn score(&mut self, column: c_int, column_size: i64, from: i64, pace: &mut Pace<'_>) -> Result<(i64, i64), Code> {
        self.part += 1;
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let hit = self.row.hit(middle)?;
            if (hit.column, hit.offset) < (column, from) { low = middle + 1 } else { high = middle }
        }
        let (mut score, mut first, mut last) = (0, -1, 0);
        for at in low..self.count {
            pace.step()?;
            let hit = self.row.hit(at)?;
            if hit.column != column || hit.offset >= from + self.tokens {
                break;
            }
            let seen = self.seen.get_mut(hit.phrase).ok_or(CORRUPT)?;
            score += if *seen == self.part { 1 } else { 1000 };
            *seen = self.part;
            if first < 0 {
                first = hit.offset;
            }
            last = hit.offset + self.row.phrase_size(hit.phrase)?;
        }
        let centred = first - (self.tokens - (last - first)) / 2;
        Ok((score, centred.min(column_size - self.tokens).max(0)))
    }
}

/// The best part of so many tokens of a column (of any, if it is negative) with its hits marked, and a text where it leaves something out.
pub(crate) fn snippet<R: SearchedRow>(
    row: &R,
    column: c_int,
    [open, close, left_out]: [&[u8]; 3],
    tokens: i64,
    bytes_max: usize,
    pace: &mut Pace<'_>,
) -> Result<Option<Vec<u8>>, Code> {
    let count = row.hits()?;
    let mut scores = Scores { row, count, seen: vec![0; row.phrases()?], part: 0, tokens };
    // The column, its first token, its tokens.
    let (mut best_score, mut best, mut best_size) = (0, (column.max(0), 0), 0);
    let columns = if column < 0 { 0..row.columns()? } else { column..column.saturating_add(1).min(row.columns()?) };
    for column in columns {
        let text = row.text(column)?;
        let mut sentences = Sentences { text: text.unwrap_or_default(), position: 0, firsts: Vec::new(), pace };
        row.tokenize(column, text.unwrap_or_default(), &mut sentences)?;
        let Sentences { firsts, pace, .. } = sentences;
        let size = row.column_size(column)?;
        for at in 0..count {
            pace.step()?;
            let hit = row.hit(at)?;
            if hit.column != column {
                continue;
            }
            if hit.offset > size {
                return Err(CORRUPT);
            }
            let (score, begin) = scores.score(column, size, hit.offset, pace)?;
            if score > best_score {
                (best_score, best, best_size) = (score, (column, begin), size);
            }
            if firsts.is_empty() || size <= tokens {
                continue;
            }
            let sentence = firsts[firsts[1..].partition_point(|first| *first <= hit.offset)];
            if sentence < hit.offset {
                let (score, _) = scores.score(column, size, sentence, pace)?;
                let score = score + if sentence == 0 { 120 } else { 100 };
                if score > best_score {
                    (best_score, best, best_size) = (score, (column, sentence), size);
                }
            }
        }
    }
    let (column, begin) = best;
    let text = row.text(column)?;
    if best_size == 0 {
        best_size = row.column_size(column)?;
    }
    let Some(text) = text else { return Ok(None) };
    let hits = Merged::new(row, column, pace)?;
    let range = (begin, begin + tokens - 1);
    let mut marker = Marker::new(text, [Some(open), Some(close)], range, hits, bytes_max, pace);
    if begin > 0 {
        marker.append(Some(left_out))?;
    }
    while marker.hits.first >= 0 && marker.hits.first < begin {
        marker.hits.next(marker.pace)?;
    }
    row.tokenize(column, text, &mut marker)?;
    let rest = if range.1 >= best_size - 1 { Ok(()) } else { Err(left_out) };
    marker.finish(rest).map(Some)
}
