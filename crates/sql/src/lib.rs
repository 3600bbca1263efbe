//! The state machine that is SQLite: it executes requests ahead of the log on the leader, captures what they did as row operations, applies those
//! elsewhere, shows readers nothing above HW, and rewinds. It knows no network and no peers.

mod allowance;
mod api;
mod apply;
mod backup;
mod capture;
mod captured;
mod charge;
mod checkpoint;
mod classify;
mod client;
mod commit;
mod core;
mod database;
mod error;
mod ffi;
mod folder;
mod functions;
mod gate;
mod hash;
mod import;
mod keys;
mod machine;
mod memory;
mod mend;
mod names;
mod options;
mod plan;
mod pragma;
mod replicated;
mod rewind;
mod rowlog;
mod run;
mod session;
mod shape;
mod snapshots;
mod stream;
mod stream_alone;
mod stream_within;
mod sums;
mod temporary;
mod text;
mod token;
mod transaction;
mod unfinished;
mod value;
mod wal;
mod wal_sums;

pub use allowance::{Allowance, Cancel, ResultRoom};
pub use api::{
    Answer, BatchStep, Column, Condition, Description, Hold, Key, Proposer, ResultSet, SqlError, Statement, Transaction,
};
pub use charge::Charge;
pub use database::Database;
pub use error::{MachineError, OpenError};
pub use folder::Folder;
pub use memory::{bounded, return_freed_memory};
pub use options::Options;
pub use session::Session;
pub use temporary::{set_temporary_folder, set_temporary_space, temporary_space_used};
pub use value::Value;

#[cfg(test)]
mod fuzz_tests;
