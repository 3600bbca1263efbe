//! Each row of the table: it is rejected, and nothing is proposed.

use highwater_wire::{NodeId, PartitionId, Rank};

use super::*;
use crate::driver::tests::{MAIN, World, created, led, peer, sender};
use crate::driver::{Action, Event};

/// Whether the last message was rejected. If so, nothing else came of it.
fn rejected(world: &mut World, from: u32) -> bool {
    let out = std::mem::take(&mut world.out);
    let rejected = out.iter().any(|action| matches!(action, Action::Reject(node, _) if *node == NodeId(from)));
    assert!(!rejected || out.len() == 1, "{out:?}");
    rejected
}

fn says(world: &mut World, n: u32, epoch: u32, body: Body) -> bool {
    world.message(sender(n, 1), MAIN, Some(epoch), body);
    rejected(world, n)
}

#[test]
fn epochs_do_not_leap() {
    let mut world = led(CommitRule::Quorum { q: 2 }, 1);
    assert!(says(&mut world, 2, EPOCH_JUMP_MAX + 1, Body::WhoLeads));
    assert!(says(&mut world, 2, 0, Body::Refused { promised: Epoch::MAX }));
    let rank = Rank { last_epoch: None, leo: 0 };
    assert!(says(&mut world, 2, Epoch::MAX.0, Body::Promise { ballot: 1, rank }));
    world.step(Event::Tick);
    assert_eq!(world.asked(), None, "nobody is elected for it");
    assert!(!says(&mut world, 2, 0, Body::Refused { promised: Epoch(EPOCH_JUMP_MAX) }));
}

#[test]
fn with_epochs_exhausted_no_ballot_begins() {
    let mut world = created(CommitRule::Quorum { q: 2 });
    world.coordinator.epochs_heard.insert(MAIN, Epoch::MAX);
    world.out.clear();
    world.pass(5000, &[1, 2, 3]);
    assert_eq!(world.asked(), None);
}

#[test]
fn start_counters_do_not_leap() {
    let mut world = led(CommitRule::Quorum { q: 2 }, 1);
    world.register(2, &[1, 2 + STARTS_JUMP_MAX]);
    assert!(rejected(&mut world, 2));
    world.register(2, &[1, 1 + STARTS_JUMP_MAX]);
    assert!(!rejected(&mut world, 2));
}

#[test]
fn a_set_that_could_not_be_recorded_is_proposed_to_nobody() {
    let mut world = led(CommitRule::Isr { min: 2 }, 1);
    let version = world.record().version;
    let sets: [&[u32]; 5] = [&[], &[1], &[2, 3], &[1, 2, 4], &[2, 1]];
    for members in sets {
        let members = members.iter().map(|n| peer(*n)).collect();
        assert!(says(&mut world, 1, 0, Body::ChangeSet { version, members }));
    }
    let good = |n| Body::ChangeSet { version, members: vec![peer(1), peer(n)] };
    assert!(!says(&mut world, 2, 0, good(2)), "whoever does not lead is told the record");
    world.message(sender(1, 1), MAIN, Some(0), good(2));
    assert_eq!(world.proposed().len(), 1);
    assert!(says(&mut world, 1, 0, good(3)), "its first proposal stands");
    assert!(!says(&mut world, 1, 0, good(2)));
}

#[test]
fn under_quorum_no_set_changes_by_its_leaders_word() {
    let mut world = led(CommitRule::Quorum { q: 2 }, 1);
    let version = world.record().version;
    let members = vec![peer(1), peer(2), peer(3)];
    assert!(says(&mut world, 1, 0, Body::ChangeSet { version, members }));
}

#[test]
fn what_a_stranger_says_counts_for_nothing_and_is_not_judged() {
    let mut world = led(CommitRule::Quorum { q: 2 }, 1);
    world.message(sender(9, 1), MAIN, Some(Epoch::MAX.0), Body::WhoLeads);
    world.message(sender(2, 8), MAIN, Some(Epoch::MAX.0), Body::WhoLeads);
    world.message(sender(2, 1), PartitionId(77), Some(Epoch::MAX.0), Body::WhoLeads);
    assert_eq!(world.out, []);
}
