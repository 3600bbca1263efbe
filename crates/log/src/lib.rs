//! The log: segments, epoch table, cuts, recovery and flushes, over an [`Io`] trait. It knows no replication rule beyond "cut here".

mod io;
mod store;

pub use io::{Io, IoFile};
pub use store::{FlushDone, LogError, LogStore};
