//! What a node as a whole knows better than whoever tells it, and what it says when it cannot be led any more.

mod world;

use highwater_host::Registered;
use highwater_replica::Role;
use highwater_wire::{Body, CommitRule, Envelope, Epoch, Incarnation, PartitionId, Sender, Version};

use world::{MAIN, World, peer};

const MAJORITY: CommitRule = CommitRule::Quorum { q: 2 };

/// Three nodes of which `leader` leads the database, and one of the others.
fn formed() -> (World, u32, u32) {
    let mut world = World::formed(3, MAJORITY);
    world.write_until_done("a");
    let leader = world.leader().expect("somebody leads");
    (world, leader, 1 + leader % 3)
}

#[test]
fn another_leader_than_the_one_on_record_is_rejected() {
    let (mut world, leader, other) = formed();
    let record = world.host(leader).view().partition(MAIN).expect("it is on record").clone();
    let (epoch, known) = record.lead().expect("it is led");
    let from = Sender { peer: peer(other), incarnation: Incarnation { starts: 1, random: 7 } };
    let envelope = |epoch, lead| Envelope { partition: MAIN, sender: from, epoch: Some(epoch), body: Body::Lead(lead) };
    let mut false_one = known.clone();
    false_one.leader = peer(other);
    let mut shrunk = known.clone();
    shrunk.set.members.retain(|member| *member != peer(other));
    let mut distant = known.clone();
    distant.version = Version(1 << 62);
    for lead in [false_one, shrunk, distant] {
        assert_eq!(world.rejected_by(leader, envelope(epoch, lead)), 1);
    }
    assert_eq!(world.rejected_by(leader, envelope(epoch, known)), 0);
    assert!(matches!(world.host(leader).partition_status(MAIN).expect("it is open").role, Role::Leader { .. }));
}

#[test]
fn a_registration_is_refused_by_whoever_leads_the_metadata_alone() {
    let mut world = World::formed(3, MAJORITY);
    world.kill(3);
    world.start(3);
    let coordinator = world.coordinator().expect("somebody coordinates");
    let other = if coordinator == 1 { 2 } else { 1 };
    let incarnation = world.host(3).status().me.incarnation;
    let from = Sender { peer: peer(other), incarnation: Incarnation { starts: 1, random: u64::from(other) } };
    let body = Body::Registered { incarnation, accepted: false };
    let envelope = Envelope { partition: PartitionId::METADATA, sender: from, epoch: None, body };
    assert_eq!(world.rejected_by(3, envelope), 0);
    assert_ne!(world.host(3).status().registered, Registered::Refused);
    world.run_until("node 3 takes part", |world| world.host(3).status().registered == Registered::Accepted);
}

#[test]
fn a_log_with_exhausted_epochs_is_not_opened_and_says_how_its_data_is_had_out() {
    let mut world = World::formed(3, MAJORITY);
    world.write_until_done("a");
    world.kill(3);
    world.promise_durably(3, MAIN, Epoch::MAX);
    world.start(3);
    world.run_until("node 3 says so", |world| world.nodes[&3].halted.contains_key(&MAIN));
    assert!(world.nodes[&3].halted[&MAIN].contains("epochs are exhausted"));
    assert!(world.nodes[&3].halted[&MAIN].contains("highwater log replay"));
    world.write_until_done("b");
}
