//! The log: segments, epoch table, cuts, recovery and flushes, over an [`Io`] trait. It knows no replication rule beyond "cut here".
//!
//! Where to look: [`Log`] and its procedures, one to a file (`append`, `cut`, `read`, `flush`, `open`); what lies on the disk, byte by byte, in
//! `docs/log-format.md` and in `frame`, `segment` and [`control`]; what recovery decides in `table`, and what it looks at first in `survey`.

#![forbid(unsafe_code)]

mod append;
mod cache;
pub mod control;
mod cut;
pub mod dump;
mod error;
mod file;
mod flush;
mod frame;
mod io;
mod log;
pub mod mem;
mod open;
mod read;
mod replace;
mod segment;
mod store;
mod survey;
mod table;

pub use error::OpenError;
pub use file::FileIo;
pub use flush::FlushJob;
pub use io::{Io, IoFile};
pub use log::{Log, Options};
pub use open::Recovered;
pub use replace::{ReplaceError, durable_replace, is_full};
pub use store::{FlushDone, LogError, LogStore};

#[cfg(test)]
mod fuzz_tests;
