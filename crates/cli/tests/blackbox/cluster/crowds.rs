//! Crowds of one token: bodies larger than any may be, more requests than a reader's share, and every thread for reading taken by statements that run until they
//! are ended. A writer goes on, and every limit is met where the documents say.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::json;

use super::load::{READER, Taken, WRITER, ask_and_leave_unread, begun, guarded, metric, p99, request};
use super::{Cluster, figure, wait_for};

/// Clients that send a body at one time, and how large it says it is.
const SENDERS: usize = 200;
const BODY_BYTES: usize = 100_000_000;
/// What a node takes meanwhile at most, in MiB: the share of readers in the room for bodies, and what it takes anyway.
const RESIDENT_MAX_MIB: u64 = 640;
/// The share of readers in the 4,096 requests under way.
const READERS_REQUESTS: usize = 2048;
/// Requests beyond it.
const BEYOND: usize = 100;
const WATCHED: Duration = Duration::from_secs(4);

/// Sends as much of a body as is taken, and gives the status that comes back, or 0.
fn send_large(address: SocketAddr, token: Option<&str>) -> u16 {
    let Ok(mut stream) = TcpStream::connect(address) else { return 0 };
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    stream.set_write_timeout(Some(Duration::from_secs(60))).expect("a socket");
    let bearer = token.map_or(String::new(), |token| format!("authorization: Bearer {token}\r\n"));
    let head = format!("POST /db/main/sql HTTP/1.1\r\nhost: localhost\r\n{bearer}content-length: {BODY_BYTES}\r\n\r\n");
    let piece = vec![b'x'; 1 << 20];
    let mut sent = stream.write_all(head.as_bytes());
    for _ in 0..BODY_BYTES / piece.len() {
        sent = sent.and_then(|()| stream.write_all(&piece));
    }
    sent = sent.and_then(|()| stream.write_all(&piece[..BODY_BYTES % piece.len()]));
    let mut first = [0; 12];
    let read = stream.read_exact(&mut first);
    match (sent, read) {
        (_, Ok(())) => std::str::from_utf8(&first[9..]).ok().and_then(|status| status.parse().ok()).unwrap_or(0),
        // The node ended the connection of somebody it will not hear.
        _ => 0,
    }
}

fn taken(cluster: &Cluster, id: u32) -> Taken {
    Taken::by(cluster.processes[&id].0.id())
}

#[test]
#[ignore = "takes all of a machine for minutes: on demand, see docs/testing.md"]
fn bodies_of_a_hundred_megabytes_from_two_hundred_clients_are_bounded() {
    let mut cluster = guarded();
    let leader = cluster.roles().leader;
    let [follower, _] = cluster.roles().followers();
    cluster.write(leader, "CREATE TABLE kept (v)");
    for (through, role) in [(leader, "leader"), (follower, "follower")] {
        let address = cluster.addresses[&through];
        for (token, whose) in [(None, "strangers"), (Some(READER), "a reader")] {
            let (statuses, written) = std::thread::scope(|scope| {
                let senders: Vec<_> = (0..SENDERS).map(|_| scope.spawn(move || send_large(address, token))).collect();
                let written = p99(address, WRITER, "INSERT INTO kept VALUES (1)", WATCHED);
                let statuses: Vec<u16> = senders.into_iter().map(|sender| sender.join().expect("no panic")).collect();
                (statuses, written)
            });
            let count = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
            figure(&format!(
                "{SENDERS} bodies of {BODY_BYTES} bytes by {whose} through the {role}: {} were answered 401, {} 413, {} 503, {} not; p99 of {} writes {:.0} ms; {:?}",
                count(401),
                count(413),
                count(503),
                count(0),
                written.1,
                written.0,
                taken(&cluster, through),
            ));
            assert_eq!(count(200), 0, "nobody is served");
            assert!(taken(&cluster, through).mib_max < RESIDENT_MAX_MIB, "{:?}", taken(&cluster, through));
        }
    }
    cluster.verify();
}

#[test]
#[ignore = "takes all of a machine for minutes: on demand, see docs/testing.md"]
fn a_reader_who_takes_his_whole_share_keeps_no_writer_out() {
    let mut cluster = guarded();
    let leader = cluster.roles().leader;
    let address = cluster.addresses[&leader];
    cluster.write(leader, "CREATE TABLE kept (v)");
    let writes = || p99(address, WRITER, "INSERT INTO kept VALUES (1)", WATCHED);
    let reads = || p99(address, WRITER, "SELECT count(*) FROM kept WHERE rowid < 9", WATCHED);
    figure(&format!("before: p99 of writes {:?}, of reads {:?} (milliseconds, how many)", writes(), reads()));
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    let asked = request("POST", "/db/main/sql", READER, &json!({ "sql": endless }).to_string());
    let mut unread = ask_and_leave_unread(address, READERS_REQUESTS, &asked);
    wait_for("all are under way", || {
        (metric(address, "highwater_requests_open") >= READERS_REQUESTS as f64).then_some(())
    });
    assert_eq!(begun(&unread), (0, 0, READERS_REQUESTS), "all at the limit wait");
    let beyond = ask_and_leave_unread(address, BEYOND, &asked);
    wait_for("those beyond the limit are refused", || (begun(&beyond).1 == BEYOND).then_some(()));
    unread.extend(beyond);
    let (written, read) = (writes(), reads());
    figure(&format!(
        "{READERS_REQUESTS} requests of a reader under way, as many statements without end as he has threads: p99 of writes {written:?}, of a writer's reads {read:?}; {:?}",
        taken(&cluster, leader)
    ));
    drop(unread);
    wait_for("they have left", || (metric(address, "highwater_requests_open") < 10.0).then_some(()));
    cluster.verify();
}
