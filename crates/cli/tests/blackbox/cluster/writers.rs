//! Writers that know what became of each of their rows, and the check that every node holds exactly that.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use highwater_client::{Client, Config, Error, Transaction};

use super::{Cluster, IDS, wait_for};

/// Writers for each node.
const EACH: u32 = 2;

/// An acknowledged row.
#[derive(Clone, Copy)]
struct Acknowledged {
    /// Through which node.
    node: u32,
    number: u32,
    /// When the attempt was sent that was acknowledged, and when it was.
    sent: Instant,
    at: Instant,
}

/// Rows by what became of them.
#[derive(Default)]
struct Fates {
    acknowledged: Vec<Acknowledged>,
    /// There once or not at all.
    unknown: Vec<u32>,
    /// Nowhere.
    failed: Vec<(u32, String)>,
}

/// Writers that go on until they are told to end, each through one node.
pub(crate) struct Writers {
    fates: Arc<Mutex<Fates>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    /// Makes the table and begins; returns once a write was acknowledged through each node.
    pub(crate) fn start(cluster: &Cluster) -> Writers {
        let begun = Instant::now();
        let mut client = Client::new([cluster.url(1)]).expect("a client");
        client.execute("main", &Transaction::of("CREATE TABLE written (number INTEGER)", [])).expect("a table");
        let mut writers = Writers { fates: Arc::default(), stop: Arc::default(), threads: Vec::new() };
        let next = Arc::new(AtomicU32::new(0));
        for node in IDS.into_iter().cycle().take(IDS.len() * EACH as usize) {
            let config = Config { discover: false, ..Config::new([cluster.url(node)]) };
            let mut client = Client::with(config).expect("a client");
            let (fates, stop, next) = (writers.fates.clone(), writers.stop.clone(), next.clone());
            writers.threads.push(std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    write_one(&mut client, node, next.fetch_add(1, Ordering::Relaxed), &fates);
                }
            }));
        }
        for node in IDS {
            writers.wait_for(node, begun);
        }
        writers
    }

    /// Waits for a write through that node which was sent and acknowledged since then; returns how long after that moment it was acknowledged.
    pub(crate) fn wait_for(&self, node: u32, since: Instant) -> Duration {
        wait_for(&format!("a write through node {node} is acknowledged"), || {
            let fates = self.fates.lock().expect("no writer panics");
            let since_then = fates.acknowledged.iter().filter(|one| one.node == node && one.sent >= since);
            since_then.map(|one| one.at - since).min()
        })
    }

    /// Ends, and compares what each node holds with what is remembered.
    pub(crate) fn finish(self, cluster: &Cluster) -> String {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("no writer panics");
        }
        cluster.settle();
        let fates = self.fates.lock().expect("no writer panics");
        for node in IDS {
            let counted = "SELECT number, count(*) FROM written GROUP BY number";
            let rows = cluster.rows(node, "?freshness=eventual", counted);
            let mut found: BTreeMap<u64, u64> = BTreeMap::new();
            for row in rows.as_array().expect("rows") {
                found.insert(row[0].as_u64().expect("a number"), row[1].as_u64().expect("a count"));
            }
            for one in &fates.acknowledged {
                let copies = found.remove(&u64::from(one.number)).unwrap_or(0);
                assert_eq!(copies, 1, "row {} was acknowledged through node {}; node {node}", one.number, one.node);
            }
            for number in &fates.unknown {
                let copies = found.remove(&u64::from(*number)).unwrap_or(0);
                assert!(copies <= 1, "row {number} is unknown, and on node {node} {copies} times");
            }
            for (number, reason) in &fates.failed {
                assert!(
                    !found.contains_key(&u64::from(*number)),
                    "row {number} failed ({reason}): there on node {node}"
                );
            }
            assert!(found.is_empty(), "on node {node}, and written by nobody: {found:?}");
        }
        let (unknown, failed) = (fates.unknown.len(), fates.failed.len());
        format!("{} acknowledged, {unknown} unknown, {failed} failed", fates.acknowledged.len())
    }
}

fn write_one(client: &mut Client, node: u32, number: u32, fates: &Mutex<Fates>) {
    let insert = Transaction::of("INSERT INTO written VALUES (?)", [number.into()]);
    let outcome = client.execute("main", &insert);
    let at = Instant::now();
    let mut fates = fates.lock().expect("no writer panics");
    match outcome {
        Ok(answer) => fates.acknowledged.push(Acknowledged { node, number, sent: answer.sent, at }),
        Err(Error::Unknown { .. }) => fates.unknown.push(number),
        Err(Error::Failed(failed)) => fates.failed.push((number, failed.to_string())),
        Err(Error::Unreadable { reason, .. }) => panic!("row {number} is done and unreadable: {reason}"),
    }
}
