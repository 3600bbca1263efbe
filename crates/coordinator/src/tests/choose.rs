//! The choice against the rule stated anew, by subsets: no ordering, no "greatest" in it.

use highwater_wire::{Epoch, LogId, NodeId, PartitionId, Set, Version};

use super::*;

const OLD: Incarnation = Incarnation { starts: 1, random: 11 };
const NEW: Incarnation = Incarnation { starts: 2, random: 22 };

fn peer(n: usize) -> PeerId {
    PeerId { node: NodeId(n as u32 + 1), log: LogId(100 + n as u64) }
}

fn ranks() -> [Rank; 4] {
    let rank = |last_epoch, leo| Rank { last_epoch, leo };
    [rank(None, 0), rank(Some(Epoch(0)), 1), rank(Some(Epoch(0)), 2), rank(Some(Epoch(1)), 1)]
}

/// One of nine things a member can do in a ballot: nothing, or promise with one of four ranks in one of two incarnations.
fn promise(choice: usize) -> Option<Promised> {
    let choice = choice.checked_sub(1)?;
    let incarnation = if choice < 4 { OLD } else { NEW };
    Some(Promised { incarnation, rank: ranks()[choice % 4] })
}

fn record(n: usize, rule: CommitRule, leader: Option<usize>) -> PartitionRecord {
    let members: Vec<PeerId> = (0..n).map(peer).collect();
    PartitionRecord {
        id: PartitionId(1),
        name: "main".into(),
        replicas: members.clone(),
        set: Set { rule, members },
        leader: leader.map(|leader| (peer(leader), OLD)),
        epoch: leader.map(|_| Epoch(1)),
        version: Version(3),
        lossy: None,
    }
}

fn rules(n: usize) -> Vec<CommitRule> {
    (1..=n as u32).flat_map(|k| [CommitRule::Quorum { q: k }, CommitRule::Isr { min: k }]).collect()
}

/// May this member lead? By looking for a subset that proves it.
fn may_lead(record: &PartitionRecord, promises: &BTreeMap<PeerId, Promised>, candidate: PeerId) -> bool {
    let members = &record.set.members;
    let Some(own) = promises.get(&candidate).filter(|_| members.contains(&candidate)) else { return false };
    if record.leader == Some((candidate, own.incarnation)) {
        return true;
    }
    match record.set.rule {
        CommitRule::Isr { .. } => true,
        CommitRule::Quorum { q } => (0..1_usize << members.len()).any(|subset| {
            let chosen: Vec<PeerId> = (0..members.len()).filter(|i| subset >> i & 1 == 1).map(|i| members[i]).collect();
            chosen.len() == members.len() - q as usize + 1
                && chosen.contains(&candidate)
                && chosen.iter().all(|peer| promises.get(peer).is_some_and(|promised| promised.rank <= own.rank))
        }),
    }
}

fn check(record: &PartitionRecord, promises: &BTreeMap<PeerId, Promised>) {
    let allowed: Vec<PeerId> =
        record.set.members.iter().copied().filter(|peer| may_lead(record, promises, *peer)).collect();
    let Some(choice) = choose(record, promises) else {
        assert!(allowed.is_empty(), "{allowed:?} may lead: {record:?} {promises:?}");
        return;
    };
    assert!(allowed.contains(&choice.leader), "{choice:?} may not lead: {record:?} {promises:?}");
    let promised = promises[&choice.leader];
    assert_eq!(choice.incarnation, promised.incarnation, "the incarnation that promised is appointed");
    for other in &allowed {
        assert!(promises[other].rank <= promised.rank, "{other:?} reaches further: {record:?} {promises:?}");
        if promises[other].rank == promised.rank && record.leader == Some((*other, promises[other].incarnation)) {
            assert_eq!(choice.leader, *other, "a needless ballot moves nothing");
        }
    }
    let promised_members = record.set.members.iter().filter(|peer| promises.contains_key(peer)).count();
    match record.set.rule {
        CommitRule::Quorum { .. } => assert_eq!(choice.members, record.set.members),
        CommitRule::Isr { min } => {
            assert!(choice.members.len() >= min as usize, "never below the minimum: {choice:?}");
            if promised_members >= min as usize {
                assert!(
                    choice.members.iter().all(|peer| promises.contains_key(peer))
                        && choice.members.len() == promised_members
                );
            } else {
                assert_eq!(choice.members, record.set.members);
            }
        }
    }
}

#[test]
fn every_combination_of_up_to_three_replicas_follows_the_rule() {
    let mut combinations = 0;
    for n in 1..=3 {
        for rule in rules(n) {
            for leader in (0..n).map(Some).chain([None]) {
                let record = record(n, rule, leader);
                record.check();
                for code in 0..9_usize.pow(n as u32) {
                    let promises = (0..n)
                        .filter_map(|i| Some((peer(i), promise(code / 9_usize.pow(i as u32) % 9)?)))
                        .collect::<BTreeMap<_, _>>();
                    check(&record, &promises);
                    combinations += 1;
                }
            }
        }
    }
    assert_eq!(combinations, 2 * 2 * 9 + 4 * 3 * 81 + 6 * 4 * 729, "all were looked at");
}

#[test]
fn samples_of_five_replicas_follow_the_rule() {
    // A linear congruential generator: the same samples every time.
    let mut state = 20_231_u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let rules = rules(5);
    for _ in 0..20_000 {
        let leader = draw(6);
        let record = record(5, rules[draw(rules.len())], (leader < 5).then_some(leader));
        let promises = (0..5).filter_map(|i| Some((peer(i), promise(draw(9))?))).collect();
        check(&record, &promises);
    }
}

#[test]
fn strangers_and_replicas_outside_the_set_count_for_nothing() {
    let mut record = record(3, CommitRule::Isr { min: 1 }, Some(0));
    record.set.members = vec![peer(0), peer(1)];
    let best = Promised { incarnation: OLD, rank: Rank { last_epoch: Some(Epoch(9)), leo: 99 } };
    let plain = Promised { incarnation: OLD, rank: Rank { last_epoch: None, leo: 0 } };
    let mut promises = BTreeMap::from([(peer(2), best), (peer(7), best)]);
    assert_eq!(choose(&record, &promises), None);
    // The same node with another log is a stranger too.
    promises.insert(PeerId { node: NodeId(1), log: LogId(7) }, best);
    assert_eq!(choose(&record, &promises), None);
    promises.insert(peer(1), plain);
    let choice = choose(&record, &promises).expect("a member promised");
    assert_eq!((choice.leader, choice.members), (peer(1), vec![peer(1)]));
}

#[test]
fn one_promise_fewer_than_the_election_quorum_chooses_nobody() {
    let record = record(3, CommitRule::Quorum { q: 2 }, None);
    let promised = |leo| Promised { incarnation: OLD, rank: Rank { last_epoch: Some(Epoch(0)), leo } };
    let mut promises = BTreeMap::from([(peer(2), promised(1))]);
    assert_eq!(choose(&record, &promises), None);
    promises.insert(peer(0), promised(4));
    assert_eq!(choose(&record, &promises).map(|choice| choice.leader), Some(peer(0)));
}
