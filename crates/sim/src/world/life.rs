//! Processes begin and end.

use std::collections::BTreeMap;
use std::rc::Rc;

use highwater_host::{Host, HostStart, NodeState};
use highwater_wire::{Incarnation, LogId, NodeId, PeerId};

use super::clock::Clock;
use super::disk::Disk;
use super::event::{AtNode, Event};
use super::folders::SimFolders;
use super::node::{Node, Process};
use super::{DATABASE, World};
use crate::facts::Observation;
use crate::machine::Store;
use crate::rng::Rng;

impl Node {
    /// A node whose folder has just been made.
    pub(super) fn new(id: NodeId, rng: &mut Rng, skew: bool, store: Box<dyn Store>) -> Node {
        let log = LogId(rng.next());
        Node {
            id,
            log,
            clock: Clock::new(rng, skew),
            disk: Disk::default(),
            state: NodeState { cluster: 1, node: id, log, starts: 0, incarnations: Vec::new(), older_copy: false },
            store,
            life: 0,
            process: None,
            paused_until: 0,
            slow_until: 0,
            stalled_until: 0,
            doom: None,
            disk_fault: false,
            harm: None,
            copy: None,
        }
    }

    /// The node with its log.
    pub(super) fn peer(&self) -> PeerId {
        PeerId { node: self.id, log: self.log }
    }
}

impl World {
    /// A process of that node starts, unless one runs.
    pub(super) fn start(&mut self, id: NodeId) {
        if self.node(id).process.is_some() {
            return;
        }
        if self.node(id).would_outnumber() {
            // Once it was refused it may be started as often as anybody likes. Until then it waits for its true folder.
            self.queue.at(self.now + 500_000, Event::Start { node: id });
            return;
        }
        let incarnation = Incarnation { starts: self.node(id).state.starts + 1, random: self.rng.next() };
        let seed = self.rng.next();
        let voters = self.voters.clone();
        let (now, profile, notes) = (self.now, self.profile, Rc::clone(&self.notes));
        let node = self.node_mut(id);
        node.life += 1;
        (node.paused_until, node.doom) = (0, None);
        // The incarnation is durable before anything else happens.
        node.state.starts = incarnation.starts;
        node.state.incarnations.push(incarnation);
        let start = HostStart {
            state: node.state.clone(),
            voters,
            databases: vec![(DATABASE.to_owned(), profile.rule())],
            address: format!("node-{id}"),
            timing: profile.timing(),
            session_ms: profile.session_ms(),
            seed,
            now: node.clock.shows(now),
        };
        let folders = SimFolders::new(node.seen_as(), incarnation, node.disk.clone(), notes);
        let mut out = Vec::new();
        let made = Host::new(start, folders, &mut out);
        self.trace.note(now, &(id, incarnation), || format!("node {id}: start {}", incarnation.starts));
        if !self.take_notes() {
            return;
        }
        match made {
            Ok(host) => {
                let process = Process {
                    host,
                    database: None,
                    waiting: BTreeMap::new(),
                    tickets: 0,
                    tells_until: now,
                    hw: BTreeMap::new(),
                    counted: BTreeMap::new(),
                    halted: None,
                };
                self.node_mut(id).process = Some(process);
                self.later(id, now + 1_000, AtNode::Tick);
                self.perform(id, out);
            }
            Err(error) => {
                let excused = self.node(id).may_fail();
                if !self.see(Observation::NotStarted { node: id, error: error.to_string(), excused }) {
                    return;
                }
                self.trace.note(now, &id, || format!("node {id}: could not start: {error}"));
                self.die(id, false);
            }
        }
    }

    /// The process of that node ends; another starts after a while.
    pub(super) fn die(&mut self, id: NodeId, power: bool) {
        let mut rng = self.rng.fork(u64::from(id.0));
        let (now, node) = (self.now, self.node_mut(id));
        node.process = None;
        node.life += 1;
        (node.doom, node.paused_until) = (None, 0);
        if node.disk_fault {
            node.disk_fault = false;
        }
        node.disk.crash(power, &mut rng);
        node.store.crash(power, &mut rng);
        self.after_crash(id);
        self.cuts.retain(|place, _| place.node != id);
        self.trace
            .note(now, &(id, power), || format!("node {id}: died, power {}", if power { "lost" } else { "kept" }));
        if !self.see(Observation::Crashed { node: self.node(id).seen_as() }) {
            return;
        }
        let peers: Vec<NodeId> = self.nodes.keys().copied().filter(|peer| *peer != id).collect();
        for peer in peers {
            self.network.disconnect(id, peer);
            if self.node(peer).process.is_some() {
                // Whoever has lost power says nothing; a killed process's kernel resets its connections.
                let (gone, after) = match power {
                    true => (false, rng.range(200_000, 2_000_000)),
                    false => (rng.percent(80), rng.range(500, 20_000)),
                };
                self.later(peer, now + after, AtNode::Broken { peer: id, gone });
            }
        }
        if !self.stays_dead(id) {
            let after = if rng.percent(60) { rng.range(20_000, 500_000) } else { rng.range(500_000, 2_500_000) };
            self.queue.at(now + after, Event::Start { node: id });
        }
    }

    /// Orders a disk fault that ends the process in the middle of a step.
    pub(super) fn fail_disk_from_now(&mut self, id: NodeId) {
        let mut rng = self.rng.fork(17);
        let node = self.node_mut(id);
        node.disk_fault = true;
        // Either the logs' disk, or that of the state machine, if it has one.
        if !(node.strikes_store(&rng) && node.store.fail_from(&mut rng.clone())) {
            node.disk.fail_from(&mut rng);
        }
    }
}
