//! `highwater log replay`: a database out of a stopped node's log, and the case that it is for.

use std::path::Path;
use std::process::{Command, Output};

use highwater_log::{FileIo, Log, LogStore, Options, dump};
use highwater_wire::{Epoch, HardState};
use rusqlite::Connection as Sqlite;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::Connection;
use crate::node::{HIGHWATER, Node, pause};

fn replay(log: &Path, to: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(HIGHWATER);
    command.args(["log", "replay"]).arg(log).arg("--to").arg(to).args(more);
    command.output().expect("the binary can be started")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

fn rows(file: &Path) -> i64 {
    let sqlite = Sqlite::open(file).expect("it is an SQLite file");
    sqlite.query_row("SELECT count(*) FROM kept", [], |row| row.get(0)).expect("the table is there")
}

/// A node with a table of ten rows, each a transaction of its own.
fn written() -> Node {
    let node = Node::start();
    node.rows("CREATE TABLE kept (v)");
    for value in 0..10 {
        node.rows(&format!("INSERT INTO kept VALUES ({value})"));
    }
    node
}

#[test]
fn the_log_of_a_stopped_node_is_its_database() {
    let mut node = written();
    let log = node.data().join("db/main/log");
    let out = TempDir::new().expect("a temporary folder");
    let file = |name: &str| out.path().join(name);

    let refused = replay(&log, &file("a.sqlite"), &[]);
    assert!(!refused.status.success() && said(&refused).contains("stop that node first"), "{}", said(&refused));
    node.stop();
    let done = replay(&log, &file("a.sqlite"), &["--json"]);
    assert!(done.status.success(), "{}", said(&done));
    let document: Value = serde_json::from_slice(&done.stdout).expect("one JSON document");
    let end = document["log_end"].as_u64().expect("the end");
    assert_eq!((document["offset"].as_u64(), rows(&file("a.sqlite"))), (Some(end), 10));
    assert_eq!(std::fs::read_dir(out.path()).expect("it can be read").count(), 1, "nothing is left beside it");

    let empty = TempDir::new().expect("a temporary folder");
    for (log, to, more, why) in [
        (&*log, "a.sqlite", vec![], "exists already"),
        (&*log, "b.sqlite", vec!["--upto", "999999"], "it ends at offset"),
        (&*out.path().join("nowhere"), "b.sqlite", vec![], "there is no such folder"),
        (empty.path(), "b.sqlite", vec![], "holds no log"),
    ] {
        let refused = replay(log, &file(to), &more);
        assert!(!refused.status.success() && said(&refused).contains(why), "{why}: {}", said(&refused));
        assert!(!file("b.sqlite").exists());
    }
    // One transaction has several entries; between two of them there is no state to be had.
    let upto = |offset: u64, to: &str| replay(&log, &file(to), &["--upto", &offset.to_string()]);
    let outcomes: Vec<bool> = (end - 4..end).map(|at| upto(at, &format!("{at}.sqlite")).status.success()).collect();
    assert!(outcomes.contains(&true), "{outcomes:?}");
    for at in (end - 4..end).filter(|at| file(&format!("{at}.sqlite")).exists()) {
        assert!(rows(&file(&format!("{at}.sqlite"))) < 10);
    }

    let before = node.data().join("db/main/log");
    assert!(before.is_dir(), "the log is where it was");
    node.restart();
    assert_eq!(node.rows("SELECT count(*) FROM kept"), json!([[10]]));

    let other = Node::start();
    let imported = other.run(&["db", "import", &file("a.sqlite").to_string_lossy()]);
    assert!(imported.status.success(), "{}", said(&imported));
    assert_eq!(other.rows("SELECT count(*) FROM kept"), json!([[10]]));
}

#[test]
fn a_node_whose_epochs_are_exhausted_says_so_and_its_data_is_had_out() {
    let mut node = written();
    node.stop();
    let log = node.data().join("db/main/log");
    {
        let io = FileIo::open(&log).expect("nobody uses it");
        let found = dump::verify(&io).expect("it is whole").expect("it is a log");
        let options = Options { create: false, ..Options::default() };
        let mut opened = Log::open(io, options, found.log_id).expect("it opens");
        let hard = HardState { promised: Some(Epoch(i32::MAX as u32 - 1)), ..opened.hard_state().clone() };
        opened.persist(&hard).expect("it is kept");
        opened.close().expect("it is closed");
    }
    node.launch_again();
    let begun = std::time::Instant::now();
    loop {
        let answer = Connection::try_open(node.address())
            .and_then(|mut connection| connection.try_request("GET", "/status?scope=node", &[], b""));
        if answer.is_ok_and(|answer| answer.json().to_string().contains("epochs are exhausted")) {
            break;
        }
        assert!(node.is_running(), "the node ended:\n{}", node.log());
        assert!(begun.elapsed().as_secs() < 60, "the node does not say so:\n{}", node.log());
        pause();
    }
    let (status, answer) = node.sql("SELECT 1");
    assert!(status == 503 && answer.to_string().contains("highwater log replay"), "{status} {answer}");
    node.stop();
    let out = TempDir::new().expect("a temporary folder");
    let file = out.path().join("out.sqlite");
    let done = replay(&log, &file, &[]);
    assert!(done.status.success(), "{}", said(&done));
    assert_eq!(rows(&file), 10);
}
