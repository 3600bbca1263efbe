//! The built binary from outside: processes, sockets and files, as users and their programs meet them.
//!
//! Every test starts its own node or cluster on ports of its own in temporary folders, and they end with the test. Tests on real data read the folder that
//! `HIGHWATER_TEST_DATA` names; without it they say that they were skipped, and under `CI=true` they fail.

mod authority;
mod bad_input;
mod chinook;
mod cluster;
mod commands;
mod damage;
mod data;
mod followers;
mod golden;
mod hrana;
mod http;
mod hygiene;
mod libsql;
mod node;
mod over_tls;
mod replay;
mod slt;
mod sqllogictest;
mod visibility;
