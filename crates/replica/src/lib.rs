//! The replication protocol as a pure step function: leader, follower and candidate; streams, HW, ISR, promises, elections, read indexes.
//!
//! Inputs go in, effects come out as data, in the order in which they must be performed. There is no clock, random source, disk, socket or thread
//! here: time is an argument, jitter comes from a seed, and the log is known only by its outline ([`LogShape`]).
//!
//! Durability is kept apart as follows. [`Effect::Persist`] is performed, durably, before any later effect of the same step. Appends become durable
//! some time later, which [`Input::Flushed`] tells; what may leave only after that (acknowledgements, the leader's own part in HW) is owed
//! inside the replica until then.

mod effect;
mod input;

pub use effect::{Effect, ProposeError, ReadError, Role};
pub use input::{Input, Mode, Start, Timeout, Timing};
