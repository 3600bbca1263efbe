//! A node with its server, and the clients that tests use.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use highwater_http::{Limits, Server, ServerConfig, Tokens, not_ready};
use highwater_node::{Config, Node};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// What is not there after this long has hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server on a temporary folder, stopped in good order when it is dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) folder: TempDir,
    agent: ureq::Agent,
    stop: Option<oneshot::Sender<()>>,
    running: Option<tokio::task::JoinHandle<()>>,
    runtime: Option<Runtime>,
}

/// An answer.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: ureq::http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl Served {
    pub(crate) fn start() -> Served {
        Served::with(Limits::default(), Tokens::default())
    }

    pub(crate) fn with(limits: Limits, tokens: Tokens) -> Served {
        Served::on(TempDir::new().expect("a temporary folder"), limits, tokens)
    }

    pub(crate) fn on(folder: TempDir, limits: Limits, tokens: Tokens) -> Served {
        Served::configured(folder, |config| ServerConfig { tokens, limits, ..config })
    }

    pub(crate) fn configured(folder: TempDir, configure: impl FnOnce(ServerConfig) -> ServerConfig) -> Served {
        let runtime = Runtime::new().expect("a runtime");
        let config = Config::single(folder.path().join("data"));
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let server =
            runtime.block_on(Server::bind(configure(ServerConfig::new(listen)))).expect("loopback may be listened on");
        let address = server.address();
        let prepared = Node::prepare(config).expect("a node starts on an empty folder");
        let server = runtime.block_on(async { server.open(&prepared) });
        let node = prepared.run(|_| false).expect("a cluster of one starts").expect("and waits for nobody");
        let node = Arc::new(node);
        let (stop, stopped) = oneshot::channel::<()>();
        let served = node.clone();
        let running = runtime.spawn(async move {
            let told = async move {
                let _ = stopped.await;
            };
            server.run(served.clone(), told).await;
            tokio::task::spawn_blocking(move || served.stop()).await.expect("the node stops");
        });
        let begun = Instant::now();
        while runtime.block_on(not_ready(&node)).expect("the node answers").is_some() {
            assert!(begun.elapsed() < PATIENCE, "the node is not ready");
            std::thread::yield_now();
        }
        let agent: ureq::Agent =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE)).build().into();
        Served { address, folder, agent, stop: Some(stop), running: Some(running), runtime: Some(runtime) }
    }

    /// Stops in good order and gives the folder away.
    pub(crate) fn into_folder(mut self) -> TempDir {
        self.end();
        std::mem::replace(&mut self.folder, TempDir::new().expect("a temporary folder"))
    }

    pub(crate) fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    fn end(&mut self) {
        if let (Some(stop), Some(running), Some(runtime)) = (self.stop.take(), self.running.take(), self.runtime.take())
        {
            let _ = stop.send(());
            runtime.block_on(running).expect("the server ends without a panic");
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        received(self.agent.get(self.url(path)).call().expect("the server answers"))
    }

    /// Asks as the bearer of a token; with a body by POST, or else by GET.
    pub(crate) fn ask(&self, token: &str, path: &str, body: Option<&Value>) -> Response {
        let bearer = format!("Bearer {token}");
        match body {
            Some(body) => self.post_bytes(path, &[("authorization", &bearer)], body.to_string().as_bytes()),
            None => received(
                self.agent.get(self.url(path)).header("authorization", bearer).call().expect("the server answers"),
            ),
        }
    }

    pub(crate) fn post_bytes(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let mut request = self.agent.post(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        received(request.send(body).expect("the server answers"))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.post_bytes(path, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    /// Runs one statement over plain HTTP; it must succeed.
    pub(crate) fn sql(&self, sql: &str) -> Value {
        let response = self.post("/db/main/sql", &json!({"sql": sql}));
        assert_eq!(response.status, 200, "{sql}: {}", String::from_utf8_lossy(&response.body));
        assert_eq!(response.header("content-type"), Some("application/json"));
        response.json()
    }

    /// The rows of one statement.
    pub(crate) fn rows(&self, sql: &str) -> Value {
        self.sql(sql)["results"][0]["rows"].take()
    }

    /// One pipeline on the default database; it must be answered 200.
    pub(crate) fn pipeline(&self, baton: &Value, requests: Value) -> (Value, Vec<Value>) {
        let response = self.post("/v2/pipeline", &json!({"baton": baton, "requests": requests}));
        assert_eq!(response.status, 200, "{}", String::from_utf8_lossy(&response.body));
        assert_eq!(response.header("content-type"), Some("application/json"), "clients compare it literally");
        let answer = response.json();
        (answer["baton"].clone(), answer["results"].as_array().expect("results").clone())
    }

    /// A socket for requests byte by byte.
    pub(crate) fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).expect("the server accepts");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket
    }

    /// Asks until the answer is as wanted.
    pub(crate) fn until(&self, what: &str, mut done: impl FnMut(&Served) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < PATIENCE, "{what} never came");
            std::thread::yield_now();
        }
    }

    /// A figure of `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        self.metric_as("full", name)
    }

    /// The same, with a token where there are any.
    pub(crate) fn metric_as(&self, token: &str, name: &str) -> f64 {
        let text = String::from_utf8(self.ask(token, "/metrics", None).body).expect("metrics are text");
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
        line.rsplit(' ').next().and_then(|figure| figure.parse().ok()).expect("a figure")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}

fn received(mut response: ureq::http::Response<ureq::Body>) -> Response {
    let body = response.body_mut().with_config().limit(1 << 30).read_to_vec().expect("the body arrives");
    Response { status: response.status().as_u16(), headers: response.headers().clone(), body }
}

/// Sends bytes as they are and reads what comes until the other side ends, or one whole answer without a body.
pub(crate) fn exchange(socket: &mut TcpStream, bytes: &[u8]) -> String {
    socket.write_all(bytes).expect("the bytes leave");
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = socket.read(&mut piece).unwrap_or(0);
        answer.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&answer);
        let whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            length.and_then(|length| length.parse().ok()).is_some_and(|length: usize| body.len() >= length)
        });
        if count == 0 || whole {
            return text.into_owned();
        }
    }
}

/// A request that executes one statement.
pub(crate) fn execute(sql: &str) -> Value {
    json!({"type": "execute", "stmt": {"sql": sql}})
}
