//! Streams, reconciliation, cuts, and messages that no longer fit.

use std::collections::{BTreeMap, BTreeSet};

use highwater_wire::{Body, Envelope, Epoch, NodeId};

use super::{Mark, Watcher};
use crate::facts::{Facts, Observation, Place};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Cuts that took something, of each process.
    cuts: BTreeMap<Place, u32>,
    /// Rounds since the last stream was accepted, and their epoch.
    rounds: BTreeMap<Place, (Option<Epoch>, u32)>,
    /// Nodes that have just taken in a batch beyond their log's end.
    gaps: BTreeMap<NodeId, Place>,
}

impl Streams {
    fn received(&mut self, facts: &Facts, node: NodeId, envelope: &Envelope, reached: &mut BTreeSet<Mark>) {
        let place = Place { partition: envelope.partition, node };
        self.gaps.remove(&node);
        let from = Place { partition: envelope.partition, node: envelope.sender.peer.node };
        let runs = facts.logs.get(&from).and_then(|log| log.incarnation);
        if runs.is_some_and(|runs| runs.starts > envelope.sender.incarnation.starts) {
            reached.insert(Mark::StaleProcess);
        }
        let Some(log) = facts.logs.get(&place) else { return };
        let to_follower = matches!(envelope.body, Body::Batch { .. } | Body::Accept { .. } | Body::Diverge { .. });
        if to_follower && envelope.epoch < log.hard.promised {
            reached.insert(Mark::StaleEpoch);
            return;
        }
        match &envelope.body {
            Body::Batch { base, .. } if *base > log.end() => {
                self.gaps.insert(node, place);
            }
            Body::Batch { base, batches, .. } if *base < log.end() && !batches.is_empty() => {
                reached.insert(Mark::BatchAgain);
            }
            Body::Accept { .. } => {
                self.rounds.remove(&place);
            }
            Body::Diverge { .. } => {
                let (epoch, rounds) = self.rounds.entry(place).or_insert((envelope.epoch, 0));
                if *epoch != envelope.epoch {
                    (*epoch, *rounds) = (envelope.epoch, 0);
                }
                *rounds += 1;
                if *rounds >= 2 {
                    reached.insert(Mark::TwoRounds);
                }
            }
            _ => {}
        }
    }
}

impl Watcher for Streams {
    fn look(&mut self, facts: &Facts, seen: &Observation, reached: &mut BTreeSet<Mark>) {
        match seen {
            Observation::Received { node, envelope } => self.received(facts, *node, envelope, reached),
            Observation::Sent { from, envelope } => {
                let place = Place { partition: envelope.partition, node: *from };
                if matches!(envelope.body, Body::Open { .. }) && self.gaps.get(from) == Some(&place) {
                    self.gaps.remove(from);
                    reached.insert(Mark::GapReopened);
                }
            }
            Observation::Cut { place, to } => {
                let log = facts.log(*place);
                if *to >= log.end() {
                    return;
                }
                if *to < log.durable {
                    reached.insert(Mark::TailCut);
                }
                if log.durable < log.end() {
                    reached.insert(Mark::UnflushedCut);
                }
                if log.before(*to + 1).map(|held| held.epoch) != log.before(log.end()).map(|held| held.epoch) {
                    reached.insert(Mark::EpochsCut);
                }
                let cuts = self.cuts.entry(*place).or_default();
                *cuts += 1;
                if *cuts >= 2 {
                    reached.insert(Mark::CutTwice);
                }
            }
            Observation::Crashed { node } => {
                self.cuts.retain(|place, _| place.node != *node);
                self.rounds.retain(|place, _| place.node != *node);
                self.gaps.remove(node);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use highwater_wire::{CommitRule, StreamId};

    use super::*;
    use crate::laws::testing::{append, envelope, place, take, three};

    #[test]
    fn two_cuts_of_one_process_are_noticed_and_cuts_of_two_are_not() {
        let cuts = |dies: bool| {
            let (mut watcher, mut facts, mut reached) =
                (Streams::default(), three(CommitRule::Quorum { q: 2 }), BTreeSet::new());
            for value in 0..3 {
                append(&mut facts, 1, 0, value + 1, true);
            }
            for to in [2, 1] {
                let cut = Observation::Cut { place: place(1), to };
                watcher.look(&facts, &cut, &mut reached);
                take(&mut facts, &cut);
                if dies {
                    watcher.look(&facts, &Observation::Crashed { node: NodeId(1) }, &mut reached);
                }
            }
            reached
        };
        assert_eq!(cuts(false), BTreeSet::from([Mark::TailCut, Mark::CutTwice]));
        assert_eq!(cuts(true), BTreeSet::from([Mark::TailCut]));
    }

    #[test]
    fn a_gap_counts_once_a_stream_is_opened_for_it() {
        let (mut watcher, facts, mut reached) =
            (Streams::default(), three(CommitRule::Quorum { q: 2 }), BTreeSet::new());
        let batch = Body::Batch { stream: StreamId(1), base: 5, batches: Bytes::new(), hw: 0, start: 0 };
        let received = Observation::Received { node: NodeId(2), envelope: envelope(1, 3, batch) };
        watcher.look(&facts, &received, &mut reached);
        assert!(reached.is_empty());
        let open = Body::Open { stream: StreamId(2), end: 0, last_epoch: None };
        watcher.look(&facts, &Observation::Sent { from: NodeId(2), envelope: envelope(2, 3, open) }, &mut reached);
        assert_eq!(reached, BTreeSet::from([Mark::GapReopened]));
    }
}
