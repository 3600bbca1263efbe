//! One log, one replica and one state machine joined: the most dangerous code (acknowledging, publishing, rewinding) is here, so that the
//! simulator reaches it. Pure: the log is reached through [`highwater_log::LogStore`], the state machine by commands that the caller hands on,
//! clients by tickets.

#![forbid(unsafe_code)]

mod append;
mod driver;
mod effect;
mod hold;
mod input;
mod machine;
mod message;
mod partition;
mod propose;
mod read;
mod starved;

pub use effect::{Effect, Outcome, PeerStatus, Status};
pub use input::{AckPolicy, Input, Proposal, Ticket};
pub use machine::{Command, Reign, StateMachine};
pub use partition::{Kind, Partition};
