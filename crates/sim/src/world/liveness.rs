//! The liveness phase (law 10): everything is healed, and then the cluster must come back within stated bounds.
//!
//! Healed means: every link works, nothing is lost, every disk has room and no fault, no process is stopped, and every process runs, except that in some
//! runs as many nodes as can be spared ([`World::spare`]) are *lost*: they stay dead for ever, or run on copies that are never made whole again. All others
//! count as *living*. From then on, within [`BOUND_US`]:
//!
//! 1. somebody leads the database;
//! 2. a new write is acknowledged as committed;
//! 3. every living replica knows the same HW, which is the leader's log end, and shows it to readers.
//!
//! *Allowed to be stuck* are only states in which fewer logs than the rule needs can be opened: under `isr:1`, or with one node, the loss of a single
//! one. No more are lost than can be spared, so no run may be stuck; a fault class that destroys more must add its exception here.

use std::collections::BTreeSet;

use highwater_host::Input;
use highwater_partition::{self as partition, Outcome};
use highwater_wire::{NodeId, PartitionId};

use super::World;
use super::event::Event;
use super::node::Waiting;
use crate::clients::{Ask, Call, End, Final, Instant};
use crate::faults::Fault;
use crate::laws::HISTORY_LAWS;
use crate::machine::{Entry, OpId, Write};

/// Within this long everything must have come back: some twenty node sessions.
pub(super) const BOUND_US: Instant = 12_000_000;
/// How often is looked.
const LOOK_US: Instant = 50_000;

/// How far the phase has come.
#[derive(Clone, Debug)]
pub(super) struct Liveness {
    /// When it began.
    began: Instant,
    /// Who does not count as living: dead, or on copies that are not whole.
    lost: BTreeSet<NodeId>,
    /// Who of them is dead.
    dead: BTreeSet<NodeId>,
    /// The probe: a write that must be acknowledged.
    probe: Option<OpId>,
    /// When everything had come back and the final reads were asked.
    asked: bool,
}

impl World {
    /// Whether that node stays dead for ever.
    pub(super) fn stays_dead(&self, id: NodeId) -> bool {
        self.healed.as_ref().is_some_and(|healed| healed.dead.contains(&id))
    }

    /// The nodes that count as living.
    fn living(&self) -> Vec<NodeId> {
        let lost = |id: NodeId| self.healed.as_ref().is_some_and(|healed| healed.lost.contains(&id));
        self.nodes.keys().copied().filter(|id| !lost(*id)).collect()
    }

    /// Draws who is lost for ever, and who of them is dead: harmed nodes before others, and none in a run without a fault.
    fn draw_lost(&mut self) -> (BTreeSet<NodeId>, BTreeSet<NodeId>) {
        let most = if self.faults.is_empty() { 0 } else { self.spare() };
        let (mut lost, mut dead) = (BTreeSet::new(), BTreeSet::new());
        let harmed: Vec<NodeId> = self.nodes.values().filter(|node| node.harm.is_some()).map(|node| node.id).collect();
        for id in harmed {
            if lost.len() < most && self.rng.percent(50) {
                lost.insert(id);
                if self.rng.percent(30) {
                    dead.insert(id);
                }
            }
        }
        let all: Vec<NodeId> = self.nodes.keys().copied().collect();
        while lost.len() < most && self.rng.percent(25) {
            let id = *self.rng.pick(&all);
            if lost.insert(id) {
                dead.insert(id);
            }
        }
        (lost, dead)
    }

    /// Everything is healed.
    pub(super) fn heal(&mut self) {
        let all: Vec<NodeId> = self.nodes.keys().copied().collect();
        let (lost, dead) = self.draw_lost();
        self.trace.note(self.now, &(&lost, &dead), || {
            format!("everything is healed; lost for ever: {lost:?}, of them dead: {dead:?}")
        });
        self.healed =
            Some(Liveness { began: self.now, lost: lost.clone(), dead: dead.clone(), probe: None, asked: false });
        self.network.heal();
        for id in all {
            if !lost.contains(&id) {
                self.make_whole(id);
            }
            let node = self.node_mut(id);
            node.disk.set_full(false);
            if node.harm.is_none() {
                node.disk.heal();
            }
            node.store.heal();
            (node.slow_until, node.doom) = (0, None);
            // A process whose disk was to fail may have failed already and not yet know.
            let broken = node.disk_fault;
            if node.paused_until > self.now {
                self.node_mut(id).paused_until = self.now;
            }
            if dead.contains(&id) || (broken && self.node(id).process.is_some()) {
                self.die(id, false);
            } else if self.node(id).process.is_none() {
                self.queue.at(self.now, Event::Start { node: id });
            }
        }
        self.queue.at(self.now + LOOK_US, Event::Look);
    }

    /// Looks at how far the cluster has come back.
    pub(super) fn look(&mut self) {
        let Some(mut healed) = self.healed.clone() else { return };
        let missing = self.missing(&mut healed);
        let first = missing.is_none() && !healed.asked;
        healed.asked |= first;
        self.healed = Some(healed.clone());
        match missing {
            None if first => self.ask_everything(),
            Some(missing) if self.now > self.bound(&healed) => {
                self.break_law(
                    "live-once-healed",
                    format!("{} ms after healing, {missing}", (self.now - healed.began) / 1000),
                );
                return;
            }
            _ => {}
        }
        if healed.asked && self.now > self.bound(&healed) {
            self.break_law("live-once-healed", "the final reads were not answered".to_owned());
            return;
        }
        self.queue.at(self.now + LOOK_US, Event::Look);
    }

    /// The bound counts from the moment at which clients have nothing left to do.
    fn bound(&self, healed: &Liveness) -> Instant {
        let busy = self.counted.operations < self.operations_min();
        healed.began
            + if busy { 10 * BOUND_US } else { BOUND_US.max(self.idle_since().saturating_sub(healed.began) + BOUND_US) }
    }

    fn idle_since(&self) -> Instant {
        self.history.calls().filter_map(|call| call.returned).max().unwrap_or(0)
    }

    /// What is still missing.
    fn missing(&mut self, healed: &mut Liveness) -> Option<String> {
        let Some(database) = self.database() else { return Some("the database does not exist".to_owned()) };
        let Some(leader) = self.leader.filter(|leader| self.node(*leader).process.is_some()) else {
            return Some("nobody leads the database".to_owned());
        };
        if self.seats.iter().any(|seat| seat.call.is_some()) || self.counted.operations < self.operations_min() {
            return Some("clients still wait".to_owned());
        }
        match healed.probe {
            None => {
                healed.probe = Some(self.send_probe(leader));
                return Some("no write was acknowledged yet".to_owned());
            }
            Some(probe) => match self.history.call(probe).map(|call| (call.returned, call.committed_write())) {
                Some((Some(_), Some(_))) => {}
                Some((Some(_), None)) => {
                    healed.probe = None;
                    return Some("a write was not acknowledged".to_owned());
                }
                _ => return Some("a write waits for its acknowledgement".to_owned()),
            },
        }
        let committed = self.oracle.facts().committed(database).len() as u64;
        for node in self.nodes.values().filter(|node| !healed.lost.contains(&node.id)) {
            let Some(partition) = node.process.as_ref().and_then(|process| process.host.partition_here(database))
            else {
                return Some(format!("node {} has not opened its replica", node.id));
            };
            let status = partition.status(node.clock.shows(self.now));
            if (status.hw, status.published, status.end) != (committed, committed, committed) {
                return Some(format!("{committed} entries are committed, and node {} has {status:?}", node.id));
            }
        }
        None
    }

    /// One more write, sent to the leader by a seventh client.
    fn send_probe(&mut self, leader: NodeId) -> OpId {
        self.ops += 1;
        let op = OpId(self.ops);
        let entry = Entry { op, keyed: true, write: Write::Append { list: 1, value: op.0 } };
        let (client, ask) = (0, Ask::Write { entry, leader_ack: false });
        self.seats[client].call = Some((op, ask));
        self.history.invoke(Call {
            client: self.seats.len() as u32,
            op,
            ask,
            invoked: self.now,
            returned: None,
            end: End::Unknown,
            node: leader,
        });
        self.send_attempt(client, leader);
        op
    }

    /// Every living node is asked for everything, linearizably.
    fn ask_everything(&mut self) {
        let Some(database) = self.database() else { return };
        for id in self.living() {
            let ticket = self.wait(id, Waiting::Everything);
            self.step(id, Input::Partition(database, partition::Input::Read { ticket }));
        }
    }

    /// A node answers it.
    pub(super) fn read_everything(&mut self, id: NodeId, partition: PartitionId, outcome: &Outcome) {
        if !matches!(outcome, Outcome::Done(_)) {
            self.break_law("live-once-healed", format!("node {id} does not answer the final read: {outcome:?}"));
            return;
        }
        let database = self.node_mut(id).process.as_mut().and_then(|process| process.database.as_mut());
        match database.map(|database| database.machine.everything()) {
            Some(Ok(Some((at, state)))) => {
                self.compare_with_log(id, partition, at, &state);
                self.ends.insert(id, state);
            }
            Some(Err(error)) => self.machine_failed(id, &format!("the final read: {error}")),
            _ => self.break_law("live-once-healed", format!("readers of node {id} see nothing at the end")),
        }
    }

    /// The clients' record against what was read at the end.
    pub(super) fn check_history(&mut self) {
        let Some(last) = self.ends.values().next().cloned() else {
            self.break_law("live-once-healed", "nothing was read at the end".to_owned());
            return;
        };
        if let Some((id, _)) = self.ends.iter().find(|(_, state)| **state != last) {
            self.break_law("replicas-agree", format!("at one HW, node {id} shows another state than the first node"));
            return;
        }
        let last = Final::new(last);
        for law in HISTORY_LAWS {
            if let Err(what) = (law.check)(&self.history, &last) {
                self.break_law(law.name, what);
                return;
            }
        }
        let calm = self.faults.iter().all(|fault| *fault == Fault::ClientLoss);
        if calm && (self.counted.leader_changes > 1 || self.counted.metadata_elections > 1) {
            let (database, metadata) = (self.counted.leader_changes, self.counted.metadata_elections);
            self.break_law(
                "calm-clusters-keep-their-leader",
                format!("without a fault there were {database} and {metadata} leaders"),
            );
        }
    }
}
