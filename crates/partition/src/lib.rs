//! One log, one replica and one state machine joined. Pure: the log is reached through [`highwater_log::LogStore`], the state machine by commands that the
//! caller hands on, clients by tickets.

mod effect;
mod input;
mod machine;

pub use effect::{Effect, Outcome, PeerStatus, Status};
pub use input::{AckPolicy, Input, Proposal, Ticket};
pub use machine::{Command, Reign, StateMachine};
