//! An older copy of a data folder in place of the true one (docs/protocol.md section 9).

mod world;

use highwater_host::Registered;
use highwater_partition::Outcome;
use highwater_replica::Role;
use highwater_wire::{Body, CommitRule, Envelope, Incarnation, PartitionId, Sender};

use world::{MAIN, World, peer};

const MAJORITY: CommitRule = CommitRule::Quorum { q: 2 };

fn registered(world: &World, n: u32) -> Registered {
    world.host(n).status().registered
}

fn metadata_role(world: &World, n: u32) -> Role {
    world.host(n).status().metadata.expect("the cluster is formed").role
}

/// Three nodes that hold a value, of which the last was stopped and copied, and has been started and has caught up since.
fn copied() -> (World, (highwater_host::NodeState, world::Disk)) {
    let mut world = World::formed(3, MAJORITY);
    world.kill(3);
    let copy = world.copy(3);
    world.start(3);
    world.write_until_done("a");
    world.run_until("node 3 shows it", |world| world.visible(3) == ["a"]);
    (world, copy)
}

/// What node `n` has sent since the trace had that many lines.
fn sent(world: &World, n: u32, since: usize) -> usize {
    let of = format!(" n{n} Send");
    world.trace[since..].iter().filter(|line| line.contains(&of)).count()
}

#[test]
fn its_vote_makes_no_leader_and_the_true_folder_takes_part_again() {
    let (mut world, copy) = copied();
    world.kill(3);
    let truth = world.exchange(3, copy);
    // The one vote that is missing would be the copy's.
    let gone = world.coordinator().expect("somebody coordinates");
    let left = 3 - gone;
    world.kill(gone);
    world.notice_gone(gone);
    let before = world.trace.len();
    world.start(3);
    world.pass(5000);
    assert_eq!(registered(&world, 3), Registered::Refused);
    assert!(world.nodes[&3].halted[&PartitionId::METADATA].contains("newest data folder back"));
    assert!(!matches!(metadata_role(&world, left), Role::Leader { .. }), "one of three elects nobody");
    assert_eq!(world.host(left).view().partitions().count(), 1);
    assert!(sent(&world, 3, before) < 20, "it falls silent: {}", sent(&world, 3, before));
    let fell_silent = world.trace.len();
    world.pass(2000);
    assert_eq!(sent(&world, 3, fell_silent), 0);

    world.start(gone);
    world.write_until_done("b");
    assert_eq!(world.visible(3), [""; 0], "the copy serves nothing");
    world.kill(3);
    world.exchange(3, truth);
    world.start(3);
    world.run_until("all show all", |world| (1..=3).all(|n| world.visible(n) == ["a", "b"]));
    world.kill(left);
    world.write_until_done("c");
}

#[test]
fn what_was_refused_once_never_speaks_again_however_often_it_is_started() {
    let (mut world, copy) = copied();
    world.kill(3);
    world.exchange(3, copy);
    world.start(3);
    world.run_until("it is refused", |world| registered(world, 3) == Registered::Refused);
    for _ in 0..5 {
        world.kill(3);
        let before = world.trace.len();
        world.start(3);
        world.pass(1000);
        assert_eq!(sent(&world, 3, before), 0);
        assert_eq!(registered(&world, 3), Registered::Refused);
        assert!(world.nodes[&3].halted[&PartitionId::METADATA].contains("older copy"));
    }
}

#[test]
fn a_copy_that_was_started_more_often_than_the_true_folder_is_refused_by_its_registration() {
    let (mut world, (mut state, disk)) = copied();
    world.kill(3);
    for _ in 0..4 {
        state.starts += 1;
        state.incarnations.push(Incarnation { starts: state.starts, random: 77_000 + state.starts });
    }
    world.exchange(3, (state, disk));
    world.start(3);
    world.run_until("it is refused", |world| registered(world, 3) == Registered::Refused);
    assert!(matches!(metadata_role(&world, 3), Role::Idle));
    assert!(world.nodes[&3].halted[&MAIN].contains("older copy"));
    let read = world.read(3);
    assert!(matches!(&world.nodes[&3].answers[&read], Outcome::Halted(reason) if reason.contains("older copy")));
}

#[test]
fn a_late_message_of_an_earlier_process_halts_nobody() {
    let (mut world, _) = copied();
    let earlier = Incarnation { starts: 1, random: 1 };
    let now = world.host(3).status().me.incarnation;
    assert!(now.starts > earlier.starts);
    let sender = Sender { peer: peer(3), incarnation: earlier };
    let before = world.trace.len();
    world.deliver(1, Envelope { partition: PartitionId::METADATA, sender, epoch: None, body: Body::WhoLeads });
    let answer = format!("OlderCopy {{ refused: {earlier:?}, newest: {now:?} }}");
    assert!(world.trace[before..].iter().any(|line| line.contains(&answer)), "{answer}");
    assert_eq!(registered(&world, 3), Registered::Accepted);
    world.kill(1);
    world.write_until_done("b");
    assert_eq!(world.visible(3), ["a", "b"]);
}

#[test]
fn a_node_that_is_told_while_it_serves_stops_all_it_does_and_answers_who_waits() {
    let (mut world, _) = copied();
    let leader = world.leader().expect("main is led");
    let reader = world.running().into_iter().find(|n| *n != leader).expect("a follower");
    let reads = world.host(leader).status().me.incarnation;
    world.node(leader).hold_flushes.insert(MAIN);
    let ticket = world.write(leader, "b");
    for stranger in [true, false] {
        let body = Body::OlderCopy { refused: reads, newest: Incarnation { starts: reads.starts + 1, random: 5 } };
        let incarnation = Incarnation { starts: 9, random: 9 };
        let mut sender = Sender { peer: peer(reader), incarnation };
        sender.peer.log.0 ^= u64::from(stranger);
        world.deliver(leader, Envelope { partition: PartitionId::METADATA, sender, epoch: None, body });
        assert_eq!(registered(&world, leader) == Registered::Refused, !stranger, "only a voter's word counts");
    }
    assert!(matches!(&world.nodes[&leader].answers[&ticket], Outcome::Halted(_)));
    assert!(world.nodes[&leader].halted.contains_key(&MAIN));
    assert!(world.nodes[&leader].state.older_copy, "it is remembered");
}
