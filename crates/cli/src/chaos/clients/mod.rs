//! Who asks for what while the faults last.
//!
//! | Clients | Operations | Asked |
//! |---|---|---|
//! | writers ([`rows`]) | rows of their own, most with idempotency keys, every fourth writer without; every eighth has them acknowledged by the leader alone | through the Rust client; the latter any node, directly |
//! | swappers ([`registers`]) | compare-and-set, set and linearizable reads on a few registers that all share; half of them with keys | with keys through the Rust client; else one node each, whatever it is |
//! | readers ([`looks`]) | the rows, at every freshness | one node each; sessions go from node to node |
//!
//! Each keeps to a rate, so that what is measured is the cluster and not the machine's limit.

mod looks;
mod registers;
mod rows;
mod write;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use highwater_client::{Client, Config, Transaction};
use highwater_sim::rng::Rng;

use super::recorder::Recorder;
use crate::args::ChaosArgs;

pub(crate) use registers::REGISTERS;
pub(crate) use write::{Doubt, ask_again};

/// The tables: rows without any key, so that a row that was written twice is there twice; the tally, which each row changes; and the registers.
pub(crate) fn tables() -> Transaction {
    let mut tables = Transaction::of(
        "CREATE TABLE chaos (writer INTEGER NOT NULL, number INTEGER NOT NULL, value INTEGER NOT NULL)",
        [],
    )
    .and("CREATE TABLE tally (count INTEGER NOT NULL, chain INTEGER NOT NULL)", [])
    .and("INSERT INTO tally VALUES (0, 0)", [])
    .and("CREATE TABLE register (id INTEGER PRIMARY KEY, value INTEGER NOT NULL)", []);
    for register in 0..REGISTERS {
        tables = tables.and("INSERT INTO register VALUES (?, 0)", [register.into()]);
    }
    tables
}

/// What all clients share.
pub(crate) struct Shared<'a> {
    pub(crate) recorder: &'a Recorder,
    pub(crate) urls: &'a [String],
    pub(crate) stop: &'a AtomicBool,
    /// How many writes were acknowledged as committed.
    pub(crate) acknowledged: &'a AtomicU64,
    /// Some position at which something was acknowledged not long ago.
    pub(crate) position: Mutex<Option<String>>,
    /// What each register was last seen to hold, perhaps.
    pub(crate) registers: Vec<AtomicU64>,
    /// The last value that was given to a write to a register.
    pub(crate) value: AtomicU64,
    /// How long a client takes from one operation to the next, on average.
    pub(crate) every: Duration,
}

impl Shared<'_> {
    /// Counts what came of a write, and keeps where it is.
    fn note(&self, at: &str) {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        *self.position.lock().expect("nobody panics with a position") = Some(at.to_string());
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A client of the Rust client's that begins at one of the nodes.
    fn client(&self, id: u32) -> anyhow::Result<Client> {
        let mut config = Config::new(self.urls.to_vec());
        let nodes = config.urls.len();
        config.urls.rotate_left(id as usize % nodes);
        Ok(Client::with(config)?)
    }
}

/// Runs all clients until they are told to stop; returns the writes of which it is not known what became of them.
pub(crate) fn run<'scope, 'env>(
    scope: &'scope std::thread::Scope<'scope, 'env>,
    args: &ChaosArgs,
    shared: &'env Shared<'env>,
    rng: &mut Rng,
) -> Vec<std::thread::ScopedJoinHandle<'scope, anyhow::Result<Vec<Doubt>>>> {
    let mut threads = Vec::new();
    for id in 0..args.writers {
        let rng = rng.fork(u64::from(id));
        threads.push(scope.spawn(move || rows::run(id, shared, rng)));
    }
    for number in 0..args.swappers {
        let id = args.writers + number;
        let rng = rng.fork(u64::from(id));
        threads.push(scope.spawn(move || registers::run(id, number, shared, rng)));
    }
    for number in 0..args.readers {
        let id = args.writers + args.swappers + number;
        let rng = rng.fork(u64::from(id));
        threads.push(scope.spawn(move || {
            looks::run(id, number, shared, rng);
            Ok(Vec::new())
        }));
    }
    threads
}

/// Keeps a client to its rate.
struct Pace {
    next: Instant,
    every: Duration,
    rng: Rng,
}

impl Pace {
    fn new(every: Duration, mut rng: Rng) -> Pace {
        // They do not all begin at once.
        let next = Instant::now() + every.mul_f64(rng.below(100) as f64 / 100.0);
        Pace { next, every, rng }
    }

    /// Waits until the next operation is due. One that is overdue is not made up for: nobody asks faster because the cluster was slow.
    fn wait(&mut self) {
        let now = Instant::now();
        // sleep: a rate is kept; nothing is waited for.
        std::thread::sleep(self.next.saturating_duration_since(now));
        self.next = self.next.max(now) + self.every.mul_f64(self.rng.range(50, 150) as f64 / 100.0);
    }
}
