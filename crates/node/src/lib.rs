//! The process: disk, threads and timers around a host.
//!
//! One *core thread* owns the host and performs its effects in order. A thread for each partition flushes its log; a thread for each database carries out the
//! commands to its state machine. Everything reaches the core through one inbox, and clients' requests come back through tickets. Only what waits for
//! outcomes on behalf of clients is asynchronous; nothing else here knows tokio.

#![forbid(unsafe_code)]

mod adopt;
mod ahead;
mod config;
mod core_thread;
mod database;
mod error;
mod flush;
mod folder;
mod inbox;
mod machine;
mod measure;
mod node;
mod on_panic;
pub mod peers;
mod proposer;
mod replay;
mod secret;
pub mod tcp;
mod view;
mod waiting;

pub use adopt::{Adopted, adopt};
pub use config::Config;
pub use database::Database;
pub use error::{StartError, Unavailable};
pub use highwater_host::{HostStatus, NodeView as NodeRecordView, Registered};
pub use highwater_partition::{AckPolicy, Outcome, PeerStatus, Status};
pub use highwater_replica::{ProposeError, Role};
pub use measure::CommitLatency;
pub use node::{Node, Prepared};
pub use replay::{ReplayError, Replayed, replay};
pub use secret::{SECRET_BYTES_MAX, SECRET_BYTES_MIN, SECRETS_MAX, Secret, SecretError, Secrets};
pub use view::{NodeView, Rates};
