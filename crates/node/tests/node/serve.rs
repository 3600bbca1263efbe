//! What a node promises while it runs and when it comes back.

use std::time::Duration;

use highwater_node::{AckPolicy, Config, Outcome, Unavailable};
use highwater_sql::{Statement, Transaction, Value};
use tempfile::TempDir;

use crate::{PATIENCE, Started};

#[test]
fn what_was_acknowledged_is_there_after_a_restart() {
    let folder = TempDir::new().expect("a temporary folder");
    let incarnation = {
        let started = Started::on(&folder);
        started.sql("CREATE TABLE t (a)").expect("a table");
        for _ in 0..10 {
            started.sql("INSERT INTO t VALUES (1)").expect("a row");
        }
        started.node.incarnation()
    };
    let started = Started::on(&folder);
    assert_eq!(started.count("t"), Value::Integer(10));
    assert_eq!(started.node.incarnation().starts, incarnation.starts + 1);
    assert_ne!(started.node.incarnation().random, incarnation.random);
}

#[test]
fn positions_are_waited_for_and_truncated_ones_are_told() {
    let folder = TempDir::new().expect("a temporary folder");
    let started = Started::on(&folder);
    started.sql("CREATE TABLE t (a)").expect("a table");
    let db = started.main();
    let wait = |position, wait| started.runtime.block_on(db.at_least(position, wait));
    let read = started.runtime.block_on(db.read_index(PATIENCE)).expect("an index");
    let Outcome::Done(now) = read else { panic!("a leader answers its own read: {read:?}") };
    assert!(matches!(wait(now, PATIENCE), Ok(Outcome::Done(_))));
    let later = highwater_wire::Position { offset: now.offset + 1, ..now };
    assert!(matches!(wait(later, Duration::from_millis(1)), Err(Unavailable::TimedOut { .. })));
    let other = highwater_wire::Position { epoch: now.epoch.and_then(|epoch| epoch.next()), ..now };
    assert!(matches!(wait(other, PATIENCE), Ok(Outcome::Truncated { .. })));
}

#[test]
fn running_ahead_is_bounded() {
    let folder = TempDir::new().expect("a temporary folder");
    let started = Started::with(Config { ahead_bytes_max: 0, ..Config::single(folder.path().join("data")) });
    let db = started.main();
    assert!(matches!(db.admit(), Err(Unavailable::Overloaded(_))), "nothing fits into nothing");
    let roomy = TempDir::new().expect("a temporary folder");
    let started = Started::on(&roomy);
    started.sql("CREATE TABLE t (a)").expect("a table");
    let db = started.main();
    let sql = "INSERT INTO t VALUES (zeroblob(1000000))".to_string();
    let transaction = Transaction { statements: vec![Statement { sql, ..Statement::default() }], key: None };
    let answer = db.sql().expect("open").transaction(&transaction, std::time::Instant::now() + PATIENCE);
    let hold = answer.hold.expect("a write is held");
    assert!(hold.wrote);
    let outcome = started.runtime.block_on(db.hold(hold, AckPolicy::Committed, PATIENCE));
    assert!(matches!(outcome, Ok(Outcome::Done(_))), "{outcome:?}");
    assert_eq!(db.bytes_ahead(), 0, "what is committed is not ahead");
    assert!(db.commit_latency().quantile_ms(0.5).is_some());
}

#[test]
fn an_unknown_database_is_told_with_those_there_are() {
    let folder = TempDir::new().expect("a temporary folder");
    let started = Started::on(&folder);
    started.main();
    let error = started.node.database("shop").err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("shop") && error.contains("main"), "{error}");
}

#[test]
fn a_stopped_node_says_so() {
    let folder = TempDir::new().expect("a temporary folder");
    let started = Started::on(&folder);
    let db = started.main();
    started.node.stop();
    assert!(matches!(started.runtime.block_on(db.read_index(PATIENCE)), Err(Unavailable::ShuttingDown)));
    assert!(db.sql().is_err());
    assert!(started.node.failed().is_none(), "it was told to");
}
