//! Many at once: writers on the shared connection and on streams, readers, a driver that publishes and now and then rewinds. What was acknowledged is there
//! in the end, what was lost is not, no reader ever sees less than another saw before, and a follower holds the same.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Bench, integer, of, quick, reign, soon, statement, transaction};
use highwater_partition::StateMachine;
use highwater_sql::{Hold, Options, Session, SqlError};

/// What the partition would know.
#[derive(Default)]
struct Known {
    hw: u64,
    reign: u64,
    /// Where HW was when each earlier reign ended.
    ended: BTreeMap<u64, u64>,
}

impl Known {
    /// Whether what a hold waits for is committed; `None` as long as that is not decided.
    fn decided(&self, hold: Hold) -> Option<bool> {
        match self.ended.get(&hold.reign.number) {
            Some(hw) => Some(hold.until <= *hw),
            None if hold.until <= self.hw => Some(true),
            None => None,
        }
    }
}

#[test]
fn what_is_acknowledged_stays_and_what_is_lost_is_gone() {
    let options =
        Options { wal_bytes_checkpoint: 300_000, publish_wait: std::time::Duration::from_secs(10), ..quick() };
    let bench = Bench::leader_with(options);
    bench
        .run(&[
            "CREATE TABLE t(id INTEGER PRIMARY KEY, filler)",
            "CREATE TABLE counter(n)",
            "INSERT INTO counter VALUES(0)",
        ])
        .unwrap();
    let known = Mutex::new(Known { hw: bench.log.end(), reign: 1, ..Known::default() });
    let (acknowledged, lost) = (Mutex::new(BTreeSet::new()), Mutex::new(BTreeSet::new()));
    let writers_done = AtomicBool::new(false);

    let settle = |id: i64, hold: Hold| loop {
        if let Some(committed) = known.lock().unwrap().decided(hold) {
            (if committed { &acknowledged } else { &lost }).lock().unwrap().insert(id);
            return;
        }
        std::thread::yield_now();
    };
    let once = |session: &Session, id: i64, on_stream: bool| -> Result<Hold, SqlError> {
        let insert = format!("INSERT INTO t VALUES({id}, randomblob(500))");
        let count = "UPDATE counter SET n = n + 1";
        if !on_stream {
            let answer = bench.database.transaction(&transaction(&[&insert, count]), soon());
            return answer.result.map(|_| answer.hold.expect("a write is held"));
        }
        of(session.execute(&statement("BEGIN IMMEDIATE")))?;
        for sql in [insert.as_str(), count] {
            if let Err(failed) = of(session.execute(&statement(sql))) {
                of(session.execute(&statement("ROLLBACK")))?;
                return Err(failed);
            }
        }
        let answer = session.execute(&statement("COMMIT"));
        answer.result.map(|_| answer.hold.expect("a write is held"))
    };
    let write = |writer: i64, on_stream: bool| {
        let session = bench.database.session();
        for number in 0..80 {
            let id = writer * 1_000 + number;
            loop {
                match once(&session, id, on_stream) {
                    Ok(hold) => break settle(id, hold),
                    // It had no effect, so it may be tried again.
                    Err(failed) => {
                        let passing = ["NOT_LEADER", "NOT_READY", "STREAM_EXPIRED"];
                        assert!(passing.contains(&failed.code.as_str()), "{failed:?}");
                        std::thread::yield_now();
                    }
                }
            }
        }
    };
    let read = || {
        let mut before = 0;
        while !writers_done.load(Ordering::Acquire) {
            let both = "SELECT (SELECT count(*) FROM t) - (SELECT n FROM counter)";
            let answer = bench.database.transaction(&transaction(&[both]), soon());
            // Right after a rewind a reader may be answered from what is executed, and held: that is no answer yet.
            if let (Ok(result), None) = (answer.result, answer.hold) {
                assert_eq!(integer(&result[0]), 0, "a reader saw half a transaction");
                assert!(answer.seen.1 >= before, "{} was seen after {before}", answer.seen.1);
                before = answer.seen.1;
            }
        }
    };
    let drive = || {
        let mut round: u64 = 0;
        while !writers_done.load(Ordering::Acquire) {
            round += 1;
            let end = bench.log.end();
            {
                let mut known = known.lock().unwrap();
                known.hw = end;
                bench.database.publish(end);
            }
            if round.is_multiple_of(40) {
                let at = bench.database.rewind(end).unwrap();
                assert_eq!(at, end);
                bench.log.cut(end);
                let mut known = known.lock().unwrap();
                let ended = known.reign;
                known.ended.insert(ended, end);
                known.reign += 1;
                bench.database.lead(reign(1, known.reign), end).unwrap();
                bench.database.publish(end);
            }
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let (write, read, drive) = (&write, &read, &drive);
        let writers: Vec<_> = (1..=4).map(|writer| scope.spawn(move || write(writer, writer % 2 == 0))).collect();
        scope.spawn(read);
        scope.spawn(read);
        scope.spawn(drive);
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        writers_done.store(true, Ordering::Release);
        assert!(ended.iter().all(Result::is_ok));
    });

    bench.publish();
    let there: BTreeSet<i64> = bench
        .rows("SELECT id FROM t")
        .iter()
        .map(|row| match row[0] {
            highwater_sql::Value::Integer(id) => id,
            ref other => panic!("{other:?}"),
        })
        .collect();
    let (acknowledged, lost) = (acknowledged.into_inner().unwrap(), lost.into_inner().unwrap());
    assert_eq!(acknowledged.len() + lost.len(), 320);
    assert!(acknowledged.len() > 50, "{} were acknowledged", acknowledged.len());
    assert_eq!(there, acknowledged, "exactly what was acknowledged is there");
    assert!(lost.is_disjoint(&there));
    bench.assert_replicates();
    bench.assert_sound();
}
