//! The Rust client of a Highwater cluster: blocking, one request at a time, without a runtime.
//!
//! A [`Client`] is given one or several nodes, learns the others from them, and finds the database's leader by asking and by trying. Every call ends in one of
//! three ways, and says which:
//!
//! | Outcome | Here | The transaction |
//! |---|---|---|
//! | done | `Ok(`[`Answer`]`)` | is acknowledged as it was asked to be, at [`Answer::position`] |
//! | failed | [`Error::Failed`] | has no effect and never will |
//! | unknown | [`Error::Unknown`] | may have an effect, now or later |
//!
//! (A fourth, [`Error::Unreadable`], is *done* with rows that JSON's numbers cannot carry.)
//!
//! Until a deadline the client repeats what is safe to repeat: what failed for a reason that passes (no leader yet, overload, a refused connection), and,
//! because [`Client::execute`] sends an idempotency key of its own, also what is unknown: the key lets the cluster execute the transaction once however often it
//! is asked to. What stays unknown at the deadline can be asked about later, with the key that the error carries and [`Client::execute_with_key`].
//!
//! ```no_run
//! use highwater_client::{Client, Freshness, Transaction};
//!
//! let mut client = Client::new(["http://127.0.0.1:8080", "http://127.0.0.1:8081"])?;
//! client.execute("main", &Transaction::of("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v TEXT)", []))?;
//! let written = client.execute("main", &Transaction::of("INSERT INTO t (v) VALUES (?)", ["a".into()]))?;
//! println!("committed at {}", written.position);
//! let read = client.query("main", &Transaction::of("SELECT v FROM t", []), Freshness::Session)?;
//! println!("{:?}", read.results[0].rows);
//! # Ok::<(), highwater_client::Error>(())
//! ```

#![forbid(unsafe_code)]

mod answer;
mod attempt;
mod client;
mod config;
mod error;
mod http;
mod nodes;
mod pause;
mod stream;
mod tls;
mod transaction;

pub use answer::{Answer, ResultSet};
pub use client::Client;
pub use config::Config;
pub use error::{Error, Failed};
pub use highwater_wire::Position;
pub use nodes::{fetch, fetch_from};
pub use tls::{explain, roots};
pub use transaction::{Freshness, Statement, Transaction};

#[cfg(test)]
mod fuzz_tests;
