//! A follower's partition: its machine gets only what is committed, and readers never go back.
#![allow(missing_docs)]

mod bench;

use bench::*;
use highwater_log::LogStore;
use highwater_partition::{Command, Input, Outcome, Ticket};
use highwater_wire::{Body, Epoch, Offset, StreamId};

/// Follows node 2 in `epoch`: takes the stream that its Open asked for.
fn follow(bench: &mut Bench, epoch: u32, hw: Offset) -> StreamId {
    bench.sent.clear();
    bench.step(message(9, epoch, lead(2, &quorum(2, &[1, 2, 3]), u64::from(epoch))));
    accept(bench, epoch, hw)
}

fn accept(bench: &mut Bench, epoch: u32, hw: Offset) -> StreamId {
    let (stream, end, last_epoch) = bench
        .sent
        .iter()
        .rev()
        .find_map(|envelope| match envelope.body {
            Body::Open { stream, end, last_epoch } => Some((stream, end, last_epoch)),
            _ => None,
        })
        .expect("a follower opens a stream");
    bench.step(message(2, epoch, Body::Accept { stream, end, last_epoch, hw, start: 0 }));
    stream
}

fn batch(stream: StreamId, base: Offset, epoch: u32, values: &[&str], hw: Offset) -> Body {
    Body::Batch { stream, base, batches: entries(base, epoch, values), hw, start: 0 }
}

#[test]
fn the_machine_gets_only_what_is_committed() {
    let mut bench = Bench::new();
    let stream = follow(&mut bench, 1, 0);
    bench.step(message(2, 1, batch(stream, 0, 1, &["a", "b"], 0)));
    bench.flush();
    assert_eq!(bench.take_commands(), [Command::Publish { hw: 0 }], "from an empty machine's first answer");
    bench.step(message(2, 1, Body::Batch { stream, base: 2, batches: Default::default(), hw: 2, start: 0 }));
    let commands = bench.take_commands();
    assert!(matches!(commands[..], [Command::Apply { from: 0, to: 2, committed: true, .. }]), "{commands:?}");
    assert_eq!(bench.partition.status(0).published, 0, "not before it is applied");
    bench.step(Input::Applied(2));
    assert_eq!(bench.take_commands(), [Command::Publish { hw: 2 }]);
}

#[test]
fn hw_does_not_run_ahead_of_the_followers_own_flush() {
    let mut bench = Bench::new();
    let stream = follow(&mut bench, 1, 0);
    bench.step(message(2, 1, batch(stream, 0, 1, &["a"], 1)));
    assert_eq!(bench.partition.status(0).hw, 0);
    bench.flush();
    assert_eq!(bench.partition.status(0).hw, 1);
}

#[test]
fn a_restarted_machine_shows_nothing_before_hw_has_reached_it() {
    let mut log = VecLog::default();
    log.append(&entries(0, 1, &["a", "b"])).unwrap();
    let job = log.begin_flush().unwrap();
    log.finish_flush(job).unwrap();
    let mut bench = Bench::recovered(log);
    bench.step(Input::Rewound(2));
    bench.step(Input::AtLeast { ticket: Ticket(1), epoch: Some(Epoch(1)), until: 2 });
    assert_eq!(bench.take_commands(), []);
    let stream = follow(&mut bench, 2, 1);
    assert_eq!(bench.take_commands(), [], "HW is 1, the machine is at 2");
    bench.step(message(2, 2, Body::Batch { stream, base: 2, batches: Default::default(), hw: 2, start: 0 }));
    assert_eq!(bench.take_commands(), [Command::Publish { hw: 2 }]);
    assert!(matches!(bench.answer(1), Some(Outcome::Done(position)) if position.offset == 2));
}

#[test]
fn readers_see_nothing_before_what_was_committed_when_it_was_first_heard_of_is_applied() {
    let mut bench = Bench::new();
    let stream = follow(&mut bench, 1, 4);
    bench.step(message(2, 1, batch(stream, 0, 1, &["a", "b"], 4)));
    bench.flush();
    bench.run_machine();
    assert_eq!((bench.partition.status(0).hw, bench.partition.status(0).applied), (2, 2));
    assert_eq!(bench.order, [""; 0], "four entries were committed when this process first heard");
    bench.step(message(2, 1, batch(stream, 2, 1, &["c", "d"], 4)));
    bench.flush();
    bench.run_machine();
    assert_eq!(bench.order, ["publish 4"]);
}

#[test]
fn a_truncated_position_is_told_apart_from_one_that_is_not_there_yet() {
    let mut bench = Bench::new();
    let stream = follow(&mut bench, 1, 0);
    bench.step(message(2, 1, batch(stream, 0, 1, &["a"], 0)));
    bench.step(message(2, 1, batch(stream, 1, 1, &["lost"], 0)));
    bench.flush();
    for (ticket, epoch, until) in [(1, 1, 2), (2, 2, 3), (3, 1, 1)] {
        bench.step(Input::AtLeast { ticket: Ticket(ticket), epoch: Some(Epoch(epoch)), until });
    }
    // Node 3 leads epoch 2 without the second entry, and commits one of its own in its place.
    bench.sent.clear();
    bench.step(message(9, 2, lead(2, &quorum(2, &[1, 2, 3]), 2)));
    let (stream, end, last_epoch) = bench
        .sent
        .iter()
        .find_map(|e| match e.body {
            Body::Open { stream, end, last_epoch } => Some((stream, end, last_epoch)),
            _ => None,
        })
        .unwrap();
    assert_eq!((end, last_epoch), (2, Some(Epoch(1))));
    bench.sent.clear();
    bench.step(message(2, 2, Body::Diverge { stream, end, last_epoch, epoch: Some(Epoch(1)), stop: 1 }));
    let stream = accept(&mut bench, 2, 0);
    bench.step(message(2, 2, batch(stream, 1, 2, &["b"], 2)));
    bench.flush();
    bench.run_machine();
    assert_eq!(bench.answer(1), Some(Outcome::Truncated { found: Some(Epoch(2)) }));
    assert_eq!(bench.answer(2), None, "not there yet");
    assert!(matches!(bench.answer(3), Some(Outcome::Done(_))));
    assert_eq!(bench.partition.log().lost, [1]);
}

#[test]
fn a_machine_ahead_of_its_log_halts() {
    let mut bench = Bench::recovered(VecLog::default());
    bench.step(Input::Rewound(5));
    assert!(
        bench.halted.as_deref().is_some_and(|reason| reason.contains("applied up to offset 5, but the log ends at 0"))
    );
}
