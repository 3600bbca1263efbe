//! The law that a replica holds what its log says: replaying the log from its beginning on an empty machine gives what readers see at the end.

use bytes::Bytes;
use highwater_log::{Log, LogStore};
use highwater_wire::{NodeId, Offset, PartitionId};

use super::World;
use super::folders::OPTIONS;
use crate::machine::State;

impl World {
    /// Compares what a node shows at an offset with what its log on the disk, opened anew, gives an empty machine.
    pub(super) fn compare_with_log(&mut self, id: NodeId, partition: PartitionId, at: Offset, shown: &State) {
        let replayed = self.log_of(id, partition, at).and_then(|batches| self.machines.replay(&batches, at));
        match replayed {
            Ok(state) if state == *shown => {}
            Ok(_) => self.break_law(
                "a-replica-is-its-log",
                format!("readers of node {id} see at {at} what replaying its log does not give"),
            ),
            Err(error) => {
                self.break_law(
                    "a-replica-is-its-log",
                    format!("the log of node {id} up to {at} is not replayed: {error}"),
                );
            }
        }
    }

    /// All batches below an offset, from a copy of the disk.
    fn log_of(&self, id: NodeId, partition: PartitionId, to: Offset) -> Result<Bytes, String> {
        let node = self.node(id);
        let log =
            Log::open(node.disk.folder(partition).copy(), OPTIONS, node.log).map_err(|error| error.to_string())?;
        let mut batches = Vec::new();
        let mut from = log.shape().start;
        while from < to {
            let read = log.read(from, 1 << 20).map_err(|error| error.to_string())?;
            for part in highwater_wire::batch::split(&read) {
                let (header, bytes) = part.map_err(|error| error.to_string())?;
                from = header.base + header.count;
                if from <= to {
                    batches.extend_from_slice(&bytes);
                }
            }
        }
        Ok(Bytes::from(batches))
    }
}
