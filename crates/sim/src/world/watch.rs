//! What an observer sees of a process after each of its steps.

use std::collections::BTreeMap;

use highwater_host::Effect;
use highwater_partition::Partition;
use highwater_replica::Role;
use highwater_wire::{Body, Envelope, Epoch, NodeId, Offset, PartitionId, PeerId};

use super::World;
use super::folders::{SimJob, SimLog};
use crate::facts::{Observation, Place};

/// What is looked at of a partition.
struct Glance {
    hw: Offset,
    leads: Option<Epoch>,
    maximal: Option<Vec<PeerId>>,
}

fn glance(partition: &Partition<SimLog>) -> Glance {
    let replica = partition.replica();
    let leads = match replica.role() {
        Role::Leader { epoch, .. } => Some(epoch),
        _ => None,
    };
    let maximal = leads.map(|_| {
        let mut members = replica.set().members.clone();
        members.extend(replica.proposed().unwrap_or(&[]));
        members.sort_unstable();
        members.dedup();
        members
    });
    Glance { hw: replica.hw(), leads, maximal }
}

impl World {
    /// Shows one thing to the oracle. False if a law is broken.
    pub(super) fn see(&mut self, seen: Observation) -> bool {
        if let Observation::Cut { place, to } = &seen {
            let cut = self.cuts.entry(*place).or_insert(*to);
            *cut = (*cut).min(*to);
        }
        match self.oracle.see(&seen) {
            Ok(()) => self.broken.is_none(),
            Err(broken) => {
                self.break_with(broken);
                false
            }
        }
    }

    /// Shows the oracle what the logs have noted. False if a law is broken.
    pub(super) fn take_notes(&mut self) -> bool {
        let notes = std::mem::take(&mut *self.notes.borrow_mut());
        notes.into_iter().all(|seen| self.see(seen))
    }

    /// What a leader tells its followers of HW is a claim as well, and the only one that is seen of a leader whose partition halts in the same step. False
    /// if a law is broken.
    pub(super) fn claims(&mut self, from: NodeId, envelope: &Envelope) -> bool {
        let (Body::Batch { hw, .. } | Body::Accept { hw, .. }) = &envelope.body else { return true };
        let (partition, hw) = (envelope.partition, *hw);
        let Some(process) = self.node_mut(from).process.as_mut() else { return true };
        if process.hw.get(&partition).copied().unwrap_or(0) >= hw {
            return true;
        }
        process.hw.insert(partition, hw);
        let place = self.place(from, partition);
        self.see(Observation::HighWatermark { place, hw, leads: envelope.epoch })
    }

    /// Looks at HW and sets of everything that runs on a node, after a step that put out these effects. A leadership may begin, commit and end in one
    /// step, which only the effects show. False if a law is broken.
    pub(super) fn watch(&mut self, id: NodeId, effects: &[Effect<SimJob>]) -> bool {
        let led: BTreeMap<PartitionId, Epoch> = effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Role(partition, Role::Leader { epoch, .. }) => Some((*partition, *epoch)),
                _ => None,
            })
            .collect();
        let (database, name) = (self.database(), self.node(id).seen_as());
        let Some(process) = self.node_mut(id).process.as_mut() else { return true };
        let mut seen = Vec::new();
        let metadata = process.host.metadata_partition().map(|partition| (PartitionId::METADATA, partition));
        let databases = database.and_then(|id| Some((id, process.host.partition_here(id)?)));
        let glances: Vec<_> =
            metadata.into_iter().chain(databases).map(|(id, partition)| (id, glance(partition))).collect();
        for (partition, glance) in glances {
            let place = Place { partition, node: name };
            if let (Some(epoch), Some(maximal)) = (glance.leads, glance.maximal)
                && process.counted.get(&partition) != Some(&maximal)
            {
                process.counted.insert(partition, maximal.clone());
                seen.push(Observation::Counts { place, epoch, maximal });
            }
            if glance.leads.is_none() {
                process.counted.remove(&partition);
            }
            if process.hw.get(&partition).copied().unwrap_or(0) != glance.hw {
                process.hw.insert(partition, glance.hw);
                let leads = glance.leads.or_else(|| led.get(&partition).copied());
                seen.push(Observation::HighWatermark { place, hw: glance.hw, leads });
            }
        }
        seen.into_iter().all(|seen| self.see(seen))
    }
}
