//! The state machine of the metadata partition.
//!
//! Rules, the same on every node, whoever proposed the command and however often:
//!
//! - *Registration* (docs/protocol.md section 9) is accepted if no incarnation of that log is known, or the last known is among those sent. The same
//!   registration again changes nothing and is accepted again. Anything else is an older copy of the folder.
//! - *Creation* takes the next free id and a free name, and a rule that the replicas can keep.
//! - *Appointment* and *change of the set* apply only at the record's version, which each raises; an appointment also only in a greater epoch and
//!   for an incarnation that is still the registered one; a change of the set only in the record's epoch. Of two commands for one version one
//!   applies and the other is void, so an epoch has one leader even if two coordinators asked for it.

use std::collections::BTreeMap;

use highwater_wire::{CommitRule, Epoch, Incarnation, NodeId, PartitionId, PeerId, Set, Version};

use crate::command::{Applied, Command, Void};
use crate::record::{NodeRecord, PartitionRecord, sorted};
use crate::rule::{check_name, check_rule};

/// What the committed entries of the metadata add up to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Metadata {
    nodes: BTreeMap<NodeId, NodeRecord>,
    /// The last registered incarnation of every folder there ever was.
    registrations: BTreeMap<PeerId, Incarnation>,
    partitions: BTreeMap<PartitionId, PartitionRecord>,
}

impl Metadata {
    /// The nodes that have ever registered, by id.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeRecord> {
        self.nodes.values()
    }

    /// One of them.
    pub fn node(&self, node: NodeId) -> Option<&NodeRecord> {
        self.nodes.get(&node)
    }

    /// The records of all partitions, by id.
    pub fn partitions(&self) -> impl Iterator<Item = &PartitionRecord> {
        self.partitions.values()
    }

    /// One of them.
    pub fn partition(&self, id: PartitionId) -> Option<&PartitionRecord> {
        self.partitions.get(&id)
    }

    /// The partition of that name.
    pub fn partition_named(&self, name: &str) -> Option<&PartitionRecord> {
        self.partitions.values().find(|record| record.name == name)
    }

    /// The incarnation in which that replica's node runs: the registered one, if the node's folder is still that log's.
    pub fn incarnation(&self, peer: PeerId) -> Option<Incarnation> {
        self.nodes.get(&peer.node).filter(|node| node.log == peer.log).map(|node| node.incarnation)
    }

    /// The incarnation that registered last of that folder, whether it is still its node's or not.
    pub fn registered(&self, peer: PeerId) -> Option<Incarnation> {
        self.registrations.get(&peer).copied()
    }

    /// The id that the next partition must have.
    pub fn next_partition(&self) -> PartitionId {
        let last = self.partitions.last_key_value().map_or(PartitionId::METADATA, |(id, _)| *id);
        PartitionId(last.0 + 1)
    }

    /// Applies one committed command, or finds it void and changes nothing.
    pub fn apply(&mut self, command: &Command) -> Applied {
        let outcome = match command {
            Command::RegisterNode { peer, incarnations, address } => self.register(*peer, incarnations, address),
            Command::CreatePartition { id, name, rule, replicas } => self.create(*id, name, *rule, replicas),
            Command::Appoint { id, version, epoch, leader, incarnation, members } => {
                self.appoint((*id, *version, *epoch), (*leader, *incarnation), members)
            }
            Command::ChangeSet { id, version, epoch, members } => self.change_set((*id, *version, *epoch), members),
        };
        outcome.map_or_else(Applied::Void, |()| Applied::Done)
    }

    fn register(&mut self, peer: PeerId, incarnations: &[Incarnation], address: &str) -> Result<(), Void> {
        let newest = *incarnations.last().ok_or(Void::Malformed)?;
        match self.registrations.get(&peer) {
            Some(known) if *known == newest => return Ok(()),
            Some(known) if !incarnations.contains(known) => return Err(Void::OlderCopy),
            Some(_) | None => {}
        }
        self.registrations.insert(peer, newest);
        let version = self.nodes.get(&peer.node).map_or(Version(0), |node| node.version);
        let record = NodeRecord {
            node: peer.node,
            log: peer.log,
            incarnation: newest,
            address: address.to_owned(),
            version: Version(version.0 + 1),
        };
        self.nodes.insert(peer.node, record);
        assert_eq!(self.incarnation(peer), Some(newest), "a registered node runs in the incarnation that registered");
        Ok(())
    }

    fn create(&mut self, id: PartitionId, name: &str, rule: CommitRule, replicas: &[PeerId]) -> Result<(), Void> {
        if id != self.next_partition() || self.partition_named(name).is_some() {
            return Err(Void::Taken);
        }
        if !sorted(replicas) || check_rule(rule, replicas.len()).is_err() || check_name(name).is_err() {
            return Err(Void::Rule);
        }
        let record = PartitionRecord {
            id,
            name: name.to_owned(),
            replicas: replicas.to_vec(),
            set: Set { rule, members: replicas.to_vec() },
            leader: None,
            epoch: None,
            version: Version(1),
            lossy: None,
        };
        record.check();
        let before = self.partitions.insert(id, record);
        assert!(before.is_none(), "a new partition replaces none");
        Ok(())
    }

    fn appoint(
        &mut self,
        (id, version, epoch): (PartitionId, Version, Epoch),
        (leader, incarnation): (PeerId, Incarnation),
        members: &[PeerId],
    ) -> Result<(), Void> {
        let running = self.incarnation(leader);
        let record = self.partitions.get_mut(&id).ok_or(Void::NoPartition)?;
        if record.version != version {
            return Err(Void::Version { found: record.version });
        }
        if Some(epoch) <= record.epoch {
            return Err(Void::Epoch { found: record.epoch });
        }
        if running != Some(incarnation) {
            return Err(Void::Incarnation);
        }
        // A ballot removes members that did not promise, down to the minimum, and adds none.
        let grown = members.iter().any(|member| !record.set.members.contains(member));
        if grown || !keeps_rule(&record.set, members, leader) {
            return Err(Void::Set);
        }
        record.leader = Some((leader, incarnation));
        record.epoch = Some(epoch);
        record.set.members = members.to_vec();
        record.version = Version(version.0 + 1);
        record.check();
        Ok(())
    }

    fn change_set(
        &mut self,
        (id, version, epoch): (PartitionId, Version, Epoch),
        members: &[PeerId],
    ) -> Result<(), Void> {
        let record = self.partitions.get_mut(&id).ok_or(Void::NoPartition)?;
        if record.version != version {
            return Err(Void::Version { found: record.version });
        }
        if record.epoch != Some(epoch) {
            return Err(Void::Epoch { found: record.epoch });
        }
        let (leader, _) = record.leader.ok_or(Void::Epoch { found: None })?;
        // Replicas under quorum change by another procedure, in which each set has its own quorum.
        let isr = matches!(record.rule(), CommitRule::Isr { .. });
        let strangers = members.iter().any(|member| !record.replicas.contains(member));
        if !isr || strangers || !keeps_rule(&record.set, members, leader) {
            return Err(Void::Set);
        }
        record.set.members = members.to_vec();
        record.version = Version(version.0 + 1);
        record.check();
        Ok(())
    }
}

/// Whether `members` may replace the set's under its rule, with that leader.
fn keeps_rule(set: &Set, members: &[PeerId], leader: PeerId) -> bool {
    let enough = match set.rule {
        CommitRule::Isr { min } => members.len() >= min as usize,
        CommitRule::Quorum { .. } => members == set.members,
    };
    enough && sorted(members) && members.contains(&leader)
}

#[cfg(test)]
#[path = "tests/metadata.rs"]
mod tests;
