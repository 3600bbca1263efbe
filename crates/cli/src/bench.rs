//! `highwater bench`: how many single-row writes are acknowledged in a second, at several numbers of clients, beside SQLite alone.
//!
//! Every client is a thread with one connection that is kept, and has one request under way: an INSERT of one row, acknowledged once it is committed, without an
//! idempotency key. What is sent while the clients warm up is not counted, except by the counts of flushes. SQLite alone is one thread that inserts the same rows into a file of its own, one
//! transaction and one `fdatasync` each (WAL, `synchronous=FULL`), without any server.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use highwater_client::{Client, Config, Error, Transaction, fetch_from};
use serde_json::{Value, json};

use crate::args::BenchArgs;
use crate::output::{document, line, table};

const TABLE: &str = "highwater_bench";

/// How long clients write before they are measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// What clients do now.
const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const ENDING: u8 = 2;

/// What one client, or all of them, saw.
struct Seen {
    /// In microseconds.
    latency: Histogram<u64>,
    errors: u64,
    last_error: Option<String>,
}

impl Seen {
    fn new() -> Seen {
        // Microseconds from 1 to ten minutes, to three significant digits.
        let latency = Histogram::new_with_bounds(1, 600_000_000, 3).expect("these bounds are legal");
        Seen { latency, errors: 0, last_error: None }
    }

    fn add(&mut self, other: Seen) {
        self.latency.add(&other.latency).expect("both have the same bounds");
        self.errors += other.errors;
        self.last_error = other.last_error.or(self.last_error.take());
    }
}

/// Runs the command.
pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let config = Config { discover: false, ..args.cluster.config()? };
    let mut client = Client::with(config.clone())?;
    client.execute(&args.db, &Transaction::of(format!("DROP TABLE IF EXISTS {TABLE}"), []))?;
    let create = format!("CREATE TABLE {TABLE} (id INTEGER PRIMARY KEY, client INTEGER NOT NULL, value TEXT NOT NULL)");
    client.execute(&args.db, &Transaction::of(create, []))?;

    let mut rows = vec![sqlite_alone(args)?];
    for clients in &args.clients {
        let before = flushes(args, &config);
        let (seen, took) = measure(args, &config, *clients)?;
        let after = flushes(args, &config);
        let mut row = figures("highwater", *clients, &seen, took);
        let nodes: BTreeMap<String, u64> = after
            .into_iter()
            .filter_map(|(node, count)| Some((node.clone(), count.checked_sub(*before.get(&node)?)?)))
            .collect();
        row["fdatasyncs"] = json!(nodes);
        row["last_error"] = json!(seen.last_error);
        rows.push(row);
    }
    client.execute(&args.db, &Transaction::of(format!("DROP TABLE {TABLE}"), []))?;
    if args.cluster.json {
        document(&json!({"url": args.cluster.url, "seconds": args.seconds, "rows": rows}));
    } else {
        print(&rows);
    }
    let errors = rows.iter().any(|row| row["errors"].as_u64() != Some(0));
    Ok(if errors { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The row that client writes as its number-th.
fn value(client: u32, number: u64) -> String {
    format!("client {client:04} writes its row {number:010} here, of 64 bytes in all.....")
}

fn measure(args: &BenchArgs, config: &Config, clients: u32) -> anyhow::Result<(Seen, Duration)> {
    let phase = AtomicU8::new(WARMING);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for client in 0..clients {
            let (phase, database) = (&phase, args.db.as_str());
            let mut connection = Client::with(config.clone())?;
            let thread = std::thread::Builder::new()
                .name(format!("client-{client}"))
                .stack_size(256 << 10)
                .spawn_scoped(scope, move || write(&mut connection, database, client, phase));
            threads.push(
                thread.inspect_err(|_| phase.store(ENDING, Ordering::Relaxed)).context("no thread for a client")?,
            );
        }
        // sleep: this is the measurement's time, and no wait for anything.
        std::thread::sleep(WARM_UP);
        phase.store(MEASURING, Ordering::Relaxed);
        let begun = Instant::now();
        // sleep: as before.
        std::thread::sleep(Duration::from_secs(args.seconds));
        phase.store(ENDING, Ordering::Relaxed);
        let took = begun.elapsed();
        let mut all = Seen::new();
        for thread in threads {
            all.add(thread.join().map_err(|_| anyhow::anyhow!("a client's thread panicked"))?);
        }
        Ok((all, took))
    })
}

fn write(connection: &mut Client, database: &str, client: u32, phase: &AtomicU8) -> Seen {
    let mut seen = Seen::new();
    let insert = format!("INSERT INTO {TABLE} (client, value) VALUES (?, ?)");
    for number in 0.. {
        let transaction = Transaction::of(insert.as_str(), [client.into(), value(client, number).into()]);
        let begun = Instant::now();
        let outcome = connection.execute_unkeyed(database, &transaction);
        let took = begun.elapsed();
        match phase.load(Ordering::Relaxed) {
            ENDING => break,
            MEASURING => match outcome {
                Ok(_) | Err(Error::Unreadable { .. }) => seen.latency.saturating_record(took.as_micros() as u64),
                Err(error) => {
                    seen.errors += 1;
                    seen.last_error = Some(error.to_string());
                }
            },
            _ => {}
        }
    }
    seen
}

/// One thread, one transaction for each row, durable before the next.
fn sqlite_alone(args: &BenchArgs) -> anyhow::Result<Value> {
    let folder = tempfile::Builder::new().prefix("highwater-bench-").tempdir_in(&args.sqlite_in);
    let folder = folder.with_context(|| format!("cannot make a folder in {}", args.sqlite_in.display()))?;
    let connection = rusqlite::Connection::open(folder.path().join("alone.sqlite"))?;
    connection.execute_batch(&format!(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;
         CREATE TABLE {TABLE} (id INTEGER PRIMARY KEY, client INTEGER NOT NULL, value TEXT NOT NULL)"
    ))?;
    let mut insert = connection.prepare(&format!("INSERT INTO {TABLE} (client, value) VALUES (?, ?)"))?;
    let mut seen = Seen::new();
    let begun = Instant::now();
    for number in 0.. {
        let at = Instant::now();
        if at - begun >= Duration::from_secs(args.seconds) {
            break;
        }
        insert.execute(rusqlite::params![0, value(0, number)])?;
        seen.latency.saturating_record(at.elapsed().as_micros() as u64);
    }
    let took = begun.elapsed();
    let mut row = figures("sqlite alone", 1, &seen, took);
    row["fdatasyncs"] = json!({"sqlite": seen.latency.len()});
    Ok(row)
}

fn figures(what: &str, clients: u32, seen: &Seen, took: Duration) -> Value {
    let milliseconds =
        |part: f64| (!seen.latency.is_empty()).then(|| seen.latency.value_at_quantile(part) as f64 / 1000.0);
    json!({
        "what": what,
        "clients": clients,
        "rows_per_second": (seen.latency.len() as f64 / took.as_secs_f64()).round(),
        "p50_ms": milliseconds(0.5),
        "p99_ms": milliseconds(0.99),
        "errors": seen.errors,
    })
}

/// How many flushes each node has made of the database's log, by the node's address; empty where nodes do not say.
fn flushes(args: &BenchArgs, config: &Config) -> BTreeMap<String, u64> {
    const LOOK: Duration = Duration::from_secs(2);
    let status = fetch_from(config, "/status", LOOK).ok();
    let status: Value = status.and_then(|(_, body)| serde_json::from_slice(&body).ok()).unwrap_or_default();
    let addresses = status["nodes"].as_array().into_iter().flatten().filter_map(|node| node["address"].as_str());
    let counter = format!("highwater_log_flushes_total{{database=\"{}\"}} ", args.db);
    let scheme = args.cluster.url.split("://").next().unwrap_or_default();
    addresses
        .filter_map(|address| {
            let node = Config { urls: vec![format!("{scheme}://{address}")], ..config.clone() };
            let (_, body) = fetch_from(&node, "/metrics", LOOK).ok()?;
            let text = String::from_utf8(body).ok()?;
            let count = text.lines().find_map(|line| line.strip_prefix(&counter))?.trim().parse().ok()?;
            Some((address.to_string(), count))
        })
        .collect()
}

fn print(rows: &[Value]) {
    let columns = ["", "clients", "rows/s", "p50 ms", "p99 ms", "errors", "fdatasyncs by node"];
    let cells: Vec<Vec<Value>> = rows
        .iter()
        .map(|row| {
            let counts: Vec<u64> =
                row["fdatasyncs"].as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).collect();
            let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
            vec![
                row["what"].clone(),
                row["clients"].clone(),
                json!(row["rows_per_second"].as_f64().unwrap_or_default() as u64),
                row["p50_ms"].clone(),
                row["p99_ms"].clone(),
                row["errors"].clone(),
                json!(counts.join(" ")),
            ]
        })
        .collect();
    line(&table(&columns.map(String::from), &cells));
    for row in rows {
        if let Some(error) = row["last_error"].as_str() {
            line(&format!("with {} clients, the last error: {error}", row["clients"]));
        }
    }
}
