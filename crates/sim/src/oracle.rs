//! Feeds what was seen to the facts and the laws, and derives what only an observer can: the coordinator's record, from the committed entries of the
//! metadata.

use highwater_coordinator::Metadata;
use highwater_wire::{Offset, PartitionId, Set, Version};

use crate::facts::{Facts, Observation, OnRecord};
use crate::laws::{Law, metadata_reads, possible_observations};
use crate::marks::Marks;

/// A law that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The law's name.
    pub law: &'static str,
    /// What was seen.
    pub what: String,
}

/// The observer of a run.
pub struct Oracle {
    facts: Facts,
    laws: Vec<Box<dyn Law>>,
    marks: Marks,
    metadata: Metadata,
    /// How far the committed entries of the metadata have been read.
    applied: Offset,
}

impl Oracle {
    /// An observer who has seen nothing; `metadata` is the set that commits the metadata, `laws` are what it looks after.
    pub fn new(metadata: Set, laws: Vec<Box<dyn Law>>) -> Oracle {
        let mut facts = Facts::default();
        facts.records.insert(PartitionId::METADATA, OnRecord { set: metadata, epoch: None, version: Version(0) });
        Oracle { facts, laws, marks: Marks::default(), metadata: Metadata::default(), applied: 0 }
    }

    /// What is known.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The metadata, as far as it is committed.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The situations that the run has come into.
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Looks at one thing. The first law that does not hold ends the run.
    pub fn see(&mut self, seen: &Observation) -> Result<(), Broken> {
        for law in &mut self.laws {
            law.before(&self.facts, seen).map_err(|what| Broken { law: law.name(), what })?;
        }
        self.marks.look(&self.facts, seen);
        self.facts.take(seen).map_err(|what| Broken { law: possible_observations::NAME, what })?;
        for law in &mut self.laws {
            law.after(&self.facts, seen).map_err(|what| Broken { law: law.name(), what })?;
        }
        match seen {
            Observation::HighWatermark { place, .. } if place.partition == PartitionId::METADATA => {
                self.read_metadata(seen)
            }
            _ => Ok(()),
        }
    }

    /// Reads what has become committed of the metadata.
    fn read_metadata(&mut self, seen: &Observation) -> Result<(), Broken> {
        let Observation::HighWatermark { place, .. } = seen else { return Ok(()) };
        let committed = self.facts.committed(PartitionId::METADATA).len() as Offset;
        let log = self.facts.log(*place);
        if committed <= self.applied || log.end() < committed {
            return Ok(());
        }
        let mut records = Vec::new();
        for (base, bytes) in log.batches.iter().filter(|(base, _)| (self.applied..committed).contains(base)) {
            let commands = metadata_reads::read(*base, bytes);
            for command in commands.map_err(|what| Broken { law: metadata_reads::NAME, what })? {
                self.metadata.apply(&command);
            }
        }
        self.applied = committed;
        for record in self.metadata.partitions() {
            let known = self.facts.records.get(&record.id);
            if known.is_none_or(|known| known.version != record.version) {
                let now = OnRecord { set: record.set.clone(), epoch: record.epoch, version: record.version };
                records.push(Observation::Recorded { partition: record.id, record: now });
            }
        }
        records.iter().try_for_each(|record| self.see(record))
    }
}
