//! Faults strike, and what they took away comes back.

use highwater_wire::NodeId;

use super::World;
use super::event::{AtNode, Event, Restore};
use super::node::Doom;
use crate::facts::Observation;
use crate::faults::Fault;
use crate::plan::Strike;

impl World {
    /// Decides when that class strikes next.
    pub(super) fn schedule_strike(&mut self, fault: Fault) {
        if let Some(gap_ms) = fault.gap_ms() {
            let after = 1_000_000 + self.rng.below(2 * gap_ms * 1_000);
            self.queue.at(self.now + after, Event::Strike { fault });
        }
    }

    /// The class strikes, unless its time is over.
    pub(super) fn strike(&mut self, fault: Fault) {
        if self.healed.is_some() {
            return;
        }
        self.schedule_strike(fault);
        let id = self.victim();
        let strike = Strike { number: self.counted.strikes.len() as u64 + 1, fault, node: id, at_us: self.now };
        self.counted.strikes.push(strike);
        if self.reduction.skip_strikes.contains(&strike.number) {
            return;
        }
        self.trace.note(self.now, &(fault, id), || format!("FAULT {}: {} at node {id}", strike.number, fault.name()));
        if self.see(Observation::Struck { fault, node: id }) && self.strikes(fault, id) {
            *self.counted.faults.entry(fault).or_default() += 1;
        }
    }

    /// The class strikes that node. False if it has nothing to strike there now.
    fn strikes(&mut self, fault: Fault, id: NodeId) -> bool {
        let now = self.now;
        match fault {
            Fault::BitRot | Fault::LostWrite | Fault::Misdirected => return self.spoil(id, fault),
            Fault::ReadError => self.fail_reads(id),
            Fault::Wiped => return self.wipe(id),
            Fault::Older => return self.copy_or_put_older(id),
            Fault::Partial => return self.part(id),
            Fault::Stall => self.node_mut(id).stalled_until = now + self.rng.range(600_000, 2_000_000),
            Fault::ClockJump => {
                let (jumps, takes) = (self.rng.percent(50), self.rng.range(50_000, 4_000_000));
                let clock = &mut self.node_mut(id).clock;
                if jumps { clock.jump(now, takes / 1000) } else { clock.freeze(now, now + takes) }
            }
            Fault::Elections => return self.misbehave(id),
            Fault::Kill => self.doom(id, false),
            Fault::Power => self.doom(id, true),
            Fault::PowerAll => {
                let running: Vec<_> =
                    self.nodes.values().filter(|node| node.process.is_some()).map(|node| node.id).collect();
                for id in running {
                    self.die(id, true);
                }
            }
            Fault::Pause => {
                let takes = if self.rng.percent(40) {
                    self.rng.range(30_000, 400_000)
                } else {
                    self.rng.range(400_000, 3_000_000)
                };
                self.node_mut(id).paused_until = now + takes;
            }
            Fault::Partition => self.partition(id),
            Fault::OneWay => {
                let (deaf, takes) = (self.rng.percent(50), self.rng.range(200_000, 3_000_000));
                for peer in self.peers(id) {
                    let (from, to) = if deaf { (peer, id) } else { (id, peer) };
                    self.block(from, to, takes);
                }
            }
            Fault::Clog => {
                // One link after another, in either direction, and let go in another order.
                for peer in self.peers(id) {
                    for (from, to) in [(id, peer), (peer, id)] {
                        if self.rng.percent(45) {
                            self.network.clog(from, to, now + self.rng.range(50_000, 1_200_000));
                        }
                    }
                }
            }
            Fault::Disconnect => {
                for peer in self.peers(id) {
                    if self.rng.percent(60) {
                        self.disconnect(id, peer);
                    }
                }
            }
            Fault::SlowDisk => self.node_mut(id).slow_until = now + self.rng.range(300_000, 2_500_000),
            Fault::IoError => {
                let mut rng = self.rng.fork(11);
                let node = self.node_mut(id);
                node.disk_fault = true;
                if !(node.strikes_store(&rng) && node.store.fail_once(&mut rng.clone())) {
                    node.disk.fail_once(&mut rng);
                }
            }
            Fault::DiskFull => {
                let takes = self.rng.range(200_000, 2_500_000);
                self.node(id).disk.set_full(true);
                self.node_mut(id).store.set_full(true);
                self.queue.at(now + takes, Event::Restore(Restore::Room { node: id }));
            }
            Fault::Loss | Fault::Duplicate | Fault::Reorder | Fault::Skew | Fault::ClientLoss | Fault::Garbled => {}
        }
        true
    }

    /// A node to strike: more often than not the leader.
    fn victim(&mut self) -> NodeId {
        let all: Vec<NodeId> = self.nodes.keys().copied().collect();
        match self.leader {
            Some(leader) if self.rng.percent(55) => leader,
            _ => *self.rng.pick(&all),
        }
    }

    pub(super) fn peers(&self, id: NodeId) -> Vec<NodeId> {
        self.nodes.keys().copied().filter(|peer| *peer != id).collect()
    }

    /// A process is going to die: now, after some more effects, or in the middle of a write.
    fn doom(&mut self, id: NodeId, power: bool) {
        if self.node(id).process.is_none() {
            return;
        }
        match self.rng.below(3) {
            0 => {
                let now = self.now;
                self.later(id, now, AtNode::Die { power });
            }
            1 => {
                let effects = Some(self.rng.below(30));
                self.node_mut(id).doom = Some(Doom { effects, power });
            }
            _ => {
                self.node_mut(id).doom = Some(Doom { effects: None, power });
                self.fail_disk_from_now(id);
            }
        }
    }

    /// The network falls into parts for a while: one node alone, or any two halves.
    fn partition(&mut self, id: NodeId) {
        let takes = self.rng.range(200_000, 4_000_000);
        let alone = self.rng.percent(60);
        let side: Vec<NodeId> = match alone {
            true => vec![id],
            false => {
                self.nodes.keys().copied().collect::<Vec<_>>().into_iter().filter(|_| self.rng.percent(50)).collect()
            }
        };
        let others: Vec<NodeId> = self.nodes.keys().copied().filter(|node| !side.contains(node)).collect();
        for one in &side {
            for other in &others {
                self.block(*one, *other, takes);
                self.block(*other, *one, takes);
                if self.rng.percent(50) {
                    self.disconnect(*one, *other);
                }
            }
        }
    }

    /// Two nodes do not reach each other for a while, and everybody else reaches both: any two, or the database's leader and who coordinates. False if there are
    /// no two.
    fn part(&mut self, id: NodeId) -> bool {
        let peers = self.peers(id);
        if peers.is_empty() {
            return false;
        }
        let other = match self.coordinator().filter(|coordinator| *coordinator != id) {
            Some(coordinator) if self.rng.percent(50) => coordinator,
            _ => *self.rng.pick(&peers),
        };
        let takes = self.rng.range(300_000, 5_000_000);
        self.block(id, other, takes);
        self.block(other, id, takes);
        true
    }

    fn block(&mut self, from: NodeId, to: NodeId, takes: u64) {
        let number = self.network.block(from, to);
        self.queue.at(self.now + takes, Event::Restore(Restore::Link { from, to, number }));
    }

    /// The connection between two nodes breaks, and both are told some time.
    pub(super) fn disconnect(&mut self, one: NodeId, other: NodeId) {
        self.network.disconnect(one, other);
        for (node, peer) in [(one, other), (other, one)] {
            let when = self.now + self.rng.range(100, 100_000);
            self.later(node, when, AtNode::Broken { peer, gone: false });
        }
    }

    /// Something comes back.
    pub(super) fn restore(&mut self, restore: Restore) {
        match restore {
            Restore::Link { from, to, number } => self.network.unblock(from, to, number),
            Restore::Room { node } => {
                self.node(node).disk.set_full(false);
                self.node_mut(node).store.set_full(false);
            }
            Restore::Whole { node, number } => self.make_whole_again(node, number),
        }
    }
}
