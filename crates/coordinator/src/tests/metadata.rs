use highwater_wire::LogId;

use super::*;

fn peer(n: u32) -> PeerId {
    PeerId { node: NodeId(n), log: LogId(u64::from(n) * 10) }
}

fn start(starts: u64) -> Incarnation {
    Incarnation { starts, random: starts * 1000 }
}

fn register(peer: PeerId, starts: &[Incarnation]) -> Command {
    Command::RegisterNode { peer, incarnations: starts.to_vec(), address: format!("node-{}", peer.node) }
}

/// Three registered nodes and one database of that rule.
fn formed(rule: CommitRule) -> Metadata {
    let mut metadata = Metadata::default();
    for n in 1..=3 {
        assert_eq!(metadata.apply(&register(peer(n), &[start(1)])), Applied::Done);
    }
    let replicas = vec![peer(1), peer(2), peer(3)];
    let create = Command::CreatePartition { id: PartitionId(1), name: "main".into(), rule, replicas };
    assert_eq!(metadata.apply(&create), Applied::Done);
    metadata
}

fn appoint(version: u64, epoch: u32, leader: u32, members: &[u32]) -> Command {
    Command::Appoint {
        id: PartitionId(1),
        version: Version(version),
        epoch: Epoch(epoch),
        leader: peer(leader),
        incarnation: start(1),
        members: members.iter().map(|n| peer(*n)).collect(),
    }
}

fn change(version: u64, epoch: u32, members: &[u32]) -> Command {
    let members = members.iter().map(|n| peer(*n)).collect();
    Command::ChangeSet { id: PartitionId(1), version: Version(version), epoch: Epoch(epoch), members }
}

fn void(metadata: &mut Metadata, command: &Command, why: Void) {
    let before = metadata.clone();
    assert_eq!(metadata.apply(command), Applied::Void(why), "{command:?}");
    assert_eq!(*metadata, before, "a void command changes nothing");
}

#[test]
fn a_registration_is_accepted_by_the_list_of_incarnations_and_again_with_the_same_answer() {
    let mut metadata = Metadata::default();
    let one = peer(1);
    // A folder that was started twice before it reached anybody.
    assert_eq!(metadata.apply(&register(one, &[start(1), start(2)])), Applied::Done);
    assert_eq!(metadata.incarnation(one), Some(start(2)));
    let before = metadata.clone();
    assert_eq!(metadata.apply(&register(one, &[start(1), start(2)])), Applied::Done);
    assert_eq!(metadata, before, "the same registration again changes nothing");
    // The answer was lost, so the list still holds both.
    assert_eq!(metadata.apply(&register(one, &[start(1), start(2), start(3)])), Applied::Done);
    assert_eq!(metadata.apply(&register(one, &[start(3), start(4)])), Applied::Done);
    assert_eq!(metadata.node(NodeId(1)).map(|node| node.version), Some(Version(3)));
}

#[test]
fn an_older_copy_is_refused_however_often_it_was_started() {
    let mut metadata = Metadata::default();
    let one = peer(1);
    assert_eq!(metadata.apply(&register(one, &[start(1)])), Applied::Done);
    assert_eq!(metadata.apply(&register(one, &[start(1), start(2)])), Applied::Done);
    // A copy taken at the first start, started again and again: its counter overtakes the last one known.
    let copy = |starts| Incarnation { starts, random: 7 };
    void(&mut metadata, &register(one, &[start(1), copy(2)]), Void::OlderCopy);
    void(&mut metadata, &register(one, &[start(1), copy(2), copy(3)]), Void::OlderCopy);
    void(&mut metadata, &register(one, &[]), Void::Malformed);
}

#[test]
fn a_wiped_disk_is_a_new_member_and_the_old_one_runs_in_no_incarnation() {
    let mut metadata = Metadata::default();
    let (old, new) = (peer(1), PeerId { node: NodeId(1), log: LogId(99) });
    assert_eq!(metadata.apply(&register(old, &[start(5)])), Applied::Done);
    assert_eq!(metadata.apply(&register(new, &[start(1)])), Applied::Done);
    assert_eq!((metadata.incarnation(old), metadata.incarnation(new)), (None, Some(start(1))));
}

#[test]
fn a_partition_takes_the_next_id_a_free_name_and_a_rule_that_its_replicas_can_keep() {
    let rule = CommitRule::Quorum { q: 2 };
    let mut metadata = formed(rule);
    let create = |id, name: &str, rule, replicas: &[u32]| Command::CreatePartition {
        id: PartitionId(id),
        name: name.into(),
        rule,
        replicas: replicas.iter().map(|n| peer(*n)).collect(),
    };
    void(&mut metadata, &create(1, "other", rule, &[1, 2, 3]), Void::Taken);
    void(&mut metadata, &create(3, "other", rule, &[1, 2, 3]), Void::Taken);
    void(&mut metadata, &create(2, "main", rule, &[1, 2, 3]), Void::Taken);
    void(&mut metadata, &create(2, "other", CommitRule::Quorum { q: 4 }, &[1, 2, 3]), Void::Rule);
    void(&mut metadata, &create(2, "other", rule, &[2, 1]), Void::Rule);
    void(&mut metadata, &create(2, "a/b", rule, &[1, 2]), Void::Rule);
    assert_eq!(metadata.apply(&create(2, "other", rule, &[1, 2])), Applied::Done);
    assert_eq!(metadata.next_partition(), PartitionId(3));
    assert_eq!(metadata.partition_named("other").map(|record| record.id), Some(PartitionId(2)));
}

#[test]
fn of_two_appointments_for_one_version_one_applies() {
    let mut metadata = formed(CommitRule::Quorum { q: 2 });
    assert_eq!(metadata.apply(&appoint(1, 4, 2, &[1, 2, 3])), Applied::Done);
    void(&mut metadata, &appoint(1, 4, 3, &[1, 2, 3]), Void::Version { found: Version(2) });
    void(&mut metadata, &appoint(1, 5, 3, &[1, 2, 3]), Void::Version { found: Version(2) });
    // At the right version an epoch still never repeats.
    void(&mut metadata, &appoint(2, 4, 3, &[1, 2, 3]), Void::Epoch { found: Some(Epoch(4)) });
    void(&mut metadata, &appoint(2, 5, 3, &[1, 3]), Void::Set);
    let record = metadata.partition(PartitionId(1)).expect("it was created");
    assert_eq!((record.leader, record.epoch, record.version), (Some((peer(2), start(1))), Some(Epoch(4)), Version(2)));
    let (epoch, lead) = record.lead().expect("it has a leader");
    assert_eq!((epoch, lead.leader, lead.incarnation, lead.version), (Epoch(4), peer(2), start(1), Version(2)));
}

#[test]
fn an_appointment_of_an_incarnation_that_is_gone_is_void() {
    let mut metadata = formed(CommitRule::Quorum { q: 2 });
    assert_eq!(metadata.apply(&register(peer(2), &[start(1), start(2)])), Applied::Done);
    void(&mut metadata, &appoint(1, 0, 2, &[1, 2, 3]), Void::Incarnation);
}

#[test]
fn an_isr_changes_only_at_its_version_and_epoch_and_keeps_its_minimum_and_its_leader() {
    let mut metadata = formed(CommitRule::Isr { min: 2 });
    void(&mut metadata, &change(1, 0, &[1, 2]), Void::Epoch { found: None });
    assert_eq!(metadata.apply(&appoint(1, 0, 1, &[1, 2])), Applied::Done);
    void(&mut metadata, &appoint(2, 1, 1, &[1, 2, 3]), Void::Set);
    void(&mut metadata, &change(1, 0, &[1, 2, 3]), Void::Version { found: Version(2) });
    void(&mut metadata, &change(2, 1, &[1, 2, 3]), Void::Epoch { found: Some(Epoch(0)) });
    void(&mut metadata, &change(2, 0, &[1]), Void::Set);
    void(&mut metadata, &change(2, 0, &[2, 3]), Void::Set);
    void(&mut metadata, &change(2, 0, &[1, 2, 4]), Void::Set);
    void(&mut metadata, &change(2, 0, &[2, 1]), Void::Set);
    assert_eq!(metadata.apply(&change(2, 0, &[1, 2, 3])), Applied::Done);
    assert_eq!(metadata.partition(PartitionId(1)).map(|record| record.version), Some(Version(3)));
    let mut quorum = formed(CommitRule::Quorum { q: 2 });
    assert_eq!(quorum.apply(&appoint(1, 0, 1, &[1, 2, 3])), Applied::Done);
    void(&mut quorum, &change(2, 0, &[1, 2, 3]), Void::Set);
}
