//! A node as a process: started in a temporary folder on a port of its own, and ended with the test, by its own process id.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::Connection;

/// A node that is not ready after this long has hung, whatever the machine is busy with.
const PATIENCE: Duration = Duration::from_secs(60);

/// The built binary.
pub(crate) const HIGHWATER: &str = env!("CARGO_BIN_EXE_highwater");

/// A running node. Dropping it kills the process and removes its folder.
pub(crate) struct Node {
    // Before `folder`, so that the process is gone before its files are.
    process: Process,
    folder: TempDir,
    address: SocketAddr,
    arguments: Vec<String>,
}

/// A child that does not outlive its test.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Node {
    /// Starts a node with an empty folder and waits until it is ready.
    pub(crate) fn start() -> Node {
        Node::start_with(&[])
    }

    /// Starts a node with more arguments to `serve`.
    pub(crate) fn start_with(arguments: &[&str]) -> Node {
        Node::start_in(TempDir::new().expect("a temporary folder"), arguments)
    }

    /// Starts a node on a folder that is there; its data lies in `data` below it.
    pub(crate) fn start_in(folder: TempDir, arguments: &[&str]) -> Node {
        let mut node = Node::launch(folder, free_address(), arguments);
        node.wait_until_ready();
        node
    }

    /// Starts a node, and does not wait: one of several is ready only when enough of them run.
    pub(crate) fn launch(folder: TempDir, address: SocketAddr, arguments: &[&str]) -> Node {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let process = spawn(folder.path(), address, &arguments);
        Node { process, folder, address, arguments }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its data folder.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// What it has written to standard error since it was first started.
    pub(crate) fn log(&self) -> String {
        log_of(self.folder.path())
    }

    /// Ends the process as a power cut would, but for what the kernel still holds.
    pub(crate) fn kill(&mut self) {
        self.process.0.kill().expect("the process can be killed");
        self.process.0.wait().expect("the process can be waited for");
    }

    /// Sends the process a signal, by its name as `kill` has it.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let told =
            Command::new("sh").args(["-c", "kill -$2 \"$1\"", "sh", &pid, name]).status().expect("sh can be started");
        assert!(told.success(), "the process {pid} can be signalled");
    }

    /// The process's id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Asks the process to end, as a supervisor does, and waits until it has.
    pub(crate) fn stop(&mut self) {
        self.signal("TERM");
        let status = self.process.0.wait().expect("the process can be waited for");
        assert!(status.success(), "a node that is told to end ends well ({status}):\n{}", self.log());
    }

    /// Starts it again on the same folder and port, and waits until it is ready.
    pub(crate) fn restart(&mut self) {
        self.launch_again();
        self.wait_until_ready();
    }

    /// Starts it again on the same folder and port, and does not wait.
    pub(crate) fn launch_again(&mut self) {
        self.process = spawn(self.folder.path(), self.address, &self.arguments);
    }

    /// Whether the process still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.process.0.try_wait().expect("the process can be asked").is_none()
    }

    /// Stops it and gives its folder away.
    pub(crate) fn into_folder(mut self) -> TempDir {
        self.kill();
        let Node { folder, .. } = self;
        folder
    }

    /// Runs the binary against this node.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        Command::new(HIGHWATER)
            .args(arguments)
            .args(["--url", &self.url()])
            .stdin(Stdio::null())
            .output()
            .expect("the binary can be started")
    }

    /// Runs one statement over plain HTTP and returns the whole answer.
    pub(crate) fn sql(&self, sql: &str) -> (u16, Value) {
        Connection::open(self.address).post("/db/main/sql", &json!({ "sql": sql }))
    }

    /// Runs one statement that must succeed, and returns its rows.
    pub(crate) fn rows(&self, sql: &str) -> Value {
        let (status, mut answer) = self.sql(sql);
        assert_eq!(status, 200, "{sql}: {answer}");
        answer["results"][0]["rows"].take()
    }

    /// The hash of everything in the database, as `highwater verify` gives it.
    pub(crate) fn content_hash(&self) -> String {
        let output = self.run(&["verify", "--json"]);
        assert!(output.status.success(), "verify: {}", String::from_utf8_lossy(&output.stderr));
        let answer: Value = serde_json::from_slice(&output.stdout).expect("verify --json prints one JSON document");
        answer["hash"].as_str().unwrap_or_else(|| panic!("verify names the hash: {answer}")).to_owned()
    }

    /// Waits until it serves.
    ///
    /// # Panics
    /// If it ends instead, or is not ready in time.
    pub(crate) fn wait_until_ready(&mut self) {
        let begun = Instant::now();
        loop {
            if !self.is_running() {
                panic!("the node ended instead of becoming ready:\n{}", self.log());
            }
            let answer = Connection::try_open(self.address)
                .and_then(|mut connection| connection.try_request("GET", "/ready", &[], b""));
            if answer.is_ok_and(|response| response.status == 200) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "the node is not ready after {PATIENCE:?}:\n{}", self.log());
            pause();
        }
    }
}

/// Starts `highwater serve` on the folder's `data`, adding what it says to the folder's `log`.
fn spawn(folder: &Path, address: SocketAddr, arguments: &[String]) -> Process {
    let mut command = Command::new(HIGHWATER);
    command.arg("serve").arg("--data").arg(folder.join("data")).args(["--listen", &address.to_string()]);
    spawn_logged(command.args(arguments), folder)
}

/// Starts a command whose output goes to the end of the folder's `log`.
pub(crate) fn spawn_logged(command: &mut Command, folder: &Path) -> Process {
    let log = File::options().create(true).append(true).open(folder.join("log")).expect("the log can be opened");
    let stdout = log.try_clone().expect("a file can be shared");
    let child = command.stdin(Stdio::null()).stdout(stdout).stderr(log).spawn().expect("the binary can be started");
    Process(child)
}

/// What was written to the folder's `log`.
pub(crate) fn log_of(folder: &Path) -> String {
    let bytes = std::fs::read(folder.join("log")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A loopback address that nobody listens on. Ports below those the kernel gives to outgoing connections, and begun at a place that differs
/// between processes, so that tests side by side rarely try the same one, and a restarted node finds its port free.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = (std::process::id() % 400) as u16 * 50;
    for _ in 0..400 {
        let port = 10_000 + (begin + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no free port among 400 tried");
}

/// Lets a little time pass between two looks at another process.
pub(crate) fn pause() {
    // sleep: another process gives no sign that could be waited for; whoever calls this looks at a condition and has a time limit.
    std::thread::sleep(Duration::from_millis(5));
}
