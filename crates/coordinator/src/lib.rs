//! Who leads: the metadata state machine and the rules by which leaders are appointed. Pure and deterministic.
//!
//! - [`Metadata`] is what the metadata partition's entries mean: nodes with their registrations, and a record for every other partition. Each
//!   [`Command`] is compare-and-set and either applies or is void, alike on every node.
//! - [`choose()`] says who may lead after a ballot.
//! - [`Coordinator`] is the volatile driver beside the metadata's leader: sessions, ballots, registrations, changes of in-sync sets,
//!   confirmations. It says only what is committed, so that a deposed one can do no harm: its commands are void or never committed, and what
//!   it says is fenced by the epochs in it.
//!
//! One procedure, one file, with the rule it follows at its top.

#![forbid(unsafe_code)]

mod announce;
mod ballot;
mod change_set;
mod choose;
mod command;
mod confirm;
mod create;
mod driver;
mod judge;
mod metadata;
mod record;
mod register;
mod rule;
mod sessions;

pub use choose::{Choice, Promised, choose};
pub use command::{Applied, Command, CommandError, Void};
pub use driver::{Action, Coordinator, CoordinatorStart, Event};
pub use metadata::Metadata;
pub use record::{NodeRecord, PartitionRecord};
pub use rule::{RuleError, check_name, check_rule};

#[cfg(test)]
mod fuzz_tests;
