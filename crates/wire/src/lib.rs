//! The vocabulary every other crate shares: identities, positions, the messages between nodes, and the byte formats of batches and records.
//!
//! Nothing here decides anything. What may be sent when is `replica`'s and `coordinator`'s business; what lies on a disk is `log`'s.

#![forbid(unsafe_code)]

pub mod batch;
pub mod check;
pub mod codec;
pub mod epochs;
pub mod hard_state;
pub mod ids;
pub mod message;
pub mod record;
mod varint;

#[cfg(test)]
mod fuzz_tests;

pub use check::{Unfit, check};
pub use epochs::LogShape;
pub use hard_state::HardState;
pub use ids::{
    Epoch, Incarnation, LogId, Millis, NodeId, Offset, PartitionId, PeerId, Position, Rank, StreamId, Version,
};
pub use message::{Body, CommitRule, Dest, Envelope, Lead, Sender, Set};
