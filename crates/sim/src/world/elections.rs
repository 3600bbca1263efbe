//! Elections that misbehave. Whoever coordinates may take any node for dead and hold any ballot: that costs time, and must never cost more.
//!
//! - *Decisions* (`PromiseRequest`, `Lead`), promises, and the answers to registrations come late, twice, out of order, and to nodes they were not meant for.
//! - *Heartbeats* of a node are lost for a while, so that it is taken for dead; or the coordinator, or everybody, is told that its process is gone.
//! - *Several coordinate*: the metadata's leader is cut off from the other voters, but not from the databases' replicas, so that it goes on asking for
//!   ballots while another is elected and does the same.

use std::collections::BTreeMap;

use highwater_replica::Role;
use highwater_wire::{Body, Envelope, NodeId, PartitionId};

use super::World;
use super::event::AtNode;
use super::network::Arrival;
use crate::clients::Instant;
use crate::faults::Fault;

/// What lasts for a while.
#[derive(Debug, Default)]
pub(super) struct Misbehaviour {
    /// Until when a node's heartbeats are lost.
    heartbeats_lost: BTreeMap<NodeId, Instant>,
    /// Until when a node exchanges no message of the metadata.
    metadata_cut: BTreeMap<NodeId, Instant>,
}

fn lasts(until: &BTreeMap<NodeId, Instant>, node: NodeId, now: Instant) -> bool {
    until.get(&node).is_some_and(|until| *until > now)
}

impl World {
    /// When and where a message arrives that leaves now.
    pub(super) fn travels(&mut self, from: NodeId, to: NodeId, envelope: &Envelope) -> Vec<(NodeId, Arrival)> {
        if self.withholds(from, to, envelope) {
            return Vec::new();
        }
        let mut arrivals: Vec<_> =
            self.network.send(self.now, from, to).into_iter().map(|arrival| (to, arrival)).collect();
        if self.healed.is_some() || !self.faults.contains(&Fault::Elections) {
            return arrivals;
        }
        let (now, state) = (self.now, &self.elections);
        let heartbeat = matches!(envelope.body, Body::Heartbeat { .. });
        let of_voters = envelope.partition == PartitionId::METADATA
            && !matches!(envelope.body, Body::Heartbeat { .. } | Body::Register { .. } | Body::Registered { .. });
        if heartbeat && lasts(&state.heartbeats_lost, from, now)
            || of_voters && (lasts(&state.metadata_cut, from, now) || lasts(&state.metadata_cut, to, now))
        {
            return Vec::new();
        }
        let decision = matches!(
            envelope.body,
            Body::PromiseRequest { .. } | Body::Promise { .. } | Body::Lead(_) | Body::Registered { .. }
        );
        if decision {
            self.delay_decision(from, to, &mut arrivals);
        }
        arrivals
    }

    fn delay_decision(&mut self, from: NodeId, to: NodeId, arrivals: &mut Vec<(NodeId, Arrival)>) {
        if self.rng.percent(20) {
            let late = self.rng.range(20_000, 2_500_000);
            for (_, arrival) in arrivals.iter_mut() {
                (arrival.when, arrival.connection) = (arrival.when + late, None);
            }
        }
        let stray = |when| Arrival { when, connection: None, garbled: false };
        if self.rng.percent(25) {
            let when = self.now + self.rng.range(1_000, 8_000_000);
            arrivals.push((to, stray(when)));
        }
        let others: Vec<NodeId> = self.peers(to).into_iter().filter(|other| *other != from).collect();
        if !others.is_empty() && self.rng.percent(10) {
            let when = self.now + self.rng.range(200, 3_000_000);
            arrivals.push((*self.rng.pick(&others), stray(when)));
        }
    }

    /// Something else about elections goes wrong. False if there is nobody to whom it could happen.
    pub(super) fn misbehave(&mut self, id: NodeId) -> bool {
        let (now, coordinator) = (self.now, self.coordinator());
        let takes = self.rng.range(300_000, 3_000_000);
        match (self.rng.below(4), coordinator) {
            (0, Some(coordinator)) if coordinator != id => {
                self.network.disconnect(coordinator, id);
                self.later(coordinator, now, AtNode::Broken { peer: id, gone: true });
            }
            (1, _) => {
                for peer in self.peers(id) {
                    self.network.disconnect(peer, id);
                    self.later(peer, now, AtNode::Broken { peer: id, gone: true });
                }
            }
            (2, _) => {
                self.elections.heartbeats_lost.insert(id, now + takes);
            }
            (3, Some(coordinator)) => {
                self.elections.metadata_cut.insert(coordinator, now + takes);
            }
            _ => return false,
        }
        true
    }

    /// Who leads the metadata, and so coordinates; of several, any.
    pub(super) fn coordinator(&self) -> Option<NodeId> {
        let leads = |node: &super::node::Node| {
            let metadata = node.process.as_ref().and_then(|process| process.host.metadata_partition());
            metadata.is_some_and(|partition| matches!(partition.replica().role(), Role::Leader { .. }))
        };
        self.nodes.values().find(|node| leads(node)).map(|node| node.id)
    }
}
