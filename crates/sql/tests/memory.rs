//! What SQLite takes for a request is bounded, taken from a room that others share, and given back; who is refused does no harm.

mod common;

use std::sync::{Arc, Mutex};

use common::{Bench, of, soon, statement, transaction};
use highwater_sql::{ResultRoom, SqlError, bounded};

/// A room that remembers the least that was left in it.
#[derive(Debug)]
struct Room(Mutex<(usize, usize)>);

impl Room {
    fn of(bytes: usize) -> Arc<Room> {
        Arc::new(Room(Mutex::new((bytes, bytes))))
    }

    fn left(&self) -> usize {
        self.0.lock().unwrap().0
    }

    fn least(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

impl ResultRoom for Room {
    fn take(&self, bytes: usize) -> Result<(), String> {
        let mut figures = self.0.lock().unwrap();
        figures.0 = figures.0.checked_sub(bytes).ok_or("the room is full")?;
        figures.1 = figures.1.min(figures.0);
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.0.lock().unwrap().0 += bytes;
    }
}

const ROOM: usize = 1 << 30;

/// So many values of sixteen megabytes in one row, of which a byte is asked for.
fn wide(values: usize) -> String {
    format!("SELECT length(max({}))", vec!["hex(zeroblob(8000000))"; values].join(","))
}

fn run(bench: &Bench, room: &Arc<Room>, sql: &str) -> Result<(), SqlError> {
    bounded(room.clone(), || of(bench.database.transaction(&transaction(&[sql]), soon())).map(drop))
}

/// Of an answer that may be an error.
fn code(result: Result<(), SqlError>) -> String {
    result.expect_err("it is refused").code
}

#[test]
fn a_request_takes_so_much_at_most_and_gives_it_back() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t (v)", "INSERT INTO t VALUES (1)"]).unwrap();
    bench.publish();
    let room = Room::of(ROOM);
    run(&bench, &room, "SELECT v FROM t").expect("something small");
    assert_eq!(room.least(), ROOM, "what every request has is enough");
    run(&bench, &room, &wide(3)).expect("some 70 MB");
    assert!((48 << 20..=128 << 20).contains(&(ROOM - room.least())), "{} were taken", ROOM - room.least());
    assert_eq!(room.left(), ROOM, "and given back");
    assert_eq!(code(run(&bench, &room, &wide(20))), "STATEMENT_TOO_LARGE");
    assert!(ROOM - room.least() <= 128 << 20);
    assert_eq!(room.left(), ROOM);
    let small = Room::of(32 << 20);
    assert_eq!(code(run(&bench, &small, &wide(3))), "OVERLOADED");
    assert_eq!(small.left(), 32 << 20);
    run(&bench, &small, "SELECT v FROM t").expect("the connection goes on");
}

#[test]
fn a_write_that_is_refused_memory_has_no_effect_and_the_next_one_goes_on() {
    let bench = Bench::leader();
    bench.run(&["CREATE TABLE t (v)"]).unwrap();
    let room = Room::of(ROOM);
    let many = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 500) INSERT INTO t SELECT i FROM n WHERE i < 499 OR ({}) > 0",
        wide(20)
    );
    assert_eq!(code(run(&bench, &room, &many)), "STATEMENT_TOO_LARGE");
    run(&bench, &room, "INSERT INTO t VALUES (7)").expect("the writer goes on");
    run(&bench, &room, "INSERT INTO t VALUES (zeroblob(16000000))").expect("the largest value can be written");
    bench.publish();
    assert_eq!(bench.rows("SELECT count(*) FROM t").len(), 1);
    assert_eq!(common::integer(&bench.run(&["SELECT count(*) FROM t"]).unwrap()[0]), 2);
    assert_eq!(room.left(), ROOM);
    bench.assert_replicates();
}

#[test]
fn the_names_of_columns_take_room() {
    let bench = Bench::leader();
    bench.publish();
    let room = Room::of(ROOM);
    let long = format!("SELECT 1 AS \"{}\"", "a".repeat(1_000_000));
    let (held, _) = bounded(room.clone(), || {
        let allowance = highwater_sql::Allowance { room: Some(room.clone()), ..soon().into() };
        let answer = of(bench
            .database
            .transaction(&highwater_sql::Transaction { statements: vec![statement(&long)], key: None }, allowance));
        (answer.expect("there is room"), ())
    });
    assert!(ROOM - room.left() > 7_000_000, "as often as they are written");
    drop(held);
    assert_eq!(room.left(), ROOM);
}
