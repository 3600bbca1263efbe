//! A cluster with TLS on everything, tokens and a cluster secret, all from files: every kind of client through every node, and who is turned away.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use highwater_client::{Client, Config, Freshness, Transaction};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Access, Cluster, IDS};
use crate::authority::{Authority, replace};
use crate::http::{Connection, JSON};
use crate::node::{HIGHWATER, Node};
use crate::{data, libsql};

/// Whose bearers may do everything.
pub(super) const TOKEN: &str = "Pz0u7vQmS3yLr9";
const READ_TOKEN: &str = "kT2bXw8eNc5dAj";

/// What the nodes' files hold, in a folder of their own.
pub(super) struct Files {
    pub(super) folder: TempDir,
}

impl Files {
    /// Two authorities, of which clients trust both, a certificate of the first for each node, tokens, and one secret.
    pub(super) fn new(first: &Authority, second: &Authority, secret: &str) -> Files {
        let files = Files { folder: TempDir::new().expect("a folder") };
        replace(&files.path("ca.pem"), &format!("{}{}", first.pem(), second.pem()));
        replace(&files.path("token"), TOKEN);
        replace(&files.path("read-token"), READ_TOKEN);
        for id in IDS {
            files.certify(id, first);
            replace(&files.of("secret", id), secret);
        }
        files
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file that a node has for itself.
    pub(super) fn of(&self, name: &str, id: u32) -> PathBuf {
        self.path(&format!("{name}-{id}"))
    }

    /// A new certificate for a node.
    pub(super) fn certify(&self, id: u32, authority: &Authority) {
        authority.issue(&self.of("cert", id), &self.of("key", id));
    }

    /// A cluster that reads them.
    pub(super) fn start(&self, more: &[&str]) -> Cluster {
        let text = |name: &str| self.path(name).display().to_string();
        let named = [
            ("--tls-cert", text("cert-{id}")),
            ("--tls-key", text("key-{id}")),
            ("--cluster-secret-file", text("secret-{id}")),
            ("--token-file", text("token")),
            ("--read-token-file", text("read-token")),
        ];
        let mut arguments: Vec<&str> = named.iter().flat_map(|(name, path)| [*name, path.as_str()]).collect();
        arguments.extend(more);
        let access = Access { ca: Some(self.path("ca.pem")), token_file: Some(self.path("token")) };
        Cluster::start_as(access, None, &arguments)
    }
}

/// What `highwater secret` prints.
pub(super) fn secret() -> String {
    let output = Command::new(HIGHWATER).arg("secret").output().expect("the binary can be started");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

fn run(arguments: &[&str], more: &[String]) -> Output {
    let command = Command::new(HIGHWATER).args(arguments).args(more).stdin(Stdio::null()).output();
    command.expect("the binary can be started")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// One statement through `curl`, trusting these certificates: its exit code and what was answered.
fn curl(url: &str, ca: &Path, token: Option<&str>, sql: &str) -> (i32, Value) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--max-time", "60", "--cacert"]).arg(ca).arg(format!("{url}/db/main/sql"));
    command.args(["--header", "content-type: application/json", "--data", &json!({ "sql": sql }).to_string()]);
    if let Some(token) = token {
        command.args(["--header", &format!("authorization: Bearer {token}")]);
    }
    let output = command.stdin(Stdio::null()).output().expect("curl can be started");
    (output.status.code().unwrap_or(-1), serde_json::from_slice(&output.stdout).unwrap_or_default())
}

fn has_curl() -> bool {
    let found = Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    if !found {
        data::skip("curl is not installed");
    }
    found
}

#[test]
fn every_client_speaks_tls_through_every_node() {
    let files = Files::new(&Authority::new("first"), &Authority::new("second"), &secret());
    let mut cluster = files.start(&[]);
    let follower = cluster.roles().followers()[0];

    let ca = files.path("ca.pem").display().to_string();
    let environment = [("NODE_EXTRA_CA_CERTS", ca.as_str()), ("HIGHWATER_TOKEN", TOKEN)];
    for topic in ["execute", "batch", "transaction"] {
        let outcome = libsql::run_script_with(&environment, topic, &[&cluster.url(follower)], || {
            panic!("{topic} asks for no restart")
        });
        outcome.unwrap_or_else(|why| panic!("{why} Through node {follower}:\n{}", cluster.log(follower)));
        let left = cluster.client(follower).query(
            "main",
            &Transaction::of("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'", []),
            Freshness::Linearizable,
        );
        for row in &left.expect("the schema").results[0].rows {
            cluster.write(follower, &format!("DROP TABLE \"{}\"", row[0].as_str().expect("a name")));
        }
    }

    cluster.write(follower, "CREATE TABLE t (who TEXT)");
    for id in IDS {
        let url = cluster.url(id);
        cluster.write(id, "INSERT INTO t VALUES ('rust')");
        if has_curl() {
            let insert = "INSERT INTO t VALUES ('curl')";
            let (code, answer) = curl(&url, &files.path("ca.pem"), Some(TOKEN), insert);
            assert_eq!((code, &answer["results"][0]["affected"]), (0, &json!(1)), "{answer}");
            let (code, answer) = curl(&url, &files.path("ca.pem"), Some(READ_TOKEN), "SELECT count(*) > 0 FROM t");
            assert_eq!((code, &answer["results"][0]["rows"]), (0, &json!([[1]])), "{answer}");
            for (token, wanted) in [(Some(READ_TOKEN), "AUTH_READ_ONLY"), (None, "AUTH_TOKEN_MISSING")] {
                let (code, answer) = curl(&url, &files.path("ca.pem"), token, insert);
                assert_eq!((code, &answer["error"]["code"]), (0, &json!(wanted)), "{answer}");
            }
        }
        let copy = files.of("copy", id).display().to_string();
        for arguments in
            [&["sql", "-c", "INSERT INTO t VALUES ('shell')"][..], &["status"], &["verify"], &["db", "backup", &copy]]
        {
            let arguments = [arguments, &["--url", &url]].concat();
            let output = run(&arguments, &cluster.access.arguments());
            assert!(output.status.success(), "node {id}: {arguments:?}: {}", said(&output));
        }
        assert!(std::fs::read(&copy).is_ok_and(|copy| copy.starts_with(b"SQLite format 3\0")));
    }
    let counts = Transaction::of("SELECT who, count(*) FROM t GROUP BY who ORDER BY who", []);
    let mut wanted = json!([["curl", 3], ["rust", 3], ["shell", 3]]);
    if !has_curl() {
        wanted.as_array_mut().expect("a list").remove(0);
    }
    for id in IDS {
        let read = cluster.client(id).query("main", &counts, Freshness::Linearizable).expect("a read");
        assert_eq!(json!(read.results[0].rows), wanted);
    }
    // One that learns the other nodes by itself speaks TLS with them as well.
    let mut client = Client::with(Config { discover: true, ..cluster.config(follower) }).expect("a client");
    client.execute("main", &Transaction::of("DROP TABLE t", [])).expect("a write");
    cluster.verify();
}

#[test]
fn whoever_speaks_no_tls_or_trusts_another_authority_is_told() {
    let files = Files::new(&Authority::new("first"), &Authority::new("second"), &secret());
    let cluster = files.start(&[]);
    let other = files.path("other.pem");
    replace(&other, &Authority::new("other").pem());
    for id in IDS {
        let address = cluster.addresses[&id];
        let headers = [("authorization", "Bearer nobody's"), JSON[0]];
        for path in ["/db/main/sql", "/v2/pipeline", "/health"] {
            let answer = Connection::open(address).request("POST", path, &headers, br#"{"sql": "SELECT 1"}"#);
            assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!("TLS_REQUIRED")), "{path}");
            assert_eq!(answer.header("connection"), Some("close"));
        }
        let plain = run(&["status", "--url", &format!("http://{address}")], &[]);
        assert!(!plain.status.success() && said(&plain).contains("use https://"), "{}", said(&plain));

        let access = Access { ca: Some(other.clone()), ..cluster.access.clone() };
        let stranger = run(&["status", "--url", &cluster.url(id)], &access.arguments());
        assert!(!stranger.status.success() && said(&stranger).contains("is not trusted"), "{}", said(&stranger));
        let config = Config { ca: Some(std::fs::read(&other).expect("a file")), ..cluster.config(id) };
        let refused = Client::with(config).expect("a client").execute("main", &Transaction::of("SELECT 1", []));
        assert!(refused.expect_err("not trusted").to_string().contains("is not trusted"));
        if has_curl() {
            // curl's own number for a certificate that is not trusted.
            assert_eq!(curl(&cluster.url(id), &other, Some(TOKEN), "SELECT 1").0, 60);
        }
    }
    let plain = Node::start();
    let config = Config { urls: vec![format!("https://{}", plain.address())], ..cluster.config(1) };
    let refused = Client::with(config).expect("a client").execute("main", &Transaction::of("SELECT 1", []));
    let wanted = format!("does not speak TLS with clients: use http://{}", plain.address());
    let refused = refused.expect_err("no TLS there").to_string();
    assert!(refused.contains(&wanted), "{refused}");
}
