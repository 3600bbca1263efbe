//! The client against servers that speak TLS, with certificates made for the test, and against those that do not.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use highwater_client::{Client, Config, Error, Failed, Transaction, fetch, fetch_from};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

const ANSWER: &str = r#"{"results":[],"position":"1:2:3"}"#;

/// What a server does with its connections, beside answering.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// Nothing.
    Plain,
    /// Sends more session tickets after each answer.
    Tickets,
    /// Says that each connection ends, after its first answer.
    Closes,
    /// Ends the socket in the middle of an answer without a length, with no end of TLS.
    Truncates,
}

struct Server {
    address: SocketAddr,
    /// Its certificate as PEM text.
    ca: Vec<u8>,
    connections: Arc<AtomicUsize>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(names: &[&str], manner: Manner) -> Server {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .expect("a certificate and its key");
        config.send_tls13_tickets = 2;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (config, counted, heard) = (Arc::new(config), connections.clone(), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                counted.fetch_add(1, Ordering::Relaxed);
                let (config, heard) = (config.clone(), heard.clone());
                std::thread::spawn(move || serve(stream.expect("a connection"), config, manner, &heard));
            }
        });
        Server { address, ca: cert.pem().into_bytes(), connections, asked }
    }

    fn config(&self) -> Config {
        Config {
            ca: Some(self.ca.clone()),
            deadline: Duration::from_secs(20),
            connect: Duration::from_secs(10),
            discover: false,
            ..Config::new([format!("https://{}", self.address)])
        }
    }
}

/// Answers requests until the client leaves. An error means that it did.
fn serve(socket: TcpStream, config: Arc<ServerConfig>, manner: Manner, heard: &Mutex<Vec<String>>) {
    let tls = ServerConnection::new(config).expect("a connection");
    let mut stream = StreamOwned::new(tls, socket);
    while let Some(head) = request(&mut stream) {
        let address = stream.sock.local_addr().expect("an address");
        let status =
            format!(r#"{{"nodes":[{{"node":1,"address":"{address}"}}],"partitions":[{{"name":"main","leader":1}}]}}"#);
        let body = if head.starts_with("GET /status") { status.as_str() } else { ANSWER };
        heard.lock().expect("the list").push(head);
        let answer = match manner {
            Manner::Truncates => format!("HTTP/1.1 200 OK\r\n\r\n{body}"),
            _ => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()),
        };
        if stream.write_all(answer.as_bytes()).and_then(|()| stream.flush()).is_err() || manner == Manner::Truncates {
            return;
        }
        match manner {
            // A request for new keys is, like a ticket, a record that comes between two answers.
            Manner::Tickets => {
                stream.conn.refresh_traffic_keys().expect("TLS 1.3 has new keys");
                let _ = stream.flush();
            }
            Manner::Closes => {
                stream.conn.send_close_notify();
                let _ = stream.flush();
                return;
            }
            Manner::Plain | Manner::Truncates => {}
        }
    }
}

/// Reads one request and returns its head.
fn request(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("a head is text");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
    stream.read_exact(&mut body).ok()?;
    Some(head)
}

fn select() -> Transaction {
    Transaction::of("SELECT 1", [])
}

fn failure(result: Result<highwater_client::Answer, Error>) -> Failed {
    match result {
        Err(Error::Failed(failed)) => failed,
        other => panic!("a failure is wanted, not {other:?}"),
    }
}

#[test]
fn a_connection_under_tls_is_kept_whatever_tls_says_between_two_answers() {
    for manner in [Manner::Plain, Manner::Tickets] {
        let server = Server::start(&["127.0.0.1"], manner);
        let mut client = Client::with(server.config()).expect("a client");
        for pause in [0, 0, 600, 600] {
            // sleep: after half a second an idle connection is looked at before it is used, which is what is tested.
            std::thread::sleep(Duration::from_millis(pause));
            let answer = client.execute_unkeyed("main", &select()).expect("an answer");
            assert_eq!((answer.position.to_string(), answer.attempts), ("1:2:3".into(), 1));
        }
        assert_eq!(server.connections.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_connection_that_its_node_ended_is_not_used_again() {
    let server = Server::start(&["127.0.0.1"], Manner::Closes);
    let mut client = Client::with(server.config()).expect("a client");
    for _ in 0..2 {
        let answer = client.execute_unkeyed("main", &select()).expect("an answer");
        assert_eq!(answer.attempts, 1);
        // sleep: only an idle connection is looked at.
        std::thread::sleep(Duration::from_millis(600));
    }
    assert_eq!(server.connections.load(Ordering::Relaxed), 2);
}

#[test]
fn an_answer_that_is_longer_than_a_record_and_a_request_that_is_are_whole() {
    let server = Server::start(&["127.0.0.1"], Manner::Plain);
    let mut client = Client::with(server.config()).expect("a client");
    let long = Transaction::of(format!("SELECT '{}'", "x".repeat(3 << 20)), []);
    client.execute_unkeyed("main", &long).expect("an answer");
}

#[test]
fn an_end_without_the_end_of_tls_is_no_whole_answer() {
    let server = Server::start(&["127.0.0.1"], Manner::Truncates);
    let mut client = Client::with(server.config()).expect("a client");
    match client.execute_unkeyed("main", &select()) {
        Err(Error::Unknown { reason, .. }) => assert!(reason.contains("without the end of TLS"), "{reason}"),
        other => panic!("nobody knows, but: {other:?}"),
    }
}

#[test]
fn nodes_that_are_learned_are_spoken_to_under_tls() {
    let server = Server::start(&["127.0.0.1", "localhost"], Manner::Plain);
    let url = format!("https://localhost:{}", server.address.port());
    let config = Config { urls: vec![url], discover: true, ..server.config() };
    let answer = Client::with(config).expect("a client").execute("main", &select()).expect("an answer");
    assert_eq!(answer.url, format!("https://{}", server.address));
    let asked = server.asked.lock().expect("the list").len();
    assert_eq!(asked, 2, "the leader, and the transaction");
}

#[test]
fn a_certificate_of_another_name_or_of_somebody_else_is_refused_at_once_and_nothing_is_sent() {
    let elsewhere = Server::start(&["db.example"], Manner::Plain);
    let stranger = Server::start(&["127.0.0.1"], Manner::Plain);
    let other = Config { ca: Some(elsewhere.ca.clone()), ..stranger.config() };
    for (config, server) in [(elsewhere.config(), &elsewhere), (other, &stranger)] {
        let begun = Instant::now();
        let config = Config { token: Some("precious".into()), ..config };
        let failed = failure(Client::with(config).expect("a client").execute("main", &select()));
        assert_eq!((failed.code.as_str(), failed.retryable), ("TLS_FAILED", false), "{failed}");
        assert!(failed.message.contains("not trusted") && failed.message.contains("--ca"), "{failed}");
        assert!(begun.elapsed() < Duration::from_secs(10), "what does not pass is not tried until the deadline");
        assert!(server.asked.lock().expect("the list").is_empty());
    }
}

#[test]
fn a_node_without_tls_is_named_with_the_url_that_it_has() {
    for answer in [&b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"[..], b""] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer);
            }
        });
        let ca = Server::start(&["127.0.0.1"], Manner::Plain).ca;
        let config = Config {
            ca: Some(ca),
            deadline: Duration::from_millis(300),
            ..Config::new([format!("https://{address}")])
        };
        let failed = failure(Client::with(config.clone()).expect("a client").execute("main", &select()));
        assert!(failed.message.contains(&format!("use http://{address}")), "{failed}");
        assert_eq!(failed.code, if answer.is_empty() { "UNREACHABLE" } else { "TLS_FAILED" });
        let failed = fetch_from(&config, "/ready", Duration::from_secs(5)).expect_err("no TLS there");
        assert!(failed.message.contains(&format!("use http://{address}")), "{failed}");
    }
}

#[test]
fn a_node_that_wants_tls_says_so_to_a_client_without() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let body = r#"{"error":{"code":"TLS_REQUIRED","message":"this node speaks TLS: use https://","outcome":"failed"}}"#;
            let _ = request(&mut stream);
            let head =
                format!("HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
        }
    });
    let url = format!("http://{address}");
    let failed = failure(Client::new([url.as_str()]).expect("a client").execute("main", &select()));
    assert_eq!((failed.code.as_str(), failed.retryable), ("TLS_REQUIRED", false), "{failed}");
    assert_eq!(fetch(&url, "/ready", Duration::from_secs(5)).expect("an answer").0, 400);
}
