//! Four hundred answers and backups that nobody reads, through the leader and a follower: what a node takes stays bounded, those clients end, and others go on.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::load::{
    OTHER, READER, Taken, WRITER, ask_and_leave_unread, begun, execute, guarded, has_ended, metric, p99, request, write,
};
use super::{Cluster, IDS, figure};
use crate::node::pause;

/// Connections of each kind.
const UNREAD: usize = 400;
/// What a node's process takes at most, in MiB, whatever readers leave unread. `docs/security.md` names this figure.
const RESIDENT_MAX_MIB: u64 = 768;
/// Threads of a node at most: for reading, for writing, of backups' blocks, of the node itself.
const THREADS_MAX: u64 = 256;
/// How long others are watched under each kind.
const WATCHED: Duration = Duration::from_secs(3);
/// A client that takes nothing is ended after 30 s; on a machine that is busy with other things it may be noticed later.
const ENDED_WITHIN: Duration = Duration::from_secs(60);

/// Sixty rows of a megabyte, in base64 a third longer.
const BLOBS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 60) SELECT zeroblob(1048000) FROM n";
/// Sixty rows of a megabyte of control characters, in JSON six times as long.
const CONTROLS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 60) SELECT replace(hex(zeroblob(1000000)),'00',char(1)) FROM n";

/// What is asked for and never read.
fn kinds() -> Vec<(&'static str, Vec<u8>)> {
    let post = |path: &str, body: serde_json::Value| request("POST", path, READER, &body.to_string());
    let long = "a".repeat(1_000_000);
    // A text is stored once and named often: what is answered is many times what was sent.
    let stored = |sql: String, request: serde_json::Value| {
        let store = json!({"type": "store_sql", "sql_id": 1, "sql": sql});
        let all: Vec<_> = std::iter::once(store).chain(std::iter::repeat_n(request, 100)).collect();
        post("/v2/pipeline", json!({ "requests": all }))
    };
    let run = json!({"type": "execute", "stmt": {"sql_id": 1}});
    let wide = format!("SELECT {}", vec!["hex(zeroblob(8000000))"; 1000].join(","));
    vec![
        ("rows of blobs, plain", post("/db/main/sql", json!({ "sql": BLOBS }))),
        ("control characters, plain", post("/db/main/sql", json!({ "sql": CONTROLS }))),
        ("control characters, pipeline", post("/v2/pipeline", json!({"requests": [execute(CONTROLS)]}))),
        ("rows of blobs, cursor", post("/v3/cursor", json!({"batch": {"steps": [{"stmt": {"sql": BLOBS}}]}}))),
        ("a row of 1,000 large values", post("/db/main/sql", json!({ "sql": wide }))),
        ("names of columns", stored(format!("SELECT 1 AS \"{long}\""), run.clone())),
        ("errors", stored(format!("SELECT t.\"{long}\""), run)),
        ("descriptions", stored(format!("SELECT 1 AS \"{long}\""), json!({"type": "describe", "sql_id": 1}))),
        (
            "90,000 small answers",
            post("/v2/pipeline", json!({"requests": vec![json!({"type": "get_autocommit"}); 90_000]})),
        ),
        ("backups", request("GET", "/db/main/backup", READER, "")),
    ]
}

fn taken(cluster: &Cluster) -> [Taken; 3] {
    IDS.map(|id| Taken::by(cluster.processes[&id].0.id()))
}

fn bounded(cluster: &Cluster, what: &str) {
    for (id, taken) in IDS.into_iter().zip(taken(cluster)) {
        assert!(taken.mib_max < RESIDENT_MAX_MIB, "{what}: node {id} takes {taken:?}\n{}", cluster.log(id));
        assert!(taken.threads < THREADS_MAX, "{what}: node {id} has {taken:?}");
        // A connection, and for a stream its connection of SQLite's.
        assert!(taken.files < 200 + UNREAD * 4, "{what}: node {id} has {taken:?}");
    }
}

/// How a writer and another reader fare meanwhile.
fn others(cluster: &Cluster, through: u32, what: &str) {
    let address = cluster.addresses[&through];
    let (written, read) = std::thread::scope(|scope| {
        let written = scope.spawn(|| p99(address, WRITER, "INSERT INTO kept VALUES (1)", WATCHED));
        let read = p99(address, OTHER, "SELECT count(*) FROM kept WHERE rowid < 9", WATCHED);
        (written.join().expect("writes go on"), read)
    });
    figure(&format!(
        "{what}: p99 of {} writes {:.0} ms, of another's {} reads {:.0} ms",
        written.1, written.0, read.1, read.0
    ));
}

/// Waits until the node has ended all of them, without reading anything that would count as taking.
fn all_end(streams: &[TcpStream], what: &str) {
    let since = Instant::now();
    // Looked at last of all: to look is to read.
    while since.elapsed() < Duration::from_secs(33) {
        pause();
    }
    while let Some(open) = streams.iter().map(has_ended).position(|ended| !ended) {
        assert!(since.elapsed() < ENDED_WITHIN, "{what}: number {open} is still open");
        pause();
    }
}

#[test]
#[ignore = "takes all of a machine for minutes: on demand, see docs/testing.md"]
fn answers_and_backups_that_nobody_reads_are_bounded_and_end() {
    let mut cluster = guarded();
    let leader = cluster.roles().leader;
    let [follower, _] = cluster.roles().followers();
    cluster.write(leader, "CREATE TABLE kept (v)");
    cluster.write(leader, "CREATE TABLE large (v)");
    for _ in 0..26 {
        write(cluster.addresses[&leader], "INSERT INTO large VALUES (randomblob(8000000))");
    }
    figure(&format!("before: {:?}", taken(&cluster)));
    for (through, role) in [(leader, "leader"), (follower, "follower")] {
        others(&cluster, through, &format!("before, through the {role}"));
        let mut held = Vec::new();
        for (kind, bytes) in kinds() {
            let what = format!("{UNREAD} unread through the {role}, {kind}");
            let streams = ask_and_leave_unread(cluster.addresses[&through], UNREAD, &bytes);
            others(&cluster, through, &what);
            figure(&format!(
                "{what}: {:?} were answered 200, otherwise, and not yet; {:?}",
                begun(&streams),
                taken(&cluster)
            ));
            bounded(&cluster, &what);
            if ["control characters, plain", "control characters, pipeline", "backups"].contains(&kind) {
                held.extend(streams.into_iter().filter(leaves));
            }
        }
        assert!(!held.is_empty(), "some answers have begun");
        all_end(&held, role);
        for id in IDS {
            super::wait_for("the room for answers is free again", || {
                (metric(cluster.addresses[&id], "highwater_answers_bytes") == 0.0).then_some(())
            });
        }
        figure(&format!("after their end, the {role}: {:?}", taken(&cluster)));
    }
    cluster.verify();
}

/// Whether a large answer has begun to come.
fn leaves(stream: &TcpStream) -> bool {
    let mut first = [0; 2048];
    stream.set_nonblocking(true).expect("a socket");
    let whole = stream.peek(&mut first).is_ok_and(|count| count == first.len());
    let text = String::from_utf8_lossy(&first);
    whole && text.starts_with("HTTP/1.1 200") && !text.contains("OVERLOADED")
}
