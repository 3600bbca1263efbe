//! The commands under TLS: every one of them against a node with a certificate, and what they say where only one side speaks TLS.

use std::path::PathBuf;
use std::process::Output;

use tempfile::TempDir;

use crate::authority::Authority;
use crate::node::Node;

/// A node that speaks TLS with clients, and on the loopback without as well.
struct Encrypted {
    node: Node,
    folder: TempDir,
}

impl Encrypted {
    fn start() -> Encrypted {
        let (folder, authority) = (TempDir::new().expect("a folder"), Authority::new("tests"));
        let [ca, certificate, key] = ["ca.pem", "cert.pem", "key.pem"].map(|name| folder.path().join(name));
        std::fs::write(&ca, authority.pem()).expect("a file");
        authority.issue(&certificate, &key);
        let text = |path: &PathBuf| path.display().to_string();
        let arguments = ["--tls-cert", &text(&certificate), "--tls-key", &text(&key), "--allow-plain-http"];
        Encrypted { node: Node::start_with(&arguments), folder }
    }

    fn url(&self) -> String {
        format!("https://{}", self.node.address())
    }

    fn ca(&self) -> String {
        self.folder.path().join("ca.pem").display().to_string()
    }
}

fn run(url: &str, arguments: &[&str]) -> Output {
    let mut command = std::process::Command::new(crate::node::HIGHWATER);
    command.args(arguments).args(["--url", url]).stdin(std::process::Stdio::null());
    command.output().expect("the binary can be started")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_command_speaks_tls() {
    let node = Encrypted::start();
    let (url, ca) = (node.url(), node.ca());
    let place = TempDir::new().expect("a folder");
    let file = place.path().join("copy.db").display().to_string();
    for arguments in [
        &["sql", "-c", "CREATE TABLE t (a); INSERT INTO t VALUES (1)"][..],
        &["status"],
        &["verify"],
        &["db", "backup", &file],
        &["bench", "--clients", "2", "--seconds", "1"],
    ] {
        let output = run(&url, &[arguments, &["--ca", &ca]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    }
    assert!(std::fs::metadata(&file).is_ok_and(|file| file.len() > 0));
    assert_eq!(node.node.rows("SELECT a FROM t"), serde_json::json!([[1]]), "and without TLS, where that is allowed");
}

#[test]
fn a_command_says_where_only_one_side_speaks_tls_or_is_not_trusted() {
    let (plain, node, other) = (Node::start(), Encrypted::start(), Encrypted::start());
    for arguments in [&["sql", "-c", "SELECT 1"][..], &["status"], &["bench", "--clients", "1", "--seconds", "1"]] {
        let refused = run(&format!("https://{}", plain.address()), &[arguments, &["--ca", &node.ca()]].concat());
        let wanted = format!("does not speak TLS with clients: use http://{}", plain.address());
        assert!(!refused.status.success() && said(&refused).contains(&wanted), "{}", said(&refused));
        let stranger = run(&node.url(), &[arguments, &["--ca", &other.ca()]].concat());
        assert!(said(&stranger).contains("is not trusted") && said(&stranger).contains("--ca"), "{}", said(&stranger));
        let none = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let none = run(&node.url(), &[arguments, &["--ca", none]].concat());
        assert!(said(&none).contains("-----BEGIN CERTIFICATE-----"), "{}", said(&none));
    }
    let document = run(&node.url(), &["status", "--json", "--ca", &other.ca()]).stdout;
    let document: serde_json::Value = serde_json::from_slice(&document).expect("one document");
    assert_eq!((&document["error"]["code"], &document["error"]["outcome"]), (&"TLS_FAILED".into(), &"failed".into()));
}
