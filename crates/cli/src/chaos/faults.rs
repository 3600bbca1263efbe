//! What happens to the leaders, and when.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{TICK, eprint};
use crate::args::{ChaosArgs, Fault};
use crate::cluster::{Cluster, ending};

/// When nothing was acknowledged for so long, it is said what the nodes say meanwhile.
const STALL: Duration = Duration::from_millis(1500);

/// A fault that happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inflicted {
    pub(crate) fault: Fault,
    /// The node it happened to, which led the database.
    pub(crate) victim: u32,
    /// Whether it led the metadata as well.
    pub(crate) led_metadata: bool,
    pub(crate) at: Instant,
}

/// A victim that is to come back.
struct Away {
    index: usize,
    fault: Fault,
    /// Since when it has been away; for a restart, since its process ended.
    since: Option<Instant>,
}

/// Inflicts the faults on schedule until the time is over, and brings everybody back.
pub(crate) fn inflict(
    args: &ChaosArgs,
    cluster: &mut Cluster,
    begun: Instant,
    acknowledged: &AtomicU64,
) -> anyhow::Result<Vec<Inflicted>> {
    let until = begun + Duration::from_secs(args.seconds);
    let every = Duration::from_secs_f64(args.kill_every);
    let back = Duration::from_secs_f64(args.restart_after);
    let mut faults = Vec::new();
    let mut away: Vec<Away> = Vec::new();
    let mut next = begun + every;
    let mut seen = (0, begun);
    while Instant::now() < until || !away.is_empty() {
        let now = Instant::now();
        // The last one leaves time for what follows it to be seen.
        if now >= next && now + every.min(Duration::from_secs(2)) <= until {
            next += every;
            let fault = args.faults[faults.len() % args.faults.len()];
            if let Some((index, led_metadata)) = leader(cluster) {
                let member = &mut cluster.members[index];
                let victim = member.id;
                let at = Instant::now();
                match fault {
                    Fault::Kill => member.kill(),
                    Fault::Pause => member.pause(),
                    Fault::Restart => member.terminate(),
                }
                .with_context(|| format!("node {victim} cannot be hurt"))?;
                faults.push(Inflicted { fault, victim, led_metadata, at });
                away.push(Away { index, fault, since: (fault != Fault::Restart).then_some(at) });
            }
        }
        let mut remaining = Vec::new();
        for mut one in away {
            if one.since.is_none() && cluster.members[one.index].ended().is_some() {
                one.since = Some(Instant::now());
            }
            if one.since.is_none_or(|since| since.elapsed() < back) {
                remaining.push(one);
            } else if one.fault == Fault::Pause {
                cluster.members[one.index].resume().context("a paused node cannot go on")?;
            } else {
                cluster.start(one.index)?;
            }
        }
        away = remaining;
        for member in &mut cluster.members {
            let expected = away.iter().any(|one| one.fault != Fault::Pause && one.index + 1 == member.id as usize);
            if !expected && let Some(status) = member.ended() {
                anyhow::bail!("node {} {} by itself; its log ends:\n{}", member.id, ending(status), member.log_tail());
            }
        }
        let count = acknowledged.load(Ordering::Relaxed);
        if count != seen.0 {
            seen = (count, Instant::now());
        } else if seen.1.elapsed() > STALL {
            eprint(&format!(
                "{:.1} s: no write was acknowledged for {STALL:?}; {}",
                begun.elapsed().as_secs_f64(),
                what_nodes_say(cluster)
            ));
            seen.1 = Instant::now();
        }
        // sleep: the schedule is looked at again.
        std::thread::sleep(TICK);
    }
    Ok(faults)
}

/// Each node's view of the database, on one line.
fn what_nodes_say(cluster: &Cluster) -> String {
    let views = cluster.members.iter().map(|member| {
        let status = member.status().unwrap_or_default();
        let partitions = status["partitions"].as_array();
        let Some(partition) = partitions.and_then(|all| all.iter().find(|one| one["name"] == "main")) else {
            return format!("node {} says nothing", member.id);
        };
        let replicas = partition["replicas"].as_array().into_iter().flatten();
        let own = replicas.clone().find(|one| one["node"] == status["node"]).cloned().unwrap_or_default();
        let others: Vec<String> = replicas
            .filter(|one| one["node"] != status["node"] && !one["leo"].is_null())
            .map(|one| format!("node {} to {}", one["node"], one["leo"]))
            .collect();
        format!(
            "node {}: leader {}, epoch {}, LEO {}, HW {}, applied {}{}{}",
            member.id,
            partition["leader"],
            partition["epoch"],
            own["leo"],
            own["hw"],
            own["applied"],
            if others.is_empty() { "" } else { ", sees " },
            others.join(", ")
        )
    });
    views.collect::<Vec<_>>().join("; ")
}

/// The database's leader as the nodes say that answer: the one of the greatest epoch, and whether it leads the metadata too. `None` if no node that runs leads, or the leader is away already.
fn leader(cluster: &Cluster) -> Option<(usize, bool)> {
    let statuses: Vec<_> = cluster.members.iter().filter_map(|member| member.status()).collect();
    let newest = statuses
        .iter()
        .filter_map(|status| {
            let partition = status["partitions"].as_array()?.iter().find(|partition| partition["name"] == "main")?;
            Some((partition["epoch"].as_u64()?, partition["leader"].as_u64()?))
        })
        .max()?;
    let status = statuses.iter().find(|status| status["node"].as_u64() == Some(newest.1))?;
    let index = cluster.members.iter().position(|member| u64::from(member.id) == newest.1)?;
    Some((index, status["metadata_leader"].as_u64() == Some(newest.1)))
}
