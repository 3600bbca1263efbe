//! How long a statement runs past its deadline.

#![allow(clippy::print_stdout, reason = "it tells how long things took")]

use std::time::{Duration, Instant};

use highwater_sql::Session;

use super::statement;

/// How long each statement may run, and how much longer it does at most.
pub const DEADLINE: Duration = Duration::from_secs(1);
pub const BEYOND: Duration = Duration::from_secs(1);

/// The time that this thread has run, which others that keep the machine busy do not lengthen.
fn running() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(told.split(' ').next().unwrap().parse().unwrap())
}

/// Runs a statement and tells how long it ran.
pub fn timed(session: &Session, sql: &str) -> Duration {
    let begun = running();
    session.allow(Instant::now() + DEADLINE);
    let outcome = session.execute(&statement(sql)).result;
    let took = running() - begun;
    if took > DEADLINE / 2 {
        let shown: String = sql.chars().take(90).collect();
        println!("{took:?} {shown}: {:?}", outcome.map(|_| "ended").map_err(|failed| failed.code));
    }
    took
}
