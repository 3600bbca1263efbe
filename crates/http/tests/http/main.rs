//! A node in this process behind its server, spoken to over real sockets.

mod access;
mod answers;
mod bad_input;
mod browser;
mod harness;
mod hrana;
mod observe;
mod plain;
mod shares;
mod streams;
mod transfer;
