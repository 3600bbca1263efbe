//! Damaged files: while a node is down a byte of one is flipped, or it is shortened or removed. Then the node is started.
//!
//! It must mend itself or say precisely which file is damaged and take no part ([`target`](super::target)), while the others go on. Where it refused, the damaged file
//! must be as it was left, and once the true one is back in its place the node must be whole again. Where it serves, it has nothing to be given back.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::process::end_well;
use super::stage::{Stage, Why};
use super::target::{Must, Target, draw};
use crate::args::Fault;
use crate::cluster::ending;

/// How long a node may take to serve, or to say why it does not.
const SAID: Duration = Duration::from_secs(45);

/// What is done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Flipped { at: u64, mask: u8 },
    Shortened { to: u64 },
    Removed,
}

/// What a node on a damaged folder makes of it.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// Its process ended.
    Ended(ExitStatus),
    /// It runs, and its replica of the database is halted, for that reason.
    Halted(String),
    /// It is ready.
    Ready,
}

/// A byte of some file flipped.
pub(super) fn flip(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    damage(stage, Fault::Flip, |target, stage| {
        let length = target.bytes.end - target.bytes.start;
        let at = target.bytes.start + stage.rng.below(length);
        (Damage::Flipped { at, mask: 1 << stage.rng.below(8) }, target.flipped)
    })
}

/// Some file gone, or a part of it.
pub(super) fn remove(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    damage(stage, Fault::Remove, |target, stage| match stage.rng.percent(50) {
        true => (Damage::Removed, target.removed),
        false => {
            let length = target.bytes.end - target.bytes.start;
            (Damage::Shortened { to: target.bytes.start + stage.rng.below(length) }, target.shortened)
        }
    })
}

fn damage(
    stage: &mut Stage<'_>,
    fault: Fault,
    choose: impl FnOnce(&Target, &mut Stage<'_>) -> (Damage, Must),
) -> anyhow::Result<()> {
    let index = stage.victim();
    let length = stage.a_while();
    let place = stage.begins(fault, index, "ended, to have a file damaged".into());
    if stage.rng.percent(50) {
        stage.kill(index)?;
    } else {
        end_well(stage, index)?;
    }
    stage.in_force(place);
    let data = stage.cluster.members[index].data.clone();
    let target = draw(&data, &mut stage.rng)?;
    let (damage, must) = choose(&target, stage);
    let file = data.join(&target.path);
    let aside = data.with_file_name("aside");
    fs::copy(&file, &aside).with_context(|| format!("{} cannot be copied", file.display()))?;
    inflict(damage, &file).with_context(|| format!("{} cannot be damaged", file.display()))?;
    let left = fs::read(&file).ok();
    let what =
        format!("{damage:?}, {} ({}) of {} bytes", target.path.display(), target.what, fs::metadata(&aside)?.len());
    stage.says(place, &format!(": {what}"));

    // Whether its process ends is its own affair now.
    stage.cluster.start(index)?;
    let outcome = outcome(stage, index)?;
    let said = stage.cluster.members[index].said();
    let verdict = judge(must, &outcome, &said, &target.path);
    let refused = verdict.with_context(|| format!("{}: {what}; its log ends:\n{}", stage.name(index), tail(&said)))?;
    if !refused {
        stage.returns(index, Why::Down);
        stage.undone(place);
        stage.says(place, "; served");
        return Ok(());
    }
    stage.says(place, "; refused");
    stage.last(length, &[])?;
    let member = &mut stage.cluster.members[index];
    ensure!(!member.is_ready(), "node {} refused its folder and became ready nevertheless ({what})", member.id);
    if member.pid().is_some() {
        member.kill()?;
    }
    let found = fs::read(&file).ok();
    let untouched = found == left || found.as_ref().is_some_and(|found| found.is_empty()) && left.is_none();
    ensure!(untouched, "node {} refused {}, and changed it ({what})", member.id, target.path.display());
    fs::rename(&aside, &file).with_context(|| format!("{} cannot be put back", file.display()))?;
    stage.start(index)?;
    stage.undone(place);
    Ok(())
}

fn inflict(damage: Damage, file: &Path) -> std::io::Result<()> {
    match damage {
        Damage::Removed => return fs::remove_file(file),
        Damage::Shortened { to } => fs::File::options().write(true).open(file)?.set_len(to)?,
        Damage::Flipped { at, mask } => {
            let file = fs::File::options().read(true).write(true).open(file)?;
            let mut byte = [0];
            file.read_exact_at(&mut byte, at)?;
            file.write_all_at(&[byte[0] ^ mask], at)?;
        }
    }
    Ok(())
}

/// Waits until it is clear what a node makes of its folder. It counts as down all the time.
pub(super) fn outcome(stage: &mut Stage<'_>, index: usize) -> anyhow::Result<Outcome> {
    let mut found = None;
    let what = format!("{} serves, or says why it does not", stage.name(index));
    let waited = stage.wait(&what, SAID, |stage| {
        let member = &mut stage.cluster.members[index];
        found = match member.ended() {
            Some(status) => Some(Outcome::Ended(status)),
            None if member.is_ready() => Some(Outcome::Ready),
            None => halted(member).map(Outcome::Halted),
        };
        Ok(found.is_some())
    });
    waited.with_context(|| format!("its log ends:\n{}", stage.cluster.members[index].log_tail()))?;
    Ok(found.expect("it was waited for"))
}

/// Why the database is halted there, if it is.
pub(super) fn halted(member: &crate::cluster::Member) -> Option<String> {
    let status = member.status()?;
    let partition = status["partitions"].as_array()?.iter().find(|partition| partition["name"] == "main")?;
    partition["halted"].as_str().map(str::to_string)
}

/// Whether the node has refused, as it may; an error if it may not, or does not say what is damaged.
fn judge(must: Must, outcome: &Outcome, said: &str, path: &Path) -> anyhow::Result<bool> {
    let reason = match outcome {
        Outcome::Ready if must == Must::Refuse => bail!("it serves as if nothing were damaged"),
        Outcome::Ready => return Ok(false),
        Outcome::Ended(status) if status.code().is_none_or(|code| code == 0 || code == 101) => {
            bail!("it {}, which is no clear refusal", ending(*status))
        }
        Outcome::Ended(_) => said.to_string(),
        Outcome::Halted(reason) => format!("{reason}\n{said}"),
    };
    ensure!(must == Must::Refuse, "it does not mend what it can: {outcome:?}");
    ensure!(!said.contains("panicked"), "something panicked");
    let name = path.file_name().map(PathBuf::from).unwrap_or_default();
    let folder = path.parent().unwrap_or(Path::new(""));
    for wanted in [name.as_path(), folder] {
        ensure!(reason.contains(&*wanted.to_string_lossy()), "it does not name {}", path.display());
    }
    Ok(true)
}

/// The last lines.
fn tail(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_refusal_must_be_allowed_clear_and_name_the_file() {
        let path = Path::new("db/main/log/control");
        let ended = |code: i32| Outcome::Ended(ExitStatus::from_raw(code << 8));
        let clear = "error: /data/db/main/log: control is damaged";
        assert_eq!(judge(Must::Refuse, &ended(1), clear, path).ok(), Some(true));
        assert_eq!(judge(Must::Refuse, &Outcome::Halted(clear.into()), "", path).ok(), Some(true));
        assert_eq!(judge(Must::Serve, &Outcome::Ready, "", path).ok(), Some(false));
        let wrong = [
            (Must::Refuse, Outcome::Ready, ""),
            (Must::Serve, ended(1), clear),
            (Must::Refuse, ended(0), clear),
            (Must::Refuse, ended(101), clear),
            (Must::Refuse, Outcome::Ended(ExitStatus::from_raw(6)), clear),
            (Must::Refuse, ended(1), "error: disk I/O error"),
            (Must::Refuse, Outcome::Halted("a checksum differs".into()), ""),
        ];
        for (must, outcome, said) in wrong {
            assert!(judge(must, &outcome, said, path).is_err(), "{must:?} {outcome:?} {said}");
        }
    }
}
