//! A statement that neither ends nor can be interrupted is given up: a rewind goes on without it, and so does a close.

mod common;

use std::time::{Duration, Instant};

use common::{Bench, of, reign, soon, statement, transaction};
use highwater_partition::StateMachine;
use highwater_sql::{Options, Value};

/// The older full-text search goes through all hits for each letter, without a look at anything: this runs for minutes.
const STUCK: &str = "SELECT length(matchinfo(f, replace(hex(zeroblob(40000)), '00', 's'))) FROM f WHERE f MATCH 'a'";

fn stuck() -> Bench {
    let bench = Bench::leader_with(Options { statement_max: Duration::from_millis(200), ..common::quick() });
    bench
        .run(&[
            "CREATE VIRTUAL TABLE f USING fts4(x)",
            "INSERT INTO f VALUES(replace(hex(zeroblob(2000000)), '00', 'a '))",
            "CREATE TABLE t(a)",
        ])
        .unwrap();
    bench
}

#[test]
fn a_rewind_goes_on_without_a_reader_that_does_not_end() {
    let bench = stuck();
    let to = bench.log.end();
    of(bench.database.transaction(&transaction(&["INSERT INTO t VALUES(1)"]), soon())).unwrap();
    for from_a_stream in [false, true] {
        let database = bench.database.clone();
        // It is left running when the test ends.
        std::thread::spawn(move || {
            let at_once = Instant::now() + Duration::from_millis(100);
            if from_a_stream {
                let session = database.session();
                session.allow(at_once);
                drop(session.execute(&statement(STUCK)));
            } else {
                drop(database.transaction(&transaction(&[STUCK]), at_once));
            }
        });
    }
    // sleep: that both run by then is what the test is about; nothing tells it.
    std::thread::sleep(Duration::from_millis(1500));
    let begun = Instant::now();
    assert_eq!(bench.database.rewind(to).unwrap(), to);
    assert!(begun.elapsed() < Duration::from_secs(15));
    assert_eq!(bench.database.given_up(), 2);
    // The database serves and takes writes as if nothing had been.
    bench.log.cut(to);
    bench.database.lead(reign(2, 2), to).unwrap();
    bench.database.publish(to);
    assert_eq!(bench.rows("SELECT count(*) FROM t"), [[Value::Integer(0)]]);
    for value in 0..100 {
        bench.run(&[&format!("INSERT INTO t VALUES({value})")]).unwrap();
    }
    assert_eq!(bench.rows("SELECT count(*), sum(a) FROM t"), [[Value::Integer(100), Value::Integer(4950)]]);
    bench.assert_sound();
    let begun = Instant::now();
    bench.database.close().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "those given up are not waited for again");
    bench.assert_sound();
}

#[test]
fn a_close_goes_on_without_a_reader_that_does_not_end() {
    let bench = stuck();
    let database = bench.database.clone();
    std::thread::spawn(move || drop(database.transaction(&transaction(&[STUCK]), soon())));
    // sleep: as above.
    std::thread::sleep(Duration::from_millis(1500));
    let begun = Instant::now();
    bench.database.close().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(15));
    assert_eq!(bench.database.given_up(), 1);
    // It is opened again in this process, where the one given up still runs.
    let again = highwater_sql::Database::open(bench.dir.path(), common::quick(), bench.log.clone()).unwrap();
    let (from, to) = (again.applied(), bench.log.end());
    again.apply(from, to, &bench.log.read(from, to), true).unwrap();
    again.publish(to);
    let rows = of(again.transaction(&transaction(&["SELECT count(*) FROM f"]), soon())).unwrap().remove(0).rows;
    assert_eq!(rows, [[Value::Integer(1)]]);
    bench.assert_sound();
}
