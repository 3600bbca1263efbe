//! SQLite in the deterministic simulator.
//!
//! Each simulated node's database is the product's own `highwater-sql`, driven one command at a time on the thread of the run. Its files, SQLite's among
//! them, lie on the simulator's disk in memory: a VFS gives them to SQLite, a `Folder` to the crate itself. A kill leaves what was written; a power loss
//! leaves any part of what was not synced.
//!
//! Not simulated: interactive streams, imports and backups; several threads in the machine; bits that change while a process runs (SQLite's pages have no
//! checksum of their own: damage is looked for at a start, at a checkpoint of the log, and by the content hash), and damage to the marker or the sums.
//! Reads are one statement after the other on one connection, so that no reader keeps a checkpoint from ending.
//!
//! What decides a run is the seed. SQLite's own generator is the process's and cannot be seeded for one thread: the salts of its write-ahead log differ
//! from run to run, and nothing depends on them but that they are equal or not. Its clock stands still. Time limits of the product's own are far away.

mod folder;
mod machine;
mod requests;
mod store;
mod vfs;

pub use folder::Mounted;
pub use store::Databases;

/// Gives the simulator its profile `sqlite`.
pub fn provide() {
    highwater_sim::machine::provide(&Databases);
}
