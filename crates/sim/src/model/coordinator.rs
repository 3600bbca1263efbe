//! The coordinator as the protocol's text allows it to act, and no more: every choice that the text permits is explored.
//!
//! - Ballots for all later epochs begin as soon as the record has a new version. Their requests may arrive at any time or never, so that a ballot which
//!   begins later brings nothing new.
//! - Of the promises given for that ballot, any part may have arrived. Under `isr`, any member of the set that promised may be chosen, and the new set is
//!   the old one or what promised of it, never smaller than `min`. Under `quorum:q` of n, one whose rank is at least that of n - q + 1 that
//!   promised, itself included. Under both, the record's leader in the incarnation that the record names, on its own promise alone.
//! - An appointment and a change of the ISR are recorded only on the version they were made for; a change only of the record's epoch.

use std::collections::BTreeSet;

use highwater_wire::{Body, CommitRule, Envelope, Epoch, Lead, Rank, Set, Version};

use super::world::{Facts, Record, from_coordinator, incarnation, peer};
use super::{Config, REPLICAS};

/// A promise of the ballot for an epoch: (replica, process, rank).
type Promised = (usize, u64, Rank);

/// The appointments that the promises in `inbox` allow for the ballots that may still succeed: (epoch, leader, its process, new set).
pub(super) fn appointments(
    facts: &Facts,
    inbox: &[&Envelope],
    rule: CommitRule,
) -> Vec<(Epoch, usize, u64, BTreeSet<usize>)> {
    let mut all = Vec::new();
    let version = facts.record.version;
    let epochs: BTreeSet<Epoch> =
        inbox.iter().filter_map(|envelope| envelope.epoch).filter(|epoch| Some(*epoch) > facts.record.epoch).collect();
    for epoch in &epochs {
        let promises: Vec<Promised> = inbox
            .iter()
            .filter(|envelope| envelope.epoch == Some(*epoch))
            .filter_map(|envelope| match envelope.body {
                Body::Promise { ballot, rank } if ballot == version.0 => {
                    Some((envelope.sender.peer.node.0 as usize, envelope.sender.incarnation.starts, rank))
                }
                _ => None,
            })
            .collect();
        for promised in &promises {
            for set in sets_for(&facts.record, promised, &promises, rule) {
                // All replicas are alike until one leads, so the first to lead is called replica 0.
                if facts.record.leader.is_some() || promised.0 == 0 {
                    all.push((*epoch, promised.0, promised.1, set));
                }
            }
        }
    }
    all
}

/// The sets with which this replica may be appointed, if it may.
fn sets_for(record: &Record, candidate: &Promised, promises: &[Promised], rule: CommitRule) -> Vec<BTreeSet<usize>> {
    let (leader, starts, rank) = *candidate;
    if !record.set.contains(&leader) {
        return Vec::new();
    }
    match rule {
        CommitRule::Isr { min } => {
            let promised: BTreeSet<usize> =
                promises.iter().map(|(node, _, _)| *node).filter(|node| record.set.contains(node)).collect();
            let part = |mask: &usize| (0..REPLICAS).filter(|node| mask & (1 << node) != 0).collect::<BTreeSet<_>>();
            let arrived = (0..1 << REPLICAS).map(|mask| part(&mask));
            let mut sets: BTreeSet<BTreeSet<usize>> = arrived
                .filter(|set| set.contains(&leader) && set.is_subset(&promised) && set.len() >= min as usize)
                .collect();
            sets.insert(record.set.clone());
            sets.into_iter().collect()
        }
        CommitRule::Quorum { q } => {
            let no_better: BTreeSet<usize> =
                promises.iter().filter(|(_, _, other)| *other <= rank).map(|(node, _, _)| *node).collect();
            let enough = no_better.len() > record.set.len() - q as usize;
            let again = record.leader == Some((leader, starts));
            if enough || again { vec![record.set.clone()] } else { Vec::new() }
        }
    }
}

/// The record as it is told to everybody.
pub(super) fn told(record: &Record, config: &Config) -> Envelope {
    let (leader, starts) = record.leader.expect("a record that is told has a leader");
    let lead = Lead {
        leader: peer(leader),
        incarnation: incarnation(leader, starts),
        replicas: (0..REPLICAS).map(peer).collect(),
        set: Set { rule: config.commit_rule(), members: record.set.iter().copied().map(peer).collect() },
        version: record.version,
        lossy: None,
    };
    from_coordinator(record.epoch.expect("with a leader there is an epoch"), Body::Lead(lead))
}

/// Raises the version; ballots begun on the one before are void.
pub(super) fn next_version(facts: &mut Facts) {
    facts.record.version = Version(facts.record.version.0 + 1);
}

/// The requests of all ballots that may begin on this record.
pub(super) fn requests(record: &Record, config: &Config) -> Vec<Envelope> {
    let later = (0..config.epochs).map(Epoch).filter(|epoch| Some(*epoch) > record.epoch);
    later.map(|epoch| from_coordinator(epoch, Body::PromiseRequest { ballot: record.version.0 })).collect()
}

/// What the coordinator answers to a leader that asks whether it still leads, while the record names its epoch: to whom, and the answer.
pub(super) fn confirmation(facts: &Facts, envelope: &Envelope) -> Option<(usize, Envelope)> {
    let epoch = envelope.epoch.filter(|_| envelope.epoch == facts.record.epoch)?;
    match envelope.body {
        Body::Confirm { round } => {
            Some((envelope.sender.peer.node.0 as usize, from_coordinator(epoch, Body::Confirmed { round })))
        }
        _ => None,
    }
}

/// Whether a message to the coordinator can still change anything.
pub(super) fn is_of_use(facts: &Facts, envelope: &Envelope) -> bool {
    match &envelope.body {
        Body::Promise { ballot, .. } => *ballot == facts.record.version.0 && envelope.epoch > facts.record.epoch,
        Body::ChangeSet { version, .. } => {
            let (leader, starts) = (envelope.sender.peer.node.0 as usize, envelope.sender.incarnation.starts);
            *version == facts.record.version
                && envelope.epoch == facts.record.epoch
                && facts.record.leader == Some((leader, starts))
        }
        _ => false,
    }
}
