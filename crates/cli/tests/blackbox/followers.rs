//! What works on a node alone works through a node that does not lead, whose client knows no other: the stock client's scripts, SQLite's own test
//! scripts, and a whole database loaded from a file.

use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::http::Connection;
use crate::node::{Node, free_address, pause};
use crate::{chinook, data, hrana, libsql, sqllogictest};

/// What has not happened after this long never will, whatever the machine is busy with.
const PATIENCE: Duration = Duration::from_secs(60);

/// Three nodes joined to a cluster.
struct Trio {
    nodes: Vec<Node>,
}

impl Trio {
    /// Starts three nodes and waits until they serve.
    fn start() -> Trio {
        let addresses = [free_address(), free_address(), free_address()];
        let peers: Vec<String> = addresses.iter().zip(1..).map(|(address, id)| format!("{id}={address}")).collect();
        let peers = peers.join(",");
        let launch = |(address, id): (_, u32)| {
            let folder = TempDir::new().expect("a temporary folder");
            Node::launch(folder, address, &["--id", &id.to_string(), "--peers", &peers])
        };
        let mut trio = Trio { nodes: addresses.into_iter().zip(1..).map(launch).collect() };
        trio.nodes.iter_mut().for_each(Node::wait_until_ready);
        trio
    }

    /// Waits until all nodes but the one that is `down` agree on another leader than that; returns where it is in the list.
    fn leader(&self, down: Option<usize>) -> usize {
        let begun = Instant::now();
        loop {
            let up = self.nodes.iter().enumerate().filter(|(at, _)| Some(*at) != down);
            let known: Vec<Option<usize>> = up.map(|(_, node)| leader_at(node)).collect();
            match known[0].filter(|first| Some(*first) != down && known.iter().all(|one| *one == Some(*first))) {
                Some(leader) => return leader,
                None => assert!(begun.elapsed() < PATIENCE, "no leader that all agree on: {known:?}\n{}", self.log()),
            }
            pause();
        }
    }

    /// Where a node is that does not lead, and forwards what it cannot serve.
    fn follower(&self) -> usize {
        (self.leader(None) + 1) % self.nodes.len()
    }

    /// What all nodes have written to standard error.
    fn log(&self) -> String {
        self.nodes.iter().zip(1..).map(|(node, id)| format!("node {id}:\n{}", node.log())).collect()
    }

    /// Drops everything in the database.
    fn empty(&self) {
        let mut stream = hrana::Stream::open(self.nodes[self.follower()].address());
        let listed = stream.pipeline(&[
            hrana::execute("PRAGMA foreign_keys=OFF"),
            hrana::execute("SELECT type, name FROM sqlite_schema WHERE type IN ('view', 'table') AND name NOT LIKE 'sqlite%' ORDER BY type DESC"),
        ]);
        let listed = listed[1].as_ref().expect("the schema can be read")["result"]["rows"].clone();
        let text = |value: &Value| value["value"].as_str().expect("a text").to_owned();
        let drops: Vec<Value> = listed
            .as_array()
            .expect("rows are a list")
            .iter()
            .map(|row| hrana::execute(&format!("DROP {} \"{}\"", text(&row[0]), text(&row[1]))))
            .collect();
        for (dropped, request) in stream.pipeline(&drops).into_iter().zip(&drops) {
            dropped.unwrap_or_else(|error| panic!("{request}: {error}"));
        }
    }

    /// Runs one of the stock client's scripts through a node, which leads or not as the test says. `restart` gets all nodes.
    fn run_script(&mut self, topic: &str, through: usize, words: &[&str], mut restart: impl FnMut(&mut Trio)) {
        self.empty();
        let url = self.nodes[through].url();
        let outcome = libsql::run_script(topic, &[&[url.as_str()], words].concat(), || restart(self));
        outcome.unwrap_or_else(|why| panic!("{why} Through node {}; the nodes' logs:\n{}", through + 1, self.log()));
    }
}

/// Who leads `main`, as this node knows, as a place in the list of nodes.
fn leader_at(node: &Node) -> Option<usize> {
    let mut connection = Connection::try_open(node.address()).ok()?;
    let answer = connection.try_request("GET", "/status?scope=node", &[], b"").ok()?.json();
    let main = answer["partitions"].as_array()?.iter().find(|partition| partition["name"] == "main")?.clone();
    Some(main["leader"].as_u64()? as usize - 1)
}

#[test]
fn the_stock_client() {
    let mut trio = Trio::start();
    for topic in ["execute", "batch", "transaction", "multiple", "migrate", "constraints", "idle"] {
        let through = trio.follower();
        trio.run_script(topic, through, &[], |_| panic!("{topic} asks for no restart"));
    }
}

#[test]
fn the_stock_client_and_restarts() {
    let mut trio = Trio::start();
    // The node that the client talks to. Its streams live on the leader and outlive it.
    let through = trio.follower();
    trio.run_script("restart", through, &["streams-stay"], |trio| {
        trio.nodes[through].kill();
        trio.nodes[through].restart();
    });
    // The leader: all is lost that is lost when a node alone is killed, and that node itself says so...
    let leader = trio.leader(None);
    trio.run_script("restart", (leader + 1) % 3, &[], |trio| {
        trio.nodes[leader].kill();
        trio.nodes[leader].restart();
    });
    // ...or the node that the client talks to does, as long as the other one is away.
    let leader = trio.leader(None);
    trio.run_script("restart", (leader + 1) % 3, &[], |trio| {
        trio.nodes[leader].kill();
        trio.leader(Some(leader));
    });
}

#[test]
fn scripts_of_sqlite() {
    let mut trio = None;
    sqllogictest::run_scripts(
        |_| true,
        15,
        |run| {
            let trio = trio.get_or_insert_with(Trio::start);
            trio.empty();
            run(trio.nodes[trio.follower()].address())
        },
    );
}

#[test]
fn a_database_from_a_file() {
    let Some(folder) = data::folder("chinook") else { return };
    let mut trio = Trio::start();
    let through = trio.follower();
    chinook::load_undisturbed(&mut trio.nodes[through], &folder.join("chinook_sqlite.sql"));
    chinook::assert_complete(&trio.nodes[through]);
    let hash = trio.nodes[through].content_hash();
    assert_eq!(hashes(&trio.nodes[through]), vec![hash.clone(); 3]);

    trio.nodes.iter_mut().for_each(Node::kill);
    trio.nodes.iter_mut().for_each(Node::launch_again);
    trio.nodes.iter_mut().for_each(Node::wait_until_ready);
    let through = trio.follower();
    assert_eq!(
        hashes(&trio.nodes[through]),
        vec![hash.clone(); 3],
        "the content is another one after all nodes were killed"
    );
    chinook::assert_complete(&trio.nodes[through]);
}

/// The hash of each replica, as `highwater verify` gives it through this node.
fn hashes(node: &Node) -> Vec<String> {
    let output = node.run(&["verify", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("verify --json prints one JSON document");
    let replicas = answer["replicas"].as_array().unwrap_or_else(|| panic!("verify lists replicas: {answer}"));
    replicas.iter().map(|replica| replica["hash"].as_str().unwrap_or("none").to_owned()).collect()
}

#[test]
fn a_follower_says_of_a_wrong_statement_what_the_leader_says() {
    let trio = Trio::start();
    let through = trio.follower();
    let node = &trio.nodes[through];
    for (sql, status, code) in [
        ("SELECT * FROM nosuch", 400, "SQLITE_ERROR"),
        ("SELECT nosuch syntax error", 400, "SQL_PARSE_ERROR"),
        ("PRAGMA nosuch", 403, "SQLITE_AUTH"),
    ] {
        let (found, answer) = node.sql(sql);
        assert_eq!((found, &answer["error"]["code"]), (status, &Value::from(code)), "{sql}: {answer}");
    }
    // It begins like a question, and writes.
    let (status, answer) = node.sql("PRAGMA user_version = 5");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(node.rows("PRAGMA user_version"), serde_json::json!([[5]]));
}
