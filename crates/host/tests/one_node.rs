//! One node: forming, registering, creating, leading, restarting; and what it refuses.

mod world;

use highwater_host::{HostError, Input, Registered};
use highwater_partition::{Input as PartitionInput, Outcome, Ticket};
use highwater_replica::{ReadError, Role};
use highwater_wire::{Body, CommitRule, Envelope, Epoch, Incarnation, Lead, NodeId, PartitionId, Sender, Set, Version};

use world::{MAIN, World, peer};

const ALONE: CommitRule = CommitRule::Quorum { q: 1 };

#[test]
fn a_node_forms_registers_creates_leads_and_acknowledges_after_its_flush() {
    let mut world = World::formed(1, ALONE);
    assert!(world.now < 1500, "it took {} ms", world.now - 1000);
    let status = world.host(1).status();
    assert_eq!((status.registered, status.coordinates), (Registered::Accepted, true));
    assert_eq!(status.records.len(), 1);
    assert_eq!((status.records[0].name.as_str(), status.records[0].epoch), ("main", Some(Epoch(0))));
    assert_eq!(status.nodes[0].alive, Some(true));
    assert_eq!(world.host(1).partition_id("main"), Some(MAIN));
    assert_eq!(world.host(1).leader(MAIN), Some((NodeId(1), "node-1")));
    assert_eq!(world.host(1).partition_id("other"), None);

    world.node(1).hold_flushes.insert(MAIN);
    let ticket = world.write(1, "a");
    world.pass(500);
    assert_eq!(world.node(1).answers.get(&ticket), None, "nothing is acknowledged before its flush");
    assert!(world.visible(1).is_empty());
    world.release_flushes(1, MAIN);
    assert!(world.done(1, ticket));
    assert_eq!(world.visible(1), ["a"]);
    let read = world.read(1);
    assert!(world.done(1, read));
}

#[test]
fn a_restarted_node_registers_again_and_leads_what_it_had_in_a_later_epoch() {
    let mut world = World::formed(1, ALONE);
    let ticket = world.write(1, "a");
    assert!(world.done(1, ticket));
    assert_eq!(world.node(1).state.incarnations.len(), 1);
    let bytes = world.first_entry(1);
    for starts in 2..4 {
        world.kill(1);
        world.start(1);
        world.run_until("main is led again", |world| world.leader().is_some());
        world.run_until("its entries are published", |world| world.visible(1) == ["a"]);
        let state = &world.nodes[&1].state;
        assert_eq!(
            (state.starts, state.incarnations.len()),
            (starts, 1),
            "the list is trimmed once it is acknowledged"
        );
        let status = world.host(1).status();
        assert_eq!(status.records[0].epoch, Some(Epoch(starts as u32 - 1)), "a restarted leader is appointed anew");
        assert_eq!(status.records[0].leader.map(|(_, incarnation)| incarnation), state.incarnations.last().copied());
    }
    assert_eq!(world.first_entry(1), bytes, "the cluster is formed once");
}

#[test]
fn a_node_that_loses_its_first_entry_forms_the_same_cluster_again() {
    let mut world = World::new(1, ALONE);
    world.node(1).hold_flushes.insert(PartitionId::METADATA);
    world.start(1);
    world.pass(1000);
    assert_eq!(world.host(1).status().metadata, None, "nothing runs before the first entry is flushed");
    assert_eq!(world.trace.iter().filter(|line| line.contains("Send")).count(), 0);
    world.kill(1);
    world.node(1).hold_flushes.clear();
    world.start(1);
    world.run_until("main is led", |world| world.leader().is_some());
}

#[test]
fn a_first_entry_that_cannot_be_flushed_stops_the_metadata_with_the_reason() {
    let mut world = World::new(1, ALONE);
    world.node(1).hold_flushes.insert(PartitionId::METADATA);
    world.start(1);
    world.node(1).disk.fail_sync(PartitionId::METADATA);
    world.release_flushes(1, PartitionId::METADATA);
    assert!(world.nodes[&1].halted[&PartitionId::METADATA].contains("could not be flushed"));
    world.pass(1000);
    let metadata = world.host(1).status().metadata.expect("it is shown");
    assert!(metadata.halted.is_some_and(|reason| reason.contains("could not be flushed")));
}

#[test]
fn databases_that_cannot_keep_their_rule_or_name_are_refused_at_the_start() {
    let refused = |name: &str, rule| {
        let mut world = World::new(3, ALONE);
        match world.start_with(1, vec![(name.into(), rule)]) {
            Err(HostError::Database { error, .. }) => error.to_string(),
            other => panic!("{name} with {rule:?} was not refused: {other:?}"),
        }
    };
    assert!(refused("main", CommitRule::Quorum { q: 4 }).contains("has 3 replicas"));
    assert!(refused("main", CommitRule::Isr { min: 0 }).contains("from 1 to 3"));
    assert!(refused("a/b", ALONE).contains("\"a/b\""));
}

#[test]
fn whoever_asks_a_partition_that_is_not_here_is_told_at_once() {
    let mut world = World::formed(1, ALONE);
    let unknown = PartitionId(9);
    world.input(1, Input::Partition(unknown, PartitionInput::Read { ticket: Ticket(70) }));
    let at_least = PartitionInput::AtLeast { ticket: Ticket(71), epoch: None, until: 5 };
    world.input(1, Input::Partition(unknown, at_least));
    for ticket in [70, 71] {
        assert_eq!(world.nodes[&1].answers[&Ticket(ticket)], Outcome::Lost(ReadError::NoLeader));
    }
    // Messages for it are dropped, whatever they say.
    let before = world.trace.len();
    let sender = Sender { peer: peer(2), incarnation: Incarnation { starts: 1, random: 1 } };
    for body in [
        Body::WhoLeads,
        Body::PromiseRequest { ballot: 3 },
        Body::Confirm { round: 1 },
        Body::Heartbeat { leaving: false },
    ] {
        world.deliver(1, Envelope { partition: unknown, sender, epoch: Some(Epoch(1)), body });
    }
    assert_eq!(world.trace.len(), before);
}

#[test]
fn an_older_copy_of_the_folder_is_refused_and_keeps_its_databases_closed() {
    let mut world = World::formed(1, ALONE);
    world.kill(1);
    let copied = world.node(1).state.clone();
    world.start(1);
    world.run_until("main is led again", |world| world.leader().is_some());
    world.kill(1);
    // The metadata has registered the second start. The node's memory as it was before is put back, and started a second time for itself.
    world.node(1).state = copied;
    world.start(1);
    world.run_until("the node is answered", |world| world.host(1).status().registered != Registered::Waiting);
    assert_eq!(world.host(1).status().registered, Registered::Refused);
    assert!(world.nodes[&1].halted[&MAIN].contains("older copy"));
    assert!(!world.nodes[&1].machines.contains_key(&MAIN), "it was never opened");
    let read = world.read(1);
    assert!(matches!(&world.nodes[&1].answers[&read], Outcome::Halted(reason) if reason.contains("older copy")));
    let shown = world.host(1).status();
    assert_eq!(shown.partitions.len(), 1);
    assert!(shown.partitions[0].status.halted.is_some());
}

#[test]
fn an_answer_for_an_earlier_process_is_not_this_ones() {
    // Alone among three voters it finds nobody to register with.
    let mut world = World::new(3, ALONE);
    world.start(1);
    world.pass(1000);
    let sender = Sender { peer: peer(2), incarnation: Incarnation { starts: 1, random: 1 } };
    let earlier = Incarnation { starts: 9, random: 9 };
    for accepted in [true, false] {
        let body = Body::Registered { incarnation: earlier, accepted };
        world.deliver(1, Envelope { partition: PartitionId::METADATA, sender, epoch: None, body });
        assert_eq!(world.host(1).status().registered, Registered::Waiting);
    }
    let incarnation = world.host(1).status().me.incarnation;
    let body = Body::Registered { incarnation, accepted: true };
    let answer = Envelope { partition: PartitionId::METADATA, sender, epoch: None, body };
    world.deliver(1, answer.clone());
    assert_eq!(world.host(1).status().registered, Registered::Waiting, "nobody is known to lead the metadata");
    let voters = vec![peer(1), peer(2), peer(3)];
    let set = Set { rule: CommitRule::Quorum { q: 2 }, members: voters.clone() };
    let (leader, version) = (peer(2), Version(0));
    let lead = Lead { leader, incarnation: sender.incarnation, replicas: voters, set, version, lossy: None };
    let body = Body::Lead(lead);
    world.deliver(1, Envelope { partition: PartitionId::METADATA, sender, epoch: Some(Epoch(3)), body });
    world.deliver(1, answer);
    assert_eq!(world.host(1).status().registered, Registered::Accepted);
}

#[test]
fn a_folder_that_cannot_be_opened_halts_its_database_alone() {
    let mut world = World::new(1, ALONE);
    world.node(1).disk.break_folder(MAIN);
    world.databases.push(("other".into(), ALONE));
    world.start(1);
    let other = PartitionId(2);
    let led = |world: &World| {
        world.host(1).partition_status(other).is_some_and(|status| matches!(status.role, Role::Leader { .. }))
    };
    world.run_until("the other is led", led);
    let before = world.host(1).view().partition(other).cloned();
    world.pass(5000);
    assert!(world.nodes[&1].halted[&MAIN].contains("cannot be read"));
    assert!(led(&world), "and stays so");
    assert_eq!(world.host(1).view().partition(other).cloned(), before);
    assert_eq!(world.host(1).view().partition(MAIN).and_then(|record| record.leader), None);
}

#[test]
fn the_same_start_and_the_same_inputs_have_the_same_effects() {
    let run = || {
        let mut world = World::formed(1, ALONE);
        world.write(1, "a");
        world.kill(1);
        world.start(1);
        world.pass(2000);
        world.trace
    };
    assert_eq!(run(), run());
    assert!(run().iter().any(|line| line.contains("Answer")));
}

#[test]
fn the_nodes_memory_is_durable_before_the_first_message_of_a_database() {
    let mut world = World::formed(1, ALONE);
    world.kill(1);
    let from = world.trace.len();
    world.start(1);
    world.run_until("main is led again", |world| world.leader().is_some());
    let at = |what: &str| world.trace[from..].iter().position(|line| line.contains(what));
    let (persisted, opened) = (at("Persist").expect("persisted"), at("Opened").expect("opened"));
    assert!(persisted < opened, "the acknowledged registration is remembered before a database is opened");
}
