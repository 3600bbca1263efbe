//! Full disks: one node's, or those of all.
//!
//! Nobody ends, but for a node that is started without space, which may say so and end. Where the database's leader has no space, or nobody has, writes are refused, saying
//! so, and reads go on. Where another node has none, so do writes. When there is space again the service returns, without anybody repairing anything.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use highwater_client::{Client, Config, Error, Freshness, Transaction};

use super::damage::{Outcome, halted, outcome};
use super::disks::{fill, free};
use super::stage::{Stage, Why};
use crate::args::Fault;
use crate::cluster::ending;

/// The logs have space set aside in advance; when that is used up, writes are refused. Until then this may take so long.
const REFUSED: Duration = Duration::from_secs(30);

/// How long a read may take.
const READ: Duration = Duration::from_secs(10);

/// What the server calls a full disk.
const CODES: [&str; 2] = ["DISK_FULL", "SQLITE_FULL"];

/// A table of no interest.
const TABLE: &str = "chaos_space";

/// Fills disks and frees them after a while.
pub(super) fn full_disk(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let index = stage.victim();
    let mut client = Client::with(Config { deadline: READ, ..Config::new([stage.cluster.members[index].url()]) })?;
    let make = Transaction::of(format!("CREATE TABLE IF NOT EXISTS {TABLE} (a)"), []);
    client.execute("main", &make).context("a table cannot be made while nothing is wrong")?;
    let all = stage.rng.percent(40);
    let victims: Vec<usize> = if all { (0..stage.len()).collect() } else { vec![index] };
    let disks: Vec<PathBuf> = victims.iter().map(|index| stage.disk(*index)).collect();
    let length = stage.a_while();
    let what = if all { "disk full, as are all others" } else { "disk full" };
    let place = stage.begins(Fault::FullDisk, index, format!("{what}, for {:.1} s", length.as_secs_f64()));
    let leads = stage.inflicted[place].led;
    stage.excused = all || leads;
    disks.iter().try_for_each(|disk| fill(disk))?;
    stage.in_force(place);
    if all || leads {
        refused(stage, index)?;
        stage.says(place, "; writes were refused for want of space, and reads answered");
    }
    let started_full = !all && stage.rng.percent(40);
    if started_full {
        stage.pass(length.mul_f64(0.3))?;
        stage.says(place, "; killed, and started without space");
        stage.kill(index)?;
        // Whether it ends is its own affair until there is space again.
        stage.cluster.start(index)?;
    }
    stage.pass(length)?;
    disks.iter().try_for_each(|disk| free(disk))?;
    stage.excused = false;
    if started_full {
        back(stage, index)?;
    }
    for index in victims {
        // A replica that had to promise an epoch and could not write that has halted: then a new start is all that is needed.
        if let Some(reason) = halted(&stage.cluster.members[index]) {
            stage.says(place, &format!("; {} halted and started again", stage.name(index)));
            ensure!(reason.to_lowercase().contains("space"), "{} halted: {reason}", stage.name(index));
            stage.kill(index)?;
            stage.start(index)?;
        }
    }
    stage.undone(place);
    Ok(())
}

/// A node that was started without space serves once there is some, or has said why it does not and is started again.
fn back(stage: &mut Stage<'_>, index: usize) -> anyhow::Result<()> {
    let name = stage.name(index);
    match outcome(stage, index)? {
        // One that has halted is looked at by the caller.
        Outcome::Ready | Outcome::Halted(_) => stage.returns(index, Why::Down),
        Outcome::Ended(status) => {
            let said = stage.cluster.members[index].said();
            let clear = status.code().is_some_and(|code| code != 0 && code != 101) && said.contains("No space left");
            ensure!(clear, "{name}, started without space, {} and does not say why:\n{said}", ending(status));
            stage.start(index)?;
        }
    }
    Ok(())
}

/// Waits until a write is refused for want of space, and reads.
fn refused(stage: &mut Stage<'_>, index: usize) -> anyhow::Result<()> {
    // Only through that node and without patience, so that a refusal is seen.
    let url = stage.cluster.members[index].url();
    let config = Config { discover: false, deadline: Duration::from_secs(1), ..Config::new([url]) };
    let mut client = Client::with(config)?;
    let write = Transaction::of(format!("INSERT INTO {TABLE} VALUES (zeroblob(1000))"), []);
    let mut last = String::new();
    let waited = stage.wait("a write is refused for want of space", REFUSED, |_| {
        let answer = client.execute_unkeyed("main", &write);
        last = format!("{answer:?}");
        Ok(matches!(answer, Err(Error::Failed(failed)) if CODES.contains(&failed.code.as_str())))
    });
    waited.with_context(|| format!("the last answer was {last}"))?;
    // A replica without space cannot apply what was committed meanwhile, and answers with the state that it has. The leader has executed all of it.
    let leader = stage.roles().database.unwrap_or(index);
    let read = Transaction::of(format!("SELECT count(*) FROM {TABLE}"), []);
    for (at, freshness) in [(index, Freshness::Eventual), (leader, Freshness::Linearizable)] {
        let url = stage.cluster.members[at].url();
        let answer = Client::with(Config { discover: false, deadline: READ, ..Config::new([url]) })?
            .query("main", &read, freshness);
        let name = stage.name(at);
        // Who had to promise an epoch, and could not write that, has halted, which it says; then this expectation is not to be had.
        let broken = stage.cluster.members.iter().any(|member| halted(member).is_some());
        ensure!(answer.is_ok() || broken, "{name} answers no {freshness:?} read while disks are full: {answer:?}");
    }
    Ok(())
}
