//! Generated clients and their record of what happened.

mod generator;
mod history;

pub use generator::{Client, Next};
pub use history::{Ask, Call, End, Final, Freshness, History, Instant, Seen};
