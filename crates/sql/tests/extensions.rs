//! What SQLite's extensions do does not run past its deadline by more than a second either, whatever it is given.

#![expect(clippy::print_stdout, reason = "it tells how long things took")]

mod common;

use std::time::{Duration, Instant};

use common::{Bench, statement};

const DEADLINE: Duration = Duration::from_secs(1);

fn running() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(told.split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn measure() {
    let bench = Bench::leader_with(highwater_sql::Options { statement_max: Duration::from_secs(100), ..common::quick() });
    let file = std::env::var("MEASURE").unwrap();
    for sql in std::fs::read_to_string(file).unwrap().lines() {
        if sql.is_empty() { continue; }
        let session = bench.database.session();
        let setup = sql.starts_with('!');
        let sql = sql.trim_start_matches('!');
        let (begun, wall) = (running(), Instant::now());
        session.allow(Instant::now() + if setup { Duration::from_secs(100) } else { DEADLINE });
        let outcome = session.execute(&statement(sql)).result;
        let took = running() - begun;
        bench.publish();
        let shown: String = sql.chars().take(110).collect();
        println!("{took:?} wall {:?} {shown}: {:?}", wall.elapsed(), outcome.map(|r| { let mut s = format!("ended {:?}", r.rows.first()); s.truncate(60); s }).map_err(|failed| failed.message.chars().take(100).collect::<String>()));
        if took > Duration::from_secs(2) { println!("   ^^^^ LATE"); }
    }
}
