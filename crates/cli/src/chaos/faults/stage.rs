//! The cluster while faults strike: who is away and why, what may be done to whom, and what is watched all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use highwater_sim::rng::Rng;
use serde_json::Value;

use super::Inflicted;
use super::watch::{STALL, Watch};
use crate::args::{ChaosArgs, Fault};
use crate::chaos::{TICK, eprint};
use crate::cluster::{Cluster, ending};

/// A node that is back, and a majority with it, is ready again after this long.
const READY: Duration = Duration::from_secs(45);

/// How often nodes that are back are asked whether they are ready.
const ASK: Duration = Duration::from_millis(250);

/// How often a fault that lasts is joined by another, in percent.
const JOINED: u64 = 35;

/// Why a node does not take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// Its process has ended or may end at any moment.
    Down,
    /// Its process is stopped.
    Paused,
    /// It does not reach a majority, or is not reached.
    Cut,
}

/// Who leads, by place in the cluster's list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Roles {
    pub(super) database: Option<usize>,
    pub(super) metadata: Option<usize>,
}

/// The stage.
pub(super) struct Stage<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) rng: Rng,
    /// About how long faults last.
    pub(super) lasting: Duration,
    /// The service is not expected to go on, whoever runs.
    pub(super) excused: bool,
    pub(super) inflicted: Vec<Inflicted>,
    away: BTreeMap<usize, BTreeSet<Why>>,
    /// Who is on the way back, since when.
    returning: BTreeMap<usize, Instant>,
    asked: Instant,
    watch: Watch,
    begun: Instant,
    acknowledged: &'a AtomicU64,
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        args: &ChaosArgs,
        cluster: &'a mut Cluster,
        rng: Rng,
        begun: Instant,
        acknowledged: &'a AtomicU64,
    ) -> Stage<'a> {
        Stage {
            cluster,
            rng,
            lasting: Duration::from_secs_f64(args.restart_after),
            excused: false,
            inflicted: Vec::new(),
            away: BTreeMap::new(),
            returning: BTreeMap::new(),
            asked: begun,
            watch: Watch::new(begun),
            begun,
            acknowledged,
        }
    }

    // Who is there.

    /// How many nodes the cluster has.
    pub(super) fn len(&self) -> usize {
        self.cluster.members.len()
    }

    /// How many may be away while the service goes on.
    fn spare(&self) -> usize {
        (self.len() - 1) / 2
    }

    /// Those that take part.
    pub(super) fn present(&self) -> Vec<usize> {
        (0..self.len()).filter(|index| !self.away.contains_key(index)).collect()
    }

    /// Whether one more may be away.
    pub(super) fn may_lose_one(&self) -> bool {
        self.away.len() < self.spare()
    }

    pub(super) fn is(&self, index: usize, why: Why) -> bool {
        self.away.get(&index).is_some_and(|all| all.contains(&why))
    }

    /// The node takes no part from now on.
    pub(super) fn leaves(&mut self, index: usize, why: Why) {
        self.away.entry(index).or_default().insert(why);
        self.returning.remove(&index);
    }

    /// That reason is gone; if it was the last, the node is on its way back.
    pub(super) fn returns(&mut self, index: usize, why: Why) {
        let Some(all) = self.away.get_mut(&index) else { return };
        all.remove(&why);
        if all.is_empty() {
            self.away.remove(&index);
            self.returning.insert(index, Instant::now());
        }
    }

    /// Who leads, as the nodes that answer say: those of the greatest epoch for the database, most of them for the metadata.
    pub(super) fn roles(&self) -> Roles {
        let asked = (0..self.len()).filter(|index| !self.is(*index, Why::Paused) && !self.is(*index, Why::Down));
        let statuses: Vec<Value> = asked.filter_map(|index| self.cluster.members[index].status()).collect();
        let place = |id: u64| self.cluster.members.iter().position(|member| u64::from(member.id) == id);
        let leader = |status: &Value| {
            let partition = status["partitions"].as_array()?.iter().find(|partition| partition["name"] == "main")?;
            Some((partition["epoch"].as_u64()?, partition["leader"].as_u64()?))
        };
        let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
        for id in statuses.iter().filter_map(|status| status["metadata_leader"].as_u64()) {
            *votes.entry(id).or_default() += 1;
        }
        Roles {
            database: statuses.iter().filter_map(leader).max().and_then(|(_, id)| place(id)),
            metadata: votes.into_iter().max_by_key(|(_, votes)| *votes).and_then(|(id, _)| place(id)),
        }
    }

    /// A node to hurt, of those that take part: often the leader of the database or of the metadata.
    pub(super) fn victim(&mut self) -> usize {
        let (present, roles) = (self.present(), self.roles());
        let wanted = match self.rng.below(100) {
            0..45 => roles.database,
            45..65 => roles.metadata,
            _ => None,
        };
        let drawn = *self.rng.pick(&present);
        wanted.filter(|index| present.contains(index)).unwrap_or(drawn)
    }

    /// The folder that may be a disk of its own.
    pub(super) fn disk(&self, index: usize) -> PathBuf {
        self.cluster.folder.join(format!("node-{}", self.cluster.members[index].id))
    }

    /// The name that people know it by.
    pub(super) fn name(&self, index: usize) -> String {
        format!("node {}", self.cluster.members[index].id)
    }

    // The story.

    /// A fault begins. Returns its place in the list, for [`Stage::undone`].
    pub(super) fn begins(&mut self, fault: Fault, index: usize, what: String) -> usize {
        let roles = self.roles();
        let at = Instant::now();
        let (led, led_metadata) = (roles.database == Some(index), roles.metadata == Some(index));
        let leads = match (led, led_metadata) {
            (true, true) => ", which leads the database and the metadata",
            (true, false) => ", which leads the database",
            (false, true) => ", which leads the metadata",
            (false, false) => "",
        };
        eprint(&format!("{:.1} s: {}{leads}: {what}", self.begun.elapsed().as_secs_f64(), self.name(index)));
        let victim = self.cluster.members[index].id;
        self.inflicted.push(Inflicted { fault, victim, led, led_metadata, at, in_force: at, until: None, what });
        self.inflicted.len() - 1
    }

    /// The fault took until now to be in force.
    pub(super) fn in_force(&mut self, place: usize) {
        self.inflicted[place].in_force = Instant::now();
    }

    /// Adds to what is told of a fault.
    pub(super) fn says(&mut self, place: usize, what: &str) {
        eprint(&format!("{:.1} s:   {what}", self.begun.elapsed().as_secs_f64()));
        self.inflicted[place].what += what;
    }

    /// The fault is undone.
    pub(super) fn undone(&mut self, place: usize) {
        self.inflicted[place].until = Some(Instant::now());
    }

    // Time.

    /// A length for something that lasts.
    pub(super) fn a_while(&mut self) -> Duration {
        self.lasting.mul_f64(self.rng.range(20, 180) as f64 / 100.0)
    }

    /// Lets time pass, and watches.
    pub(super) fn pass(&mut self, length: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + length;
        while Instant::now() < until {
            self.tick()?;
        }
        Ok(())
    }

    /// Watches until it is so; an error if it is not after that time.
    pub(super) fn wait(
        &mut self,
        what: &str,
        limit: Duration,
        mut holds: impl FnMut(&mut Stage<'_>) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !holds(self)? {
            ensure!(begun.elapsed() < limit, "{what}: not within {limit:?}");
            self.tick()?;
        }
        Ok(())
    }

    /// Lets a fault last, which sometimes is joined by a kill: of another node while the rule spares one, else of a victim whose process runs.
    pub(super) fn last(&mut self, length: Duration, victims: &[usize]) -> anyhow::Result<()> {
        let until = Instant::now() + length;
        if self.rng.percent(JOINED) {
            let before = length.mul_f64(self.rng.range(5, 60) as f64 / 100.0);
            self.pass(before)?;
            let other = self.may_lose_one();
            let runs = victims.iter().copied().find(|index| !self.is(*index, Why::Down));
            if let Some(index) = if other { Some(self.victim()) } else { runs } {
                super::process::kill_meanwhile(self, index)?;
            }
        }
        self.pass(until.saturating_duration_since(Instant::now()))
    }

    /// Waits until all nodes that were hurt are ready again, and something was acknowledged since.
    pub(super) fn everybody_back(&mut self) -> anyhow::Result<()> {
        assert!(self.away.is_empty(), "every fault is undone by its procedure: {:?}", self.away);
        let (since, limit) = (self.acknowledged.load(Ordering::Relaxed), READY + STALL);
        self.wait("every node is ready again and a write is acknowledged", limit, |stage| {
            Ok(stage.returning.is_empty() && stage.acknowledged.load(Ordering::Relaxed) > since)
        })
    }

    // What is watched.

    fn tick(&mut self) -> anyhow::Result<()> {
        // sleep: other processes are looked at again and again.
        std::thread::sleep(TICK);
        self.check_processes()?;
        self.check_service()?;
        self.check_returns()
    }

    fn check_processes(&mut self) -> anyhow::Result<()> {
        for index in 0..self.len() {
            if self.is(index, Why::Down) {
                continue;
            }
            let member = &mut self.cluster.members[index];
            if let Some(status) = member.ended() {
                bail!("node {} {} by itself; its log ends:\n{}", member.id, ending(status), member.log_tail());
            }
        }
        Ok(())
    }

    fn check_service(&mut self) -> anyhow::Result<()> {
        let possible = !self.excused && self.away.len() <= self.spare();
        let count = self.acknowledged.load(Ordering::Relaxed);
        let nothing = self.watch.look(Instant::now(), count, possible);
        ensure!(
            nothing < STALL,
            "nothing was acknowledged for {:.1} s, though a majority runs and is connected: {}",
            nothing.as_secs_f64(),
            super::evidence::what_nodes_say(self.cluster)
        );
        Ok(())
    }

    fn check_returns(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        if now < self.asked + ASK {
            return Ok(());
        }
        self.asked = now;
        let members = &self.cluster.members;
        self.returning.retain(|index, _| !members[*index].is_ready());
        let Some(possible_since) = self.watch.possible_since() else { return Ok(()) };
        let late = self.returning.iter().find(|(_, since)| now > possible_since.max(**since) + READY);
        if let Some((index, _)) = late {
            let member = &members[*index];
            bail!("node {} is back and not ready after {READY:?}; its log ends:\n{}", member.id, member.log_tail());
        }
        Ok(())
    }

    // Processes.

    /// Kills a node's process. An error if it had ended by itself.
    pub(super) fn kill(&mut self, index: usize) -> anyhow::Result<()> {
        self.leaves(index, Why::Down);
        let member = &mut self.cluster.members[index];
        let ended = member.kill().with_context(|| format!("node {} cannot be killed", member.id))?;
        if let Some(status) = ended.filter(|status| status.code().is_some()) {
            bail!("node {} {} before it was killed; its log ends:\n{}", member.id, ending(status), member.log_tail());
        }
        self.returns(index, Why::Paused);
        Ok(())
    }

    /// Starts it again.
    pub(super) fn start(&mut self, index: usize) -> anyhow::Result<()> {
        self.cluster.start(index)?;
        self.returns(index, Why::Down);
        Ok(())
    }
}
