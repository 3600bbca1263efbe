//! What lies within a batch is neither acknowledged, cut at nor shown.
#![allow(missing_docs)]

mod bench;

use bench::*;
use highwater_log::LogStore;
use highwater_partition::{Command, Input, Outcome, Ticket};
use highwater_wire::{Body, NodeId, StreamId};

/// Node 1 leads epoch 1 of three replicas, with a transaction of three entries behind its control entry.
fn leader() -> Bench {
    let mut bench = Bench::new();
    let (reign, _) = bench.appoint(1, &quorum(2, &[1, 2, 3]));
    bench.open_stream(2, 1, 0, None);
    bench.propose(reign, 1, &["a", "b", "c"]);
    bench.step(Input::Hold { ticket: Ticket(1), reign, until: 4, wrote: true, ack: Default::default() });
    bench.flush();
    assert_eq!(bench.partition.log().shape().end, 4);
    bench
}

#[test]
fn half_a_transaction_is_not_acknowledged() {
    let mut bench = leader();
    for leo in [2, 3, 5] {
        bench.step(message(2, 1, Body::Ack { stream: StreamId(1), leo, applied: 0 }));
        assert_eq!(bench.rejected.pop().map(|(node, _)| node), Some(NodeId(2)), "{leo}");
        assert_eq!((bench.partition.status(0).hw, bench.answer(1)), (0, None));
    }
    bench.step(message(2, 1, Body::Ack { stream: StreamId(1), leo: 1, applied: 0 }));
    bench.step(message(2, 1, Body::Ack { stream: StreamId(1), leo: 4, applied: 0 }));
    assert!(matches!(bench.answer(1), Some(Outcome::Done(_))));
    assert_eq!((bench.rejected.len(), bench.halted), (0, None));
}

/// Node 1 follows node 2, and asks to be served from a log of three entries in one batch.
fn follower() -> (Bench, StreamId) {
    let mut bench = Bench::new();
    bench.step(message(9, 1, lead(2, &quorum(2, &[1, 2, 3]), 1)));
    let stream = asked(&mut bench);
    bench.step(message(2, 1, Body::Accept { stream, end: 0, last_epoch: None, hw: 0, start: 0 }));
    let batches = entries(0, 1, &["a", "b", "c"]);
    bench.step(message(2, 1, Body::Batch { stream, base: 0, batches, hw: 0, start: 0 }));
    bench.flush();
    (bench, stream)
}

fn asked(bench: &mut Bench) -> StreamId {
    let stream = bench.sent.iter().rev().find_map(|envelope| match envelope.body {
        Body::Open { stream, .. } => Some(stream),
        _ => None,
    });
    stream.expect("a follower opens a stream")
}

#[test]
fn half_a_transaction_is_not_cut() {
    let (mut bench, _) = follower();
    bench.step(message(9, 2, lead(3, &quorum(2, &[1, 2, 3]), 2)));
    for stop in [1, 2] {
        let stream = asked(&mut bench);
        let epoch = Some(highwater_wire::Epoch(1));
        bench.step(message(3, 2, Body::Diverge { stream, end: 3, last_epoch: epoch, epoch, stop }));
        assert_eq!(bench.rejected.pop().map(|(node, _)| node), Some(NodeId(3)), "{stop}");
        assert_eq!(bench.partition.log().shape().end, 3);
        bench.step(Input::Timeout(highwater_replica::Timeout::Heartbeat));
    }
    let stream = asked(&mut bench);
    let last_epoch = Some(highwater_wire::Epoch(1));
    bench.step(message(3, 2, Body::Diverge { stream, end: 3, last_epoch, epoch: None, stop: 0 }));
    assert_eq!((bench.partition.log().shape().end, bench.halted), (0, None));
}

#[test]
fn with_hw_within_a_transaction_it_waits_for_the_rest() {
    let (mut bench, stream) = follower();
    for hw in [1, 2] {
        bench.step(message(2, 1, Body::Batch { stream, base: 3, batches: Default::default(), hw, start: 0 }));
        bench.run_machine();
        assert_eq!(bench.partition.status(0).applied, 0);
    }
    bench.step(message(2, 1, Body::Batch { stream, base: 3, batches: Default::default(), hw: 3, start: 0 }));
    let commands = bench.take_commands();
    assert!(commands.iter().any(|command| matches!(command, Command::Apply { from: 0, to: 3, .. })), "{commands:?}");
}
