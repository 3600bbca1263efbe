//! What there is to see of a node at one moment.

use std::collections::BTreeMap;

use highwater_host::HostStatus;
use highwater_partition::Status;
use highwater_wire::PartitionId;

/// A node as it sees itself, with what it measures.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// Roles, positions, records.
    pub host: HostStatus,
    /// How fast each database's offsets move here.
    pub rates: BTreeMap<PartitionId, Rates>,
    /// How many flushes of each log have ended here since the process started, the metadata's included.
    pub flushes: BTreeMap<PartitionId, u64>,
}

/// Entries per second over the last ten seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// How fast HW rises: what is written and committed.
    pub write: f64,
    /// How fast the state machine here follows.
    pub apply: f64,
}

impl NodeView {
    /// One database's replica here.
    pub fn partition(&self, id: PartitionId) -> Option<&Status> {
        self.host.partitions.iter().find(|partition| partition.id == id).map(|partition| &partition.status)
    }
}
