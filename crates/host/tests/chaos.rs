//! Three hosts on a network and disks that misbehave, by seed: what was acknowledged stays, everybody shows prefixes of one order, and once all is
//! well again a write is acknowledged and everybody shows everything.
//!
//! The simulator does this more thoroughly; this is the quick check that belongs to the host.

mod world;

use std::collections::BTreeMap;

use highwater_host::Input;
use highwater_partition::{Outcome, Ticket};
use highwater_wire::{CommitRule, NodeId};

use world::{Chaos, MAIN, World};

const STEPS: usize = 4_000;
const SEEDS: u64 = 8;

struct Run {
    world: World,
    written: BTreeMap<Ticket, (u32, String)>,
    /// The longest that any node has shown.
    shown: Vec<String>,
}

impl Run {
    fn draw(&mut self, below: usize) -> usize {
        self.world.chaos.as_mut().expect("chaos").draw(below)
    }

    fn any_node(&mut self) -> u32 {
        self.draw(3) as u32 + 1
    }

    fn step(&mut self) {
        match self.draw(200) {
            0..110 => {
                if let Some((to, envelope)) = self.world.chaos.as_mut().and_then(Chaos::next_message) {
                    self.world.input(to, Input::Message(envelope));
                }
            }
            110..150 => self.flush_any(),
            150..175 => self.world.pass(10),
            175..190 => {
                let node = self.any_node();
                let reigns = self.world.nodes[&node].machines.get(&MAIN).is_some_and(|machine| machine.reign.is_some());
                if self.world.running().contains(&node) && reigns {
                    let value = format!("v{}", self.written.len());
                    let ticket = self.world.write(node, &value);
                    self.written.insert(ticket, (node, value));
                }
            }
            190 => {
                let node = self.any_node();
                let running = self.world.running();
                if running.contains(&node) && (running.len() > 2 || self.draw(8) == 0) {
                    self.world.kill(node);
                }
            }
            191..194 => {
                let node = self.any_node();
                if !self.world.running().contains(&node) {
                    self.world.start(node);
                }
            }
            194 => {
                let (from, to) = (self.any_node(), self.any_node());
                self.world.chaos.as_mut().expect("chaos").cut.insert((from, to));
            }
            195..198 => self.world.chaos.as_mut().expect("chaos").cut.clear(),
            198 => {
                // Sometimes rightly, sometimes not.
                let (node, other) = (self.any_node(), self.any_node());
                self.world.input(node, Input::Gone(NodeId(other)));
            }
            _ => {
                let (node, other) = (self.any_node(), self.any_node());
                self.world.input(node, Input::Disconnected(NodeId(other)));
            }
        }
        self.check();
    }

    fn flush_any(&mut self) {
        let pending = self.world.chaos.as_ref().expect("chaos").flushes.len();
        if pending > 0 {
            let at = self.draw(pending);
            let (node, id, job) = self.world.chaos.as_mut().expect("chaos").flushes.swap_remove(at);
            self.world.input(node, Input::FlushDone(id, job.run()));
        }
    }

    /// Whoever shows anything shows a prefix of the longest that was ever shown.
    fn check(&mut self) {
        for n in self.world.running() {
            if !self.world.nodes[&n].machines.contains_key(&MAIN) {
                continue;
            }
            let visible = self.world.visible(n);
            let common = visible.len().min(self.shown.len());
            assert_eq!(visible[..common], self.shown[..common], "node {n} shows another history");
            let more: Vec<String> = visible[common..].iter().map(|value| (*value).to_owned()).collect();
            self.shown.extend(more);
        }
    }

    fn acknowledged(&self) -> Vec<&str> {
        let done = |(ticket, (node, _)): &(&Ticket, &(u32, String))| {
            matches!(self.world.nodes[node].answers.get(ticket), Some(Outcome::Done(_)))
        };
        self.written.iter().filter(done).map(|(_, (_, value))| value.as_str()).collect()
    }

    /// Everything works from now on; what was under way arrives.
    fn heal(&mut self) {
        let chaos = self.world.chaos.take().expect("chaos");
        for (_, to, envelope) in chaos.wire {
            self.world.input(to, Input::Message(envelope));
        }
        for (node, id, job) in chaos.flushes {
            self.world.input(node, Input::FlushDone(id, job.run()));
        }
        for n in 1..=3 {
            if !self.world.running().contains(&n) {
                self.world.start(n);
            }
        }
    }
}

/// Returns how many writes were acknowledged, and the last epoch.
fn run(seed: u64, rule: CommitRule) -> (usize, u32) {
    let mut world = World::new(3, rule);
    world.chaos = Some(Chaos::new(seed));
    for n in 1..=3 {
        world.start(n);
    }
    let mut run = Run { world, written: BTreeMap::new(), shown: Vec::new() };
    for _ in 0..STEPS {
        run.step();
        run.world.trace.clear();
    }
    run.heal();
    let world = &mut run.world;
    world.run_until("it is led and coordinated", |world| world.leader().is_some() && world.coordinator().is_some());
    // Whoever leads now may yet be replaced, by a ballot that began before all was well.
    let mut tries = 0;
    loop {
        tries += 1;
        assert!(tries < 20, "seed {seed}: no write is acknowledged\n{}", world.trace.join("\n"));
        let Some(leader) = world.leader() else {
            world.pass(200);
            continue;
        };
        let ticket = world.write(leader, "last");
        world.run_until("the write is answered", |world| world.nodes[&leader].answers.contains_key(&ticket));
        if world.done(leader, ticket) {
            break;
        }
        world.pass(200);
    }
    world.run_until("all show the last write", |world| (1..=3).all(|n| world.visible(n).last() == Some(&"last")));
    run.check();
    let shown: Vec<&str> = run.world.visible(1);
    assert_eq!(run.shown, shown, "seed {seed}: nothing that was shown is gone");
    for value in run.acknowledged() {
        let times = shown.iter().filter(|found| **found == value).count();
        assert_eq!(times, 1, "seed {seed}: {value} was acknowledged and is there {times} times");
    }
    let epoch = run.world.host(1).view().partition(MAIN).and_then(|record| record.epoch);
    (run.acknowledged().len(), epoch.expect("it is led").0)
}

fn seeds(rule: CommitRule) {
    let (mut acknowledged, mut epochs) = (0, 0);
    for seed in 0..SEEDS {
        let (writes, epoch) = run(seed, rule);
        acknowledged += writes;
        epochs += epoch;
    }
    assert!(acknowledged > SEEDS as usize * 20, "only {acknowledged} writes were acknowledged: nothing much was tried");
    assert!(epochs > SEEDS as u32, "only {epochs} leaders came after the first: nothing much went wrong");
}

#[test]
fn a_majority_keeps_what_it_acknowledged() {
    seeds(CommitRule::Quorum { q: 2 });
}

#[test]
fn an_in_sync_set_keeps_what_it_acknowledged() {
    seeds(CommitRule::Isr { min: 2 });
}
