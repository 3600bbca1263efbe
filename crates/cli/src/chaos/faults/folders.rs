//! Data folders exchanged while a node is down: for an older copy of the same, and for an empty one.
//!
//! A node on either must notice, say so, and take no part, let alone form a cluster of its own. Once the true folder is back, so is the node.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::process::end_well;
use super::stage::{Stage, Why};
use crate::args::Fault;
use crate::cluster::ending;

/// How long a node may take to notice.
const NOTICED: Duration = Duration::from_secs(45);

/// An older copy of the data folder in place of the true one for a while.
pub(super) fn older(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let index = stage.victim();
    let place = stage.begins(Fault::Older, index, "ended, to have its folder copied".into());
    end(stage, index)?;
    stage.in_force(place);
    let data = stage.cluster.members[index].data.clone();
    let (older, truly) = (data.with_file_name("older"), data.with_file_name("true"));
    copy(&data, &older).with_context(|| format!("{} cannot be copied", data.display()))?;
    stage.start(index)?;
    let name = stage.name(index);
    stage.wait(&format!("{name} is ready again"), NOTICED, |stage| Ok(stage.cluster.members[index].is_ready()))?;
    let length = stage.a_while();
    stage.pass(length)?;

    end(stage, index)?;
    fs::rename(&data, &truly)?;
    fs::rename(&older, &data)?;
    stage.says(place, "; the copy put in place of the true one after a later start");
    stage.cluster.start(index)?;
    stranger(stage, index, "an older copy", "older copy")?;
    put_back(stage, index, &truly)?;
    stage.undone(place);
    Ok(())
}

/// An empty data folder in place of the true one for a while.
pub(super) fn wiped(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let index = stage.victim();
    let place = stage.begins(Fault::Wiped, index, "ended, and started with an empty folder".into());
    end(stage, index)?;
    stage.in_force(place);
    let data = stage.cluster.members[index].data.clone();
    let truly = data.with_file_name("true");
    fs::rename(&data, &truly)?;
    stage.cluster.start(index)?;
    stranger(stage, index, "an empty folder", "data folder")?;
    put_back(stage, index, &truly)?;
    stage.undone(place);
    Ok(())
}

fn end(stage: &mut Stage<'_>, index: usize) -> anyhow::Result<()> {
    if stage.rng.percent(50) { stage.kill(index) } else { end_well(stage, index) }
}

/// A node on a folder that is not its own: it must say so, and not be ready, now or after a while.
fn stranger(stage: &mut Stage<'_>, index: usize, on: &str, word: &str) -> anyhow::Result<()> {
    let name = stage.name(index);
    let serves = |stage: &Stage<'_>| -> anyhow::Result<()> {
        let member = &stage.cluster.members[index];
        ensure!(!member.is_ready(), "{name} serves with {on}; its log ends:\n{}", member.log_tail());
        Ok(())
    };
    let noticed = stage.wait(&format!("{name} says that it was started with {on}"), NOTICED, |stage| {
        serves(stage)?;
        let member = &mut stage.cluster.members[index];
        let said = member.said();
        if let Some(status) = member.ended() {
            let clear = status.code().is_some_and(|code| code != 0 && code != 101) && said.contains(word);
            ensure!(clear, "{name} {} with {on}, and does not say why:\n{said}", ending(status));
            return Ok(true);
        }
        let status = member.status().unwrap_or_default();
        Ok(status["registered"] == "refused" && said.contains(word))
    });
    noticed.with_context(|| format!("its log ends:\n{}", stage.cluster.members[index].log_tail()))?;
    let length = stage.a_while();
    stage.last(length, &[])?;
    serves(stage)
}

/// The true folder comes back, and the node with it.
fn put_back(stage: &mut Stage<'_>, index: usize, truly: &Path) -> anyhow::Result<()> {
    assert!(stage.is(index, Why::Down), "the node was not expected to serve");
    let member = &mut stage.cluster.members[index];
    if member.pid().is_some() {
        member.kill()?;
    }
    fs::remove_dir_all(&member.data)?;
    fs::rename(truly, &member.data)?;
    stage.start(index)
}

/// A copy of a folder and everything in it.
pub(super) fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => fs::copy(entry.path(), &target).map(drop)?,
        }
    }
    Ok(())
}
