//! Partitions: whatever is cut while everybody writes, nothing acknowledged is lost or doubled, epochs do not run away, and whoever is in reach of a majority
//! and of the leader is served.
//!
//! With a coordinator beside the metadata's leader a cut has one of a few shapes, which are the tests below. How long it takes until writes are acknowledged
//! again is printed; only never is a failure.

use std::time::{Duration, Instant};

use super::net::{Cut, Way};
use super::writers::Writers;
use super::{Cluster, IDS, Roles, figure, wait_for};

/// How long a cut lasts: several sessions and elections.
const LASTS: Duration = Duration::from_secs(3);

/// Elections that one cut and its healing may cost at most, in `main` and in the metadata.
const EPOCHS_MAX: u64 = 8;

/// A cut with what is expected of it.
struct Case<'a> {
    name: &'a str,
    /// What is cut, and how.
    ways: Vec<(Way, Cut)>,
    /// The nodes through which writes must go on while it lasts.
    served: Vec<u32>,
}

/// Both directions between two nodes.
fn between(one: u32, other: u32, cut: Cut) -> Vec<(Way, Cut)> {
    vec![((one, other), cut), ((other, one), cut)]
}

fn run(mut cluster: Cluster, case: impl Fn(Roles) -> Case<'static>) {
    let writers = Writers::start(&cluster);
    let roles = cluster.roles();
    let metadata_epoch = cluster.metadata_epoch(roles.metadata);
    let case = case(roles);
    let name = case.name;
    figure(&format!("{name}: before, {roles:?}, metadata epoch {metadata_epoch}"));

    for (way, cut) in &case.ways {
        cluster.net.cut(*way, *cut);
    }
    let cut = Instant::now();
    for id in &case.served {
        let after = writers.wait_for(*id, cut);
        figure(&format!("{name}: {} ms from the cut to a write through node {id}", after.as_millis()));
    }
    // sleep: the cut lasts, so that sessions run out and candidates stand in vain; nothing says when they have done so often enough.
    std::thread::sleep(LASTS.saturating_sub(cut.elapsed()));
    for id in &case.served {
        writers.wait_for(*id, Instant::now());
    }

    cluster.net.heal();
    let healed = Instant::now();
    for id in IDS {
        let after = writers.wait_for(id, healed);
        figure(&format!("{name}: {} ms from healing to a write through node {id}", after.as_millis()));
    }
    let fates = writers.finish(&cluster);
    let after = cluster.roles();
    let metadata_after = cluster.metadata_epoch(after.metadata);
    figure(&format!("{name}: after, {after:?}, metadata epoch {metadata_after}; {fates}"));
    assert!(after.epoch - roles.epoch <= EPOCHS_MAX, "{name}: epochs of main run away: {roles:?}, then {after:?}");
    assert!(
        metadata_after - metadata_epoch <= EPOCHS_MAX,
        "{name}: epochs of the metadata run away: {metadata_epoch}, then {metadata_after}"
    );
    cluster.verify();
}

/// A cluster in which one node leads both, or two nodes one each.
fn cluster_where(same: bool) -> Cluster {
    let mut cluster = Cluster::start(&[]);
    wait_for("leaders as the test wants them", || {
        let roles = cluster.roles();
        if (roles.leader == roles.metadata) == same {
            return Some(());
        }
        // Whoever ends hands over what it leads, to any of the others.
        let ends = if same { roles.metadata } else { roles.leader };
        cluster.stop_node(ends);
        cluster.start_node(ends);
        None
    });
    cluster
}

fn leader_alone(name: &'static str, same: bool, cut: Cut) {
    run(cluster_where(same), |roles| {
        let [one, other] = roles.followers();
        let ways = [between(roles.leader, one, cut), between(roles.leader, other, cut)].concat();
        Case { name, ways, served: vec![one, other] }
    });
}

#[test]
fn the_leader_alone_in_silence() {
    leader_alone("leader alone, silent", true, Cut::Silent);
}

#[test]
fn the_leader_alone_and_refused() {
    leader_alone("leader alone, refused", true, Cut::Refused);
}

#[test]
fn the_leader_alone_without_the_coordinator() {
    leader_alone("leader alone, metadata led elsewhere", false, Cut::Broken);
}

#[test]
fn the_leader_cut_from_one_follower() {
    run(cluster_where(true), |roles| {
        let [one, other] = roles.followers();
        let ways = between(roles.leader, one, Cut::Silent);
        Case { name: "leader cut from one follower", ways, served: vec![roles.leader, other] }
    });
}

#[test]
fn a_follower_hears_the_leader_and_is_not_heard() {
    run(cluster_where(true), |roles| {
        let [one, other] = roles.followers();
        let ways = vec![((one, roles.leader), Cut::Broken)];
        Case { name: "a follower is not heard", ways, served: vec![roles.leader, other] }
    });
}

#[test]
fn a_follower_is_heard_and_hears_nothing_of_the_leader() {
    run(cluster_where(true), |roles| {
        let [one, other] = roles.followers();
        let ways = vec![((roles.leader, one), Cut::Broken)];
        Case { name: "a follower hears nothing", ways, served: vec![roles.leader, other] }
    });
}

#[test]
fn the_leader_is_heard_by_all_and_hears_nobody() {
    run(cluster_where(true), |roles| {
        let [one, other] = roles.followers();
        let ways = vec![((one, roles.leader), Cut::Silent), ((other, roles.leader), Cut::Silent)];
        Case { name: "the leader is deaf", ways, served: vec![one, other] }
    });
}

#[test]
fn the_leader_hears_all_and_nobody_hears_it() {
    run(cluster_where(true), |roles| {
        let [one, other] = roles.followers();
        let ways = vec![((roles.leader, one), Cut::Silent), ((roles.leader, other), Cut::Silent)];
        Case { name: "the leader is mute", ways, served: vec![one, other] }
    });
}

#[test]
fn the_leader_cut_from_the_metadatas() {
    run(cluster_where(false), |roles| {
        let third = IDS.into_iter().find(|id| *id != roles.leader && *id != roles.metadata);
        let ways = between(roles.leader, roles.metadata, Cut::Silent);
        let served = vec![roles.metadata, third.expect("a third node")];
        Case { name: "leader cut from the metadata's", ways, served }
    });
}
