//! What clients speak: plain HTTP, Hrana, status and metrics.
//!
//! Every request takes the same way: who asks ([`Tokens`]) and how much of everything it may use ([`Limits`]), before anything of its body is read; then what must be waited for before SQL reads, SQL on a thread that may
//! block, and what must be waited for before the answer leaves. The last is where nothing uncommitted gets out.

#![forbid(unsafe_code)]

mod access;
mod answer_body;
mod answers;
mod app;
mod backup;
mod body;
mod encode;
mod failure;
mod forward;
mod gate;
mod hrana;
mod import;
mod json;
mod leftover;
mod metrics;
mod net;
mod options;
mod origins;
mod party;
mod plain;
mod routes;
mod scratch;
mod server;
mod settle;
mod shares;
mod status;
mod tls;
mod verify;
mod work;

pub use access::{ListenError, Tokens, may_listen};
pub use app::Limits;
pub use routes::not_ready;
pub use server::{BindError, OpenServer, Server, ServerConfig};
pub use tls::{TlsError, TlsIdentity};

#[cfg(test)]
mod fuzz_tests;
