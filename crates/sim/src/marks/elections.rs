//! Leaders that come, go and overlap; ballots and votes that come too late.

use std::collections::{BTreeMap, BTreeSet};

use highwater_replica::Role;
use highwater_wire::{Body, Envelope, Epoch, NodeId, PartitionId};

use super::{Mark, Watcher};
use crate::facts::{Facts, Observation, Place};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Elections {
    /// Who leads now, as each says of itself.
    leading: BTreeMap<Place, Epoch>,
    /// The greatest epoch that was ever led.
    greatest: BTreeMap<PartitionId, Epoch>,
    /// Promises that a node has asked for.
    ballots: BTreeSet<(NodeId, PartitionId, Epoch)>,
    /// Who has stood for an epoch.
    stood: BTreeMap<(PartitionId, Epoch), NodeId>,
}

/// Whether no other log, of the living or the dead, holds the last entry of this one.
fn holds_alone(facts: &Facts, place: Place) -> bool {
    let log = facts.log(place);
    let Some(last) = log.before(log.end()) else { return false };
    facts
        .logs
        .iter()
        .filter(|(other, _)| other.partition == place.partition && other.node != place.node)
        .all(|(_, other)| other.before(log.end()).is_none_or(|held| held.chain != last.chain))
}

impl Elections {
    fn begins(&mut self, place: Place, epoch: Epoch, reached: &mut BTreeSet<Mark>) {
        let metadata = place.partition == PartitionId::METADATA;
        let overlaps = self.leading.keys().any(|other| other.partition == place.partition && other.node != place.node);
        if overlaps {
            reached.insert(if metadata { Mark::TwoCoordinators } else { Mark::TwoLeaders });
        }
        let apart = |other: &Place| other.partition != place.partition && other.node != place.node;
        if self.leading.keys().any(apart) {
            reached.insert(Mark::LeadersApart);
        }
        let greatest = self.greatest.entry(place.partition).or_insert(epoch);
        if *greatest > epoch {
            reached.insert(Mark::LedLate);
        }
        *greatest = (*greatest).max(epoch);
        self.leading.insert(place, epoch);
    }

    fn dies(&mut self, facts: &Facts, node: NodeId, reached: &mut BTreeSet<Mark>) {
        let led: Vec<_> = self.leading.iter().filter(|(place, _)| place.node == node).map(|(p, e)| (*p, *e)).collect();
        for (place, epoch) in led {
            self.leading.remove(&place);
            if holds_alone(facts, place) {
                reached.insert(Mark::DiedWithEntries);
            }
            let committed = facts.committed_in.get(&place.partition).and_then(|epochs| epochs.last());
            if place.partition != PartitionId::METADATA && committed.is_none_or(|last| *last < epoch) {
                reached.insert(Mark::DiedUncommitted);
            }
        }
        let unrecorded = |partition: &PartitionId, epoch: &Epoch| {
            facts.records.get(partition).is_none_or(|record| record.epoch < Some(*epoch))
        };
        if self.ballots.iter().any(|(by, partition, epoch)| *by == node && unrecorded(partition, epoch)) {
            reached.insert(Mark::BallotDied);
        }
        self.ballots.retain(|(by, ..)| *by != node);
    }

    fn sent(&mut self, from: NodeId, envelope: &Envelope, reached: &mut BTreeSet<Mark>) {
        match (&envelope.body, envelope.epoch) {
            (Body::PromiseRequest { .. }, Some(epoch)) => {
                self.ballots.insert((from, envelope.partition, epoch));
            }
            (Body::Vote { granted: false, .. }, _) => {
                reached.insert(Mark::VoteDenied);
            }
            (Body::Stand { pre: false, .. }, Some(epoch))
                if *self.stood.entry((envelope.partition, epoch)).or_insert(from) != from =>
            {
                reached.insert(Mark::SplitVote);
            }
            _ => {}
        }
    }

    fn received(&self, facts: &Facts, node: NodeId, envelope: &Envelope, reached: &mut BTreeSet<Mark>) {
        let place = Place { partition: envelope.partition, node };
        let Some(log) = facts.logs.get(&place) else { return };
        match &envelope.body {
            Body::Promise { .. } => {
                let record = facts.records.get(&envelope.partition).and_then(|record| record.epoch);
                if record > envelope.epoch {
                    reached.insert(Mark::BallotVoid);
                }
            }
            Body::PromiseRequest { .. } if log.durable < log.end() && envelope.epoch > log.hard.promised => {
                reached.insert(Mark::PromisedOwing);
            }
            Body::Refused { promised } if self.leading.get(&place).is_some_and(|epoch| epoch < promised) => {
                reached.insert(Mark::Deposed);
            }
            Body::Vote { granted: true, pre: false } if envelope.epoch < log.hard.promised => {
                reached.insert(Mark::VoteLate);
            }
            _ => {}
        }
    }
}

impl Watcher for Elections {
    fn look(&mut self, facts: &Facts, seen: &Observation, reached: &mut BTreeSet<Mark>) {
        match seen {
            Observation::Role { place, role: Role::Leader { epoch, .. } } => self.begins(*place, *epoch, reached),
            Observation::Role { place, .. } if self.leading.remove(place).is_some() && holds_alone(facts, *place) => {
                reached.insert(Mark::ResignedWithEntries);
            }
            Observation::Crashed { node } => self.dies(facts, *node, reached),
            Observation::Sent { from, envelope } => self.sent(*from, envelope, reached),
            Observation::Received { node, envelope } => self.received(facts, *node, envelope, reached),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::CommitRule;

    use super::*;
    use crate::laws::testing::{append, place, three};

    #[test]
    fn two_leaders_at_once_and_entries_that_nobody_else_has_are_noticed() {
        let (mut watcher, mut facts) = (Elections::default(), three(CommitRule::Quorum { q: 2 }));
        let mut reached = BTreeSet::new();
        let leads = |node, epoch| Observation::Role {
            place: place(node),
            role: Role::Leader { epoch: Epoch(epoch), epoch_start: 0 },
        };
        append(&mut facts, 1, 0, 7, true);
        append(&mut facts, 2, 0, 7, true);
        watcher.look(&facts, &leads(1, 0), &mut reached);
        watcher.look(&facts, &Observation::Role { place: place(1), role: Role::Idle }, &mut reached);
        assert!(reached.is_empty(), "node 2 has all that node 1 has: {reached:?}");
        watcher.look(&facts, &leads(1, 0), &mut reached);
        watcher.look(&facts, &leads(2, 1), &mut reached);
        assert_eq!(reached, BTreeSet::from([Mark::TwoLeaders]));
        append(&mut facts, 1, 0, 8, false);
        watcher.look(&facts, &Observation::Role { place: place(1), role: Role::Idle }, &mut reached);
        assert!(reached.contains(&Mark::ResignedWithEntries));
        watcher.look(&facts, &Observation::Crashed { node: NodeId(2) }, &mut reached);
        assert!(reached.contains(&Mark::DiedUncommitted) && !reached.contains(&Mark::DiedWithEntries));
    }
}
