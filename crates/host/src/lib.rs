//! All decisions of one node, pure: its replica of the metadata, the coordinator while it leads that, its database partitions, its registration, and
//! who gets which message. `node` performs what comes out on real disks, sockets and threads; `sim` performs the same on simulated ones.

#![forbid(unsafe_code)]

mod api;
mod coordinate;
mod databases;
mod form;
mod host;
mod judge;
mod metadata;
mod older_copy;
mod registration;
mod route;
mod status;

pub use api::{Effect, Folders, HostError, HostStart, Input, NodeState};
pub use host::Host;
pub use status::{HostStatus, NodeView, PartitionView, Registered};
