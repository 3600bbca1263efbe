//! What an observer outside the nodes knows: every log as its disk would give it back, and what has ever been committed.
//!
//! Nothing here is taken from a replica's own bookkeeping. The logs are followed from the calls that reach the disk; commitment is decided here,
//! from those logs, when a leader first claims it, and the laws then say whether the claim was right.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use bytes::Bytes;
use highwater_partition::{Outcome, Ticket};
use highwater_replica::Role;
use highwater_wire::{
    CommitRule, Envelope, Epoch, HardState, Incarnation, NodeId, Offset, PartitionId, PeerId, Set, Version, batch,
};

use crate::faults::Fault;
use crate::machine::{Entry, fold};
use crate::trace::Fnv;

/// One replica: a partition on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The partition.
    pub partition: PartitionId,
    /// The node.
    pub node: NodeId,
}

/// One entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its epoch.
    pub epoch: Epoch,
    /// A hash of the whole log up to it, its bytes and epochs included.
    pub chain: u64,
    /// A hash of the transactions that end up to it; see [`fold`].
    pub content: u64,
    /// The write of a transaction that has begun before the end of its batch and goes on in the next one. A leader that dies within one leaves it without an end, and
    /// an entry of another epoch behind it says that it never gets one.
    pub begun: Option<Entry>,
}

/// A log, from outside.
#[derive(Clone, Debug, Default)]
pub struct LogFacts {
    /// Its entries from offset 0.
    pub entries: Vec<Held>,
    /// How many of them a power loss would leave.
    pub durable: Offset,
    /// The promises that a power loss would leave.
    pub hard: HardState,
    /// The greatest HW that this replica has ever claimed to know.
    pub hw_known: Offset,
    /// The HW that it claims now.
    pub hw: Offset,
    /// The process that has it open.
    pub incarnation: Option<Incarnation>,
    /// What failed or was interrupted half-way, after which the process can do no more: it may or may not have happened.
    pub attempt: Option<Attempt>,
    /// The metadata's batches, each with its base; other partitions' are not kept.
    pub batches: Vec<(Offset, Bytes)>,
}

/// A change of a log that failed or was interrupted.
#[derive(Clone, Debug)]
pub enum Attempt {
    /// Of these batches.
    Append(Bytes),
    /// At this offset.
    Cut(Offset),
    /// Of these promises.
    Persist(HardState),
}

impl LogFacts {
    /// The log's append end.
    pub fn end(&self) -> Offset {
        self.entries.len() as Offset
    }

    /// The entry just before `offset`, if there is one.
    pub fn before(&self, offset: Offset) -> Option<Held> {
        self.entries.get(offset.checked_sub(1)? as usize).copied()
    }

    /// Whether it holds, durably, everything that `prefix` holds.
    pub fn durably_holds(&self, prefix: &[Held]) -> bool {
        match prefix.last() {
            None => true,
            Some(last) => {
                self.durable >= prefix.len() as Offset
                    && self.before(prefix.len() as Offset).is_some_and(|held| held.chain == last.chain)
            }
        }
    }

    /// Takes batches in at the end; `metadata` says of which kind they are.
    pub fn append(&mut self, batches: &Bytes, metadata: bool) -> Result<(), String> {
        for split in batch::split(batches) {
            let (header, bytes) = split.map_err(|error| error.to_string())?;
            if header.base != self.end() {
                return Err(format!("a batch of offset {} is appended at {}", header.base, self.end()));
            }
            let last = self.entries.last();
            let (mut chain, mut content) = (last.map_or(0, |held| held.chain), last.map_or(0, |held| held.content));
            let mut begun = last.filter(|held| held.epoch == header.epoch).and_then(|held| held.begun);
            if metadata {
                self.batches.push((header.base, bytes.clone()));
            } else if !header.control {
                let records = batch::records(&bytes).map_err(|error| error.to_string())?;
                begun = Entry::find(&records)?.or(begun);
                if let Some(entry) = begun.take_if(|_| Entry::ends(&records)) {
                    content = fold(content, &entry);
                }
            } else {
                begun = None;
            }
            for index in 0..header.count {
                let mut hasher = Fnv(chain);
                header.epoch.hash(&mut hasher);
                index.hash(&mut hasher);
                if index == 0 {
                    hasher.write(&bytes);
                }
                chain = hasher.finish();
                self.entries.push(Held { epoch: header.epoch, chain, content, begun });
            }
        }
        Ok(())
    }
}

/// Who counts for a partition's commits, as far as is on record.
#[derive(Clone, Debug)]
pub struct OnRecord {
    /// The rule and the members.
    pub set: Set,
    /// The leader's epoch, once there was one.
    pub epoch: Option<Epoch>,
    /// The record's version.
    pub version: Version,
}

/// Something that was seen from outside.
#[derive(Clone, Debug)]
pub enum Observation {
    /// A process opened a log: this is what recovery found.
    Opened {
        /// Where.
        place: Place,
        /// The process.
        incarnation: Incarnation,
        /// All batches, one behind the other.
        batches: Bytes,
        /// The promises.
        hard: HardState,
    },
    /// Batches were appended, not yet durable.
    Appended {
        /// Where.
        place: Place,
        /// The batches.
        batches: Bytes,
    },
    /// The log was cut, durably.
    Cut {
        /// Where.
        place: Place,
        /// The new end.
        to: Offset,
    },
    /// A flush reached the disk.
    Flushed {
        /// Where.
        place: Place,
        /// Everything below it is durable.
        to: Offset,
    },
    /// Promises became durable.
    Persisted {
        /// Where.
        place: Place,
        /// The promises.
        hard: HardState,
    },
    /// A change of the log failed or was interrupted.
    Attempted {
        /// Where.
        place: Place,
        /// Of what.
        attempt: Attempt,
    },
    /// A replica's role changed.
    Role {
        /// Where.
        place: Place,
        /// The role.
        role: Role,
    },
    /// A replica claims another HW than before.
    HighWatermark {
        /// Where.
        place: Place,
        /// The claim.
        hw: Offset,
        /// The epoch it leads, if it leads.
        leads: Option<Epoch>,
    },
    /// A leader counts these members now, committed and proposed ones together.
    Counts {
        /// Where.
        place: Place,
        /// The epoch it leads.
        epoch: Epoch,
        /// The maximal set.
        maximal: Vec<PeerId>,
    },
    /// The record at the coordinator, committed, is now this.
    Recorded {
        /// The partition.
        partition: PartitionId,
        /// The record.
        record: OnRecord,
    },
    /// A message left.
    Sent {
        /// The sender's node.
        from: NodeId,
        /// The message.
        envelope: Envelope,
    },
    /// A message is about to be taken in.
    Received {
        /// The receiver.
        node: NodeId,
        /// The message.
        envelope: Envelope,
    },
    /// The step that began with the last `Received` is over.
    StepEnded {
        /// Whose.
        node: NodeId,
    },
    /// Readers on that replica see this now.
    Published {
        /// Where.
        place: Place,
        /// Up to which offset.
        at: Offset,
        /// The content hash of what they see.
        content: u64,
    },
    /// A linearizable read, or a write that may turn out to be one, arrived at a node.
    ReadAsked {
        /// Where.
        place: Place,
        /// The read's number, unique in a run.
        read: u64,
    },
    /// It is answered from this state.
    ReadAnswered {
        /// Where.
        place: Place,
        /// The read's number.
        read: u64,
        /// The offset of the state.
        at: Offset,
    },
    /// A partition let an answer go that depends on everything below `until`.
    Released {
        /// Where.
        place: Place,
        /// The end of the state it was computed from.
        until: Offset,
        /// Whether it waited for the commit.
        committed: bool,
        /// What the partition said.
        outcome: Outcome,
    },
    /// A client received an acknowledgement of a committed write that ends at this offset.
    Acknowledged {
        /// The partition.
        partition: PartitionId,
        /// The offset.
        until: Offset,
    },
    /// A process died, its log with it.
    Crashed {
        /// Whose.
        node: NodeId,
    },
    /// A class of faults is about to strike.
    Struck {
        /// Which.
        fault: Fault,
        /// Where, or where first.
        node: NodeId,
    },
    /// Recovery took the end of a log for a write that was torn.
    Torn {
        /// Where.
        place: Place,
    },
    /// A process could not open its logs.
    NotStarted {
        /// Whose.
        node: NodeId,
        /// Why, as it says.
        error: String,
        /// Whether its disk is full, or was ordered to fail.
        excused: bool,
    },
    /// An append or a reservation found no room.
    Full {
        /// Where.
        place: Place,
    },
    /// A flush failed.
    FlushFailed {
        /// Where.
        place: Place,
    },
    /// A partition stopped for good in its process.
    Halted {
        /// Where.
        place: Place,
        /// Why, as it says.
        reason: String,
        /// Whether its disk is full, or was ordered to fail.
        excused: bool,
    },
    /// A state machine cannot do what it is told, or cannot go on.
    MachineStopped {
        /// Where.
        node: NodeId,
        /// Why, as the machine says.
        error: String,
        /// Whether its disk was ordered to fail.
        excused: bool,
    },
    /// Somebody waits at a node for an answer.
    Waits {
        /// Where.
        node: NodeId,
        /// Behind which ticket.
        ticket: Ticket,
    },
    /// Nobody waits for it any more.
    Forgot {
        /// Where.
        node: NodeId,
        /// Behind which ticket.
        ticket: Ticket,
    },
    /// A partition answers whoever waits behind a ticket.
    Answered {
        /// Where.
        node: NodeId,
        /// The ticket.
        ticket: Ticket,
    },
    /// A partition lets a read be served from what is published.
    ReadServed {
        /// Where.
        place: Place,
        /// What is published must reach this far.
        at: Offset,
    },
    /// A write found that its key had had its effect before, and is answered with that.
    Repeated {
        /// Where.
        place: Place,
    },
}

/// Everything known from outside.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// All logs, those of dead nodes included.
    pub logs: BTreeMap<Place, LogFacts>,
    /// What has ever been committed, for each partition.
    pub committed: BTreeMap<PartitionId, Vec<Held>>,
    /// The epoch of the leader that committed each of these entries.
    pub committed_in: BTreeMap<PartitionId, Vec<Epoch>>,
    /// Who counts.
    pub records: BTreeMap<PartitionId, OnRecord>,
}

impl Facts {
    /// The log of a replica.
    ///
    /// # Panics
    /// If it was never opened.
    pub fn log(&self, place: Place) -> &LogFacts {
        match self.logs.get(&place) {
            Some(log) => log,
            None => panic!("{place:?} was seen doing something before its log was opened"),
        }
    }

    /// What is committed of a partition.
    pub fn committed(&self, partition: PartitionId) -> &[Held] {
        self.committed.get(&partition).map_or(&[], Vec::as_slice)
    }

    /// What leaders of epochs below `epoch` have committed. A leader may begin late, after a later one has committed more, if the votes for it were
    /// long under way; it can commit nothing any more.
    pub fn committed_before(&self, partition: PartitionId, epoch: Epoch) -> &[Held] {
        let by_earlier =
            self.committed_in.get(&partition).map_or(0, |epochs| epochs.partition_point(|one| *one < epoch));
        &self.committed(partition)[..by_earlier]
    }

    /// The nodes whose logs durably hold `prefix`.
    pub fn holders(&self, partition: PartitionId, members: &[PeerId], prefix: &[Held]) -> Vec<NodeId> {
        let held = |node| self.logs.get(&Place { partition, node }).is_some_and(|log| log.durably_holds(prefix));
        members.iter().map(|member| member.node).filter(|node| held(*node)).collect()
    }

    /// How many durable copies the rule on record demands, and of whom.
    pub fn demanded(&self, partition: PartitionId) -> Option<(u32, &[PeerId])> {
        let record = self.records.get(&partition)?;
        let copies = match record.set.rule {
            CommitRule::Quorum { q } => q,
            CommitRule::Isr { .. } => record.set.members.len() as u32,
        };
        Some((copies, &record.set.members))
    }

    /// Takes an observation in. An error means that the observation itself is impossible.
    pub fn take(&mut self, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::Opened { place, incarnation, batches, hard } => {
                let log = self.logs.entry(*place).or_default();
                log.entries.clear();
                log.batches.clear();
                log.attempt = None;
                log.append(batches, place.partition == PartitionId::METADATA)?;
                log.durable = log.end();
                log.hard = hard.clone();
                log.hw = 0;
                log.incarnation = Some(*incarnation);
            }
            Observation::Appended { place, batches } => {
                self.log_mut(*place)?.append(batches, place.partition == PartitionId::METADATA)?;
            }
            Observation::Cut { place, to } => {
                let log = self.log_mut(*place)?;
                log.entries.truncate(*to as usize);
                log.batches.retain(|(base, _)| base < to);
                log.durable = log.durable.min(*to);
            }
            Observation::Flushed { place, to } => {
                let log = self.log_mut(*place)?;
                log.durable = log.durable.max((*to).min(log.end()));
            }
            Observation::Attempted { place, attempt } => self.log_mut(*place)?.attempt = Some(attempt.clone()),
            Observation::Persisted { place, hard } => self.log_mut(*place)?.hard = hard.clone(),
            Observation::HighWatermark { place, hw, leads } => {
                let log = self.log_mut(*place)?;
                log.hw = *hw;
                log.hw_known = log.hw_known.max(*hw);
                if let Some(epoch) = leads {
                    let reached = log.entries[..(*hw).min(log.end()) as usize].to_vec();
                    let committed = self.committed.entry(place.partition).or_default();
                    committed.extend_from_slice(reached.get(committed.len()..).unwrap_or(&[]));
                    self.committed_in.entry(place.partition).or_default().resize(committed.len(), *epoch);
                }
            }
            Observation::Recorded { partition, record } => {
                self.records.insert(*partition, record.clone());
            }
            Observation::Crashed { node } => {
                for (_, log) in self.logs.iter_mut().filter(|(place, _)| place.node == *node) {
                    (log.incarnation, log.hw) = (None, 0);
                }
            }
            Observation::Role { .. }
            | Observation::Counts { .. }
            | Observation::Sent { .. }
            | Observation::Received { .. }
            | Observation::StepEnded { .. }
            | Observation::Published { .. }
            | Observation::ReadAsked { .. }
            | Observation::ReadAnswered { .. }
            | Observation::Released { .. }
            | Observation::Acknowledged { .. }
            | Observation::Struck { .. }
            | Observation::Torn { .. }
            | Observation::NotStarted { .. }
            | Observation::Full { .. }
            | Observation::FlushFailed { .. }
            | Observation::Halted { .. }
            | Observation::MachineStopped { .. }
            | Observation::Waits { .. }
            | Observation::Forgot { .. }
            | Observation::Answered { .. }
            | Observation::ReadServed { .. }
            | Observation::Repeated { .. } => {}
        }
        Ok(())
    }

    fn log_mut(&mut self, place: Place) -> Result<&mut LogFacts, String> {
        self.logs.get_mut(&place).ok_or_else(|| format!("{place:?} writes to a log that was never opened"))
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::batch::Record;
    use highwater_wire::record::{Kind, RecordHeader};

    use super::*;
    use crate::machine::{OpId, Write};

    /// A batch at that offset, with one record of a transaction that ends or goes on.
    fn part(base: Offset, epoch: u32, entry: Option<&Entry>, ends_transaction: bool) -> Bytes {
        let mut value = Vec::new();
        RecordHeader { kind: Kind::Row, ends_transaction, ack: None }.encode_into(&mut value);
        value.extend(entry.map(Entry::marked).unwrap_or_default());
        let mut bytes = batch::build(&[Record { key: None, value: Some(value.into()) }], 0);
        batch::stamp(&mut bytes, base, Epoch(epoch)).unwrap();
        bytes.freeze()
    }

    #[test]
    fn a_write_counts_where_its_transaction_ends_and_not_at_all_if_it_never_does() {
        let entry = |op| Entry { op: OpId(op), keyed: false, write: Write::Set { key: 1, value: op } };
        let (one, other) = (entry(1), entry(2));
        let mut log = LogFacts::default();
        for batch in [part(0, 1, Some(&one), false), part(1, 1, None, true), part(2, 1, Some(&other), false)] {
            log.append(&batch, false).unwrap();
        }
        let content = |log: &LogFacts| log.entries.iter().map(|held| held.content).collect::<Vec<_>>();
        assert_eq!(content(&log), [0, fold(0, &one), fold(0, &one)]);
        // The next leader goes on without it.
        log.append(&part(3, 2, None, true), false).unwrap();
        assert_eq!(content(&log)[3], fold(0, &one));
        // In another log it comes to its end.
        log.entries.truncate(3);
        log.append(&part(3, 1, None, true), false).unwrap();
        assert_eq!(content(&log)[3], fold(fold(0, &one), &other));
    }
}
