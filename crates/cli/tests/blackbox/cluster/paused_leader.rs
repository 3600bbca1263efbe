//! A leader that stands still with requests under way, and goes on when it is none any more.

use std::time::{Duration, Instant};

use highwater_wire::Position;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::net::Cut;
use super::{Cluster, IDS, figure, wait_for};

/// How long the leader stands still: many sessions.
const PAUSE: Duration = Duration::from_secs(4);

/// A text that is found wherever the entry is.
const MARK: &str = "written-by-the-paused-leader";

/// Finds the mark in the files of a folder whose names begin like this.
fn marked_files(folder: &std::path::Path, prefix: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().to_string_lossy().into_owned();
        let bytes = std::fs::read(entry.path()).unwrap_or_default();
        if name.starts_with(prefix) && bytes.windows(MARK.len()).any(|window| window == MARK.as_bytes()) {
            found.push(name);
        }
    }
    found
}

#[test]
fn a_paused_leader_acknowledges_nothing_and_answers_no_read_from_its_old_epoch() {
    let mut cluster = Cluster::start(&[]);
    cluster.write(1, "CREATE TABLE t (v TEXT)");
    cluster.write(1, "INSERT INTO t VALUES ('before')");
    cluster.settle();
    let roles = cluster.roles();
    let (leader, followers) = (roles.leader, roles.followers());

    // The followers stand still and what the leader sends does not arrive: the write below stays above HW, and on the leader alone.
    for follower in followers {
        cluster.signal(follower, Signal::STOP);
        cluster.net.part(leader, follower, Cut::Silent);
    }
    let address = cluster.addresses[&leader];
    let ask = |query: &'static str, sql: String| {
        std::thread::spawn(move || {
            let mut connection = crate::http::Connection::open(address);
            let body = json!({ "sql": sql }).to_string();
            connection.try_request("POST", &format!("/db/main/sql{query}"), &crate::http::JSON, body.as_bytes())
        })
    };
    let read = ask("?wait_ms=50000", "SELECT v FROM t".into());
    let write = ask("?wait_ms=50000", format!("INSERT INTO t VALUES ('{MARK}')"));
    let (leo, hw, _) = wait_for("an entry above HW", || cluster.positions(leader).filter(|(leo, hw, _)| leo > hw));
    figure(&format!("paused leader: {roles:?}, its log ends at {leo} and HW is {hw}"));
    cluster.signal(leader, Signal::STOP);

    for follower in followers {
        cluster.signal(follower, Signal::CONT);
    }
    let continued = Instant::now();
    for (index, follower) in followers.into_iter().enumerate() {
        cluster.write(follower, &format!("INSERT INTO t VALUES ('after {index}')"));
        figure(&format!(
            "paused leader: {} ms from the others' continuation to a write through node {follower}",
            continued.elapsed().as_millis()
        ));
    }
    let new = wait_for("the others agree on a leader", || {
        let [one, other] = followers.map(|follower| cluster.roles_at(follower));
        one.filter(|roles| Some(*roles) == other && roles.leader != leader)
    });
    assert!(new.epoch > roles.epoch, "{new:?}");
    // What the leader had sent arrives now, of an epoch that is over.
    cluster.net.heal();
    // sleep: the pause lasts for as long as it is said to; nothing says that a process that stands still has done so for long.
    std::thread::sleep(PAUSE.saturating_sub(continued.elapsed()));
    assert!(!write.is_finished() && !read.is_finished(), "a process that stands still answers nothing");
    cluster.signal(leader, Signal::CONT);

    let wrote = write.join().expect("no panic").expect("the write is answered");
    let error = wrote.json()["error"].clone();
    assert!(wrote.status >= 500 && error["outcome"] == "unknown", "{} {error}", wrote.status);
    let position = error["position"].as_str().unwrap_or_else(|| panic!("an unknown outcome says where: {error}"));
    let parsed: Position = position.parse().expect("a position");
    assert_eq!(parsed.epoch.map(|epoch| u64::from(epoch.0)), Some(roles.epoch), "{position}");

    let read = read.join().expect("no panic").expect("the read is answered");
    if read.status == 200 {
        // It may be answered anew, as anybody's would be who asks this node now: then it sees what was acknowledged meanwhile.
        let rows = read.json()["results"][0]["rows"].clone();
        assert_eq!(rows, json!([["before"], ["after 0"], ["after 1"]]));
    } else {
        let error = read.json()["error"].clone();
        assert!(read.status >= 500 && error["outcome"] == "failed", "{} {error}", read.status);
    }
    figure(&format!("paused leader: the write was answered {} at {position}, the read {}", wrote.status, read.status));

    cluster.settle();
    for id in IDS {
        let rows = cluster.rows(id, "?freshness=eventual", "SELECT v FROM t");
        assert_eq!(rows, json!([["before"], ["after 0"], ["after 1"]]), "node {id}");
        let asked = cluster.try_sql(id, &format!("?freshness=eventual&min_position={position}"), "SELECT v FROM t");
        let asked = asked.expect("an answer");
        let answer: Value = asked.json();
        assert_eq!(
            (asked.status, &answer["error"]["code"]),
            (409, &json!("POSITION_TRUNCATED")),
            "node {id}: {answer}"
        );
    }
    let log = cluster.data(leader).join("db").join("main").join("log");
    let tails = marked_files(&log, "lost-tail-");
    assert_eq!(tails.len(), 1, "the entry is in one lost tail: {tails:?}");
    for id in IDS.into_iter().filter(|id| *id != leader) {
        let log = cluster.data(id).join("db").join("main").join("log");
        assert!(marked_files(&log, "").is_empty(), "node {id} never had it");
    }
    cluster.verify();
}
