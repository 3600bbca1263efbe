//! Clients that left: what they asked for stops within a second or two, on every face, through the leader and through a follower.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::load::{READER, WRITER, execute, guarded, request};
use super::{Cluster, IDS, figure, wait_for};

/// Without end, and without a row.
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
/// How long one look at the processor's time of the threads takes.
const LOOK: Duration = Duration::from_millis(200);
/// The ticks, of ten milliseconds each, from which on a thread counts as at work in a look.
const AT_WORK_TICKS: u64 = 3;
/// A statement is interrupted within a second or two; the rest is for a machine that is busy with other things.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

/// What the threads of all nodes have used of the processor, in ticks.
fn ticks(cluster: &Cluster) -> BTreeMap<(u32, String), u64> {
    let mut all = BTreeMap::new();
    for id in IDS {
        let pid = cluster.processes[&id].0.id();
        for thread in std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs").flatten() {
            // A thread may end meanwhile.
            let Ok(stat) = std::fs::read_to_string(thread.path().join("stat")) else { continue };
            let Some((_, after_name)) = stat.rsplit_once(") ") else { continue };
            let fields: Vec<&str> = after_name.split(' ').collect();
            let ticks = [11, 12].map(|at| fields[at].parse::<u64>().expect("ticks")).iter().sum();
            all.insert((id, thread.file_name().to_string_lossy().into_owned()), ticks);
        }
    }
    all
}

/// How many threads have worked during a look.
fn at_work(cluster: &Cluster) -> usize {
    let before = ticks(cluster);
    // sleep: time used is measured over time.
    std::thread::sleep(LOOK);
    let worked = |(thread, now): (&(u32, String), &u64)| now - before.get(thread).unwrap_or(&0) >= AT_WORK_TICKS;
    ticks(cluster).iter().filter(|(thread, now)| worked((thread, now))).count()
}

#[test]
fn what_a_client_that_left_had_asked_for_stops() {
    let cluster = guarded();
    let leader = cluster.roles().leader;
    let [follower, _] = cluster.roles().followers();
    cluster.write(leader, "CREATE TABLE kept (v)");
    let inserts = format!("INSERT INTO kept {ENDLESS}");
    let batch = |sql: &str| json!({"batch": {"steps": [{"stmt": {"sql": sql}}]}});
    let bodies = |sql: &str| {
        [
            ("/db/main/sql", json!({ "sql": sql })),
            ("/v2/pipeline", json!({"requests": [execute(sql), execute(sql)]})),
            ("/v3/cursor", batch(sql)),
        ]
    };
    for (through, role) in [(leader, "leader"), (follower, "follower")] {
        for (token, sql) in [(READER, ENDLESS), (WRITER, ENDLESS), (WRITER, inserts.as_str())] {
            for (path, body) in bodies(sql) {
                wait_for("nothing runs before", || (at_work(&cluster) == 0).then_some(()));
                let mut client = TcpStream::connect(cluster.addresses[&through]).expect("a connection");
                client.write_all(&request("POST", path, token, &body.to_string())).expect("the request leaves");
                wait_for("the statement runs", || (at_work(&cluster) > 0).then_some(()));
                drop(client);
                let left = Instant::now();
                while at_work(&cluster) > 0 {
                    assert!(left.elapsed() < STOPS_WITHIN, "{path} through the {role}: {sql} runs on");
                }
                let first = sql.split(' ').next().unwrap_or_default();
                figure(&format!(
                    "{path} through the {role}, {first}: at rest {:?} after the client left",
                    left.elapsed()
                ));
            }
        }
    }
}
