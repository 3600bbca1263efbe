//! What there is to see of a node.

use highwater_coordinator::{Metadata, NodeRecord, PartitionRecord};
use highwater_partition::{Partition, Status};
use highwater_replica::{ProposeError, Role};
use highwater_wire::{NodeId, PartitionId, Sender};

use crate::api::Folders;
use crate::databases::Database;
use crate::host::{Host, MetadataReplica};
use crate::registration::Registration;

/// A node as it sees itself and the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostStatus {
    /// The node, its log id and its incarnation.
    pub me: Sender,
    /// Where its registration stands.
    pub registered: Registered,
    /// Who leads the metadata, as far as this node knows.
    pub metadata_leader: Option<NodeId>,
    /// Whether the coordinator runs here.
    pub coordinates: bool,
    /// The metadata's replica here; `None` while the cluster is being formed.
    pub metadata: Option<Status>,
    /// All registered nodes, by id.
    pub nodes: Vec<NodeView>,
    /// The records of all databases, as far as this node has applied the metadata, by id.
    pub records: Vec<PartitionRecord>,
    /// The databases held here, by id.
    pub partitions: Vec<PartitionView>,
}

/// Where a node's registration stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// Not answered yet: no coordinator has been reached.
    Waiting,
    /// Accepted.
    Accepted,
    /// Refused: the folder is an older copy.
    Refused,
}

/// A registered node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Its record.
    pub record: NodeRecord,
    /// Whether its session lives; `None` where the coordinator does not run.
    pub alive: Option<bool>,
}

/// A database held here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// Its id.
    pub id: PartitionId,
    /// Its name.
    pub name: String,
    /// Its replica here.
    pub status: Status,
}

impl<F: Folders> Host<F> {
    /// Everything there is to see, for `highwater status`.
    pub fn status(&self) -> HostStatus {
        HostStatus {
            me: self.me,
            registered: match self.registration {
                Registration::Asking { .. } => Registered::Waiting,
                Registration::Accepted => Registered::Accepted,
                Registration::Refused => Registered::Refused,
            },
            metadata_leader: self.metadata_leader,
            coordinates: self.coordinator.is_some(),
            metadata: match &self.metadata {
                MetadataReplica::Forming(_) => None,
                MetadataReplica::Running(partition) => Some(partition.status(self.now)),
                MetadataReplica::Halted(reason) => Some(closed(reason)),
            },
            nodes: self
                .view
                .nodes()
                .map(|record| NodeView {
                    record: record.clone(),
                    alive: self.coordinator.as_ref().map(|coordinator| coordinator.alive(record.node)),
                })
                .collect(),
            records: self.view.partitions().cloned().collect(),
            partitions: self
                .databases
                .keys()
                .filter_map(|id| {
                    let name = self.view.partition(*id)?.name.clone();
                    Some(PartitionView { id: *id, name, status: self.partition_status(*id)? })
                })
                .collect(),
        }
    }

    /// One database's replica here; `None` if it is not assigned to this node, or not opened yet.
    pub fn partition_status(&self, id: PartitionId) -> Option<Status> {
        match self.databases.get(&id)? {
            Database::Open(partition) => Some(partition.status(self.now)),
            Database::Closed(reason) => Some(closed(reason)),
        }
    }

    /// Why writes to that database would be refused now for want of replicas, where it is led here.
    pub fn shortage(&self, id: PartitionId) -> Option<ProposeError> {
        match self.databases.get(&id)? {
            Database::Open(partition) => partition.replica().shortage(self.now),
            Database::Closed(_) => None,
        }
    }

    /// The id of the database of that name, if this node has heard of it.
    pub fn partition_id(&self, name: &str) -> Option<PartitionId> {
        self.view.partition_named(name).map(|record| record.id)
    }

    /// The node that leads that database, as far as this node has applied the metadata, with its address.
    pub fn leader(&self, id: PartitionId) -> Option<(NodeId, &str)> {
        let (peer, _) = self.view.partition(id)?.leader?;
        self.view.node(peer.node).map(|node| (node.node, node.address.as_str()))
    }

    /// The metadata, as far as this node has applied it.
    pub fn view(&self) -> &Metadata {
        &self.view
    }

    /// A database's partition, for those who look; `None` if it is not open here.
    pub fn partition_here(&self, id: PartitionId) -> Option<&Partition<F::Log>> {
        match self.databases.get(&id)? {
            Database::Open(partition) => Some(partition),
            Database::Closed(_) => None,
        }
    }

    /// The metadata's partition, for those who look; `None` while the cluster is being formed, or once it has halted.
    pub fn metadata_partition(&self) -> Option<&Partition<F::Log>> {
        match &self.metadata {
            MetadataReplica::Running(partition) => Some(partition),
            MetadataReplica::Forming(_) | MetadataReplica::Halted(_) => None,
        }
    }

    /// The folders, for those who look.
    pub fn folders(&self) -> &F {
        &self.folders
    }

    /// Takes the logs back, to close them: the metadata's, then the databases' by id.
    pub fn into_logs(self) -> Vec<(PartitionId, F::Log)> {
        let metadata = match self.metadata {
            MetadataReplica::Running(partition) => Some(partition.into_log()),
            MetadataReplica::Forming(log) => Some(log),
            MetadataReplica::Halted(_) => None,
        };
        let databases = self.databases.into_iter().filter_map(|(id, database)| match database {
            Database::Open(partition) => Some((id, partition.into_log())),
            Database::Closed(_) => None,
        });
        metadata.map(|log| (PartitionId::METADATA, log)).into_iter().chain(databases).collect()
    }
}

/// What there is to see of a partition that could not be opened.
fn closed(reason: &str) -> Status {
    assert!(!reason.is_empty(), "a closed partition says why");
    Status {
        role: Role::Idle,
        epoch: None,
        leader: None,
        version: None,
        set: None,
        hw: 0,
        end: 0,
        leo: 0,
        applied: 0,
        published: 0,
        peers: Vec::new(),
        halted: Some(reason.to_owned()),
    }
}
