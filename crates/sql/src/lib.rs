//! The state machine that is SQLite: it executes requests ahead of the log on the leader, captures what they did as row operations, applies those
//! elsewhere, shows readers nothing above HW, and rewinds. It knows no network and no peers.

mod api;
mod value;

pub use api::{
    Answer, BatchStep, Column, Condition, Description, Hold, Key, Proposer, ResultSet, SqlError, Statement, Transaction,
};
pub use value::Value;
