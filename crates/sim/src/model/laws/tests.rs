//! Each law is broken by facts made up for it.

use std::collections::BTreeSet;

use highwater_replica::{ProposeError, ReadError};
use highwater_wire::{Body, HardState, Position, Version};

use super::super::machine::Machine;
use super::super::world::{
    Local, PARTITION, Record, Waiting, from_coordinator, ticket_of_look, ticket_of_read, ticket_of_write,
};
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
        waiting: Default::default(),
        failed: Default::default(),
        writes: 0,
        crashes: 0,
        silences: 0,
        reads: 0,
        looks: 0,
        stands: 0,
    }
}

/// A log, durable as far as said.
fn disk((log, durable): (&[Entry], usize)) -> Disk {
    Disk::new(log.to_vec(), durable, HardState::default())
}

/// What is said of the disks if these logs lie on them, durable as far as said.
fn on_disks(logs: [(&[Entry], usize); REPLICAS], law: impl Fn(&Disks<'_>) -> Verdict) -> Verdict {
    let disks = logs.map(disk);
    law(&disks.each_ref())
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
    let (other, late) = (disk((&[entry(0, 2)], 1)), disk((&[entry(0, 1)], 0)));
    broken(announces(&mut facts, 0, &other, Epoch(0), 1), "what was committed never changes");
    broken(announces(&mut facts, 1, &late, Epoch(0), 1), "HW is at most LEO");
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
    broken(on_disks([(parted[0], 0), (parted[1], 0), (&[], 0)], logs_agree), "equal up to it");
    let tails: [&[Entry]; 2] = [&[entry(0, 1), entry(0, 2)], &[entry(0, 1), entry(1, 3)]];
    assert_eq!(on_disks([(tails[0], 0), (tails[1], 0), (&[], 0)], logs_agree), Ok(()));
}

#[test]
fn a_committed_entry_on_too_few_disks_is_seen() {
    let facts = facts(&[(entry(0, 1), 0)]);
    let log: &[Entry] = &[entry(0, 1)];
    let (two, one): ([_; REPLICAS], [_; REPLICAS]) = ([(log, 1), (log, 1), (&[], 0)], [(log, 1), (log, 0), (&[], 0)]);
    let under = |logs, rule| on_disks(logs, |disks| durable_where_promised(&facts, disks, rule));
    assert_eq!(under(two, CommitRule::Quorum { q: 2 }), Ok(()));
    broken(under(one, CommitRule::Quorum { q: 2 }), "durable on what the rule names");
    broken(under(two, CommitRule::Isr { min: 2 }), "durable on what the rule names");
}

fn done(epoch: u32, offset: u64) -> Outcome {
    Outcome::Done(Position { partition: PARTITION, epoch: Some(Epoch(epoch)), offset })
}

#[test]
fn a_read_that_misses_what_was_committed_or_is_answered_twice_is_seen() {
    let mut facts = facts(&[]);
    facts.waiting =
        [1, 2].map(|number| (ticket_of_read(number), Waiting { node: 0, floor: 2, saw: Vec::new() })).into();
    broken(answers(&mut facts, 0, ticket_of_read(1), &done(0, 1)), "a linearizable read");
    broken(answers(&mut facts, 0, ticket_of_read(1), &done(0, 2)), "answered once");
    assert_eq!(answers(&mut facts, 0, ticket_of_read(2), &done(0, 2)), Ok(()), "each read has its own");
}

#[test]
fn a_write_acknowledged_before_it_is_committed_or_for_another_entry_is_seen() {
    let mut facts = facts(&[(entry(0, 1), 0), (entry(1, 2), 1)]);
    facts.waiting = [1, 2, 3].map(|id| (ticket_of_write(id), Waiting { node: 0, floor: 0, saw: Vec::new() })).into();
    let before = facts.clone();
    assert_eq!(answers(&mut facts, 0, ticket_of_write(1), &done(0, 1)), Ok(()));
    assert_eq!(answers(&mut facts, 0, ticket_of_write(2), &done(1, 2)), Ok(()));
    for (id, outcome) in [(3, done(1, 3)), (3, done(1, 2)), (1, done(1, 1)), (1, done(0, 0))] {
        broken(answers(&mut before.clone(), 0, ticket_of_write(id), &outcome), "acknowledged once it is committed");
    }
    broken(answers(&mut facts, 0, ticket_of_write(1), &done(0, 1)), "answered once");
    broken(answers(&mut before.clone(), 1, ticket_of_write(1), &done(0, 1)), "answered once");
    let truncated = Outcome::Truncated { found: Some(Epoch(1)) };
    broken(answers(&mut before.clone(), 0, ticket_of_write(1), &truncated), "of a kind that was asked for");
    assert_eq!(answers(&mut before.clone(), 0, ticket_of_write(3), &truncated), Ok(()));
    let lost = Outcome::Lost(ReadError::LeadershipLost);
    broken(answers(&mut before.clone(), 0, ticket_of_write(1), &lost), "of a kind that was asked for");
}

#[test]
fn an_answer_that_saw_what_is_not_committed_or_too_little_is_seen() {
    let mut facts = facts(&[(entry(0, 1), 0)]);
    let answered = |facts: &mut Facts, saw: &[Entry], floor| {
        facts.waiting = [(ticket_of_look(1), Waiting { node: 0, floor, saw: saw.to_vec() })].into();
        answers(facts, 0, ticket_of_look(1), &done(0, saw.len() as u64))
    };
    assert_eq!(answered(&mut facts, &[entry(0, 1)], 1), Ok(()));
    broken(answered(&mut facts, &[], 1), "sees what was acknowledged before");
    broken(answered(&mut facts, &[entry(0, 2)], 0), "saw only what is committed");
    broken(answered(&mut facts, &[entry(0, 1), entry(0, 2)], 1), "saw only what is committed");
}

#[test]
fn a_write_that_failed_and_is_in_a_log_all_the_same_is_seen() {
    let mut facts = facts(&[]);
    facts.waiting = [(ticket_of_write(2), Waiting { node: 0, floor: 0, saw: Vec::new() })].into();
    let refused = Outcome::Refused(ProposeError::TooFewInReach { needed: 2, in_reach: 1 });
    assert_eq!(answers(&mut facts, 0, ticket_of_write(2), &refused), Ok(()));
    let (one, two): (&[Entry], &[Entry]) = (&[entry(0, 1)], &[entry(0, 1), entry(0, 2)]);
    let nowhere = |logs| on_disks(logs, |disks| failed_is_nowhere(&facts, disks));
    assert_eq!(nowhere([(one, 1), (one, 0), (&[], 0)]), Ok(()));
    broken(nowhere([(one, 1), (two, 1), (&[], 0)]), "has no effect, ever");
}

#[test]
fn what_readers_are_shown_before_it_is_committed_or_instead_of_it_is_seen() {
    let facts = facts(&[(entry(0, 1), 0)]);
    assert_eq!((shows(&facts, 0, &[]), shows(&facts, 0, &[entry(0, 1)])), (Ok(()), Ok(())));
    broken(shows(&facts, 0, &[entry(0, 1), entry(0, 2)]), "shown committed entries alone");
    broken(shows(&facts, 0, &[entry(0, 2)]), "shown committed entries alone");
}

#[test]
fn a_machine_that_holds_what_was_cut_is_seen() {
    let log = [entry(0, 1), entry(1, 3)];
    assert_eq!(machine_holds_the_log(0, &log, &log[..1]), Ok(()));
    broken(machine_holds_the_log(0, &log[..1], &log), "nothing that was cut");
    broken(machine_holds_the_log(0, &log, &[entry(0, 1), entry(0, 2)]), "nothing that was cut");
}

#[test]
fn a_round_of_reconciliation_that_lowers_nothing_is_seen() {
    let facts = facts(&[]);
    let (log, other) = ([entry(0, 0), entry(1, 1)], [entry(0, 0), entry(2, 1)]);
    broken(cuts(&facts, 0, 2, &log, &log), "a reconciliation round lowers");
    broken(cuts(&facts, 0, 1, &log, &other), "a reconciliation round lowers");
    assert_eq!(cuts(&facts, 0, 1, &other, &log), Ok(()), "the last epoch is lower");
}

/// A cluster in which replica 0 leads epoch 0 and the others, with these logs, have heard of it, nothing of what they asked has arrived.
fn led(logs: [&[Entry]; REPLICAS]) -> [Rc<Node>; REPLICAS] {
    let config = Config::appointed(CommitRule::Isr { min: 1 });
    let record = facts(&[]).record;
    let told = coordinator::told(&record, &config);
    let ask = from_coordinator(Epoch(0), Body::PromiseRequest { ballot: 0 });
    std::array::from_fn(|index| {
        let disk = disk((logs[index], logs[index].len()));
        let mut node = local::recover(index, 1, disk, Machine::default(), &config, &mut local::Done::default());
        for envelope in [&ask, &told] {
            node = local::step(index, &node, Local::Deliver(0), Some(envelope), &config).expect("no law is broken").0;
        }
        Rc::new(node)
    })
}

#[test]
fn a_recorded_member_that_the_leader_does_not_count_is_seen() {
    let (nodes, mut facts) = (led([&[]; REPLICAS]), facts(&[]));
    assert!(nodes[0].replica().leads(Epoch(0)));
    assert_eq!(covers_record(&facts, &nodes), Ok(()));
    facts.record.set.insert(3);
    broken(covers_record(&facts, &nodes), "the leader's maximal set covers the recorded one");
    facts.record.leader = Some((0, 2));
    assert_eq!(covers_record(&facts, &nodes), Ok(()), "another process is on record");
}

#[test]
fn a_live_stream_over_another_history_is_seen() {
    assert_eq!(goes_live(&led([&[]; REPLICAS]), 1), Ok(()));
    let nodes = led([&[], &[entry(0, 1)], &[]]);
    broken(goes_live(&nodes, 1), "a live stream's log is a prefix of the leader's");
    broken(goes_live(&nodes, 0), "only followers have streams");
}

#[test]
fn an_isr_below_its_floor_is_seen() {
    let mut facts = facts(&[(entry(0, 1), 0)]);
    let log: &[Entry] = &[entry(0, 1)];
    for (set, is_broken) in [(BTreeSet::from([0, 1]), false), (BTreeSet::from([0]), true)] {
        facts.record.set = set;
        let said = on_disks([(log, 1), (log, 1), (&[], 0)], |disks| {
            durable_where_promised(&facts, disks, CommitRule::Isr { min: 2 })
        });
        match is_broken {
            true => broken(said, "durable on what the rule names"),
            false => assert_eq!(said, Ok(())),
        }
    }
}
