//! What `highlight` of full-text search gives: the answers of SQLite's FTS5, in linear time; and what `snippet` takes from it.
//!
//! Offsets of hits are in tokens; a row's hits come in the order of columns and offsets. Texts end at a NUL byte wherever SQLite's do.

use std::ffi::c_int;

use super::like::up_to_nul;
use super::{Pace, Stopped};

/// A result code of SQLite's.
pub(crate) type Code = c_int;

/// There is no such column.
const OUT_OF_RANGE: Code = rusqlite::ffi::SQLITE_RANGE;

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
pub(super) struct Merged<'a, R> {
    row: &'a R,
    column: c_int,
    at: usize,
    count: usize,
    /// The first and the last token of the present one; -1 after the last.
    pub(super) first: i64,
    last: i64,
}

impl<'a, R: SearchedRow> Merged<'a, R> {
    pub(super) fn new(row: &'a R, column: c_int, pace: &mut Pace<'_>) -> Result<Merged<'a, R>, Code> {
        let mut merged = Merged { row, column, at: 0, count: row.hits()?, first: -1, last: -1 };
        merged.next(pace)?;
        Ok(merged)
    }

    pub(super) fn next(&mut self, pace: &mut Pace<'_>) -> Result<(), Code> {
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
pub(super) struct Marker<'a, 'p, R> {
    text: &'a [u8],
    open: Option<&'a [u8]>,
    close: Option<&'a [u8]>,
    pub(super) hits: Merged<'a, R>,
    pub(super) pace: &'a mut Pace<'p>,
    /// The tokens to be copied; the last is -1 for all.
    range: (i64, i64),
    position: i64,
    /// Copied up to here, in bytes.
    copied: usize,
    is_open: bool,
    out: Vec<u8>,
    bytes_max: usize,
}

impl<'a, 'p, R: SearchedRow> Marker<'a, 'p, R> {
    /// One that has copied nothing yet.
    pub(super) fn new(
        text: &'a [u8],
        [open, close]: [Option<&'a [u8]>; 2],
        range: (i64, i64),
        hits: Merged<'a, R>,
        bytes_max: usize,
        pace: &'a mut Pace<'p>,
    ) -> Marker<'a, 'p, R> {
        Marker {
            text,
            open,
            close,
            hits,
            pace,
            range,
            position: 0,
            copied: 0,
            is_open: false,
            out: Vec::new(),
            bytes_max,
        }
    }

    pub(super) fn append(&mut self, bytes: Option<&[u8]>) -> Result<(), Code> {
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
    pub(super) fn finish(mut self, rest: Result<(), &[u8]>) -> Result<Vec<u8>, Code> {
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
    let mut marker = Marker::new(text, [open, close], (0, -1), hits, bytes_max, pace);
    row.tokenize(column, text, &mut marker)?;
    marker.finish(Ok(())).map(Some)
}
