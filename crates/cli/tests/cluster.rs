//! `dev` and `bench` as processes: what they print, what they leave behind, and that nothing of theirs outlives them.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use highwater_client::{Client, Freshness, Transaction};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The built binary.
const HIGHWATER: &str = env!("CARGO_BIN_EXE_highwater");

/// What has not happened after this long never will, whatever the machine is busy with.
const PATIENCE: Duration = Duration::from_secs(60);

/// A `dev` that runs. Dropping it kills it, and the kernel its nodes.
struct Dev {
    process: Child,
    /// The line it printed when it was ready.
    ready: Value,
    /// Whatever it prints afterwards.
    rest: BufReader<ChildStdout>,
}

impl Drop for Dev {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Dev {
    fn start(folder: &Path, port: u16, more: &[&str]) -> Dev {
        let mut process = Command::new(HIGHWATER)
            .args(["dev", "--json", "--port", &port.to_string(), "--data"])
            .arg(folder)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary can be started");
        let mut rest = BufReader::new(process.stdout.take().expect("its output is piped"));
        let mut line = String::new();
        rest.read_line(&mut line).expect("it prints a line");
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        Dev { process, ready, rest }
    }

    fn nodes(&self) -> &[Value] {
        self.ready["nodes"].as_array().expect("a list of nodes")
    }

    fn urls(&self) -> Vec<String> {
        self.nodes().iter().map(|node| node["http"].as_str().expect("a URL").to_string()).collect()
    }

    fn pids(&self) -> Vec<u64> {
        self.nodes().iter().map(|node| node["pid"].as_u64().expect("a process")).collect()
    }

    /// SIGTERM; returns what else it has printed.
    fn stop(mut self) -> String {
        signal("TERM", u64::from(self.process.id()));
        let status = self.process.wait().expect("it can be waited for");
        assert!(status.success(), "a command that is told to end ends well: {status}");
        let mut text = String::new();
        self.rest.read_to_string(&mut text).expect("what it printed can be read");
        text
    }
}

fn signal(name: &str, pid: u64) {
    let told = Command::new("sh").args(["-c", "kill -\"$1\" \"$2\"", "sh", name, &pid.to_string()]).status();
    assert!(told.expect("sh can be started").success(), "the process {pid} can be told");
}

fn runs(pid: u64) -> bool {
    // One that has ended and was not waited for yet does nothing any more.
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !matches!(state.rsplit(") ").next().and_then(|rest| rest.chars().next()), None | Some('Z' | 'X'))
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not after {PATIENCE:?}");
        // sleep: another process gives no sign that could be waited for; this looks at a condition and has a time limit.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The first of three ports in a row on which nobody listens.
fn free_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = (std::process::id() % 400) as u16 * 24;
    for _ in 0..400 {
        let port = 10_000 + (begin + 3 * NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if (port..port + 3).all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()) {
            return port;
        }
    }
    panic!("no three free ports in a row among 400 tried");
}

fn output(arguments: &[&str]) -> (bool, Value) {
    let output = Command::new(HIGHWATER).args(arguments).stdin(Stdio::null()).output().expect("the binary starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let document = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{arguments:?} prints {text:?}: {error}; {}", String::from_utf8_lossy(&output.stderr))
    });
    (output.status.success(), document)
}

fn count(client: &mut Client) -> Value {
    let read = Transaction::of("SELECT count(*) FROM t", []);
    client.query("main", &read, Freshness::Linearizable).expect("a read").results[0].rows[0][0].clone()
}

#[test]
fn a_dev_cluster_survives_its_leader_ends_with_its_command_and_comes_back() {
    let folder = TempDir::new().expect("a temporary folder");
    let port = free_ports();
    let dev = Dev::start(folder.path(), port, &[]);
    assert_eq!((dev.ready["database"].clone(), dev.nodes().len()), (json!("main"), 3));
    let ids: Vec<Value> = dev.nodes().iter().map(|node| node["id"].clone()).collect();
    assert_eq!(ids, [json!(1), json!(2), json!(3)]);
    assert_eq!(dev.urls()[2], format!("http://127.0.0.1:{}", port + 2));
    assert!(dev.nodes().iter().all(|node| PathBuf::from(node["data"].as_str().unwrap_or_default()).is_dir()));

    let mut client = Client::new(dev.urls()).expect("a client");
    client.execute("main", &Transaction::of("CREATE TABLE t (x)", [])).expect("a table");
    let wrote = client.execute("main", &Transaction::of("INSERT INTO t VALUES (1)", [])).expect("a row");
    let leader = dev.urls().iter().position(|url| *url == wrote.url).expect("the leader is one of the nodes");
    signal("KILL", dev.pids()[leader]);
    let wrote = client.execute("main", &Transaction::of("INSERT INTO t VALUES (2)", [])).expect("without the leader");
    assert_ne!(wrote.url, dev.urls()[leader]);
    assert_eq!(count(&mut client), json!(2));
    let pids = dev.pids();
    assert_eq!(dev.stop(), "", "exactly one line");
    assert!(!pids.iter().any(|pid| runs(*pid)), "its nodes end before the command does");

    let mut dev = Dev::start(folder.path(), port, &["--restart"]);
    let mut client = Client::new(dev.urls()).expect("a client");
    assert_eq!(count(&mut client), json!(2), "the same cluster");
    signal("KILL", dev.pids()[0]);
    let first = dev.urls()[0].clone();
    wait_until("the killed node is gone", || !runs(dev.pids()[0]));
    let ready = || highwater_client::fetch(&first, "/ready", PATIENCE).is_ok_and(|(status, _)| status == 200);
    wait_until("the killed node serves again", ready);
    let pids = dev.pids();
    dev.process.kill().expect("it can be killed");
    dev.process.wait().expect("it can be waited for");
    let refused = || highwater_client::fetch(&first, "/health", PATIENCE).is_err();
    wait_until("the nodes of a killed command are gone", || refused() && !pids.iter().any(|pid| runs(*pid)));

    let (fits, told) = (Command::new(HIGHWATER), "holds a cluster of 3 nodes");
    let mut wrong = fits;
    let wrong = wrong.args(["dev", "--nodes", "2", "--data"]).arg(folder.path()).output().expect("the binary starts");
    assert!(!wrong.status.success() && String::from_utf8_lossy(&wrong.stderr).contains(told), "{wrong:?}");
}

#[test]
fn bench_counts_rows_latencies_and_flushes() {
    let folder = TempDir::new().expect("a temporary folder");
    let dev = Dev::start(&folder.path().join("cluster"), free_ports(), &["--nodes", "1"]);
    let scratch = folder.path().to_str().expect("a path in UTF-8");
    let url = dev.urls()[0].clone();
    let (well, document) =
        output(&["bench", "--url", &url, "--clients", "1,3", "--seconds", "1", "--sqlite-in", scratch, "--json"]);
    assert!(well, "{document}");
    let rows = document["rows"].as_array().expect("a list of rows");
    let what: Vec<(&str, u64)> =
        rows.iter().map(|row| (row["what"].as_str().unwrap_or(""), row["clients"].as_u64().unwrap_or(0))).collect();
    assert_eq!(what, [("sqlite alone", 1), ("highwater", 1), ("highwater", 3)]);
    for row in rows {
        assert_eq!(row["errors"], 0, "{row}");
        let (p50, p99) = (row["p50_ms"].as_f64().unwrap_or(0.0), row["p99_ms"].as_f64().unwrap_or(0.0));
        assert!(row["rows_per_second"].as_f64().unwrap_or(0.0) > 0.0 && 0.0 < p50 && p50 <= p99, "{row}");
        let flushes = row["fdatasyncs"].as_object().expect("counts by node");
        assert!(flushes.len() == 1 && flushes.values().all(|count| count.as_u64() > Some(0)), "{row}");
    }
    let left = highwater_client::fetch(&url, "/status", PATIENCE).expect("the node still serves");
    assert_eq!(left.0, 200);
}
