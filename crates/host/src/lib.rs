//! All decisions of one node, pure: its replica of the metadata, the coordinator while it leads that, its database partitions, its registration, and
//! who gets which message. `node` performs what comes out on real disks, sockets and threads; `sim` performs the same on simulated ones.

mod api;

pub use api::{Effect, Folders, HostStart, Input, NodeState};
