//! What clients speak: plain HTTP, Hrana, status and metrics.
//!
//! Every request takes the same way: who asks ([`Tokens`]), how much ([`Limits`]), what must be waited for before SQL reads, SQL on a thread that may
//! block, and what must be waited for before the answer leaves. The last is where nothing uncommitted gets out.

#![forbid(unsafe_code)]

mod access;
mod app;
mod body;
mod failure;
mod forward;
mod hrana;
mod json;
mod metrics;
mod net;
mod options;
mod plain;
mod routes;
mod server;
mod settle;
mod status;
mod tls;
mod transfer;
mod verify;

pub use access::{ListenError, Tokens, may_listen};
pub use app::Limits;
pub use routes::not_ready;
pub use server::{BindError, OpenServer, Server, ServerConfig};
pub use tls::{TlsError, TlsIdentity};

#[cfg(test)]
mod fuzz_tests;
