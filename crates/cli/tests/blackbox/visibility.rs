//! No answer shows what is not committed. Three nodes as processes; the followers are paused, so that what the leader writes is acknowledged by nobody,
//! and every door is looked through. Then the leader is paused instead, the others go on without it, and it comes back to cut what it had written
//! alone.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{Connection, JSON, Response};
use crate::node::{HIGHWATER, Process, free_address, log_of, pause, spawn_logged};

/// What is not there after this long has hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node of a cluster.
struct Member {
    // Before `folder`, so that the process is gone before its files are.
    process: Process,
    folder: TempDir,
    address: SocketAddr,
    arguments: Vec<String>,
}

impl Member {
    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.process.0.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "{name} was not sent");
    }

    fn request(&self, method: &str, path: &str, body: &Value) -> Response {
        Connection::open(self.address).request(method, path, &JSON, body.to_string().as_bytes())
    }

    fn sql(&self, options: &str, sql: &str) -> (u16, Value) {
        let response = self.request("POST", &format!("/db/main/sql{options}"), &json!({ "sql": sql }));
        (response.status, response.json())
    }

    /// Kills the process and starts it again: what had arrived and was not read is gone.
    fn restart(&mut self) {
        self.process.0.kill().expect("the process can be killed");
        self.process.0.wait().expect("the process can be waited for");
        self.process = spawn(&self.folder, &self.arguments);
    }

    /// What an eventual read of `t` shows, as soon as there is something that this node may show.
    fn shows(&self) -> Value {
        let begun = Instant::now();
        loop {
            let (status, mut answer) = self.sql("?freshness=eventual&wait_ms=100", "SELECT a FROM t ORDER BY a");
            if status == 200 {
                return answer["results"][0]["rows"].take();
            }
            assert!(begun.elapsed() < PATIENCE, "nothing is shown: {answer}\n{}", log_of(self.folder.path()));
            pause();
        }
    }

    /// Waits until it shows `after`; until then it shows `before`, and nothing else.
    fn comes_to_show(&self, before: &Value, after: &Value) {
        let begun = Instant::now();
        loop {
            let shown = self.shows();
            if shown == *after {
                return;
            }
            assert_eq!(shown, *before, "neither the state before nor the one after");
            assert!(begun.elapsed() < PATIENCE, "it stays at {shown}:\n{}", log_of(self.folder.path()));
            pause();
        }
    }
}

fn spawn(folder: &TempDir, arguments: &[String]) -> Process {
    let mut command = Command::new(HIGHWATER);
    command.arg("serve").arg("--data").arg(folder.path().join("data")).args(arguments);
    spawn_logged(&mut command, folder.path())
}

/// Three nodes, the leader of `main` first.
fn cluster() -> Vec<Member> {
    let addresses: Vec<SocketAddr> = (0..3).map(|_| free_address()).collect();
    let peers: Vec<String> = addresses.iter().zip(1..).map(|(address, id)| format!("{id}={address}")).collect();
    let peers = peers.join(",");
    let mut members: Vec<Member> = addresses
        .into_iter()
        .zip(1..)
        .map(|(address, id)| {
            let folder = TempDir::new().expect("a temporary folder");
            let arguments = ["--listen", &address.to_string(), "--id", &format!("{id}"), "--peers", &peers];
            let arguments = arguments.map(str::to_owned).to_vec();
            Member { process: spawn(&folder, &arguments), folder, address, arguments }
        })
        .collect();
    let begun = Instant::now();
    for member in &members {
        loop {
            let asked = Connection::try_open(member.address).and_then(|mut c| c.try_request("GET", "/ready", &[], b""));
            if asked.is_ok_and(|answer| answer.status == 200) {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "a node is not ready:\n{}", log_of(member.folder.path()));
            pause();
        }
    }
    let at = leader(&members[0]).expect("a ready cluster has a leader") as usize - 1;
    members.swap(0, at);
    members
}

/// Who leads `main`, as that node knows.
fn leader(member: &Member) -> Option<u64> {
    member.request("GET", "/status", &json!({})).json()["partitions"][0]["leader"].as_u64()
}

#[test]
fn what_no_second_copy_has_is_seen_by_nobody_and_may_vanish_unseen() {
    let mut members = cluster();
    let (leading, followers) = members.split_first_mut().expect("three nodes");
    let (status, answer) = leading.sql("", "CREATE TABLE t (a INTEGER UNIQUE)");
    assert_eq!(status, 200, "{answer}");
    let (status, answer) = leading.sql("", "INSERT INTO t VALUES (1)");
    assert_eq!(status, 200, "{answer}");

    followers.iter().for_each(|follower| follower.signal("-STOP"));
    let (status, answer) = leading.sql("?wait_ms=200", "INSERT INTO t VALUES (2) RETURNING a");
    assert_eq!((status, answer["error"]["outcome"].as_str()), (504, Some("unknown")), "{answer}");
    let position =
        answer["error"]["position"].as_str().expect("a write of unknown outcome says where it is").to_owned();
    assert!(answer.get("results").is_none(), "neither rows nor counts leave: {answer}");

    // Every door shows the state before it, or nothing.
    assert_eq!(leading.shows(), json!([[1]]));
    let execute = |sql: &str| json!({"type": "execute", "stmt": {"sql": sql}});
    let step = |sql: &str| json!({"stmt": {"sql": sql}});
    let requests = json!({"requests": [execute("SELECT a FROM t"), execute("BEGIN"), execute("SELECT count(*) FROM t"), execute("ROLLBACK"),
        {"type": "batch", "batch": {"steps": [step("SELECT max(a) FROM t")]}}, {"type": "close"}]});
    let answer = leading.request("POST", "/v2/pipeline?freshness=eventual&wait_ms=200", &requests).json();
    let rows = |at: usize| answer["results"][at]["response"]["result"]["rows"].clone();
    assert_eq!(rows(0), json!([[{"type": "integer", "value": "1"}]]), "{answer}");
    assert_eq!(rows(2), json!([[{"type": "integer", "value": "1"}]]), "{answer}");
    let batch = &answer["results"][4]["response"]["result"]["step_results"][0]["rows"];
    assert_eq!(*batch, json!([[{"type": "integer", "value": "1"}]]), "{answer}");
    let cursor = json!({"batch": {"steps": [step("SELECT a FROM t WHERE a > 1")]}});
    let lines = leading.request("POST", "/v3/cursor?freshness=eventual&wait_ms=200", &cursor).body;
    assert!(!String::from_utf8_lossy(&lines).contains("\"row\""), "{}", String::from_utf8_lossy(&lines));
    let (status, answer) = leading.sql("?wait_ms=200", "SELECT a FROM t");
    assert_eq!(status, 504, "a linearizable read confirms the leadership, which nobody does now: {answer}");

    // Errors that depend on it are held as well: that 2 is taken is not told before it is certain.
    let (status, answer) = leading.sql("?wait_ms=200", "INSERT INTO t VALUES (2)");
    // Held until the wait ran out; or refused at once, where the leader has already noticed that nobody else is in reach.
    let (held, refused) = (status == 504, answer["error"]["code"] == "TOO_FEW_REPLICAS");
    assert!(held || refused, "{status}: {answer}");
    assert_eq!(answer["error"]["outcome"], "failed", "{answer}");
    assert_ne!(answer["error"]["code"], "SQLITE_CONSTRAINT");
    let pipeline = json!({"requests": [execute("BEGIN IMMEDIATE"), execute("SELECT count(*) FROM t"), execute("ROLLBACK"), {"type": "close"}]});
    let answer = leading.request("POST", "/v2/pipeline?freshness=eventual&wait_ms=200", &pipeline).json();
    assert_ne!(
        answer["results"][1]["type"], "ok",
        "a transaction that could write sees it, so its answer is held: {answer}"
    );
    let (status, answer) = leading.sql(&format!("?freshness=eventual&wait_ms=200&min_position={position}"), "SELECT 1");
    assert_eq!(status, 504, "the position is not readable: {answer}");

    // The others go on without the leader, which then comes back and cuts what it had alone. They are killed first, since what it sent
    // them may lie unread at their doors.
    leading.signal("-STOP");
    followers.iter_mut().for_each(Member::restart);
    let begun = Instant::now();
    let successor = loop {
        let listens = |follower: &&Member| Connection::try_open(follower.address).is_ok();
        let takes = |follower: &&Member| follower.sql("?wait_ms=1000", "INSERT INTO t VALUES (3)").0 == 200;
        let found = followers.iter().filter(listens).find(takes);
        if let Some(found) = found {
            break found;
        }
        assert!(begun.elapsed() < PATIENCE, "no successor:\n{}", log_of(followers[0].folder.path()));
        pause();
    };
    successor.comes_to_show(&json!([[1]]), &json!([[1], [3]]));
    leading.signal("-CONT");
    // What was cut was never visible.
    leading.comes_to_show(&json!([[1]]), &json!([[1], [3]]));
    let (status, answer) = leading.sql(&format!("?freshness=eventual&min_position={position}"), "SELECT 1");
    assert_eq!((status, answer["error"]["code"].as_str()), (409, Some("POSITION_TRUNCATED")), "{answer}");
}
