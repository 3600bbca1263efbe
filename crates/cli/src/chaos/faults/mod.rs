//! What happens to the nodes, when, and what must come of it.
//!
//! Faults follow one another, in an order and at times drawn from the seed; while one lasts, another may join it. Each fault is a procedure in a file of its own that
//! inflicts it, looks at what the nodes make of it, and undoes it. What has to hold all the time is watched between any two steps ([`stage`]):
//!
//! - No process ends that was not made to.
//! - While a majority runs and is connected, writes are acknowledged.
//! - A node that is back is ready again in bounded time.
//!
//! An expectation that does not hold ends the run, with everything that may explain it in the folder ([`evidence`]).
//!
//! Never are more nodes away at once than leave a majority, but by the faults that are meant to stop the service.

mod damage;
mod disks;
mod evidence;
mod folders;
mod full;
mod links;
mod process;
mod stage;
mod target;
mod watch;

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::Context;
use highwater_sim::rng::Rng;

use super::eprint;
use crate::args::{ChaosArgs, Fault};
use crate::cluster::Cluster;
use stage::Stage;

/// A fault that happened.
#[derive(Clone, Debug)]
pub(crate) struct Inflicted {
    pub(crate) fault: Fault,
    /// The node it happened to; of several, the first.
    pub(crate) victim: u32,
    /// Whether that led the database.
    pub(crate) led: bool,
    /// Whether it led the metadata.
    pub(crate) led_metadata: bool,
    /// When it began.
    pub(crate) at: Instant,
    /// When it was in force: a write that was sent before may have escaped it.
    pub(crate) in_force: Instant,
    /// When it had been undone, if it has: from then on the node was on its way back.
    pub(crate) until: Option<Instant>,
    /// What exactly was done, and what came of it.
    pub(crate) what: String,
}

pub(crate) use disks::release;

/// Prepares a cluster that has not been started for the faults of the run. Must be called before any thread is started; [`release`] undoes what would outlast the cluster.
pub(crate) fn prepare(args: &ChaosArgs, cluster: &mut Cluster) -> anyhow::Result<()> {
    if args.faults.0.contains(&Fault::FullDisk)
        && let Err(error) = disks::mount_all(cluster.members.iter().map(|member| member.data.as_path()))
    {
        // Said here, where the reason is known; the fault is skipped later.
        eprint(&format!("{error:#}"));
    }
    cluster.log_filter = Some("info");
    for member in &mut cluster.members {
        // One level further down, so that the data folder can be exchanged for another.
        member.data.push("data");
    }
    cluster.put_apart()
}

/// Inflicts the faults until the time is over, and brings everybody back. The seed decides which and when. `acknowledged` counts the writes that were.
pub(crate) fn inflict(
    args: &ChaosArgs,
    seed: u64,
    cluster: &mut Cluster,
    begun: Instant,
    acknowledged: &AtomicU64,
) -> anyhow::Result<Vec<Inflicted>> {
    let mut stage = Stage::new(args, cluster, Rng::new(seed), begun, acknowledged);
    match run(args, &mut stage, begun) {
        Ok(()) => Ok(stage.inflicted),
        Err(error) => {
            let story: Vec<String> = stage.inflicted.iter().map(|one| one.what.clone()).collect();
            let kept = evidence::keep(cluster, &story);
            Err(error
                .context(format!("with seed {seed}, {:.1} s after the start; {kept}", begun.elapsed().as_secs_f64())))
        }
    }
}

fn run(args: &ChaosArgs, stage: &mut Stage<'_>, begun: Instant) -> anyhow::Result<()> {
    let until = begun + Duration::from_secs(args.seconds);
    let every = Duration::from_secs_f64(args.kill_every);
    let mut faults = args.faults.0.clone();
    faults.retain(|fault| match lacking(*fault, stage) {
        None => true,
        Some(needed) => {
            eprint(&format!("skipped: {} needs {needed}", fault.name()));
            false
        }
    });
    let mut left: Vec<Fault> = Vec::new();
    loop {
        let pause = every.mul_f64(stage.rng.range(20, 180) as f64 / 100.0);
        // The last one leaves time for what follows it to be seen.
        if Instant::now() + pause + every.min(Duration::from_secs(2)) > until {
            stage.pass(until.saturating_duration_since(Instant::now()))?;
            return stage.everybody_back();
        }
        stage.pass(pause)?;
        if left.is_empty() {
            left.clone_from(&faults);
        }
        if left.is_empty() {
            continue;
        }
        let fault = left.swap_remove(stage.rng.below(left.len() as u64) as usize);
        strike(fault, stage).with_context(|| format!("while a fault lasted: {}", fault.name()))?;
    }
}

/// What a fault needs that is not to be had here.
fn lacking(fault: Fault, stage: &Stage<'_>) -> Option<&'static str> {
    match fault {
        Fault::Kill | Fault::Pause | Fault::Restart | Fault::Storm | Fault::KillAll => None,
        _ if stage.len() < 3 => Some("three nodes"),
        Fault::FullDisk if !disks::is_disk(&stage.disk(0)) => {
            Some("a disk for each node: a memory file system in a mount name space")
        }
        _ => None,
    }
}

/// One fault, from its beginning until it is undone.
fn strike(fault: Fault, stage: &mut Stage<'_>) -> anyhow::Result<()> {
    match fault {
        Fault::Kill => process::kill(stage),
        Fault::Pause => process::pause(stage),
        Fault::Restart => process::restart(stage),
        Fault::Storm => process::storm(stage),
        Fault::KillAll => process::kill_all(stage),
        Fault::Partition => links::partition(stage),
        Fault::OneWay => links::one_way(stage),
        Fault::Partial => links::partial(stage),
        Fault::Flip => damage::flip(stage),
        Fault::Remove => damage::remove(stage),
        Fault::Older => folders::older(stage),
        Fault::FullDisk => full::full_disk(stage),
        Fault::Wiped => folders::wiped(stage),
    }
}

/// A seed that nobody chose.
pub(super) fn new_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The only random number that the standard library gives away. Short ones are easier to type.
    std::hash::RandomState::new().build_hasher().finish() >> 32
}
