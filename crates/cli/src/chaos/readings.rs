//! What every replica holds in the end, into the history: through its node, and, after that has ended, from its SQLite file.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail};
use highwater_client::{Client, Config, Freshness, Transaction};
use highwater_history::{Reading, Record, Rows};
use serde_json::Value;

use super::recorder::Recorder;
use super::wait_until;
use crate::cluster::Cluster;

/// How many rows are read at a time, and go on one line of the history.
const PAGE: usize = 2000;

const ROWS: &str = "SELECT rowid, writer, number, value FROM chaos WHERE rowid > ? ORDER BY rowid LIMIT ?";
const TALLY: &str = "SELECT count, chain FROM tally";
const REGISTERS: &str = "SELECT value FROM register ORDER BY id";

/// Reads all replicas, once everything is applied everywhere. All nodes have ended afterwards.
pub(crate) fn read(cluster: &mut Cluster, recorder: &Recorder) -> anyhow::Result<()> {
    wait_until("every replica has applied the last position", || Ok(settled(cluster)))?;
    for member in &cluster.members {
        through_node(&format!("node {}", member.id), &member.url(), recorder)
            .with_context(|| format!("node {} cannot be read", member.id))?;
    }
    cluster.stop();
    for member in &cluster.members {
        from_file(&format!("node {}, its file", member.id), &member.data, recorder)
            .with_context(|| format!("the file of node {} cannot be read", member.id))?;
    }
    Ok(())
}

/// Whether every node says that it has applied everything that the leader's log holds.
fn settled(cluster: &Cluster) -> bool {
    let positions: Option<Vec<[u64; 3]>> = cluster
        .members
        .iter()
        .map(|member| {
            let status = member.status()?;
            let partition = status["partitions"].as_array()?.iter().find(|partition| partition["name"] == "main")?;
            let replicas = partition["replicas"].as_array()?;
            let own = replicas.iter().find(|replica| replica["node"].as_u64() == Some(u64::from(member.id)))?;
            Some([own["leo"].as_u64()?, own["hw"].as_u64()?, own["applied"].as_u64()?])
        })
        .collect();
    positions.is_some_and(|all| all.iter().all(|[leo, hw, applied]| leo == hw && hw == applied && *leo == all[0][0]))
}

fn through_node(of: &str, url: &str, recorder: &Recorder) -> anyhow::Result<()> {
    let at = recorder.at(Instant::now());
    let mut client = Client::with(Config { discover: false, ..Config::new([url]) })?;
    let mut query = |sql: &str, args: Vec<Value>| -> anyhow::Result<Vec<Vec<u64>>> {
        let mut answer = client.query("main", &Transaction::of(sql, args), Freshness::Eventual)?;
        let rows = std::mem::take(&mut answer.results[0].rows);
        let numbers = |row: Vec<Value>| {
            let numbers: Option<Vec<u64>> = row.iter().map(Value::as_u64).collect();
            numbers.with_context(|| format!("a row of another shape than was written: {}", Value::from(row)))
        };
        rows.into_iter().map(numbers).collect()
    };
    let mut last = 0;
    loop {
        let page = query(ROWS, vec![last.into(), PAGE.into()])?;
        let Some(newest) = page.last() else { break };
        last = newest[0];
        put(of, page, recorder)?;
    }
    let tally = query(TALLY, Vec::new())?;
    let registers = query(REGISTERS, Vec::new())?.concat();
    finish(of, at, &tally, registers, None, recorder)
}

fn from_file(of: &str, data: &Path, recorder: &Recorder) -> anyhow::Result<()> {
    let at = recorder.at(Instant::now());
    let file = data.join("db").join("main").join("sql").join("database.sqlite");
    let connection = rusqlite::Connection::open(&file).with_context(|| file.display().to_string())?;
    // Closing must not write SQLite's log back: a node that is started on the folder again would find another file than it left.
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let query = |sql: &str, args: &[u64]| -> anyhow::Result<Vec<Vec<u64>>> {
        let mut statement = connection.prepare_cached(sql)?;
        let columns = statement.column_count();
        let args = rusqlite::params_from_iter(args.iter().map(|arg| *arg as i64));
        let rows = statement.query_map(args, |row| {
            (0..columns).map(|at| row.get::<_, i64>(at).map(|number| number as u64)).collect()
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    };
    let mut last = 0;
    loop {
        let page = query(ROWS, &[last, PAGE as u64])?;
        let Some(newest) = page.last() else { break };
        last = newest[0];
        put(of, page, recorder)?;
    }
    let tally = query(TALLY, &[])?;
    let registers = query(REGISTERS, &[])?.concat();
    let integrity: String = connection.query_row("PRAGMA integrity_check(3)", [], |row| row.get(0))?;
    finish(of, at, &tally, registers, Some(integrity), recorder)
}

fn put(of: &str, page: Vec<Vec<u64>>, recorder: &Recorder) -> anyhow::Result<()> {
    let row = |row: Vec<u64>| -> anyhow::Result<(u64, u32, u32, u32)> {
        let [rowid, writer, number, value] = row[..] else {
            bail!("a row of another shape than was asked for: {row:?}")
        };
        Ok((rowid, writer.try_into()?, number.try_into()?, value.try_into()?))
    };
    let rows = page.into_iter().map(row).collect::<Result<_, _>>()?;
    recorder.put(&Record::Rows(Rows { of: of.into(), rows }));
    Ok(())
}

fn finish(
    of: &str,
    at: u64,
    tally: &[Vec<u64>],
    registers: Vec<u64>,
    integrity: Option<String>,
    recorder: &Recorder,
) -> anyhow::Result<()> {
    let [tally] = tally else { bail!("the tally has {} rows instead of one", tally.len()) };
    let (count, chain) = (tally[0], tally[1]);
    recorder.put(&Record::Reading(Reading { of: of.into(), at, count, chain, registers, integrity }));
    Ok(())
}
