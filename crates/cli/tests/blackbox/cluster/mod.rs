//! Three nodes as processes, the network between them, and what is done to both.

mod adopted;
mod attacks;
mod crowds;
mod encrypted;
mod left;
mod load;
mod lost_folders;
#[path = "../../../src/net.rs"]
mod net;
mod partitions;
mod paused_leader;
mod rotation;
mod siege;
mod strangers;
mod unread;
mod writers;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use highwater_client::{Client, Config, Transaction};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{Connection, JSON, Response};
use crate::node::{HIGHWATER, Process, free_address, log_of, pause, spawn_logged};
use net::Net;

/// What has not happened after this long never will, whatever the machine is busy with.
const PATIENCE: Duration = Duration::from_secs(60);

/// The ids of the nodes.
const IDS: [u32; 3] = [1, 2, 3];

/// Waits until something is there.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        pause();
    }
}

/// Prints a figure. Not by `println`, which a test's runner keeps to itself when the test passes.
fn figure(text: &str) {
    use std::io::Write;
    writeln!(std::io::stderr(), "FIGURE: {text}").expect("standard error can be written to");
}

/// Who does what, as all nodes see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Roles {
    /// The leader of `main`.
    leader: u32,
    /// The leader of the metadata, beside which the coordinator is.
    metadata: u32,
    /// The epoch of `main`.
    epoch: u64,
}

impl Roles {
    /// The nodes that do not lead `main`.
    fn followers(self) -> [u32; 2] {
        let others: Vec<u32> = IDS.into_iter().filter(|id| *id != self.leader).collect();
        others.try_into().expect("two of three do not lead")
    }
}

/// How clients reach the nodes of a cluster.
#[derive(Clone, Default)]
struct Access {
    /// The certificates that the nodes' must lead to; without, the nodes speak no TLS with clients.
    ca: Option<PathBuf>,
    /// A file with a token whose bearers may do everything.
    token_file: Option<PathBuf>,
}

impl Access {
    /// The token.
    fn token(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.token_file.as_ref()?).expect("the file of the token");
        Some(text.trim().to_owned())
    }

    /// The same as arguments of a command.
    fn arguments(&self) -> Vec<String> {
        let named = [("--ca", &self.ca), ("--token-file", &self.token_file)];
        let given =
            named.into_iter().filter_map(|(name, path)| Some([name.to_owned(), path.as_ref()?.display().to_string()]));
        given.flatten().collect()
    }
}

/// A cluster of three. Dropping it kills its nodes.
struct Cluster {
    // Before `folder`, so that the processes are gone before their files are.
    processes: BTreeMap<u32, Process>,
    addresses: BTreeMap<u32, SocketAddr>,
    /// In each, `{id}` stands for the node's id.
    arguments: Vec<String>,
    access: Access,
    /// The limit of open files of each node, if it is another than the machine's.
    open_files: Option<u32>,
    net: Net,
    folder: TempDir,
}

impl Cluster {
    /// Starts three nodes with these arguments to `serve` beside their own, and waits until they serve.
    fn start(arguments: &[&str]) -> Cluster {
        Cluster::start_as(Access::default(), None, arguments)
    }

    /// The same, with a limit of open files.
    fn start_limited(open_files: Option<u32>, arguments: &[&str]) -> Cluster {
        Cluster::start_as(Access::default(), open_files, arguments)
    }

    /// The same, for nodes that are reached in another way than by default.
    fn start_as(access: Access, open_files: Option<u32>, arguments: &[&str]) -> Cluster {
        let addresses: BTreeMap<u32, SocketAddr> = IDS.into_iter().map(|id| (id, free_address())).collect();
        let net = Net::new(&addresses, free_address);
        let folder = TempDir::new().expect("a temporary folder");
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut cluster = Cluster { processes: BTreeMap::new(), addresses, arguments, access, open_files, net, folder };
        for id in IDS {
            std::fs::create_dir(cluster.folder_of(id)).expect("a folder can be made");
            cluster.start_node(id);
        }
        cluster.roles();
        cluster
    }

    fn folder_of(&self, id: u32) -> PathBuf {
        self.folder.path().join(format!("node-{id}"))
    }

    /// The data folder of a node.
    fn data(&self, id: u32) -> PathBuf {
        self.folder_of(id).join("data")
    }

    /// What a node has written to standard error.
    fn log(&self, id: u32) -> String {
        log_of(&self.folder_of(id))
    }

    fn url(&self, id: u32) -> String {
        let scheme = if self.access.ca.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.addresses[&id])
    }

    /// How a client is configured that knows one node alone.
    fn config(&self, id: u32) -> Config {
        let ca = self.access.ca.as_ref().map(|path| std::fs::read(path).expect("the certificates to trust"));
        Config { discover: false, token: self.token(), ca, ..Config::new([self.url(id)]) }
    }

    /// A client that knows one node alone.
    fn client(&self, id: u32) -> Client {
        Client::with(self.config(id)).expect("a client")
    }

    /// What a node answers to a GET.
    fn fetch(&self, id: u32, path: &str, wait: Duration) -> Option<(u16, Vec<u8>)> {
        highwater_client::fetch_from(&Config { connect: wait, ..self.config(id) }, path, wait).ok()
    }

    /// The list of nodes as that one is given it: itself where it is, the others where their proxies are.
    fn peers(&self, id: u32) -> String {
        let address = |other| if other == id { self.addresses[&id] } else { self.net.address((id, other)) };
        IDS.map(|other| format!("{other}={}", address(other))).join(",")
    }

    /// The command that is a node.
    fn serve(&self, id: u32) -> Command {
        let mut command = match self.open_files {
            None => Command::new(HIGHWATER),
            Some(most) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("ulimit -n {most} && exec \"$0\" \"$@\""), HIGHWATER]);
                shell
            }
        };
        command.args(["serve", "--id", &id.to_string(), "--data"]).arg(self.data(id));
        command.args(["--listen", &self.addresses[&id].to_string(), "--peers", &self.peers(id)]);
        command.args(self.arguments.iter().map(|argument| argument.replace("{id}", &id.to_string())));
        command
    }

    fn start_node(&mut self, id: u32) {
        let process = spawn_logged(&mut self.serve(id), &self.folder_of(id));
        self.processes.insert(id, process);
    }

    /// SIGTERM, and waits until the process has ended.
    fn stop_node(&mut self, id: u32) {
        self.signal(id, Signal::TERM);
        let mut process = self.processes.remove(&id).expect("it runs");
        let status = process.0.wait().expect("it can be waited for");
        assert!(status.success(), "node {id} ends well when told to ({status}):\n{}", self.log(id));
    }

    fn signal(&self, id: u32, signal: Signal) {
        let pid = Pid::from_raw(self.processes[&id].0.id() as i32).expect("a process has an id");
        kill_process(pid, signal).expect("a process that was not waited for can be told");
    }

    /// What a node knows by itself, if it answers.
    fn status(&self, id: u32) -> Option<Value> {
        let (status, body) = self.fetch(id, "/status?scope=node", Duration::from_secs(2))?;
        serde_json::from_slice(&body).ok().filter(|_| status == 200)
    }

    /// The token by which the nodes are reached, if they were started with one.
    fn token(&self) -> Option<String> {
        let given = || {
            let at = self.arguments.iter().position(|argument| argument == "--token")?;
            self.arguments.get(at + 1).cloned()
        };
        self.access.token().or_else(given)
    }

    /// `main` as a node knows it.
    fn main(&self, id: u32) -> Option<Value> {
        let status = self.status(id)?;
        status["partitions"].as_array()?.iter().find(|partition| partition["name"] == "main").cloned()
    }

    /// How far a node's own replica of `main` is: (LEO, HW, applied).
    fn positions(&self, id: u32) -> Option<(u64, u64, u64)> {
        let main = self.main(id)?;
        let own = main["replicas"].as_array()?.iter().find(|replica| replica["node"] == id)?.clone();
        Some((own["leo"].as_u64()?, own["hw"].as_u64()?, own["applied"].as_u64()?))
    }

    fn roles_at(&self, id: u32) -> Option<Roles> {
        let metadata = self.status(id)?["metadata_leader"].as_u64()? as u32;
        let main = self.main(id)?;
        Some(Roles { leader: main["leader"].as_u64()? as u32, metadata, epoch: main["epoch"].as_u64()? })
    }

    /// Waits until all nodes are ready and agree who does what.
    fn roles(&self) -> Roles {
        wait_for("all nodes serve and agree", || {
            let ready = |id| self.fetch(id, "/ready", PATIENCE).is_some_and(|(status, _)| status == 200);
            let [one, two, three] = IDS.map(|id| self.roles_at(id).filter(|_| ready(id)));
            one.filter(|_| one == two && two == three)
        })
    }

    /// The epoch that a node's replica of the metadata has promised.
    fn metadata_epoch(&self, id: u32) -> u64 {
        let folder = self.data(id).join("meta");
        let output = Command::new(HIGHWATER).args(["log", "dump", "--json"]).arg(&folder).output();
        let output = output.expect("the binary starts");
        let document: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
        document["log"]["promised"].as_u64().unwrap_or_else(|| panic!("a promise: {}", document["log"]))
    }

    /// One statement over plain HTTP at one node, with a query behind the path.
    fn try_sql(&self, id: u32, query: &str, sql: &str) -> std::io::Result<Response> {
        let body = json!({ "sql": sql }).to_string();
        Connection::try_open(self.addresses[&id])?.try_request(
            "POST",
            &format!("/db/main/sql{query}"),
            &JSON,
            body.as_bytes(),
        )
    }

    /// A statement that writes, once, through one node alone.
    fn write(&self, id: u32, sql: &str) {
        let wrote = self.client(id).execute("main", &Transaction::of(sql, []));
        wrote.unwrap_or_else(|error| panic!("node {id}: {sql}: {error}\n{}", self.log(id)));
    }

    /// Rows of a statement that must succeed within the usual patience, asked until it does if the reason passes.
    fn rows(&self, id: u32, query: &str, sql: &str) -> Value {
        wait_for(&format!("node {id} answers {sql}"), || {
            let response = self.try_sql(id, query, sql).ok()?;
            match response.status {
                200 => Some(response.json()["results"][0]["rows"].take()),
                503 | 504 => None,
                other => panic!("{sql}: {other} {}", response.json()),
            }
        })
    }

    /// Waits until every replica has applied everything that any log holds.
    fn settle(&self) {
        wait_for("every replica has applied the last position", || {
            let all = IDS.map(|id| self.positions(id));
            let (leo, ..) = all[0]?;
            all.iter().all(|one| *one == Some((leo, leo, leo))).then_some(())
        });
    }

    /// That the replicas agree, through `verify` at every node, and that nothing has panicked anywhere.
    fn verify(&mut self) {
        for id in IDS {
            let ended = self.processes.get_mut(&id).expect("it was started").0.try_wait().expect("it can be asked");
            assert!(ended.is_none(), "node {id} ended ({ended:?}):\n{}", self.log(id));
            assert!(!self.log(id).contains("panicked"), "node {id} panicked:\n{}", self.log(id));
        }
        IDS.into_iter().for_each(|id| self.verify_at(id));
    }

    /// That the replicas agree, as one node finds.
    fn verify_at(&self, id: u32) {
        let mut command = Command::new(HIGHWATER);
        command.args(["verify", "--json", "--url", &self.url(id)]).args(self.access.arguments()).stdin(Stdio::null());
        if self.access.token_file.is_none() {
            command.args(self.token().iter().flat_map(|token| ["--token", token]));
        }
        let output = command.output().expect("the binary starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "verify at node {id}: {text} {}", String::from_utf8_lossy(&output.stderr));
    }
}
