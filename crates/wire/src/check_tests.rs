//! Each bound is met and passed.

use bytes::{Bytes, BytesMut};

use super::*;
use crate::batch::Record;
use crate::ids::{LogId, PartitionId, StreamId, Version};
use crate::message::{Sender, Set};

const STARTED: Incarnation = Incarnation { starts: 3, random: 7 };

fn peer(node: u32) -> PeerId {
    PeerId { node: NodeId(node), log: LogId(1) }
}

fn envelope(epoch: Option<u32>, body: Body) -> Envelope {
    let sender = Sender { peer: peer(2), incarnation: STARTED };
    Envelope { partition: PartitionId(1), sender, epoch: epoch.map(Epoch), body }
}

/// What is wanted of a body in epoch 4, if it is refused.
fn refused(body: Body) -> Option<&'static str> {
    check(&envelope(Some(4), body)).err().map(|unfit| unfit.wanted)
}

fn lead(change: impl FnOnce(&mut Lead)) -> Body {
    let replicas = vec![peer(1), peer(2), peer(3)];
    let mut lead = Lead {
        leader: peer(1),
        incarnation: STARTED,
        set: Set { rule: CommitRule::Isr { min: 2 }, members: replicas.clone() },
        replicas,
        version: Version(9),
        lossy: None,
    };
    change(&mut lead);
    Body::Lead(lead)
}

fn batches(epochs: &[u32], base: u64) -> Bytes {
    let mut all = BytesMut::new();
    for (epoch, base) in epochs.iter().zip(base..) {
        let mut one = batch::build(&[Record { key: None, value: Some(Bytes::from_static(b"x")) }], 0);
        batch::stamp(&mut one, base, Epoch(*epoch)).expect("it can be stamped");
        all.extend_from_slice(&one);
    }
    all.freeze()
}

fn batch_of(batches: Bytes, base: u64) -> Body {
    Body::Batch { stream: StreamId(1), base, batches, hw: 0, start: 0 }
}

#[test]
fn numbers_are_taken_up_to_their_bounds_and_no_further() {
    let ack = |leo, applied| Body::Ack { stream: StreamId(1), leo, applied };
    assert_eq!(refused(ack(OFFSET_MAX, OFFSET_MAX)), None);
    assert_eq!(refused(ack(OFFSET_MAX + 1, 0)), Some("offsets are at most 2^62"));
    assert_eq!(refused(ack(0, u64::MAX)), Some("offsets are at most 2^62"));
    assert_eq!(refused(Body::Confirm { round: COUNTER_MAX }), None);
    assert!(refused(Body::Confirm { round: COUNTER_MAX + 1 }).is_some());
    assert!(refused(Body::PromiseRequest { ballot: u64::MAX }).is_some());
    assert_eq!(refused(Body::Refused { promised: Epoch::MAX }), None);
    assert_eq!(refused(Body::Refused { promised: Epoch(Epoch::MAX.0 + 1) }), Some("epochs are at most 2^30"));
    assert_eq!(check(&envelope(Some(Epoch::MAX.0), Body::WhoLeads)), Ok(()));
    assert!(check(&envelope(Some(Epoch::MAX.0 + 1), Body::WhoLeads)).is_err());
    let mut started = envelope(None, Body::WhoLeads);
    started.sender.incarnation.starts = STARTS_MAX;
    assert_eq!(check(&started), Ok(()));
    started.sender.incarnation.starts += 1;
    assert!(check(&started).is_err());
}

#[test]
fn what_belongs_to_an_epoch_names_one() {
    for body in [Body::PromiseRequest { ballot: 1 }, lead(|_| {}), Body::ReadIndex { id: 1 }] {
        assert_eq!(refused(body.clone()), None);
        assert!(check(&envelope(None, body)).is_err());
    }
    assert_eq!(check(&envelope(None, Body::Vote { granted: false, pre: true })), Ok(()));
    assert!(check(&envelope(None, Body::Vote { granted: true, pre: true })).is_err());
}

#[test]
fn logs_are_stated_as_logs_can_be() {
    let open = |end, last: Option<u32>| Body::Open { stream: StreamId(1), end, last_epoch: last.map(Epoch) };
    assert_eq!(refused(open(0, None)), None);
    assert_eq!(refused(open(5, Some(4))), None);
    assert!(refused(open(0, Some(1))).is_some());
    assert!(refused(open(5, None)).is_some());
    assert!(refused(open(5, Some(5))).is_some(), "of an epoch that was not entered");
    let stand = |last| Body::Stand { rank: Rank { last_epoch: Some(Epoch(last)), leo: 1 }, pre: false };
    assert_eq!(refused(stand(3)), None);
    assert_eq!(refused(stand(4)), Some("an epoch that begins has no entries"));
    let part = |epoch: Option<u32>, stop| Body::Diverge {
        stream: StreamId(1),
        end: 5,
        last_epoch: Some(Epoch(3)),
        epoch: epoch.map(Epoch),
        stop,
    };
    assert_eq!(refused(part(Some(3), 4)), None);
    assert_eq!(refused(part(None, 0)), None);
    assert!(
        refused(part(Some(4), 4)).is_some() && refused(part(None, 1)).is_some() && refused(part(Some(1), 0)).is_some()
    );
}

#[test]
fn a_record_makes_sense() {
    assert_eq!(refused(lead(|_| {})), None);
    assert!(refused(lead(|lead| lead.replicas.swap(0, 1))).is_some());
    assert!(refused(lead(|lead| lead.set.members.push(peer(3)))).is_some(), "named twice");
    assert!(refused(lead(|lead| lead.set.members.push(peer(4)))).is_some(), "a stranger");
    assert!(refused(lead(|lead| lead.set.members.clear())).is_some());
    assert!(refused(lead(|lead| lead.leader = peer(4))).is_some());
    assert!(refused(lead(|lead| lead.lossy = Some(Epoch(5)))).is_some());
    assert!(refused(lead(|lead| lead.set.rule = CommitRule::Isr { min: 0 })).is_some());
    assert!(refused(lead(|lead| lead.set.rule = CommitRule::Isr { min: 4 })).is_some());
    assert_eq!(refused(lead(|lead| lead.set.rule = CommitRule::Quorum { q: 3 })), None);
    let smaller = lead(|lead| {
        lead.set.rule = CommitRule::Quorum { q: 1 };
        lead.set.members.pop();
    });
    assert_eq!(refused(smaller), Some("under quorum all replicas are members"));
    let many = |count: u32| Body::ChangeSet { version: Version(1), members: (0..count).map(peer).collect() };
    assert_eq!(refused(many(PEERS_MAX as u32)), None);
    assert!(refused(many(PEERS_MAX as u32 + 1)).is_some());
}

#[test]
fn batches_follow_each_other() {
    assert_eq!(refused(batch_of(Bytes::new(), 7)), None);
    assert_eq!(refused(batch_of(batches(&[2, 2, 4], 7), 7)), None);
    assert!(refused(batch_of(batches(&[2, 2, 4], 7), 8)).is_some(), "another base");
    assert!(refused(batch_of(batches(&[3, 2], 7), 7)).is_some(), "epochs fall");
    assert!(refused(batch_of(batches(&[5], 7), 7)).is_some(), "a later epoch than the message's");
    assert!(refused(batch_of(batches(&[2], 7).slice(1..), 7)).is_some());
    assert!(refused(batch_of(batches(&[2], OFFSET_MAX), OFFSET_MAX)).is_some(), "its end is beyond the last offset");
}

#[test]
fn registrations_and_their_refusals_make_sense() {
    let register = |count: usize, address: &str| Body::Register {
        incarnations: vec![STARTED; count],
        address: address.to_owned(),
    };
    assert_eq!(refused(register(INCARNATIONS_MAX, &"a".repeat(ADDRESS_BYTES_MAX))), None);
    assert!(refused(register(INCARNATIONS_MAX + 1, "a")).is_some());
    assert!(refused(register(1, &"a".repeat(ADDRESS_BYTES_MAX + 1))).is_some());
    assert!(refused(register(1, "a\nb")).is_some());
    assert!(refused(register(0, "a")).is_some());
    let later = Incarnation { starts: 4, random: 7 };
    let falling = Body::Register { incarnations: vec![later, STARTED], address: String::new() };
    assert!(refused(falling).is_some());
    let anothers = Body::Register { incarnations: vec![STARTED, later], address: String::new() };
    assert!(refused(anothers).is_some());
    assert_eq!(refused(Body::OlderCopy { refused: STARTED, newest: later }), None);
    assert!(refused(Body::OlderCopy { refused: later, newest: STARTED }).is_some());
    assert!(refused(Body::OlderCopy { refused: later, newest: later }).is_some());
}

#[test]
fn a_refusal_says_what_was_wanted_and_found() {
    let refusal = check(&envelope(Some(4), Body::Confirm { round: u64::MAX })).expect_err("too great");
    assert!(refusal.to_string().ends_with("are at most 2^63; found 18446744073709551615"), "{refusal}");
    let refusal = check(&envelope(None, Body::ReadIndex { id: 1 })).expect_err("no epoch");
    assert_eq!(refusal.found, "None");
}
