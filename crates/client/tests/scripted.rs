//! The client against servers that answer from a script.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use highwater_client::{Client, Config, Error, Freshness, Transaction};

/// What a server does with one request for SQL.
#[derive(Clone, Debug)]
enum Reply {
    /// Answers with this status and body.
    With(u16, String),
    /// Closes the connection instead of answering.
    HangUp,
    /// Never answers.
    Silence,
}

/// What a server was asked.
#[derive(Clone, Debug)]
struct Asked {
    path: String,
    key: Option<String>,
    body: String,
}

#[derive(Default)]
struct Script {
    replies: VecDeque<Reply>,
    status: Option<String>,
    asked: Vec<Asked>,
}

struct Server {
    address: SocketAddr,
    script: Arc<Mutex<Script>>,
}

impl Server {
    fn start(replies: impl IntoIterator<Item = Reply>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let script = Arc::new(Mutex::new(Script { replies: replies.into_iter().collect(), ..Script::default() }));
        let shared = script.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = shared.clone();
                std::thread::spawn(move || serve(&stream.expect("a connection"), &shared));
            }
        });
        Server { address, script }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn asked(&self) -> Vec<Asked> {
        self.script.lock().expect("the script").asked.clone()
    }

    fn set_status(&self, status: String) {
        self.script.lock().expect("the script").status = Some(status);
    }
}

fn serve(stream: &TcpStream, script: &Mutex<Script>) {
    let mut reader = BufReader::new(stream);
    while let Some(asked) = read_request(&mut reader) {
        let reply = {
            let mut script = script.lock().expect("the script");
            if asked.path == "/status?scope=node" {
                match &script.status {
                    Some(status) => Reply::With(200, status.clone()),
                    None => Reply::With(404, "{}".into()),
                }
            } else {
                script.asked.push(asked);
                script.replies.pop_front().expect("the script answers every request")
            }
        };
        match reply {
            Reply::With(status, body) => {
                let mut stream = stream;
                write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{body}", body.len()).expect("written");
            }
            Reply::HangUp => return,
            // Until the client leaves.
            Reply::Silence => {
                let _ = reader.read(&mut [0; 1]);
                return;
            }
        }
    }
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> Option<Asked> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let path = line.split(' ').nth(1)?.to_string();
    let (mut length, mut key) = (0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name {
            "content-length" => length = value.parse().ok()?,
            "idempotency-key" => key = Some(value.to_string()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Asked { path, key, body: String::from_utf8(body).ok()? })
}

fn done(position: &str) -> Reply {
    let result = r#"{"columns":[],"rows":[],"affected":1,"last_insert_rowid":1}"#;
    Reply::With(200, format!(r#"{{"results":[{result}],"position":"{position}"}}"#))
}

fn error(status: u16, code: &str, outcome: &str) -> Reply {
    Reply::With(status, format!(r#"{{"error":{{"code":"{code}","message":"m","outcome":"{outcome}"}}}}"#))
}

/// A server that nobody is behind: connections are refused.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    format!("http://{}", listener.local_addr().expect("an address"))
}

fn client(urls: &[String], change: impl FnOnce(&mut Config)) -> Client {
    let mut config = Config::new(urls.to_vec());
    config.deadline = Duration::from_secs(20);
    change(&mut config);
    Client::with(config).expect("a client")
}

fn insert() -> Transaction {
    Transaction::of("INSERT INTO t VALUES (?)", [1.into()])
}

#[test]
fn a_transaction_is_executed_at_the_first_node_that_takes_it_always_with_one_key() {
    let follower = Server::start([error(503, "NOT_LEADER", "failed"), error(503, "NOT_LEADER", "failed")]);
    let leader = Server::start([error(503, "OVERLOADED", "failed"), done("1:2:3")]);
    let urls = [nobody(), follower.url(), leader.url()];
    let answer = client(&urls, |_| {}).execute("main", &insert()).expect("done");
    assert_eq!((answer.url.as_str(), answer.attempts), (urls[2].as_str(), 6));
    assert_eq!(answer.position.to_string(), "1:2:3");
    let mut keys: Vec<Option<String>> =
        follower.asked().into_iter().chain(leader.asked()).map(|asked| asked.key).collect();
    assert_eq!(keys[0].as_ref().map(String::len), Some(32), "a key of 128 bits");
    keys.dedup();
    assert_eq!(keys.len(), 1, "one transaction has one key");
    assert!(leader.asked()[0].body.contains("INSERT"), "{:?}", leader.asked());
}

#[test]
fn an_unknown_outcome_is_asked_about_with_the_same_key() {
    let first = Server::start([Reply::HangUp]);
    let second = Server::start([error(503, "OUTCOME_UNKNOWN", "unknown")]);
    let third = Server::start([done("1:2:3")]);
    let urls = [first.url(), second.url(), third.url()];
    let answer = client(&urls, |_| {}).execute("main", &insert()).expect("done");
    assert_eq!(answer.attempts, 3);
    assert_eq!(first.asked()[0].key, third.asked()[0].key);
    assert_eq!(second.asked()[0].key, third.asked()[0].key);
}

#[test]
fn without_a_key_an_unknown_outcome_ends_the_call() {
    let first = Server::start([error(503, "NOT_LEADER", "failed")]);
    let second = Server::start([Reply::HangUp]);
    let third = Server::start([]);
    let outcome = client(&[first.url(), second.url(), third.url()], |_| {}).execute_unkeyed("main", &insert());
    assert!(matches!(outcome, Err(Error::Unknown { key: None, .. })), "{outcome:?}");
    assert_eq!(second.asked()[0].key, None);
    assert!(third.asked().is_empty(), "nobody else is asked");
}

#[test]
fn a_failure_of_its_own_is_final_but_proves_nothing_about_an_earlier_attempt() {
    let refusing =
        Server::start([error(409, "SQLITE_CONSTRAINT", "failed"), error(409, "SQLITE_CONSTRAINT", "failed")]);
    let outcome = client(&[refusing.url()], |_| {}).execute("main", &insert());
    assert!(matches!(&outcome, Err(Error::Failed(failed)) if failed.code == "SQLITE_CONSTRAINT"), "{outcome:?}");

    let dying = Server::start([Reply::HangUp]);
    let outcome = client(&[dying.url(), refusing.url()], |_| {}).execute("main", &insert());
    assert!(matches!(&outcome, Err(Error::Unknown { key: Some(_), .. })), "{outcome:?}");
}

#[test]
fn a_silent_node_costs_one_attempts_time() {
    let silent = Server::start([Reply::Silence]);
    let leader = Server::start([done("1:2:3")]);
    let mut client = client(&[silent.url(), leader.url()], |config| config.attempt = Duration::from_millis(500));
    let answer = client.execute("main", &insert()).expect("done");
    assert_eq!((answer.attempts, answer.url), (2, leader.url()));
    assert_eq!(silent.asked()[0].key, leader.asked()[0].key);
}

#[test]
fn at_the_deadline_the_outcome_is_failed_or_unknown_as_it_is() {
    let short = |config: &mut Config| {
        config.deadline = Duration::from_millis(500);
        config.discover = false;
    };
    let outcome = client(&[nobody()], short).execute("main", &insert());
    assert!(matches!(&outcome, Err(Error::Failed(failed)) if failed.code == "UNREACHABLE" && failed.retryable));
    let silent = Server::start([Reply::Silence]);
    let outcome = client(&[silent.url()], short).execute("main", &insert());
    assert!(matches!(&outcome, Err(Error::Unknown { key: Some(_), .. })), "{outcome:?}");
}

#[test]
fn reads_carry_the_session_and_are_never_unknown() {
    let server = Server::start([done("1:2:7"), Reply::HangUp, done("1:2:5"), done("1:2:9"), done("1:2:9")]);
    let mut client = client(&[server.url()], |_| {});
    let read = Transaction::of("SELECT 1", []);
    client.execute("main", &insert()).expect("done");
    client.query("main", &read, Freshness::Linearizable).expect("read");
    assert_eq!(client.session("main").map(|position| position.to_string()).as_deref(), Some("1:2:7"), "never back");
    client.query("main", &read, Freshness::Session).expect("read");
    client.forget_session("main");
    client.query("main", &read, Freshness::Session).expect("read");
    let paths: Vec<String> = server.asked().into_iter().map(|asked| asked.path).collect();
    let plain = "/db/main/sql";
    let eventual = "/db/main/sql?freshness=eventual";
    assert_eq!(paths, [plain, plain, plain, &format!("{eventual}&min_position=1:2:7"), eventual]);
    assert!(server.asked()[1..].iter().all(|asked| asked.key.is_none()), "a read needs no key");
}

#[test]
fn the_leader_is_learned_from_any_node_and_again_after_a_change() {
    let status = |leader: u32, servers: [&Server; 2]| {
        let node = |id: u32, server: &Server| format!(r#"{{"node":{id},"address":"{}"}}"#, server.address);
        format!(
            r#"{{"nodes":[{},{}],"partitions":[{{"name":"main","leader":{leader}}}]}}"#,
            node(1, servers[0]),
            node(2, servers[1])
        )
    };
    let one = Server::start([done("1:2:4"), done("1:2:5")]);
    let two = Server::start([done("1:1:3"), error(503, "NOT_LEADER", "failed")]);
    one.set_status(status(2, [&one, &two]));
    let mut client = client(&[one.url()], |_| {});
    assert_eq!(client.execute("main", &insert()).expect("done").url, two.url(), "the leader, not the node given");
    one.set_status(status(1, [&one, &two]));
    assert_eq!(client.execute("main", &insert()).expect("done").url, one.url(), "the other, at once");
    assert_eq!(client.execute("main", &insert()).expect("done").attempts, 1, "the new leader is known");
}

#[test]
fn a_silent_node_is_left_as_soon_as_another_says_who_leads_by_now() {
    let (silent, bystander, leader) =
        (Server::start([Reply::Silence]), Server::start([]), Server::start([done("1:2:3")]));
    let status = |leads: u32| {
        let servers = [(1, &silent), (2, &bystander), (3, &leader)];
        let nodes = servers.map(|(id, server)| format!(r#"{{"node":{id},"address":"{}"}}"#, server.address));
        format!(r#"{{"nodes":[{}],"partitions":[{{"name":"main","leader":{leads}}}]}}"#, nodes.join(","))
    };
    silent.set_status(status(1));
    bystander.set_status(status(3));
    // No attempt runs out before the call does.
    let mut client = client(&[silent.url()], |config| config.attempt = config.deadline);
    let answer = client.execute("main", &insert()).expect("done");
    assert_eq!((answer.attempts, answer.url), (2, leader.url()), "the leader at once, not whoever is next");
    assert_eq!(silent.asked()[0].key, leader.asked()[0].key);
    assert!(bystander.asked().is_empty());
}
