//! The commands under TLS: every one of them against a node behind a certificate, and what they say where only one side speaks TLS.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Output;
use std::sync::Arc;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

use crate::http::Connection;
use crate::node::Node;

/// Speaks TLS with clients and hands on what they ask to a node that does not.
struct Front {
    address: SocketAddr,
    /// The folder of its certificate, `ca.pem`.
    folder: TempDir,
}

impl Front {
    fn of(node: &Node) -> Front {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_string()]).expect("a certificate");
        let folder = TempDir::new().expect("a folder");
        std::fs::write(folder.path().join("ca.pem"), made.cert.pem()).expect("a file");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a certificate and its key");
        let (config, behind) = (Arc::new(config), node.address());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let config = config.clone();
                std::thread::spawn(move || hand_on(stream.expect("a connection"), config, behind));
            }
        });
        Front { address, folder }
    }

    fn ca(&self) -> String {
        self.folder.path().join("ca.pem").display().to_string()
    }
}

/// Hands on one request after the other, until the client leaves.
fn hand_on(socket: TcpStream, config: Arc<ServerConfig>, behind: SocketAddr) -> Option<()> {
    let mut client = StreamOwned::new(ServerConnection::new(config).expect("a connection"), socket);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).ok()?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).ok()?;
        let mut lines = head.lines();
        let mut first = lines.next()?.split(' ');
        let (method, path) = (first.next()?, first.next()?);
        let headers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(": ")).collect();
        let header =
            |name: &str| headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| *value);
        assert_eq!(header("transfer-encoding"), None, "this front knows no chunks");
        let mut body = vec![0; header("content-length").map_or(0, |length| length.parse().expect("a number"))];
        client.read_exact(&mut body).ok()?;
        let own = ["host", "content-length"];
        let passed: Vec<(&str, &str)> =
            headers.iter().filter(|(name, _)| !own.contains(&name.to_lowercase().as_str())).copied().collect();
        let answer = Connection::open(behind).request(method, path, &passed, &body);
        let mut head = format!("HTTP/1.1 {} X\r\ncontent-length: {}\r\n", answer.status, answer.body.len());
        for (name, value) in &answer.headers {
            if !["content-length", "transfer-encoding", "connection"].contains(&name.as_str()) {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        client.write_all(head.as_bytes()).ok()?;
        client.write_all(b"\r\n").ok()?;
        client.write_all(&answer.body).ok()?;
        client.flush().ok()?;
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
    let node = Node::start();
    let front = Front::of(&node);
    let (url, ca) = (format!("https://{}", front.address), front.ca());
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
}

#[test]
fn a_command_says_where_only_one_side_speaks_tls_or_is_not_trusted() {
    let node = Node::start();
    let (front, other) = (Front::of(&node), Front::of(&node));
    let url = format!("https://{}", front.address);
    for arguments in [&["sql", "-c", "SELECT 1"][..], &["status"], &["bench", "--clients", "1", "--seconds", "1"]] {
        let plain = run(&format!("https://{}", node.address()), &[arguments, &["--ca", &front.ca()]].concat());
        let wanted = format!("does not speak TLS with clients: use http://{}", node.address());
        assert!(!plain.status.success() && said(&plain).contains(&wanted), "{}", said(&plain));
        let stranger = run(&url, &[arguments, &["--ca", &other.ca()]].concat());
        assert!(said(&stranger).contains("is not trusted") && said(&stranger).contains("--ca"), "{}", said(&stranger));
        let none = run(&url, &[arguments, &["--ca", "/dev/null"]].concat());
        assert!(said(&none).contains("-----BEGIN CERTIFICATE-----"), "{}", said(&none));
    }
    let document = run(&url, &["status", "--json", "--ca", &other.ca()]).stdout;
    let document: serde_json::Value = serde_json::from_slice(&document).expect("one document");
    assert_eq!((&document["error"]["code"], &document["error"]["outcome"]), (&"TLS_FAILED".into(), &"failed".into()));
}
