//! What no node of the cluster sends, on the port where its nodes come in, in a cluster without a secret (`attacks.rs` has one): each is refused by name in the log, its connection ends, and the cluster goes on.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use bytes::BytesMut;
use highwater_wire::codec::{self, Hello};
use highwater_wire::{Body, Envelope, Epoch, PartitionId, PeerId, Sender};
use serde_json::json;

use super::{Cluster, IDS, PATIENCE, wait_for};
use crate::node::{HIGHWATER, free_address, log_of, spawn_logged};

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("the node accepts connections");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has timeouts");
    stream
}

/// A node's hello, which it gives to whoever begins as a node does.
fn hello_of(address: SocketAddr) -> Hello {
    let mut stream = connect(address);
    stream.write_all(b"HWPEER\r\n").expect("it can be sent");
    let mut received = BytesMut::new();
    loop {
        if let Some(hello) = Hello::decode(&mut received).expect("a node sends a hello") {
            return hello;
        }
        let mut chunk = [0; 1024];
        let count = stream.read(&mut chunk).expect("more of the hello");
        assert!(count > 0, "the node ended the connection within its hello");
        received.extend_from_slice(&chunk[..count]);
    }
}

/// Sends bytes, and waits until the node has ended the connection; `ended` says that nothing more is to come.
fn send(address: SocketAddr, bytes: &[u8], ended: bool) {
    let mut stream = connect(address);
    // The node may have refused the first bytes before the last were sent.
    let _ = stream.write_all(bytes);
    if ended {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut chunk = [0; 1024];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => return,
            Err(error) => panic!("the node keeps a connection that it should have ended: {error}"),
        }
    }
}

/// A message that changes nothing, in that node's name.
fn frame(of: &Hello) -> Vec<u8> {
    let sender = Sender { peer: PeerId { node: of.node, log: of.log }, incarnation: of.incarnation };
    let envelope = Envelope { partition: PartitionId(1), sender, epoch: Some(Epoch(0)), body: Body::WhoLeads };
    let mut out = BytesMut::new();
    codec::encode(&envelope, codec::VERSION_MAX, &mut out).expect("it fits in a frame");
    out.to_vec()
}

/// Bytes without a pattern, the same every time.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..count).map(|_| next()).collect()
}

/// Names a way to be wrong, what is sent, whether that is all, and what the log says of it.
struct Stranger {
    name: &'static str,
    bytes: Vec<u8>,
    ended: bool,
    said: &'static str,
}

/// Everything that is sent to the first node, by somebody who has seen the hellos of the other two.
fn strangers(target: &Hello, other: &Hello, third: &Hello) -> Vec<Stranger> {
    let hello = |change: &dyn Fn(&mut Hello)| {
        let mut hello = other.clone();
        change(&mut hello);
        hello.encode()
    };
    let behind = |frame: &[u8]| [&other.encode(), frame].concat();
    let good = frame(other);
    let mut damaged = good.clone();
    *damaged.last_mut().expect("a frame has bytes") ^= 1;
    let one = |name, bytes, ended, said| Stranger { name, bytes, ended, said };
    vec![
        one("noise", noise(4096), true, ""),
        one("zeros", vec![0; 4096], true, ""),
        one("nothing", Vec::new(), true, ""),
        one("the beginning of a beginning", b"HWPE".to_vec(), true, ""),
        one("a beginning with line breaks changed", b"HWPEER\n\n".to_vec(), false, "the other end is not a node"),
        one("a hello of ones", [&b"HWPEER\r\n"[..], &[0xff; 200]].concat(), false, "a length of 65535 bytes"),
        one("a hello of zeros", [&b"HWPEER\r\n"[..], &[0; 200]].concat(), false, "a checksum of"),
        one(
            "noise behind a beginning",
            [b"HWPEER\r\n", &noise(1 << 20)[..]].concat(),
            true,
            "not let in among the nodes",
        ),
        one("half a hello", other.encode()[..30].to_vec(), true, "proved nothing"),
        one(
            "a version to come",
            hello(&|hello| (hello.version_min, hello.version_max) = (900, 901)),
            false,
            "no version in common",
        ),
        one("a version of old", hello(&|hello| (hello.version_min, hello.version_max) = (0, 0)), false, "no version"),
        one("another cluster", hello(&|hello| hello.cluster ^= 1), false, "belongs to cluster"),
        one("the node's own id", target.encode(), false, "calls itself node"),
        one("a proof where there is no secret", hello(&|hello| hello.proof = vec![1; 32]), false, "does not prove"),
        one("a frame cut short", behind(&good[..good.len() - 1]), true, "the connection ended within a frame"),
        one("a frame's head cut short", behind(&good[..3]), true, "the connection ended within a frame"),
        one("a damaged frame", behind(&damaged), false, "a checksum of"),
        one("a frame of 4 GiB", behind(&[0xff; 64]), false, "a length of 4294967295 bytes"),
        one("an empty frame", behind(&[0; 64]), false, "a checksum of"),
        one("noise for frames", behind(&noise(4096)), true, "a node's connection"),
        one("another node's name", behind(&frame(third)), false, "in the name of n"),
        one("a good frame, then another's", behind(&[good, frame(third)].concat()), false, "in the name of n"),
    ]
}

#[test]
fn strangers_on_the_port_are_refused_by_name_and_harm_nothing() {
    let mut cluster = Cluster::start(&[]);
    cluster.write(1, "CREATE TABLE kept (v)");
    let hellos: BTreeMap<u32, Hello> = IDS.into_iter().map(|id| (id, hello_of(cluster.addresses[&id]))).collect();
    let leader = cluster.roles().leader;
    let follower = cluster.roles().followers()[0];
    let mut rows = 0;
    for target in [leader, follower] {
        let others: Vec<u32> = IDS.into_iter().filter(|id| *id != target).collect();
        for stranger in strangers(&hellos[&target], &hellos[&others[0]], &hellos[&others[1]]) {
            send(cluster.addresses[&target], &stranger.bytes, stranger.ended);
            // The same kind of refusal is logged once a minute, so an earlier stranger's may stand for this one.
            let told = |log: &str| log.contains(stranger.said);
            wait_for(&format!("node {target} says of {:?}: {:?}", stranger.name, stranger.said), || {
                told(&cluster.log(target)).then_some(())
            });
            cluster.write(target, "INSERT INTO kept VALUES (1)");
            rows += 1;
            assert_eq!(cluster.rows(others[0], "", "SELECT count(*) FROM kept"), json!([[rows]]), "{}", stranger.name);
        }
        cluster.verify();
    }
    assert_eq!(cluster.roles().leader, leader, "nobody had to lead in another's place");
}

/// Runs a node that must not start, and returns what it said.
fn refused(command: &mut Command, scratch: &Path) -> String {
    std::fs::create_dir_all(scratch).expect("a folder can be made");
    let mut process = spawn_logged(command, scratch);
    let status = wait_for("the node is refused", || process.0.try_wait().expect("it can be asked"));
    let said = log_of(scratch);
    assert!(!status.success(), "a node that is refused does not end well: {said}");
    said
}

#[test]
fn a_second_node_of_one_id_and_a_folder_of_another_cluster_are_refused_by_name() {
    let mut cluster = Cluster::start(&[]);
    cluster.write(1, "CREATE TABLE kept (v)");
    let scratch = cluster.folder.path().join("scratch");

    let free = free_address().to_string();
    let mut same_folder = Command::new(HIGHWATER);
    same_folder.args(["serve", "--id", "3", "--listen", &free, "--data"]).arg(cluster.data(3));
    let said = refused(&mut same_folder, &scratch.join("same-folder"));
    assert!(said.contains("in use"), "{said}");

    let new_folder = |id: &str, peers: String, name: &str| {
        let mut command = Command::new(HIGHWATER);
        command.args(["serve", "--id", id, "--listen", &free, "--peers", &peers, "--data"]);
        command.arg(scratch.join(name).join("data"));
        refused(&mut command, &scratch.join(name))
    };
    let at = |id| cluster.addresses[&id];
    let said = new_folder("3", format!("1={},2={},3={free}", at(1), at(2)), "same-id");
    assert!(said.contains("belongs to cluster"), "a third process that calls itself node 3: {said}");
    let said = new_folder("1", format!("1={free},2={},3={}", at(1), at(3)), "same-id-dialled");
    assert!(said.contains("calls itself node 1 too"), "{said}");
    let said = new_folder("2", format!("1={},2={free},3={}", at(3), at(1)), "wrong-addresses");
    assert!(said.contains("correct --peers"), "{said}");

    // A folder of another cluster in the place of node 3: it knows its own cluster, so it starts, and nobody has to do with it.
    let other = Cluster::start(&[]);
    cluster.stop_node(3);
    let foreign = other.data(3);
    drop(other.processes);
    let mut command = Command::new(HIGHWATER);
    command.args(["serve", "--id", "3", "--listen", &cluster.addresses[&3].to_string(), "--data"]).arg(&foreign);
    command.args(["--peers", &cluster.peers(3)]);
    let place = scratch.join("foreign");
    std::fs::create_dir_all(&place).expect("a folder can be made");
    let process = spawn_logged(&mut command, &place);
    for id in [1, 2] {
        wait_for(&format!("node {id} says whose folder that is"), || {
            cluster.log(id).contains("node 3 belongs to cluster").then_some(())
        });
        cluster.write(id, "INSERT INTO kept VALUES (1)");
    }
    wait_for("the foreign node says so too", || log_of(&place).contains("belongs to cluster").then_some(()));
    drop(process);

    cluster.start_node(3);
    cluster.roles();
    assert_eq!(cluster.rows(3, "", "SELECT count(*) FROM kept"), json!([[2]]));
    cluster.settle();
    cluster.verify();
}

/// A node whose list of the others is gone is told so: it is no cluster of one, and does not run alone as if it were.
#[test]
fn a_node_without_its_list_of_peers_is_refused_by_name() {
    let mut cluster = Cluster::start(&[]);
    cluster.stop_node(2);
    let (list, aside) = (cluster.data(2).join("peers"), cluster.folder.path().join("peers"));
    std::fs::rename(&list, &aside).expect("the file can be moved");
    let mut alone = Command::new(HIGHWATER);
    alone.args(["serve", "--listen", &free_address().to_string(), "--data"]).arg(cluster.data(2));
    let mut with_peers = cluster.serve(2);
    for (name, command) in [("alone", &mut alone), ("with-peers", &mut with_peers)] {
        let said = refused(command, &cluster.folder.path().join(name));
        assert!(said.contains("data/peers is gone"), "{name}: {said}");
    }
    std::fs::rename(&aside, &list).expect("the file can be moved");
    cluster.start_node(2);
    cluster.roles();
    cluster.verify();
}
