//! Each row of the table: it is rejected, changes nothing, and what lies just within is taken.

use highwater_wire::check::{EPOCH_JUMP_MAX, STARTS_JUMP_MAX};
use highwater_wire::{
    Body, CommitRule, Envelope, Epoch, Incarnation, NodeId, PartitionId, Rank, Sender, Set, StreamId, Version,
};

use crate::bench::{Bench, peer, stream_of};
use crate::{Input, Role, Timeout};

/// Replica 0 leads epoch 1 with one entry, which both hold.
fn pair() -> Bench {
    let mut bench = Bench::appointed(2, CommitRule::Quorum { q: 2 });
    bench.appoint(0, 1, &[0, 1]);
    bench.settle();
    assert_eq!((bench.ends(), bench.hws()), (vec![1, 1], vec![1, 1]));
    bench
}

/// Whether this is rejected. If so it must have changed nothing, the stream of a follower aside.
fn rejects(bench: &mut Bench, to: usize, from: usize, epoch: u32, body: Body) -> bool {
    bench.rejected.clear();
    let before = (bench.ends(), bench.hws(), bench.replicas[to].role(), bench.replicas[to].promised());
    bench.receive(to, from, epoch, body);
    let rejected = !bench.rejected.is_empty();
    if rejected {
        let after = (bench.ends(), bench.hws(), bench.replicas[to].role(), bench.replicas[to].promised());
        assert_eq!(before, after);
        assert_eq!(bench.rejected[0].1, NodeId(from as u32));
    }
    rejected
}

#[test]
fn an_acknowledgement_beyond_the_end_is_rejected() {
    let mut bench = pair();
    let ack = |leo| Body::Ack { stream: stream_of(1, 1), leo, applied: 0 };
    assert!(rejects(&mut bench, 0, 1, 1, ack(2)));
    assert!(rejects(&mut bench, 0, 1, 1, ack(u64::MAX)));
    assert!(!rejects(&mut bench, 0, 1, 1, ack(1)));
    let another = Body::Ack { stream: stream_of(1, 9), leo: 2, applied: 0 };
    assert!(!rejects(&mut bench, 0, 1, 1, another), "on another stream it counts for nothing");
    bench.write(0).expect("it goes on");
    bench.settle();
    assert_eq!(bench.hws(), [2, 2]);
}

#[test]
fn epochs_do_not_leap_unless_the_record_names_them() {
    let mut bench = Bench::appointed(2, CommitRule::Quorum { q: 2 });
    let promise = Body::PromiseRequest { ballot: 1 };
    assert!(rejects(&mut bench, 1, 0, EPOCH_JUMP_MAX + 1, promise.clone()));
    assert!(!rejects(&mut bench, 1, 0, EPOCH_JUMP_MAX, promise.clone()));
    let far = 2 * EPOCH_JUMP_MAX + 1;
    assert!(rejects(&mut bench, 1, 0, far, promise.clone()));
    assert!(rejects(&mut bench, 1, 0, EPOCH_JUMP_MAX, Body::Refused { promised: Epoch(far) }));
    bench.replicas[1].recorded(Epoch(far - 1));
    assert!(!rejects(&mut bench, 1, 0, far, promise));
    assert_eq!(bench.replicas[1].promised(), Some(Epoch(far)));
}

#[test]
fn one_message_does_not_exhaust_the_epochs_of_the_self_electing_partition() {
    let mut bench = Bench::electing(3);
    let stand = |pre| Body::Stand { rank: Rank { last_epoch: None, leo: 0 }, pre };
    for pre in [false, true] {
        assert!(rejects(&mut bench, 0, 1, Epoch::MAX.0, stand(pre)));
    }
    assert!(rejects(&mut bench, 0, 1, 0, Body::Refused { promised: Epoch::MAX }));
    assert!(rejects(&mut bench, 0, 1, 7, Body::Vote { granted: true, pre: false }), "nobody stood for it");
    bench.step(0, Input::Timeout(Timeout::Election));
    bench.settle();
    assert_eq!(bench.replicas[0].role(), Role::Leader { epoch: Epoch(0), epoch_start: 0 });
}

#[test]
fn with_epochs_exhausted_nobody_stands_and_nobody_stops() {
    let mut bench = Bench::electing(3);
    bench.replicas[0].hard.promised = Some(Epoch::MAX);
    bench.step(0, Input::Timeout(Timeout::Election));
    assert_eq!((bench.replicas[0].role(), bench.wire.len()), (Role::Idle, 0));
}

#[test]
fn start_counters_do_not_leap() {
    let mut bench = Bench::electing(3);
    let mut hear = |starts, random| {
        bench.rejected.clear();
        let sender = Sender { peer: peer(1), incarnation: Incarnation { starts, random } };
        let envelope = Envelope { partition: PartitionId(1), sender, epoch: None, body: Body::WhoLeads };
        bench.step(0, Input::Message(envelope));
        bench.rejected.len()
    };
    assert_eq!(hear(5, 1), 0);
    assert_eq!(hear(5 + STARTS_JUMP_MAX + 1, 2), 1);
    assert_eq!(hear(6, 3), 0, "the true one is still heard");
    assert_eq!(hear(6 + STARTS_JUMP_MAX, 4), 0);
}

#[test]
fn a_second_leader_of_an_epoch_is_rejected_by_whoever_leads_or_follows() {
    let mut bench = Bench::appointed(3, CommitRule::Quorum { q: 2 });
    bench.appoint(0, 1, &[0, 2]);
    let other = Body::Lead(bench.lead(1));
    assert!(rejects(&mut bench, 2, 1, 1, other.clone()));
    assert!(rejects(&mut bench, 0, 1, 1, other));
    let own = Body::Lead(bench.lead(2));
    assert!(rejects(&mut bench, 2, 1, 1, own), "whoever follows is not appointed");
    let true_one = Body::Lead(bench.lead(0));
    assert!(!rejects(&mut bench, 2, 1, 1, true_one));
}

#[test]
fn an_appointment_to_an_epoch_that_has_entries_is_rejected() {
    let mut bench = pair();
    bench.restart(1);
    let lead = bench.lead(1);
    assert!(rejects(&mut bench, 1, 0, 1, Body::Lead(lead.clone())));
    assert!(rejects(&mut bench, 1, 0, 2, Body::Lead(lead)), "nor to one that was not promised");
}

#[test]
fn the_record_changes_neither_the_replicas_nor_the_rule_of_its_leader() {
    let mut bench = Bench::appointed(3, CommitRule::Isr { min: 2 });
    bench.appoint(0, 1, &[0, 1, 2]);
    bench.settle();
    let told = bench.lead(0);
    for rule in [CommitRule::Isr { min: 1 }, CommitRule::Quorum { q: 1 }] {
        let mut lead = told.clone();
        (lead.version, lead.set) = (Version(2), Set { rule, members: lead.replicas.clone() });
        assert!(rejects(&mut bench, 0, 1, 1, Body::Lead(lead)));
    }
    let mut lead = told.clone();
    lead.replicas.pop();
    lead.set.members.pop();
    assert!(rejects(&mut bench, 0, 1, 1, Body::Lead(lead)));
    let mut lead = told;
    lead.version = Version(2);
    lead.set.members.pop();
    assert!(!rejects(&mut bench, 0, 1, 1, Body::Lead(lead)));
}

#[test]
fn nobody_else_has_entries_of_a_leaders_epoch() {
    let mut bench = pair();
    bench.write(0).expect("both are in reach");
    bench.settle();
    let mut number = 10;
    let mut open = |bench: &mut Bench, end, last| {
        number += 1;
        rejects(bench, 0, 1, 1, Body::Open { stream: StreamId(number << 40), end, last_epoch: Some(Epoch(last)) })
    };
    assert!(open(&mut bench, 3, 1), "it would be told to cut, and asked again it would be accepted");
    assert!(open(&mut bench, 2, 2));
    assert!(!open(&mut bench, 2, 1));
    assert!(!open(&mut bench, 9, 0), "a log that parted");
}

#[test]
fn an_answer_that_would_undo_what_is_committed_ends_the_stream_and_the_replica_goes_on() {
    let mut bench = pair();
    bench.write(0).expect("both are in reach");
    bench.settle();
    assert_eq!(bench.hws(), [2, 2]);
    for (epoch, stop) in [(Some(Epoch(1)), 1), (None, 0), (Some(Epoch(0)), 1), (Some(Epoch(1)), 2)] {
        bench.step(1, Input::Timeout(Timeout::Silent));
        let Some(Body::Open { stream, end, last_epoch }) = bench.wire.pop_back().map(|(_, envelope)| envelope.body)
        else {
            panic!("a follower asks")
        };
        bench.wire.clear();
        let body = Body::Diverge { stream, end, last_epoch, epoch, stop };
        assert!(rejects(&mut bench, 1, 0, 1, body.clone()), "{epoch:?} {stop}");
        assert!(!rejects(&mut bench, 1, 0, 1, body), "the question is not out any more");
        bench.step(1, Input::Timeout(Timeout::Heartbeat));
        bench.settle();
        assert!(bench.replicas[1].stream_is_live());
    }
}

#[test]
fn entries_that_do_not_follow_are_rejected_with_their_sender() {
    let mut bench = pair();
    bench.write(0).expect("both are in reach");
    let Some((_, envelope)) = bench.wire.pop_front() else { panic!("it is shipped") };
    let Body::Batch { stream, base, batches, hw, start } = envelope.body else { panic!("as a batch") };
    let mut damaged = batches.to_vec();
    *damaged.last_mut().expect("it has bytes") ^= 1;
    let body = Body::Batch { stream, base, batches: damaged.into(), hw: hw + 1, start };
    assert!(rejects(&mut bench, 1, 0, 1, body));
    assert!(!bench.replicas[1].stream_is_live());
}

#[test]
fn questions_of_one_follower_do_not_pile_up() {
    let mut bench = Bench::appointed(3, CommitRule::Quorum { q: 2 });
    bench.appoint(0, 1, &[0, 1, 2]);
    for id in 1..1000 {
        bench.receive(0, 1, 1, Body::ReadIndex { id });
    }
    let waiting = |bench: &Bench| bench.replicas[0].part.leading().map(|leading| leading.waiting.len());
    assert_eq!(waiting(&bench), Some(1));
    bench.wire.clear();
    bench.flush(0);
    bench.wire.clear();
    bench.step(1, Input::Timeout(Timeout::Heartbeat));
    bench.settle();
    assert_eq!(waiting(&bench), Some(0));
}

#[test]
fn a_stranger_does_not_depose_a_self_elected_leader() {
    let mut bench = Bench::electing(3);
    bench.step(0, Input::Timeout(Timeout::Election));
    bench.settle();
    let sender = Sender { peer: peer(7), incarnation: Incarnation { starts: 1, random: 1 } };
    let body = Body::Refused { promised: Epoch(5) };
    bench.step(0, Input::Message(Envelope { partition: PartitionId(1), sender, epoch: Some(Epoch(5)), body }));
    assert_eq!(bench.replicas[0].role(), Role::Leader { epoch: Epoch(0), epoch_start: 0 });
}
