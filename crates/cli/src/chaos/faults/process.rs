//! Faults of processes: killed, stopped for a while, ended in good order, and killed again before they have recovered.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::stage::{Stage, Why};
use crate::args::Fault;
use crate::cluster::ending;

/// How long a node may take to end in good order.
const END_MAX: Duration = Duration::from_secs(20);

/// SIGKILL, and a start after a while.
pub(super) fn kill(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let index = stage.victim();
    let length = stage.a_while();
    let place = stage.begins(Fault::Kill, index, format!("killed, for {:.1} s", length.as_secs_f64()));
    stage.kill(index)?;
    stage.in_force(place);
    stage.last(length, &[index])?;
    stage.start(index)?;
    stage.undone(place);
    Ok(())
}

/// The same for a moment, while another fault lasts.
pub(super) fn kill_meanwhile(stage: &mut Stage<'_>, index: usize) -> anyhow::Result<()> {
    let place = stage.begins(Fault::Kill, index, "killed meanwhile, and started at once".into());
    stage.kill(index)?;
    stage.in_force(place);
    stage.start(index)?;
    stage.undone(place);
    Ok(())
}

/// SIGSTOP, and SIGCONT after a moment or a while.
pub(super) fn pause(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let index = stage.victim();
    let length = match stage.rng.percent(40) {
        true => Duration::from_millis(stage.rng.range(20, 600)),
        false => stage.a_while() * 2,
    };
    let place = stage.begins(Fault::Pause, index, format!("paused for {:.1} s", length.as_secs_f64()));
    stage.cluster.members[index].pause().context("a node cannot be paused")?;
    stage.leaves(index, Why::Paused);
    stage.last(length, &[index])?;
    // One that was killed meanwhile has been started anew, and runs.
    if stage.is(index, Why::Paused) {
        stage.cluster.members[index].resume().context("a paused node cannot go on")?;
        stage.returns(index, Why::Paused);
    }
    stage.undone(place);
    Ok(())
}

/// SIGTERM, an end in good order, and a start after a while.
pub(super) fn restart(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let index = stage.victim();
    let place = stage.begins(Fault::Restart, index, "told to end, and started again".into());
    end_well(stage, index)?;
    stage.in_force(place);
    let length = stage.a_while();
    stage.last(length, &[index])?;
    stage.start(index)?;
    stage.undone(place);
    Ok(())
}

/// Tells a node to end, and waits until it has, in good order.
pub(super) fn end_well(stage: &mut Stage<'_>, index: usize) -> anyhow::Result<()> {
    stage.leaves(index, Why::Down);
    stage.cluster.members[index].terminate().context("a node cannot be told to end")?;
    let name = stage.name(index);
    let mut status = None;
    stage.wait(&format!("{name}, told to end, ends"), END_MAX, |stage| {
        status = stage.cluster.members[index].ended();
        Ok(status.is_some())
    })?;
    ensure!(
        status.is_some_and(|status| status.success()),
        "{name} was told to end and {}; its log ends:\n{}",
        status.map(ending).unwrap_or_default(),
        stage.cluster.members[index].log_tail()
    );
    Ok(())
}

/// One node, or all of them, killed again and again while they recover.
pub(super) fn storm(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let index = stage.victim();
    let victims: Vec<usize> = if stage.rng.percent(40) { (0..stage.len()).collect() } else { vec![index] };
    let kills = victims.len() as u64 * stage.rng.range(4, 12);
    let who = if victims.len() > 1 { "with all others, " } else { "" };
    let place = stage.begins(Fault::Storm, index, format!("{who}killed {kills} times within 300 ms of a start"));
    let mut next: Vec<(Instant, usize)> = victims.iter().map(|index| (Instant::now(), *index)).collect();
    for _ in 0..kills {
        next.sort_unstable();
        let (at, index) = next[0];
        // sleep: the moment of the kill is what the fault is about.
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        stage.kill(index)?;
        stage.start(index)?;
        next[0].0 = Instant::now() + Duration::from_millis(stage.rng.range(5, 300));
    }
    stage.undone(place);
    Ok(())
}

/// SIGKILL to all nodes at once, and a start of all.
pub(super) fn kill_all(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let index = stage.victim();
    let length = stage.a_while();
    let place =
        stage.begins(Fault::KillAll, index, format!("killed, with all others, for {:.1} s", length.as_secs_f64()));
    for index in 0..stage.len() {
        stage.kill(index)?;
    }
    stage.in_force(place);
    stage.pass(length)?;
    for index in 0..stage.len() {
        stage.start(index)?;
    }
    stage.undone(place);
    Ok(())
}
