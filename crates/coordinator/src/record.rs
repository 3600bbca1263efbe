//! What the metadata keeps of a node and of a partition.

use highwater_wire::{CommitRule, Epoch, Incarnation, Lead, LogId, NodeId, PartitionId, PeerId, Set, Version};

/// A node that has registered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeRecord {
    /// The node.
    pub node: NodeId,
    /// The log id of its folder. A replica with another one is gone, whatever the node does.
    pub log: LogId,
    /// The process start that registered last.
    pub incarnation: Incarnation,
    /// Where clients and peers reach it.
    pub address: String,
    /// Raised by every registration, from 1.
    pub version: Version,
}

/// The record of a partition other than the metadata.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionRecord {
    /// The partition.
    pub id: PartitionId,
    /// The name of the database.
    pub name: String,
    /// Everyone who holds it, sorted.
    pub replicas: Vec<PeerId>,
    /// The commit rule and the members it counts: under `isr` the ISR, under `quorum` all replicas.
    pub set: Set,
    /// The leader, in the incarnation that promised; `None` before the first appointment.
    pub leader: Option<(PeerId, Incarnation)>,
    /// The leader's epoch; `None` before the first appointment.
    pub epoch: Option<Epoch>,
    /// Raised by every change, from 1.
    pub version: Version,
    /// The greatest lossy epoch. `None` as long as only lossless elections are built.
    pub lossy: Option<Epoch>,
}

impl PartitionRecord {
    /// The commit rule.
    pub fn rule(&self) -> CommitRule {
        self.set.rule
    }

    /// What `Lead` says of it, with the epoch that goes into the envelope; `None` before the first appointment.
    pub fn lead(&self) -> Option<(Epoch, Lead)> {
        let (leader, incarnation) = self.leader?;
        let lead = Lead {
            leader,
            incarnation,
            replicas: self.replicas.clone(),
            set: self.set.clone(),
            version: self.version,
            lossy: self.lossy,
        };
        Some((self.epoch?, lead))
    }

    /// Asserts what every record keeps: members are replicas, the leader is a member, an ISR is never below its minimum, and a leader comes
    /// with an epoch.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub fn check(&self) {
        assert!(sorted(&self.replicas) && sorted(&self.set.members), "peers are sorted and named once: {self:?}");
        assert!(self.set.members.iter().all(|m| self.replicas.contains(m)), "members are replicas: {self:?}");
        assert_eq!(self.leader.is_some(), self.epoch.is_some(), "a leader comes with its epoch: {self:?}");
        assert!(
            self.leader.is_none_or(|(leader, _)| self.set.members.contains(&leader)),
            "the leader is a member: {self:?}"
        );
        match self.rule() {
            CommitRule::Isr { min } => {
                assert!(self.set.members.len() >= min as usize, "an ISR keeps its minimum: {self:?}")
            }
            CommitRule::Quorum { .. } => {
                assert_eq!(self.set.members, self.replicas, "under quorum all replicas are members")
            }
        }
    }
}

/// Whether peers strictly rise.
pub(crate) fn sorted(peers: &[PeerId]) -> bool {
    peers.windows(2).all(|pair| pair[0] < pair[1])
}
