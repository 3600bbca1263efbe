//! Data folders that earlier builds left behind (`tests/golden`) are opened by this one: what they hold is there, and they can be written on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::node::{Node, free_address, pause};

/// The content hash of everything but the row that came before the crash, as the build that made the folders computed it.
const WITHOUT_LAST: &str = "8d2a48697f3e03471701028975856d2588af3582336c3a43c3af612b4f7ba088";
/// With that row.
const WITH_LAST: &str = "725f5aee74f0b0fc1758a32accbb93876ebfa2f8c01d987c47cb4589473a279d";

/// Every format that there was, the present one among them.
const FORMATS: [&str; 2] = ["format-1", "format-2"];

/// What has not happened after this long never will, whatever the machine is busy with.
const PATIENCE: Duration = Duration::from_secs(60);

/// Unpacks a folder.
fn unpack(format: &str, name: &str) -> TempDir {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let packed = golden.join(format).join(format!("{name}.tar.gz"));
    let target = TempDir::new().expect("a temporary folder");
    let done = Command::new("tar").arg("-xzf").arg(&packed).arg("-C").arg(target.path()).status();
    assert!(done.expect("tar can be started").success(), "{} can be unpacked", packed.display());
    target
}

/// A folder as tests keep them, with that data.
fn with_data(data: PathBuf) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    let copied = Command::new("cp").arg("-a").arg(&data).arg(folder.path().join("data")).status();
    assert!(copied.expect("cp can be started").success(), "{} can be copied", data.display());
    folder
}

fn holds_what_was_written(node: &Node, noted: u64) {
    assert_eq!(node.rows("SELECT count(*), sum(id) FROM person"), json!([[503, 127_256]]));
    assert_eq!(node.rows("SELECT name, tags FROM named ORDER BY name LIMIT 2"), json!([["Ada", 2], ["Edsger", 1]]));
    assert_eq!(node.rows("SELECT hex(photo), born FROM person WHERE id = 1"), json!([["00FF10", 1815.9]]));
    assert_eq!(node.rows("SELECT what, at FROM noted LIMIT 1"), json!([["gone: Ünïcode ☂", 7]]));
    assert_eq!(node.rows("SELECT count(*) FROM noted"), json!([[noted]]));
}

#[test]
fn a_node_that_ended_well_goes_on() {
    FORMATS.iter().for_each(|format| ended_well(format));
}

fn ended_well(format: &str) {
    let unpacked = unpack(format, "single");
    let mut node = Node::start_in(with_data(unpacked.path().join("single/data")), &[]);
    assert_eq!(node.content_hash(), WITHOUT_LAST);
    holds_what_was_written(&node, 2);
    node.rows("INSERT INTO noted (what) VALUES ('before the crash')");
    assert_eq!(node.content_hash(), WITH_LAST, "the same content has the same hash, whoever wrote it");
    node.stop();
    node.restart();
    assert_eq!(node.content_hash(), WITH_LAST);
}

#[test]
fn a_node_that_was_killed_goes_on() {
    FORMATS.iter().for_each(|format| was_killed(format));
}

fn was_killed(format: &str) {
    let unpacked = unpack(format, "single-killed");
    let mut node = Node::start_in(with_data(unpacked.path().join("single-killed/data")), &[]);
    assert_eq!(node.content_hash(), WITH_LAST);
    holds_what_was_written(&node, 3);
    node.rows("UPDATE person SET name = 'after the crash' WHERE id = 5");
    node.kill();
    node.restart();
    assert_eq!(node.rows("SELECT name FROM person WHERE id = 5"), json!([["after the crash"]]));
}

#[test]
fn a_cluster_that_lost_its_leader_goes_on_with_all_three() {
    FORMATS.iter().for_each(|format| lost_its_leader(format));
}

/// The nodes have other addresses than when the folders were made, which they are told.
fn lost_its_leader(format: &str) {
    let unpacked = unpack(format, "cluster");
    let addresses = [free_address(), free_address(), free_address()];
    let peers: Vec<String> = addresses.iter().zip(1..).map(|(address, id)| format!("{id}={address}")).collect();
    let peers = peers.join(",");
    let launch = |(address, id): (_, u32)| {
        let data = unpacked.path().join("cluster").join(id.to_string());
        assert!(fs::exists(&data).expect("the folder can be looked at"), "{}", data.display());
        Node::launch(with_data(data), address, &["--id", &id.to_string(), "--peers", &peers])
    };
    let mut nodes: Vec<Node> = addresses.into_iter().zip(1..).map(launch).collect();
    nodes.iter_mut().for_each(Node::wait_until_ready);
    for node in &nodes {
        holds_what_was_written(node, 3);
    }
    nodes[0].rows("INSERT INTO noted (what) VALUES ('by all three')");
    let begun = Instant::now();
    while !nodes[1].run(&["verify"]).status.success() {
        assert!(begun.elapsed() < PATIENCE, "not all three agree on the content: {}", nodes[1].log());
        pause();
    }
    assert_ne!(nodes[0].content_hash(), WITH_LAST);
}
