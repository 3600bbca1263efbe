//! What `highlight` and `snippet` of full-text search give: the answers of SQLite's FTS5, in linear time.
//!
//! Offsets of hits are in tokens; a row's hits come in the order of columns and offsets. Texts end at a NUL byte wherever SQLite's do.

use std::ffi::c_int;

use super::like::up_to_nul;
use super::{Pace, Stopped};

/// A result code of SQLite's.
pub(crate) type Code = c_int;

/// SQLite's SQLITE_RANGE and SQLITE_CORRUPT_VTAB.
const OUT_OF_RANGE: Code = rusqlite::ffi::SQLITE_RANGE;
const CORRUPT: Code = rusqlite::ffi::SQLITE_CORRUPT_VTAB;

/// A phrase of the query found in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub(crate) phrase: usize,
    pub(crate) column: c_int,
    pub(crate) offset: i64,
}

/// Is told the tokens of a text, each with the bytes from and to which it reaches.
pub(crate) trait TokenSink {
    fn token(&mut self, start: usize, end: usize) -> Result<(), Code>;
}

/// The row that a query stands on.
pub(crate) trait SearchedRow {
    fn hits(&self) -> Result<usize, Code>;
    fn hit(&self, at: usize) -> Result<Hit, Code>;
    /// The tokens of a phrase.
    fn phrase_size(&self, phrase: usize) -> Result<i64, Code>;
    fn phrases(&self) -> Result<usize, Code>;
    fn columns(&self) -> Result<c_int, Code>;
    fn text(&self, column: c_int) -> Result<Option<&[u8]>, Code>;
    /// The tokens of a column, or, for -1, of all.
    fn column_size(&self, column: c_int) -> Result<i64, Code>;
    fn row_count(&self) -> Result<i64, Code>;
    /// The tokens of the whole table.
    fn total_size(&self) -> Result<i64, Code>;
    /// The rows of the table that have a phrase.
    fn rows_with(&self, phrase: usize) -> Result<i64, Code>;
    fn tokenize(&self, column: c_int, text: &[u8], sink: &mut dyn TokenSink) -> Result<(), Code>;
}

/// The hits of one column, those that overlap taken for one.
struct Merged<'a, R> {
    row: &'a R,
    column: c_int,
    at: usize,
    count: usize,
    /// The first and the last token of the present one; -1 after the last.
    first: i64,
    last: i64,
}

impl<'a, R: SearchedRow> Merged<'a, R> {
    fn new(row: &'a R, column: c_int, pace: &mut Pace<'_>) -> Result<Merged<'a, R>, Code> {
        let mut merged = Merged { row, column, at: 0, count: row.hits()?, first: -1, last: -1 };
        merged.next(pace)?;
        Ok(merged)
    }

    fn next(&mut self, pace: &mut Pace<'_>) -> Result<(), Code> {
        (self.first, self.last) = (-1, -1);
        while self.at < self.count {
            pace.step()?;
            let hit = self.row.hit(self.at)?;
            if hit.column == self.column {
                let last = hit.offset - 1 + self.row.phrase_size(hit.phrase)?;
                if self.first < 0 {
                    (self.first, self.last) = (hit.offset, last);
                } else if hit.offset <= self.last {
                    self.last = self.last.max(last);
                } else {
                    break;
                }
            }
            self.at += 1;
        }
        Ok(())
    }
}

/// Copies a text, and marks its hits.
struct Marker<'a, 'p, R> {
    text: &'a [u8],
    open: Option<&'a [u8]>,
    close: Option<&'a [u8]>,
    hits: Merged<'a, R>,
    pace: &'a mut Pace<'p>,
    /// The tokens to be copied; the last is -1 for all.
    range: (i64, i64),
    position: i64,
    /// Copied up to here, in bytes.
    copied: usize,
    is_open: bool,
    out: Vec<u8>,
    bytes_max: usize,
}

impl<R: SearchedRow> Marker<'_, '_, R> {
    fn append(&mut self, bytes: Option<&[u8]>) -> Result<(), Code> {
        let bytes = up_to_nul(bytes.unwrap_or_default());
        if self.out.len() + bytes.len() > self.bytes_max {
            return Err(Stopped::TooLarge.into());
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends the text from where it was copied up to, and moves that. To before it means all the rest, as in SQLite.
    fn copy_to(&mut self, end: usize) -> Result<(), Code> {
        let text = self.text;
        let rest = text.get(self.copied..).unwrap_or_default();
        let part = if end < self.copied { rest } else { &rest[..(end - self.copied).min(rest.len())] };
        self.append(Some(part))?;
        self.copied = end;
        Ok(())
    }

    /// Closes what is open, and appends what is left of the text if `rest` says so, or something else.
    fn finish(mut self, rest: Result<(), &[u8]>) -> Result<Vec<u8>, Code> {
        if self.is_open {
            self.append(self.close)?;
        }
        match rest {
            Ok(()) => self.copy_to(self.text.len())?,
            Err(instead) => self.append(Some(instead))?,
        }
        Ok(self.out)
    }
}

impl<R: SearchedRow> TokenSink for Marker<'_, '_, R> {
    fn token(&mut self, start: usize, end: usize) -> Result<(), Code> {
        self.pace.step()?;
        let position = self.position;
        self.position += 1;
        let (first, last) = self.range;
        if last >= 0 {
            if position < first || position > last {
                return Ok(());
            }
            if first > 0 && position == first {
                self.copied = start;
            }
        }
        if self.is_open && (position <= self.hits.first || self.hits.first < 0) && start > self.copied {
            self.append(self.close)?;
            self.is_open = false;
        }
        if position == self.hits.first && !self.is_open {
            self.copy_to(start)?;
            self.append(self.open)?;
            self.is_open = true;
        }
        if position == self.hits.last {
            if !self.is_open {
                self.append(self.open)?;
                self.is_open = true;
            }
            self.copy_to(end)?;
            self.hits.next(self.pace)?;
        }
        if position == last {
            if self.is_open {
                if self.hits.first >= 0 && position >= self.hits.first {
                    self.copy_to(end)?;
                }
                self.append(self.close)?;
                self.is_open = false;
            }
            self.copy_to(end)?;
        }
        Ok(())
    }
}

/// The text of a column with its hits between two marks, of so many bytes at most; `None` for NULL.
pub(crate) fn highlight<R: SearchedRow>(
    row: &R,
    column: c_int,
    [open, close]: [Option<&[u8]>; 2],
    bytes_max: usize,
    pace: &mut Pace<'_>,
) -> Result<Option<Vec<u8>>, Code> {
    let text = match row.text(column) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(None),
        Err(OUT_OF_RANGE) => return Ok(Some(Vec::new())),
        Err(code) => return Err(code),
    };
    let hits = Merged::new(row, column, pace)?;
    let mut marker = Marker {
        text,
        open,
        close,
        hits,
        pace,
        range: (0, -1),
        position: 0,
        copied: 0,
        is_open: false,
        out: Vec::new(),
        bytes_max,
    };
    row.tokenize(column, text, &mut marker)?;
    marker.finish(Ok(())).map(Some)
}

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
    fn score(
        &mut self,
        column: c_int,
        column_size: i64,
        from: i64,
        pace: &mut Pace<'_>,
    ) -> Result<(i64, i64), Code> {
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
    let mut marker = Marker {
        text,
        open: Some(open),
        close: Some(close),
        hits,
        pace,
        range,
        position: 0,
        copied: 0,
        is_open: false,
        out: Vec::new(),
        bytes_max,
    };
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
