//! SQL functions in place of SQLite's own where those take more than linear time: the same answers, in linear time or with a look at the clock now and then.
//!
//! They work on bytes, as SQLite's do. That their answers are SQLite's is proved by `tests/functions_equal.rs`; `ffi/functions.rs` installs them.

mod bm25;
mod excerpt;
mod like;
mod pretty;
mod snippet;
mod strings;

pub(crate) use bm25::Bm25;
pub(crate) use excerpt::{Code, Hit, SearchedRow, TokenSink, highlight};
pub(crate) use like::{Wildcards, character_count, first_character, like};
pub(crate) use pretty::indentation;
pub(crate) use snippet::snippet;
pub(crate) use strings::{Sides, instr_blob, instr_text, replace, trim, unhex};

/// Why a function has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// The time is over.
    Interrupted,
    /// The result would be longer than a value may be.
    TooLarge,
}

/// How many steps lie between two looks at the clock: some tens of microseconds.
const STEPS: u32 = 4096;

/// Looks at the clock every so many steps.
pub(crate) struct Pace<'a> {
    left: u32,
    go_on: &'a dyn Fn() -> bool,
}

impl<'a> Pace<'a> {
    pub(crate) fn new(go_on: &'a dyn Fn() -> bool) -> Pace<'a> {
        Pace { left: STEPS, go_on }
    }

    /// One step, of so much work as a few comparisons.
    #[inline]
    fn step(&mut self) -> Result<(), Stopped> {
        self.left -= 1;
        if self.left > 0 {
            return Ok(());
        }
        self.left = STEPS;
        if (self.go_on)() { Ok(()) } else { Err(Stopped::Interrupted) }
    }
}
