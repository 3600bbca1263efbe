//! A node in this process behind its server, spoken to over real sockets.

mod access;
mod bad_input;
mod harness;
mod hrana;
mod observe;
mod plain;
mod streams;
mod transfer;
