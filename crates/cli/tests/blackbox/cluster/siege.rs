//! More connections than a node has descriptors for, all of strangers who say nothing, little, or the wrong thing: writes through every node go on.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use highwater_client::{Client, Config, Transaction};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use super::{Cluster, IDS, figure};

const SECRET: &str = "qm5x-H2rT9bVwK7dLc3zPfYs8aGjN4eU";
/// The descriptors of each node.
const OPEN_FILES: u32 = 1024;
/// Strangers of each kind at each node.
const STRANGERS: usize = 300;
/// Writes through each node, before the siege and in it.
const WRITES: usize = 300;

/// What a stranger says at first, and whether it goes on, a byte at a time.
const KINDS: [(&str, &[u8], bool); 4] = [
    ("silent", b"", false),
    ("half a head", b"POST /db/main/sql HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-le", false),
    ("trickling", b"POST /db/main/sql HTTP/1.1\r\n", true),
    ("like a node", b"HWPEER\r\n", false),
];

/// Keeps so many connections of one kind open to a node, opened anew whenever the node ends them, until told to stop.
fn besiege(address: SocketAddr, (_, first, trickles): (&str, &[u8], bool), stop: &AtomicBool, opened: &AtomicUsize) {
    let mut strangers: Vec<Option<TcpStream>> = (0..STRANGERS).map(|_| None).collect();
    while !stop.load(Ordering::Acquire) {
        for stranger in &mut strangers {
            let ended = match stranger {
                None => true,
                Some(stream) if trickles => stream.write_all(b"x").is_err(),
                Some(stream) => match stream.peek(&mut [0]) {
                    Ok(0) => true,
                    Ok(_) => false,
                    Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
                },
            };
            if ended {
                *stranger = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok().and_then(|mut stream| {
                    stream.write_all(first).ok()?;
                    stream.set_nonblocking(true).ok()?;
                    opened.fetch_add(1, Ordering::Relaxed);
                    Some(stream)
                });
            }
        }
        // sleep: the pace of the siege; each stranger is looked at some times a second.
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The p99 of single-row writes through a node, in milliseconds, on a connection that is opened for each.
fn writes(cluster: &Cluster, id: u32) -> f64 {
    let mut took: Vec<f64> = (0..WRITES)
        .map(|_| {
            let config = Config { discover: false, ..Config::new([cluster.url(id)]) };
            let mut client = Client::with(config).expect("a client");
            let begun = Instant::now();
            let wrote = client.execute("main", &Transaction::of("INSERT INTO kept VALUES (1)", []));
            wrote.unwrap_or_else(|error| panic!("node {id}: {error}\n{}", cluster.log(id)));
            begun.elapsed().as_secs_f64() * 1000.0
        })
        .collect();
    took.sort_by(f64::total_cmp);
    took[took.len() * 99 / 100]
}

/// A line of a process' status, in the kernel's words.
fn of_process(cluster: &Cluster, id: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.processes[&id].0.id()));
    let status = status.expect("the process runs");
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
}

fn open_files(cluster: &Cluster, id: u32) -> usize {
    let folder = format!("/proc/{}/fd", cluster.processes[&id].0.id());
    std::fs::read_dir(folder).expect("the process runs").count()
}

#[test]
fn strangers_who_take_every_descriptor_keep_no_writer_out() {
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < (IDS.len() * STRANGERS * KINDS.len() + 500) as u64) {
        figure("SKIPPED: this process may not open as many files as the siege needs");
        return;
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("the soft limit can be raised");
    let mut cluster = Cluster::start_limited(Some(OPEN_FILES), &["--cluster-secret", SECRET]);
    cluster.write(1, "CREATE TABLE kept (v)");
    let leader = cluster.roles();
    let before = IDS.map(|id| writes(&cluster, id));
    let (stop, opened) = (AtomicBool::new(false), AtomicUsize::new(0));
    let during = std::thread::scope(|scope| {
        for id in IDS {
            for kind in KINDS {
                let (address, stop, opened) = (cluster.addresses[&id], &stop, &opened);
                scope.spawn(move || besiege(address, kind, stop, opened));
            }
        }
        super::wait_for("all strangers have come", || {
            (opened.load(Ordering::Relaxed) >= IDS.len() * STRANGERS * KINDS.len()).then_some(())
        });
        let during = IDS.map(|id| writes(&cluster, id));
        for id in IDS {
            figure(&format!(
                "node {id} under siege: {} open files of {OPEN_FILES}, {} threads, {} resident (at most {})",
                open_files(&cluster, id),
                of_process(&cluster, id, "Threads"),
                of_process(&cluster, id, "VmRSS"),
                of_process(&cluster, id, "VmHWM"),
            ));
        }
        stop.store(true, Ordering::Release);
        during
    });
    for (id, (before, during)) in IDS.into_iter().zip(before.into_iter().zip(during)) {
        figure(&format!("writes through node {id}: p99 {before:.1} ms before, {during:.1} ms under siege"));
    }
    figure(&format!("strangers' connections opened: {}", opened.load(Ordering::Relaxed)));
    assert_eq!(cluster.roles(), leader, "nobody had to lead in another's place");
    let rows = IDS.len() * 2 * WRITES;
    assert_eq!(cluster.rows(1, "", "SELECT count(*) FROM kept"), json!([[rows]]), "every write was carried out once");
    cluster.verify();
}
