//! Clients who ask and never read, what a node's process takes meanwhile, and how others fare.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Cluster;
use crate::http::Connection;
use crate::node::pause;

/// Whoever may do everything.
pub(super) const WRITER: &str = "writer-mGq7RkX2vT9bLs4w";
/// Whoever may read, and means harm.
pub(super) const READER: &str = "reader-Zp3cYd8nJf5hWa6e";
/// Another one, who means none.
pub(super) const OTHER: &str = "other-reader-Uk4tBv7xQm2sGh9";
const SECRET: &str = "qm5x-H2rT9bVwK7dLc3zPfYs8aGjN4eU";

/// Three nodes that know the three tokens.
pub(super) fn guarded() -> Cluster {
    Cluster::start(&["--cluster-secret", SECRET, "--token", WRITER, "--read-token", READER, "--read-token", OTHER])
}

/// A write that may take its time, as large ones do on a busy machine.
pub(super) fn write(address: SocketAddr, sql: &str) {
    let bearer = format!("Bearer {WRITER}");
    let body = json!({ "sql": sql }).to_string();
    let response =
        Connection::open(address).request("POST", "/db/main/sql", &[("authorization", &bearer)], body.as_bytes());
    assert_eq!(response.status, 200, "{sql}: {}", String::from_utf8_lossy(&response.body));
}

/// A request as bytes.
pub(super) fn request(method: &str, path: &str, token: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// A pipeline that executes one statement.
pub(super) fn execute(sql: &str) -> Value {
    json!({"type": "execute", "stmt": {"sql": sql}})
}

/// Sends so many requests, each on a connection of its own, and reads nothing.
pub(super) fn ask_and_leave_unread(address: SocketAddr, count: usize, request: &[u8]) -> Vec<TcpStream> {
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..count)
            .map(|_| {
                scope.spawn(move || {
                    let mut stream = TcpStream::connect(address).ok()?;
                    stream.write_all(request).ok()?;
                    Some(stream)
                })
            })
            .collect();
        asking.into_iter().filter_map(|asked| asked.join().expect("no panic")).collect()
    })
}

/// Of answers that were never read: how many began with 200, with another status, and not at all.
pub(super) fn begun(streams: &[TcpStream]) -> (usize, usize, usize) {
    let mut counts = (0, 0, 0);
    for stream in streams {
        let mut first = [0; 12];
        stream.set_nonblocking(true).expect("a socket");
        match stream.peek(&mut first) {
            Ok(12) if first.ends_with(b"200") => counts.0 += 1,
            Ok(12) => counts.1 += 1,
            _ => counts.2 += 1,
        }
    }
    counts
}

/// Whether the node has ended that connection, whatever it had sent before.
pub(super) fn has_ended(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    let mut piece = vec![0; 1 << 20];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

/// A line of a process' status, a number.
fn status_of(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|figure| figure.parse().ok()).expect("a number")
}

/// What a process takes: MiB of memory now and at most, threads, open files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// Read by nobody but whoever reads the figures.
    #[expect(dead_code, reason = "it is printed")]
    pub(super) mib: u64,
    pub(super) mib_max: u64,
    pub(super) threads: u64,
    pub(super) files: usize,
}

impl Taken {
    pub(super) fn by(pid: u32) -> Taken {
        Taken {
            mib: status_of(pid, "VmRSS:") >> 10,
            mib_max: status_of(pid, "VmHWM:") >> 10,
            threads: status_of(pid, "Threads:"),
            files: std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs").count(),
        }
    }
}

/// Fewer requests than these say nothing, however long they take.
const ASKED_MIN: usize = 5;

/// Whoever is not served within this time is shut out.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

fn ask_once(connection: &mut Connection, bearer: &str, body: &str) -> Result<(), String> {
    let response = connection.request("POST", "/db/main/sql", &[("authorization", bearer)], body.as_bytes());
    let text = String::from_utf8_lossy(&response.body).into_owned();
    assert!(matches!(response.status, 200 | 503), "{text}");
    if response.status == 200 { Ok(()) } else { Err(text) }
}

/// How long requests take one after the other for a while: the p99 in milliseconds, and how many there were. All must
/// succeed in the end.
pub(super) fn p99(address: SocketAddr, token: &str, sql: &str, time: Duration) -> (f64, usize) {
    let begun = Instant::now();
    let bearer = format!("Bearer {token}");
    let body = json!({ "sql": sql }).to_string();
    let mut connection = Connection::open(address);
    let mut took = Vec::new();
    while begun.elapsed() < time || took.len() < ASKED_MIN {
        let asked = Instant::now();
        // A refusal that says that nothing happened is part of the wait: the machine may be busy with other things.
        while let Err(refused) = ask_once(&mut connection, &bearer, &body) {
            assert!(asked.elapsed() < SERVED_WITHIN, "{sql}: {refused}");
        }
        took.push(asked.elapsed().as_secs_f64() * 1000.0);
        pause();
    }
    took.sort_by(f64::total_cmp);
    (took[took.len() * 99 / 100], took.len())
}

/// A figure of a node's `/metrics`.
pub(super) fn metric(address: SocketAddr, name: &str) -> f64 {
    let bearer = format!("Bearer {WRITER}");
    let response = Connection::open(address).request("GET", "/metrics", &[("authorization", &bearer)], b"");
    let text = String::from_utf8(response.body).expect("metrics are text");
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
    line.rsplit(' ').next().and_then(|figure| figure.parse().ok()).expect("a figure")
}
