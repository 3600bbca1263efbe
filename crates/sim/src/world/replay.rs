//! Replays a node's log, as its disk has it, for the law that a replica holds what its log says.

use bytes::Bytes;
use highwater_log::{Log, LogStore};
use highwater_wire::{NodeId, Offset, PartitionId};

use super::World;
use super::folders::OPTIONS;
use crate::laws::replica_is_its_log;
use crate::machine::State;

impl World {
    /// Compares what a node shows at an offset with what its log on the disk, opened anew, gives an empty machine.
    pub(super) fn compare_with_log(&mut self, id: NodeId, partition: PartitionId, at: Offset, shown: &State) {
        let replayed = self.log_of(id, partition, at).and_then(|batches| self.machines.replay(&batches, at));
        if let Err(what) = replica_is_its_log::check(id, at, shown, replayed) {
            self.break_law(replica_is_its_log::NAME, what);
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
