//! The only unsafe code of this crate: thin, owning wrappers around SQLite's C interface.
//!
//! What must hold, and is kept by these types alone: a statement is finalised before its connection is closed; hooks are given a pointer to a context
//! that the connection owns in a box and that outlives it; no connection is used by two threads at a time (it is `Send`, not `Sync`).

mod bounded;
mod conn;
mod functions;
mod hooks;
pub(crate) mod memory;
mod originals;
mod running;
mod search;
mod snapshot;
mod stmt;
mod temporary;
mod temporary_space;
mod tokenizers;
pub(crate) mod watchdog;

pub(crate) use conn::{
    BUSY_TIMEOUT_MS, Conn, Failure, Location, OpenMode, WrittenBack, compile_option_used, complete_statement,
};
pub(crate) use hooks::{AuthorizerEvent, Hooks, RowEvent, RowOp};
pub(crate) use snapshot::Snapshot;
pub(crate) use stmt::{Step, Stmt, ValueRef};
pub(crate) use temporary::set_temporary_directory;
pub(crate) use temporary_space::{TEMPORARY_FULL, set_temporary_bytes_max, temporary_bytes};
