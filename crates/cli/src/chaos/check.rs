//! What every replica holds, against what the writers remember.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use highwater_client::{Client, Config, Freshness, Transaction};
use serde_json::Value;

use super::wait_until;
use super::writer::{Fate, TABLE, Writer};
use crate::cluster::Cluster;

/// How many examples of what was found are kept.
const EXAMPLES_MAX: usize = 10;

/// What was found in one reading of one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Which reading: `node 1` or `node 1, its file`.
    pub(crate) of: String,
    pub(crate) rows: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    pub(crate) phantom: u64,
    /// Rows whose fate is still unknown that are there.
    pub(crate) unknown_there: u64,
    pub(crate) examples: Vec<String>,
}

type Rows = BTreeMap<(u32, usize), Vec<String>>;

/// Reads all replicas, once everything is applied everywhere, and compares. All nodes have ended afterwards.
pub(crate) fn check(cluster: &mut Cluster, writers: &[Writer]) -> anyhow::Result<Vec<Found>> {
    wait_until("every replica has applied the last position", || Ok(settled(cluster)))?;
    let mut found = Vec::new();
    for member in &cluster.members {
        let rows = through_node(&member.url()).with_context(|| format!("node {} cannot be read", member.id))?;
        found.push(compare(format!("node {}", member.id), &rows, writers));
    }
    cluster.stop();
    for member in &cluster.members {
        let rows = from_file(&member.data).with_context(|| format!("the file of node {} cannot be read", member.id))?;
        found.push(compare(format!("node {}, its file", member.id), &rows, writers));
    }
    Ok(found)
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

fn through_node(url: &str) -> anyhow::Result<Rows> {
    const PAGE: i64 = 20_000;
    let mut client = Client::with(Config { discover: false, ..Config::new([url]) })?;
    let sql = format!("SELECT rowid, writer, number, value FROM {TABLE} WHERE rowid > ? ORDER BY rowid LIMIT {PAGE}");
    let (mut rows, mut last) = (Rows::new(), 0);
    loop {
        let answer = client.query("main", &Transaction::of(sql.as_str(), [last.into()]), Freshness::Eventual)?;
        let page = &answer.results[0].rows;
        if page.is_empty() {
            return Ok(rows);
        }
        for row in page {
            let (Some(rowid), Some(writer), Some(number), Some(value)) =
                (row[0].as_i64(), row[1].as_u64(), row[2].as_u64(), row[3].as_str())
            else {
                bail!("a row of another shape than was written: {}", Value::from(row.clone()));
            };
            rows.entry((writer as u32, number as usize)).or_default().push(value.to_string());
            last = rowid;
        }
    }
}

fn from_file(data: &Path) -> anyhow::Result<Rows> {
    let file = data.join("db").join("main").join("sql").join("database.sqlite");
    let connection = rusqlite::Connection::open(&file).with_context(|| file.display().to_string())?;
    // Closing must not write SQLite's log back: a node that is started on the folder again would find another file than it left.
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let mut statement = connection.prepare(&format!("SELECT writer, number, value FROM {TABLE}"))?;
    let read = statement.query_map([], |row| Ok(((row.get(0)?, row.get::<_, u32>(1)? as usize), row.get(2)?)))?;
    let mut rows = Rows::new();
    for row in read {
        let (key, value): (_, String) = row?;
        rows.entry(key).or_default().push(value);
    }
    Ok(rows)
}

fn compare(of: String, rows: &Rows, writers: &[Writer]) -> Found {
    let mut found = Found { of, rows: rows.values().map(|copies| copies.len() as u64).sum(), ..Found::default() };
    let mut example = |text: String| {
        if found.examples.len() < EXAMPLES_MAX {
            found.examples.push(text);
        }
    };
    for writer in writers {
        for (number, fate) in writer.fates.iter().enumerate() {
            let copies = rows.get(&(writer.id, number)).map_or(0, Vec::len);
            match fate {
                Fate::Acknowledged if copies == 0 => {
                    found.lost += 1;
                    example(format!("lost: {}", writer.value(number)));
                }
                Fate::Failed(reason) if copies > 0 => {
                    found.phantom += 1;
                    example(format!("said to have failed ({reason}), and there: {}", writer.value(number)));
                }
                Fate::Unknown { .. } if copies > 0 => found.unknown_there += 1,
                _ => {}
            }
            if copies > 1 {
                found.duplicated += 1;
                example(format!("{copies} times: {}", writer.value(number)));
            }
        }
    }
    for ((id, number), values) in rows {
        let writer = writers.iter().find(|writer| writer.id == *id);
        let written = writer.filter(|writer| *number < writer.fates.len()).map(|writer| writer.value(*number));
        let strange = values.iter().filter(|value| Some(*value) != written.as_ref()).count();
        if strange > 0 {
            found.phantom += strange as u64;
            example(format!("nobody wrote: {values:?} as number {number} of writer {id}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(writer: &Writer, numbers: &[usize]) -> Rows {
        let mut rows = Rows::new();
        for number in numbers {
            rows.entry((writer.id, *number)).or_default().push(writer.value(*number));
        }
        rows
    }

    #[test]
    fn each_kind_of_damage_is_noticed_and_what_is_right_is_not() {
        let mut writer = Writer::new(3);
        let unknown = || Fate::Unknown { key: "k".into() };
        writer.fates = vec![Fate::Acknowledged, Fate::Failed("x".into()), unknown(), unknown()];
        let compared = |rows: &Rows| {
            let found = compare("a replica".into(), rows, std::slice::from_ref(&writer));
            (found.lost, found.duplicated, found.phantom, found.unknown_there)
        };
        assert_eq!(compared(&rows(&writer, &[0, 2])), (0, 0, 0, 1));
        assert_eq!(compared(&rows(&writer, &[2, 3])), (1, 0, 0, 2));
        assert_eq!(compared(&rows(&writer, &[0, 0, 2, 2])), (0, 2, 0, 1));
        assert_eq!(compared(&rows(&writer, &[0, 1])), (0, 0, 1, 0));
        assert_eq!(compared(&rows(&writer, &[0, 4])), (0, 0, 1, 0), "never written");
        let mut changed = rows(&writer, &[]);
        changed.insert((3, 0), vec!["another value".into()]);
        assert_eq!(compared(&changed), (0, 0, 1, 0));
        changed.insert((7, 0), vec!["of nobody".into()]);
        assert_eq!(compared(&changed), (0, 0, 2, 0));
    }
}
