//! The memory that requests take beside their results.

use std::sync::Arc;

use crate::allowance::ResultRoom;
use crate::ffi::memory;

/// Runs a request on this thread. What SQLite takes for it meanwhile, beyond 1 MiB, is taken from that room until the request has ended, and is at most 128 MiB: what needs more is refused with
/// `STATEMENT_TOO_LARGE`, and with `OVERLOADED` if the room is full.
///
/// # Panics
/// If the thread runs a request already.
pub fn bounded<T>(room: Arc<dyn ResultRoom>, run: impl FnOnce() -> T) -> T {
    let _bounded = memory::Bounded::begin(Some(room));
    run()
}

/// Has the process give large pieces of memory back to the system as soon as they are free. To be called at its start.
pub fn return_freed_memory() {
    memory::return_large_pieces();
}
