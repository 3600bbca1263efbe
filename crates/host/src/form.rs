//! Forming the cluster, and reading back who votes (docs/protocol.md section 8).
//!
//! An empty metadata log of a first voter gets one entry, of epoch 0: the configuration. It is the same, byte for byte, on all first voters, so that
//! their logs agree before any of them leads. It is flushed before this node sends or hears anything of the metadata. Who has no configuration
//! neither stands nor counts itself.
//!
//! A replica starts with at least the epoch of its log's end as promised, so that the first election is for epoch 1.

use bytes::Bytes;
use highwater_log::{FlushDone, LogError, LogStore};
use highwater_partition::{Input as PartitionInput, Kind, Partition};
use highwater_replica::{Mode, Start};
use highwater_wire::batch::{self, BatchError, Control};
use highwater_wire::{Epoch, PartitionId, PeerId};

use crate::api::{Effect, Folders, HostError};
use crate::databases::unless_exhausted;
use crate::host::{Host, Job, MetadataReplica, Work, reason};

/// Bytes read at once while looking for the configuration.
const SCAN_BYTES: usize = 1 << 20;

/// Kafka's "no timestamp": the first entry must be the same on all voters, whose clocks are not.
const NO_TIMESTAMP: i64 = -1;

impl<F: Folders> Host<F> {
    /// Who votes for the metadata's leader, as its log says; nobody while the cluster is being formed.
    pub fn voters(&self) -> &[PeerId] {
        &self.voters
    }

    /// Begins with the metadata's log: forms the cluster in an empty one, if this node is among the first voters.
    pub(crate) fn open_metadata(&mut self, mut log: F::Log, out: &mut Vec<Effect<Job<F>>>) -> Result<(), HostError> {
        let empty = log.shape().end == 0;
        if empty && self.start.voters.contains(&self.me.peer) {
            write_configuration(&mut log, &self.start.voters)?;
            let job = log.begin_flush().ok_or_else(|| {
                HostError::Log(LogError::Poisoned("the first entry was appended and needs no flush".to_owned()))
            })?;
            out.push(Effect::Flush(PartitionId::METADATA, job));
            self.metadata = MetadataReplica::Forming(log);
            return Ok(());
        }
        self.run_metadata(log, out)
    }

    /// A flush of the metadata's log ended. If it was that of the first entry, the cluster is formed; else it is handed back.
    pub(crate) fn formed(&mut self, done: FlushDone, out: &mut Vec<Effect<Job<F>>>) -> Option<FlushDone> {
        if !matches!(self.metadata, MetadataReplica::Forming(_)) {
            return Some(done);
        }
        let forming = std::mem::replace(&mut self.metadata, MetadataReplica::Halted(String::new()));
        let MetadataReplica::Forming(mut log) = forming else { unreachable!("looked at above") };
        let result = match log.finish_flush(done) {
            Ok(flushed) => {
                assert_eq!(flushed, log.shape().end, "the first entry is all there is to flush");
                self.run_metadata(log, out).map_err(|error| error.to_string())
            }
            Err(error) => Err(reason(&error)),
        };
        if let Err(reason) = result {
            self.metadata = MetadataReplica::Halted(reason.clone());
            out.push(Effect::Halted(PartitionId::METADATA, reason));
        }
        None
    }

    fn run_metadata(&mut self, log: F::Log, out: &mut Vec<Effect<Job<F>>>) -> Result<(), HostError> {
        self.voters = read_voters(&log)?;
        let log = match unless_exhausted(log) {
            Ok(log) => log,
            Err(reason) => {
                self.halt_metadata(format!("the metadata cannot be led: {reason}"), out);
                return Ok(());
            }
        };
        let start = Start {
            partition: PartitionId::METADATA,
            me: self.me.peer,
            incarnation: self.me.incarnation,
            mode: Mode::SelfElecting { voters: self.voters.clone() },
            timing: self.start.timing,
            seed: self.start.seed,
            shape: log.shape().clone(),
            hard: log.hard_state().clone(),
            now: self.now,
        };
        self.metadata = MetadataReplica::Running(Box::new(Partition::new(start, log, Kind::AtHighWatermark)));
        // The view lives in memory and is built anew from the log's beginning.
        self.queue.push_back(Work::Metadata(PartitionInput::Rewound(0)));
        self.queue.push_back(Work::Metadata(PartitionInput::Tick));
        Ok(())
    }
}

/// The bytes of the first entry.
fn configuration(voters: &[PeerId]) -> Result<Bytes, BatchError> {
    let mut sorted = voters.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut bytes = batch::build_control(&Control::Configuration(sorted), NO_TIMESTAMP);
    let end = batch::stamp(&mut bytes, 0, Epoch(0))?;
    assert_eq!(end, 1, "the configuration is one entry");
    Ok(bytes.freeze())
}

fn write_configuration<L: LogStore>(log: &mut L, voters: &[PeerId]) -> Result<(), HostError> {
    assert_eq!(log.shape().end, 0, "a cluster is formed in an empty log");
    let bytes = configuration(voters)?;
    log.reserve(bytes.len())?;
    log.append(&bytes)?;
    assert_eq!(log.shape().end, 1, "the first entry is the configuration");
    Ok(())
}

/// The last configuration in the log; nobody if it has none.
fn read_voters<L: LogStore>(log: &L) -> Result<Vec<PeerId>, HostError> {
    let shape = log.shape();
    let (mut from, mut voters) = (shape.start, Vec::new());
    while from < shape.end {
        let batches = log.read(from, SCAN_BYTES)?;
        let before = from;
        for next in batch::split(&batches) {
            let (header, bytes) = next?;
            from = header.base + header.count;
            if header.control
                && let Some(Control::Configuration(found)) = batch::control(&bytes)?
            {
                voters = found;
            }
        }
        if from <= before {
            return Err(LogError::Poisoned(format!("no batch reads back at offset {before} of {}", shape.end)).into());
        }
    }
    Ok(voters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_wire::{LogId, NodeId};

    #[test]
    fn the_first_entry_is_the_same_whatever_order_the_voters_are_named_in() {
        let peer = |node| PeerId { node: NodeId(node), log: LogId(u64::from(node) * 7) };
        let one = configuration(&[peer(1), peer(2), peer(3)]).expect("three voters fit");
        assert_eq!(Ok(one.clone()), configuration(&[peer(3), peer(1), peer(2), peer(1)]));
        assert_ne!(Ok(one.clone()), configuration(&[peer(1), peer(2)]));
        let found = batch::control(&one).expect("it reads back");
        assert_eq!(found, Some(Control::Configuration(vec![peer(1), peer(2), peer(3)])));
    }
}
