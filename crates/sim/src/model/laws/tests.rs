//! Each law is broken by facts made up for it.

use std::collections::BTreeSet;

use highwater_wire::{Body, Version};

use super::super::world::{Local, Record, from_coordinator};
use super::super::{Config, coordinator, local};
use super::*;

fn entry(epoch: u32, id: u8) -> Entry {
    Entry { epoch: Epoch(epoch), id }
}

/// Nothing has happened but the commits named.
fn facts(committed: &[(Entry, u32)]) -> Facts {
    let record =
        Record { epoch: Some(Epoch(0)), leader: Some((0, 1)), version: Version(1), set: BTreeSet::from([0, 1, 2]) };
    Facts {
        record,
        reigns: Vec::new(),
        committed: committed.iter().map(|(entry, at)| (*entry, Epoch(*at))).collect(),
        known_hw: [0; REPLICAS],
        read_floors: Default::default(),
        writes: 0,
        crashes: 0,
        silences: 0,
        reads: 0,
        stands: 0,
    }
}

/// Replicas with these logs, durable as far as said.
fn nodes(logs: [(&[Entry], usize); REPLICAS]) -> [Rc<Node>; REPLICAS] {
    let config = Config::appointed(CommitRule::Quorum { q: 2 });
    std::array::from_fn(|index| {
        let mut node = local::first(index, &config);
        (node.log, node.durable) = (logs[index].0.to_vec(), logs[index].1);
        Rc::new(node)
    })
}

fn broken(verdict: Verdict, law: &str) {
    let said = verdict.expect_err("the law is broken");
    assert!(said.contains(law), "{said:?} does not say {law:?}");
}

#[test]
fn two_leaders_of_one_epoch_are_seen() {
    let mut facts = facts(&[]);
    assert_eq!(begins_to_lead(&mut facts, 0, 1, Epoch(0), &[]), Ok(()));
    broken(begins_to_lead(&mut facts, 1, 1, Epoch(0), &[]), "one leader for each epoch");
    broken(begins_to_lead(&mut facts, 0, 2, Epoch(0), &[]), "one leader for each epoch");
}

#[test]
fn a_later_leader_without_a_committed_entry_is_seen_and_an_earlier_one_need_not_hold_it() {
    let mut facts = facts(&[(entry(1, 1), 1)]);
    assert_eq!(begins_to_lead(&mut facts, 0, 1, Epoch(1), &[]), Ok(()));
    assert_eq!(begins_to_lead(&mut facts, 0, 1, Epoch(0), &[]), Ok(()));
    broken(begins_to_lead(&mut facts, 1, 1, Epoch(2), &[entry(2, 1)]), "every later leader holds");
    assert_eq!(begins_to_lead(&mut facts, 1, 1, Epoch(2), &[entry(1, 1)]), Ok(()));
}

#[test]
fn an_announced_hw_that_changes_what_was_committed_or_is_not_durable_is_seen() {
    let mut facts = facts(&[(entry(0, 1), 0)]);
    let nodes = nodes([(&[entry(0, 2)], 1), (&[entry(0, 1)], 0), (&[], 0)]);
    broken(announces(&mut facts, 0, &nodes[0], 1), "what was committed never changes");
    broken(announces(&mut facts, 1, &nodes[1], 1), "HW is at most LEO");
}

#[test]
fn a_cut_below_a_known_hw_is_seen() {
    let mut facts = facts(&[]);
    facts.known_hw[1] = 2;
    let log = [entry(0, 0), entry(0, 1), entry(0, 2)];
    broken(cuts(&facts, 1, 1, &log, &log[..1]), "no cut below an HW once known");
    assert_eq!((cuts(&facts, 1, 2, &log, &log[..2]), cuts(&facts, 0, 0, &log, &[])), (Ok(()), Ok(())));
}

#[test]
fn logs_that_part_below_a_common_entry_are_seen() {
    let parted: [&[Entry]; 2] = [&[entry(0, 1), entry(1, 3)], &[entry(0, 2), entry(1, 3)]];
    broken(logs_agree(&nodes([(parted[0], 0), (parted[1], 0), (&[], 0)])), "equal up to it");
    let tails: [&[Entry]; 2] = [&[entry(0, 1), entry(0, 2)], &[entry(0, 1), entry(1, 3)]];
    assert_eq!(logs_agree(&nodes([(tails[0], 0), (tails[1], 0), (&[], 0)])), Ok(()));
}

#[test]
fn a_committed_entry_on_too_few_disks_is_seen() {
    let facts = facts(&[(entry(0, 1), 0)]);
    let log: &[Entry] = &[entry(0, 1)];
    let (two, one) = (nodes([(log, 1), (log, 1), (&[], 0)]), nodes([(log, 1), (log, 0), (&[], 0)]));
    assert_eq!(durable_where_promised(&facts, &two, CommitRule::Quorum { q: 2 }), Ok(()));
    broken(durable_where_promised(&facts, &one, CommitRule::Quorum { q: 2 }), "durable on what the rule names");
    broken(durable_where_promised(&facts, &two, CommitRule::Isr { min: 2 }), "durable on what the rule names");
}

#[test]
fn a_read_that_misses_what_was_committed_is_seen() {
    let mut facts = facts(&[]);
    facts.read_floors = [(1, 2), (2, 2)].into();
    broken(reads(&mut facts, 1, 1), "a linearizable read sees");
    broken(reads(&mut facts, 1, 2), "answered twice");
    assert_eq!(reads(&mut facts, 2, 2), Ok(()), "each read has its own");
}

#[test]
fn a_round_of_reconciliation_that_lowers_nothing_is_seen() {
    let facts = facts(&[]);
    let (log, other) = ([entry(0, 0), entry(1, 1)], [entry(0, 0), entry(2, 1)]);
    broken(cuts(&facts, 0, 2, &log, &log), "a reconciliation round lowers");
    broken(cuts(&facts, 0, 1, &log, &other), "a reconciliation round lowers");
    assert_eq!(cuts(&facts, 0, 1, &other, &log), Ok(()), "the last epoch is lower");
}

/// A cluster in which replica 0 leads epoch 0 and the others have heard of it, nothing of what they asked has arrived.
fn led() -> [Rc<Node>; REPLICAS] {
    let config = Config::appointed(CommitRule::Isr { min: 1 });
    let record = facts(&[]).record;
    let told = coordinator::told(&record, &config);
    let ask = from_coordinator(Epoch(0), Body::PromiseRequest { ballot: 0 });
    std::array::from_fn(|index| {
        let mut node = local::first(index, &config);
        for envelope in [&ask, &told] {
            node = local::step(index, &node, Local::Deliver(0), Some(envelope), &config).expect("no law is broken").0;
        }
        Rc::new(node)
    })
}

#[test]
fn a_recorded_member_that_the_leader_does_not_count_is_seen() {
    let (nodes, mut facts) = (led(), facts(&[]));
    assert!(nodes[0].replica.leads(Epoch(0)));
    assert_eq!(covers_record(&facts, &nodes), Ok(()));
    facts.record.set.insert(3);
    broken(covers_record(&facts, &nodes), "the leader's maximal set covers the recorded one");
    facts.record.leader = Some((0, 2));
    assert_eq!(covers_record(&facts, &nodes), Ok(()), "another process is on record");
}

#[test]
fn a_live_stream_over_another_history_is_seen() {
    let mut nodes = led();
    assert_eq!(goes_live(&nodes, 1), Ok(()));
    Rc::make_mut(&mut nodes[1]).log.push(entry(0, 1));
    broken(goes_live(&nodes, 1), "a live stream's log is a prefix of the leader's");
    broken(goes_live(&nodes, 0), "only followers have streams");
}

#[test]
fn an_isr_below_its_floor_is_seen() {
    let mut facts = facts(&[(entry(0, 1), 0)]);
    let log: &[Entry] = &[entry(0, 1)];
    let nodes = nodes([(log, 1), (log, 1), (&[], 0)]);
    facts.record.set = BTreeSet::from([0, 1]);
    assert_eq!(durable_where_promised(&facts, &nodes, CommitRule::Isr { min: 2 }), Ok(()));
    facts.record.set = BTreeSet::from([0]);
    broken(durable_where_promised(&facts, &nodes, CommitRule::Isr { min: 2 }), "durable on what the rule names");
}
