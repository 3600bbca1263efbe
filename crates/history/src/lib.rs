//! Histories of runs against real processes, and the checker that judges them.
//!
//! This crate knows none of the product's: what a cluster did is judged by what its clients saw and what its replicas hold in the end, and by nothing that the
//! product says of itself. It reads no clock and opens no file.
//!
//! # The format
//!
//! JSON objects, one on each line, told apart by `record`. The first is `run`, the last `end`. All times (`at`, `sent`, `begin`, `in_force`, `end`) are nanoseconds of one
//! monotonic clock, from the start of the run.
//!
//! | `record` | |
//! |---|---|
//! | `run` | `version` (1), `command`, `nodes`, `registers` |
//! | `invoke` | an operation begins: `op` (unique, growing), `at`, `client`, `node` asked (null: the client chose), `what`, idempotency `key` or null |
//! | `return` | it ends: `op`, `at`, `sent` (when the answered attempt left, if there were several), the `node` that answered, if the client chose, `outcome`: `done` with `position` and `answer`, `failed` with `code`, or `unknown` with `code`. What never returns is unknown |
//! | `fault` | `kind`, `victim`, whether that `led` the database and `led_metadata`, `what` was done, `begin`, when it was `in_force`, `end` or null. Anywhere in the file |
//! | `rows` | part of a reading: `of`, and `rows` as lists of rowid, writer, number, value |
//! | `reading` | the end of a reading: `of`, `at`, the tally's `count` and `chain`, `registers`, SQLite's word on the file's `integrity` or null |
//! | `end` | `at` |
//!
//! A `what` is told by `do`: `row` (insert row `number` of `writer` with `value`, and add it to the tally in the same transaction; `ack` is `committed` or `leader`),
//! `set` and `swap` (of a `register`, to a `value` that nothing else writes, if it holds `expected`), `get` (a linearizable read of a `register`), `look` (a read of the
//! tally and the newest rows, with its `freshness`, and the `least` position asked for). An `answer` is one of `{"rowid": N}`, `{"changed": N}`,
//! `{"value": N}` and `{"seen": {count, chain, rowid, tail, tail_sum}}`; see [`Seen`]. A position is `{"epoch": N, "offset": N}`.
//!
//! ```text
//! {"record":"invoke","op":7,"at":81633001,"client":2,"node":1,"what":{"do":"swap","register":0,"expected":3,"value":9},"key":null}
//! {"record":"return","op":7,"at":84100730,"outcome":"done","position":{"epoch":1,"offset":16},"answer":{"changed":1}}
//! ```
//!
//! # What is judged
//!
//! [`Findings::of`] checks the [laws](LAWS); [`Figures::of`] measures. Both are of bounded size, and can be added up over runs.

#![forbid(unsafe_code)]

mod figures;
mod history;
mod laws;
mod linear;
mod record;
mod spread;
#[cfg(test)]
mod testing;

pub use figures::{Age, Felt, Figures, RunFigures};
pub use history::{Acknowledged, Fate, Held, History, Look, Moment, Outcomes, Row};
pub use laws::{Findings, LAWS, Violations};
pub use linear::{Did, Op, Verdict, check as check_register};
pub use record::*;
pub use spread::Spread;
