//! The replication protocol as a pure step function: leader, follower and candidate; streams, HW, ISR, promises, elections, read indexes.
//!
//! Inputs go in, effects come out as data, in the order in which they must be performed. There is no clock, random source, disk, socket or thread
//! here: time is an argument, jitter comes from a seed, and the log is known only by its outline ([`LogShape`](highwater_wire::LogShape)).
//!
//! Durability is kept apart as follows. [`Effect::Persist`] is performed, durably, before any later effect of the same step. Appends become durable
//! some time later, which [`Input::Flushed`] tells; what may leave only after that (acknowledgements, the leader's own part in HW) is owed
//! inside the replica until then.
//!
//! | Procedure | File |
//! |---|---|
//! | entering a later epoch, resigning | `raise` |
//! | promising to a coordinator | `promise` |
//! | hearing who leads; taking up an appointment | `appoint` |
//! | beginning to lead | `lead` |
//! | standing for election, voting | `stand`, `vote` |
//! | opening a stream, and its answers at the follower | `stream` |
//! | where two logs part | `reconcile` |
//! | copying entries | `follow` (follower), `ship` (leader) |
//! | acknowledging | `acknowledge` |
//! | HW | `high_watermark` |
//! | changing the ISR | `isr` |
//! | linearizable reads | `read_index` (leader), `ask_index` (follower) |
//! | being refused | `refuse` |
//! | what no honest peer sends | `judge` |
//! | telling an older copy of a voter's folder | `incarnations` |
//! | what is due when | `timers` |
//! | what must hold after every step | `check` |
//!
//! The log's start does not move yet, nothing is ever lost on purpose, and the voters of the self-electing partition are fixed.

#![forbid(unsafe_code)]

mod acknowledge;
mod appoint;
mod ask_index;
#[cfg(test)]
mod bench;
mod check;
mod effect;
mod follow;
mod high_watermark;
mod incarnations;
mod input;
mod isr;
mod judge;
mod lead;
mod promise;
mod query;
mod raise;
mod read_index;
mod reconcile;
mod refuse;
mod ship;
mod stand;
mod state;
mod step;
mod stream;
mod timers;
mod vote;

pub use effect::{Effect, ProposeError, ReadError, Role};
pub use input::{Input, Mode, Start, Timeout, Timing};
pub use query::PeerView;
pub use state::Replica;
