//! The certificates and the cluster secret are replaced on one node after the other while clients of all kinds go on: not one request fails.
//!
//! A request is sent once, without an idempotency key, so that nothing is tried again but what the nodes themselves try. The certificates come to be another authority's; the
//! secret goes through its three rounds. Every other node is told by SIGHUP, the others see the change of the file. The next node has its turn once every
//! client has been answered a few times.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustls::ClientConfig;
use serde_json::{Value, json};

use super::encrypted::{Files, TOKEN, secret};
use super::{Cluster, IDS, figure, wait_for};
use crate::authority::{Authority, replace, trusting};
use crate::hrana;
use crate::http::{Connection, JSON};

/// Requests of every client between two turns.
const ANSWERS_BETWEEN: u64 = 3;
/// A write that is under way for long.
const LONG: &str = "INSERT INTO long SELECT count(*) FROM
    (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 500000) SELECT x FROM c)";
/// How long a stream keeps its transaction at most: less than the 5 s that one which writes may be open.
const OPEN_MAX: Duration = Duration::from_secs(3);
const DATABASES: &str = "[databases]\nmain = \"quorum:2\"\nheld = \"quorum:2\"\nlong = \"quorum:2\"\n";

/// What a client does, over and over.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A row into `kept` of `main`.
    Write,
    /// How many rows `kept` has, linearizable.
    Read,
    /// A row into `long`, which takes a while.
    WriteLong,
}

/// What all clients share.
struct Load {
    addresses: Vec<SocketAddr>,
    tls: Arc<ClientConfig>,
    stop: AtomicBool,
    /// How many turns there were.
    turns: AtomicUsize,
    /// Rows of `kept` that were acknowledged.
    kept: AtomicU64,
    /// Transactions of streams that were open over a turn and were committed.
    spanned: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Load {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Acquire)
    }

    fn failed(&self, who: &str, at: SocketAddr, what: impl std::fmt::Display) {
        let turn = self.turns.load(Ordering::Acquire);
        self.failures.lock().expect("nobody panics with it").push(format!("turn {turn}: {who} at {at}: {what}"));
    }
}

/// One node as one client uses it.
struct Line<'a> {
    load: &'a Load,
    address: SocketAddr,
    /// Whether each request has a connection of its own.
    anew: bool,
    kept: Option<Connection>,
}

impl<'a> Line<'a> {
    fn new(load: &'a Load, address: SocketAddr, anew: bool) -> Line<'a> {
        Line { load, address, anew, kept: None }
    }

    /// The answer to one request, which is sent once.
    fn post(&mut self, path: &str, body: &Value) -> Result<Value, String> {
        let mut connection = match self.kept.take() {
            Some(connection) => connection,
            None => Connection::try_open_tls(self.address, self.load.tls.clone()).map_err(|error| error.to_string())?,
        };
        let bearer = format!("Bearer {TOKEN}");
        let headers = [("authorization", bearer.as_str()), JSON[0]];
        let answer = connection.try_request("POST", path, &headers, body.to_string().as_bytes());
        let answer = answer.map_err(|error| error.to_string())?;
        if !self.anew && answer.header("connection") != Some("close") {
            self.kept = Some(connection);
        }
        match answer.status {
            200 => Ok(answer.json()),
            status => Err(format!("{status} {}", String::from_utf8_lossy(&answer.body))),
        }
    }
}

/// Sends plain requests to the nodes at these addresses in turn.
fn plain(load: &Load, kind: Kind, addresses: &[SocketAddr], anew: bool, answers: &AtomicU64) {
    let mut lines: Vec<Line> = addresses.iter().map(|address| Line::new(load, *address, anew)).collect();
    let (path, sql) = match kind {
        Kind::Write => ("/db/main/sql", "INSERT INTO kept VALUES (1)"),
        Kind::Read => ("/db/main/sql", "SELECT count(*) FROM kept"),
        Kind::WriteLong => ("/db/long/sql", LONG),
    };
    for at in (0..lines.len()).cycle().take_while(|_| load.goes_on()) {
        let before = load.kept.load(Ordering::Acquire);
        match lines[at].post(path, &json!({ "sql": sql })) {
            Err(error) => load.failed(&format!("{kind:?}, anew: {anew}"), lines[at].address, error),
            Ok(answer) => match kind {
                Kind::Write => drop(load.kept.fetch_add(1, Ordering::AcqRel)),
                Kind::Read => {
                    let found = answer["results"][0]["rows"][0][0].as_u64();
                    assert!(found >= Some(before), "{before} rows were acknowledged, and {answer} shows fewer");
                }
                Kind::WriteLong => {}
            },
        }
        answers.fetch_add(1, Ordering::AcqRel);
    }
}

/// Opens streams whose requests go through all nodes in turn, each with a transaction that is open over a turn if that comes in time.
fn stream(load: &Load, database: &str, writes: bool, answers: &AtomicU64) {
    let mut lines: Vec<Line> = load.addresses.iter().map(|address| Line::new(load, *address, false)).collect();
    let path = format!("/db/{database}/v3/pipeline");
    let mut turn_of = (0..lines.len()).cycle();
    while load.goes_on() {
        let (begun_in, begun) = (load.turns.load(Ordering::Acquire), Instant::now());
        let mut baton = Value::Null;
        let mut seen = None;
        let first = if writes { "INSERT INTO kept VALUES (1)" } else { "SELECT 1" };
        let mut requests = vec![hrana::execute("BEGIN"), hrana::execute(first)];
        loop {
            let spans = load.turns.load(Ordering::Acquire) > begun_in;
            let ends = spans || begun.elapsed() > OPEN_MAX || !load.goes_on();
            requests.push(hrana::execute("SELECT count(*) FROM kept"));
            if ends {
                requests.extend([hrana::execute("COMMIT"), json!({"type": "close"})]);
            }
            let at = turn_of.next().expect("it has no end");
            let sent = lines[at].post(&path, &json!({"baton": baton, "requests": requests}));
            let counted = sent.and_then(|mut answer| {
                let results = answer["results"].as_array().cloned().unwrap_or_default();
                if let Some(error) = results.iter().find(|result| result["type"] != "ok") {
                    return Err(error.to_string());
                }
                baton = answer["baton"].take();
                let count = results.iter().find_map(|result| match &result["response"]["result"]["cols"][0]["name"] {
                    name if *name == "count(*)" => Some(result["response"]["result"]["rows"][0][0]["value"].clone()),
                    _ => None,
                });
                Ok(count.expect("a count was asked for"))
            });
            answers.fetch_add(1, Ordering::AcqRel);
            match counted {
                Err(error) => {
                    load.failed(&format!("a stream of {database}"), lines[at].address, error);
                    break;
                }
                Ok(count) => assert_eq!(*seen.get_or_insert(count.clone()), count, "one transaction, one state"),
            }
            if ends {
                load.spanned.fetch_add(u64::from(spans), Ordering::AcqRel);
                break;
            }
            requests.clear();
        }
    }
}

/// Waits until every client has been answered some more times.
fn go_on(load: &Load, answers: &[AtomicU64]) {
    let before: Vec<u64> = answers.iter().map(|count| count.load(Ordering::Acquire)).collect();
    wait_for("every client is answered", || {
        let all = answers.iter().zip(&before);
        all.into_iter().all(|(now, before)| now.load(Ordering::Acquire) >= before + ANSWERS_BETWEEN).then_some(())
    });
    load.turns.fetch_add(1, Ordering::AcqRel);
}

/// Waits until a node has read its files as often as they were changed, told by a signal or not.
fn has_read(cluster: &Cluster, id: u32, what: &str, times: usize) {
    if id % 2 == 1 {
        cluster.signal(id, Signal::HUP);
    }
    let line = format!("the {what} were read again and have changed");
    wait_for(&line, || (cluster.log(id).matches(&line).count() >= times).then_some(()));
}

#[test]
fn certificates_and_the_secret_rotate_under_load_without_a_failed_request() {
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    let (old, new) = (secret(), secret());
    let files = Files::new(&first, &second, &old);
    std::fs::write(files.path("config.toml"), DATABASES).expect("a file");
    let config = files.path("config.toml").display().to_string();
    let mut cluster = files.start(&["--config", &config, "--log", "warn,highwater=info"]);
    for (database, table) in [("main", "kept"), ("held", "kept"), ("long", "long")] {
        let create = highwater_client::Transaction::of(format!("CREATE TABLE {table} (v)"), []);
        cluster.client(1).execute(database, &create).expect("a table");
    }
    let addresses: Vec<SocketAddr> = cluster.addresses.values().copied().collect();
    let load = Load {
        addresses: addresses.clone(),
        tls: trusting(&format!("{}{}", first.pem(), second.pem())),
        stop: AtomicBool::new(false),
        turns: AtomicUsize::new(0),
        kept: AtomicU64::new(0),
        spanned: AtomicU64::new(0),
        failures: Mutex::default(),
    };
    let mut clients: Vec<(Kind, Vec<SocketAddr>, bool)> = vec![(Kind::WriteLong, addresses.clone(), false)];
    for address in &addresses {
        for kind in [Kind::Write, Kind::Read] {
            clients.extend([(kind, vec![*address], false), (kind, vec![*address], true)]);
        }
    }
    let streams = [("main", false), ("main", false), ("held", true)];
    let answers: Vec<AtomicU64> = (0..clients.len() + streams.len()).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        let load = &load;
        let (plain_answers, stream_answers) = answers.split_at(clients.len());
        for ((kind, addresses, anew), answers) in clients.iter().zip(plain_answers) {
            scope.spawn(move || plain(load, *kind, addresses, *anew, answers));
        }
        for ((database, writes), answers) in streams.iter().zip(stream_answers) {
            scope.spawn(move || stream(load, database, *writes, answers));
        }
        // A client that finds a wrong answer panics; that must end the others as well.
        let _ends = Ends(load);
        go_on(load, &answers);
        for id in IDS {
            files.certify(id, &second);
            has_read(&cluster, id, "certificate and key", 1);
            go_on(load, &answers);
        }
        let rounds = [format!("{old}\n{new}\n"), format!("{new}\n{old}\n"), format!("{new}\n")];
        for (round, content) in (1..).zip(&rounds) {
            for id in IDS {
                replace(&files.of("secret", id), content);
                has_read(&cluster, id, "cluster secrets", round);
                go_on(load, &answers);
            }
        }
    });
    let failures = load.failures.into_inner().expect("nobody panics with it");
    let total: u64 = answers.iter().map(|count| count.load(Ordering::Acquire)).sum();
    let (kept, spanned) = (load.kept.into_inner(), load.spanned.into_inner());
    figure(&format!(
        "{} turns under load: {total} requests, {} failed; {kept} rows; {spanned} streams' transactions open over a turn",
        load.turns.into_inner(),
        failures.len()
    ));
    let logs: String = IDS.iter().map(|id| format!("node {id}:\n{}\n", cluster.log(*id))).collect();
    assert!(failures.is_empty(), "{} of {total} requests failed:\n{}\n{logs}", failures.len(), failures.join("\n"));
    assert!(!logs.contains("was replaced"), "no connection between nodes had to be cut off:\n{logs}");
    assert!(spanned >= 6, "{spanned} transactions were open over a turn");
    for address in &addresses {
        let load_of = |authority: &Authority| Connection::try_open_tls(*address, trusting(&authority.pem()));
        let ask = |authority| load_of(authority)?.try_request("GET", "/health", &[], b"");
        assert_eq!(ask(&second).expect("the new authority").status, 200);
        assert!(ask(&first).is_err(), "the old certificate is shown to nobody");
    }
    let count = highwater_client::Transaction::of("SELECT count(*) FROM kept", []);
    let read = cluster.client(1).query("main", &count, highwater_client::Freshness::Linearizable).expect("a read");
    assert_eq!(read.results[0].rows[0][0], json!(kept), "every acknowledged row is there once, and no other");
    cluster.verify();
}

/// Ends all clients when it is dropped.
struct Ends<'a>(&'a Load);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Release);
    }
}
