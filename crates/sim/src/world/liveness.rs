//! The liveness phase: everything is healed, and it is watched whether the cluster comes back as [`live_once_healed`] demands. In some
//! runs as many nodes as can be spared ([`World::spare`]) are *lost*: they stay dead for ever, or run on copies that are never made whole again. All others
//! count as *living*.

use std::collections::BTreeSet;

use highwater_host::Input;
use highwater_partition::{self as partition, Outcome, Partition};
use highwater_replica::Role;
use highwater_wire::{NodeId, PartitionId, PeerId};

use super::World;
use super::event::Event;
use super::folders::SimLog;
use super::node::{Node, Waiting};
use crate::clients::{Ask, Call, End, Final};
use crate::laws::live_once_healed::{self, Comeback, Leader, Open, Replica, Sight, Step, may_be_stuck};
use crate::laws::{HISTORY_LAWS, calm_clusters, replicas_agree};
use crate::machine::{Entry, OpId, Write};

/// How often is looked.
const LOOK_US: u64 = 50_000;

/// How far the phase has come.
#[derive(Clone, Debug)]
pub(super) struct Liveness {
    /// Who does not count as living: dead, or on copies that are not whole.
    lost: BTreeSet<NodeId>,
    /// Who of them is dead.
    dead: BTreeSet<NodeId>,
    /// What has come back.
    comeback: Comeback,
    /// The probe: a write that must be acknowledged.
    probe: Option<OpId>,
    /// The final reads were asked.
    asked: bool,
}

/// How a run ended that broke no law on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// Everything came back.
    Live,
    /// It did not, and may not.
    Stuck,
}

impl World {
    /// Whether that node stays dead for ever.
    pub(super) fn stays_dead(&self, id: NodeId) -> bool {
        self.healed.as_ref().is_some_and(|healed| healed.dead.contains(&id))
    }

    /// The nodes that count as living.
    fn living(&self) -> impl Iterator<Item = &Node> {
        let lost = |id: NodeId| self.healed.as_ref().is_some_and(|healed| healed.lost.contains(&id));
        self.nodes.values().filter(move |node| !lost(node.id))
    }

    /// Draws who is lost for ever, and who of them is dead: harmed nodes before others, and none in a run without a fault.
    fn draw_lost(&mut self) -> (BTreeSet<NodeId>, BTreeSet<NodeId>) {
        if let Some(lost) = self.lost_in_plot() {
            return (lost, BTreeSet::new());
        }
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
        self.healed = Some(Liveness {
            lost: lost.clone(),
            dead: dead.clone(),
            comeback: Comeback::new(self.now, self.profile.pace()),
            probe: None,
            asked: false,
        });
        self.network.heal();
        self.elections = Default::default();
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
            (node.slow_until, node.stalled_until, node.doom) = (0, 0, None);
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

    /// Looks at how far the cluster has come back, and does what the next step needs.
    pub(super) fn look(&mut self) {
        let Some(mut healed) = self.healed.clone() else { return };
        let sight = self.sight(&healed);
        let outcome = healed.comeback.see(self.now, &sight);
        match healed.comeback.step() {
            Step::Write if !self.probe_waits(&healed) => {
                if let Some(leader) = self.leader {
                    healed.probe = Some(self.send_probe(leader));
                }
            }
            Step::Over => self.finish = Some(Finish::Live),
            _ => {}
        }
        let asks = healed.comeback.step() == Step::Reads && !healed.asked;
        healed.asked |= asks;
        self.healed = Some(healed);
        if asks {
            self.ask_everything();
        }
        match (outcome, self.excuse()) {
            (Ok(()), _) => self.queue.at(self.now + LOOK_US, Event::Look),
            (Err(what), None) => self.break_law(live_once_healed::NAME, what),
            (Err(what), Some(excuse)) => {
                self.trace.note(self.now, &excuse, || format!("{what}, and may be: {excuse}"));
                self.finish = Some(Finish::Stuck);
            }
        }
    }

    /// Why the cluster need not come back, if it need not.
    fn excuse(&self) -> Option<String> {
        let able: BTreeSet<PeerId> = self.living().map(Node::peer).collect();
        let records = &self.oracle.facts().records;
        let voters = &records.get(&PartitionId::METADATA)?.set;
        let database = self.database().and_then(|id| records.get(&id));
        may_be_stuck(voters, database.map(|record| &record.set), &able)
    }

    /// Whether the probe is under way.
    fn probe_waits(&self, healed: &Liveness) -> bool {
        let call = healed.probe.and_then(|probe| self.history.call(probe));
        call.is_some_and(|call| call.returned.is_none())
    }

    /// What there is to see of the cluster.
    fn sight(&self, healed: &Liveness) -> Sight {
        let Some(database) = self.database() else { return Sight::default() };
        let leader = self.leader.and_then(|leader| {
            let replica = partition_of(self.node(leader), database).filter(|led| led.halted().is_none())?.replica();
            match replica.role() {
                Role::Leader { epoch_start, .. } => {
                    Some(Leader { epoch_start, hw: replica.hw(), end: replica.shape().end })
                }
                _ => None,
            }
        });
        let replicas = self.living().flat_map(|node| {
            [PartitionId::METADATA, database].map(|id| Replica {
                node: node.id,
                partition: id,
                committed: self.oracle.facts().committed(id).len() as u64,
                open: partition_of(node, id).map(|partition| {
                    let status = partition.status(node.clock.shows(self.now));
                    // Nobody reads the metadata as a client does.
                    let published = if id == PartitionId::METADATA { status.hw } else { status.published };
                    let leads = matches!(status.role, Role::Leader { .. });
                    let live = leads || partition.replica().stream_is_live();
                    Open { live, hw: status.hw, published, end: status.end }
                }),
            })
        });
        let waits = self.seats.iter().any(|seat| seat.call.is_some());
        let probe = healed.probe.and_then(|probe| self.history.call(probe));
        Sight {
            leader,
            clients_done: !waits && self.counted.operations >= self.operations_min(),
            written: probe.is_some_and(|call| call.returned.is_some() && call.committed_write().is_some()),
            replicas: replicas.collect(),
            read: self.living().all(|node| self.ends.contains_key(&node.id)),
        }
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
        let living: Vec<NodeId> = self.living().map(|node| node.id).collect();
        for id in living {
            let ticket = self.wait(id, Waiting::Everything);
            self.step(id, Input::Partition(database, partition::Input::Read { ticket }));
        }
    }

    /// That node does not answer the final read. What ran out before everything was healed may still end a leadership, and a clock that stood still keeps a
    /// question back; so all are asked again, for as long as that may take.
    pub(super) fn ask_everything_again(&mut self, id: NodeId, how: &str) {
        self.trace.note(self.now, &id, || format!("node {id} does not answer the final read {how}"));
        if let Some(healed) = &mut self.healed {
            healed.asked = false;
        }
    }

    /// A node answers it.
    pub(super) fn read_everything(&mut self, id: NodeId, partition: PartitionId, outcome: &Outcome) {
        if !matches!(outcome, Outcome::Done(_)) {
            return self.ask_everything_again(id, &format!("but with {outcome:?}"));
        }
        let database = self.node_mut(id).process.as_mut().and_then(|process| process.database.as_mut());
        match database.map(|database| database.machine.everything()) {
            Some(Ok(Some((at, state)))) => {
                self.compare_with_log(id, partition, at, &state);
                self.ends.insert(id, state);
            }
            Some(Err(error)) => self.machine_failed(id, &format!("the final read: {error}")),
            _ => self.break_law(live_once_healed::NAME, format!("readers of node {id} see nothing at the end")),
        }
    }

    /// The clients' record against what was read at the end, if anything was.
    pub(super) fn check_history(&mut self) {
        let Some(last) = self.ends.values().next().cloned().filter(|_| self.finish == Some(Finish::Live)) else {
            return;
        };
        let last = Final::new(last);
        let agree = replicas_agree::check(&self.ends).map_err(|what| (replicas_agree::NAME, what));
        let mut history =
            HISTORY_LAWS.iter().map(|law| (law.check)(&self.history, &last).map_err(|what| (law.name, what)));
        let (leaders, metadata_leaders) = (self.counted.leader_changes, self.counted.metadata_elections);
        let calm = || {
            calm_clusters::check(&self.faults, leaders, metadata_leaders).map_err(|what| (calm_clusters::NAME, what))
        };
        if let Err((law, what)) = agree.and_then(|()| history.try_for_each(|held| held)).and_then(|()| calm()) {
            self.break_law(law, what);
        }
    }
}

/// A node's replica, if its process has it open.
pub(super) fn partition_of(node: &Node, id: PartitionId) -> Option<&Partition<SimLog>> {
    let host = &node.process.as_ref()?.host;
    if id == PartitionId::METADATA { host.metadata_partition() } else { host.partition_here(id) }
}
