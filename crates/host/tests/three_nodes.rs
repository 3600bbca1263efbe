//! Three nodes on a perfect network: election, creation, commits, failover.

mod world;

use highwater_host::{Input, Registered};
use highwater_partition::Outcome;
use highwater_replica::Role;
use highwater_wire::CommitRule;

use world::{MAIN, World, peer};

const MAJORITY: CommitRule = CommitRule::Quorum { q: 2 };

#[test]
fn three_nodes_elect_create_and_commit_and_all_show_it() {
    let mut world = World::formed(3, MAJORITY);
    world.write_until_done("a");
    world.run_until("all show it", |world| (1..=3).all(|n| world.visible(n) == ["a"]));
    assert!(world.coordinator().is_some());
    for n in 1..=3 {
        let status = world.host(n).status();
        assert_eq!(status.registered, Registered::Accepted);
        assert_eq!(status.records.len(), 1);
        assert_eq!(status.records[0].replicas, [peer(1), peer(2), peer(3)]);
        assert_eq!(status.metadata_leader.map(|node| node.0), world.coordinator());
    }
    // Quiet from then on: nobody is elected or appointed anew.
    let before = world.host(1).status().records;
    world.pass(5000);
    assert_eq!(world.host(1).status().records, before);
    let read = world.read(2);
    world.run_until("a read on any node is answered", |world| world.done(2, read));
}

#[test]
fn the_leaders_death_is_survived_with_everything_acknowledged() {
    let mut world = World::formed(3, MAJORITY);
    world.write_until_done("a");
    let old = world.leader().expect("main is led");
    world.kill(old);
    world.notice_gone(old);
    let took = world.run_until("another leads", |world| world.leader().is_some());
    assert!(took < 1000, "known to be gone, it was succeeded after {took} ms");
    world.write_until_done("b");
    let living = world.running();
    world.run_until("both show both", |world| living.iter().all(|n| world.visible(*n) == ["a", "b"]));
    world.start(old);
    world.run_until("the old leader has caught up", |world| {
        world.nodes[&old].machines.contains_key(&MAIN) && world.visible(old) == ["a", "b"]
    });
}

#[test]
fn every_node_may_die_in_turn_and_nothing_acknowledged_is_lost() {
    let mut world = World::formed(3, MAJORITY);
    let mut written: Vec<String> = Vec::new();
    for round in 0..6 {
        let value = format!("v{round}");
        world.write_until_done(&value);
        written.push(value);
        let victim = round % 3 + 1;
        world.kill(victim);
        world.run_until("another leads", |world| world.leader().is_some());
        let value = format!("w{round}");
        world.write_until_done(&value);
        written.push(value);
        world.start(victim);
        world.run_until("all show all", |world| {
            (1..=3).all(|n| world.nodes[&n].machines.contains_key(&MAIN) && world.visible(n) == written)
        });
        world.run_until("it is led", |world| world.leader().is_some() && world.coordinator().is_some());
    }
    let epoch = world.host(1).status().records[0].epoch.expect("it is led");
    assert!(epoch.0 >= 3, "leaders died among the others: {epoch:?}");
}

#[test]
fn without_a_majority_nothing_is_acknowledged() {
    let mut world = World::formed(3, MAJORITY);
    let leader = world.leader().expect("main is led");
    for n in world.running() {
        if n != leader {
            world.kill(n);
        }
    }
    let ticket = world.write(leader, "a");
    world.pass(3000);
    assert!(!world.done(leader, ticket));
    assert!(world.visible(leader).is_empty());
}

#[test]
fn a_leader_whose_log_fails_is_replaced_though_its_node_lives() {
    let mut world = World::formed(3, MAJORITY);
    world.write_until_done("a");
    let old = world.leader().expect("main is led");
    world.node(old).hold_flushes.insert(MAIN);
    world.write(old, "b");
    world.node(old).disk.fail_sync(MAIN);
    world.release_flushes(old, MAIN);
    assert!(world.nodes[&old].halted[&MAIN].contains("could not be flushed"));
    world.run_until("another leads", |world| {
        (1..=3).filter(|n| *n != old).any(|n| {
            let status = world.host(n).partition_status(MAIN);
            status.is_some_and(|status| matches!(status.role, Role::Leader { .. }) && status.halted.is_none())
                && world.nodes[&n].machines[&MAIN].reign.is_some()
        })
    });
    world.pass(2000);
    let record = &world.host(old).status().records[0];
    assert_ne!(record.leader.map(|(leader, _)| leader), Some(peer(old)), "and stays replaced");
    assert!(record.epoch.is_some_and(|epoch| epoch.0 < 5), "by few ballots: {record:?}");
    let coordinator = world.coordinator().expect("somebody coordinates");
    assert!(world.host(coordinator).status().nodes.iter().all(|node| node.alive == Some(true)), "all nodes live");
}

#[test]
fn a_leader_whose_state_machine_stops_is_replaced_though_its_node_lives() {
    let mut world = World::formed(3, MAJORITY);
    world.write_until_done("a");
    let old = world.leader().expect("main is led");
    world.node(old).hold_flushes.insert(MAIN);
    let waiting = world.write(old, "b");
    world.input(old, Input::MachineStopped(MAIN, "its file is gone".into()));
    assert!(world.nodes[&old].halted[&MAIN].contains("its file is gone"));
    assert!(
        matches!(&world.nodes[&old].answers[&waiting], Outcome::Halted(reason) if reason.contains("its file is gone"))
    );
    world.run_until("another leads", |world| {
        let record = &world.host(old).status().records[0];
        record.leader.is_some_and(|(leader, _)| leader != peer(old)) && world.leader().is_some_and(|n| n != old)
    });
    world.write_until_done("c");
}

#[test]
fn a_follower_whose_state_machine_stops_goes_on_acknowledging_until_it_is_made_to_lead() {
    let mut world = World::formed(3, MAJORITY);
    world.write_until_done("a");
    let leader = world.leader().expect("main is led");
    let [broken, other]: [u32; 2] =
        (1..=3).filter(|n| *n != leader).collect::<Vec<_>>().try_into().expect("two followers");
    world.input(broken, Input::MachineStopped(MAIN, "its file is gone".into()));
    assert!(!world.nodes[&broken].halted.contains_key(&MAIN));
    world.kill(other);
    world.write_until_done("b");
    // Of the two that are left it alone holds what was acknowledged last, so it is made to lead; it says that it cannot, and the other comes up with the rest.
    world.kill(leader);
    world.start(other);
    world.run_until("it was made to lead", |world| world.nodes[&broken].halted.contains_key(&MAIN));
    world.start(leader);
    world.write_until_done("c");
    world.run_until("both show all", |world| [leader, other].iter().all(|n| world.visible(*n) == ["a", "b", "c"]));
}

#[test]
fn under_isr_a_dead_follower_leaves_the_set_and_comes_back() {
    let mut world = World::formed(3, CommitRule::Isr { min: 1 });
    world.write_until_done("a");
    let leader = world.leader().expect("main is led");
    let victim = (1..=3).find(|n| *n != leader).expect("a follower");
    world.kill(victim);
    let ticket = world.write(leader, "b");
    assert!(!world.done(leader, ticket), "all of the set must have it");
    world.run_until("the set has shrunk and the write is acknowledged", |world| world.done(leader, ticket));
    let members = |world: &World| {
        let living = world.running();
        world.host(living[0]).status().records[0].set.members.len()
    };
    world.run_until("it is recorded", |world| members(world) == 2);
    world.start(victim);
    world.run_until("it is in the set again", |world| members(world) == 3);
    world.run_until("it shows both", |world| world.visible(victim) == ["a", "b"]);
}

#[test]
fn logs_of_first_voters_begin_with_the_same_bytes() {
    let world = World::formed(3, MAJORITY);
    let first: Vec<_> = (1..=3).map(|n| world.first_entry(n)).collect();
    assert!(!first[0].is_empty() && first.windows(2).all(|pair| pair[0] == pair[1]));
}
