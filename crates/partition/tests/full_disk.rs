//! A disk that is full in the middle of a step: nothing halts, nothing is said that is not durable, and all goes on once there is room.
#![allow(missing_docs)]

mod bench;

use std::rc::Rc;

use bench::*;
use highwater_partition::{AckPolicy, Input, Outcome, Reign, Ticket};
use highwater_wire::{Body, Epoch, Offset, Position};

fn at(epoch: u32, offset: Offset) -> Position {
    Position { partition: PARTITION, epoch: Some(Epoch(epoch)), offset }
}

fn hold(ticket: u64, reign: Reign, until: Offset) -> Input {
    Input::Hold { ticket: Ticket(ticket), reign, until, wrote: true, ack: AckPolicy::Committed }
}

fn promises(bench: &Bench) -> usize {
    bench.sent.iter().filter(|envelope| matches!(envelope.body, Body::Promise { .. })).count()
}

#[test]
fn a_promise_waits_for_room_and_is_given_once_there_is() {
    let mut bench = Bench::new();
    let no_block = Rc::clone(&bench.partition.log().no_block);
    *no_block.borrow_mut() = true;
    bench.step(message(9, 3, Body::PromiseRequest { ballot: 1 }));
    assert_eq!(bench.disk_full.as_deref(), Some("no space left for a promise"));
    for _ in 0..3 {
        bench.now += 10;
        bench.step(Input::Tick);
    }
    bench.step(Input::Read { ticket: Ticket(1) });
    assert!(matches!(bench.answer(1), Some(Outcome::Full(_))), "who asks is told why");
    assert_eq!((promises(&bench), &bench.halted), (0, &None), "nothing is said that is not durable, and nothing halts");
    *no_block.borrow_mut() = false;
    bench.step(Input::Tick);
    assert_eq!((promises(&bench), &bench.disk_full), (1, &None));
}

#[test]
fn a_leader_that_cannot_promise_leads_no_more_and_says_nothing_of_it_to_others() {
    let mut bench = Bench::new();
    let (reign, end) = bench.appoint(1, &quorum(2, &[1, 2, 3]));
    bench.open_stream(2, 1, 0, None);
    bench.propose(reign, end, &["a"]);
    bench.step(hold(7, reign, end + 1));
    let no_block = Rc::clone(&bench.partition.log().no_block);
    *no_block.borrow_mut() = true;
    bench.sent.clear();
    bench.step(message(9, 2, Body::PromiseRequest { ballot: 1 }));
    assert!(bench.disk_full.is_some());
    assert_eq!(bench.answer(7), Some(Outcome::Unknown(at(1, end + 1))), "the next leader decides about it");
    bench.propose(reign, end + 1, &["b"]);
    bench.step(hold(8, reign, end + 2));
    assert!(matches!(bench.answer(8), Some(Outcome::Refused(_))), "what comes now had no effect");
    bench.flush();
    bench.ack(2, 1, end + 1);
    assert!(bench.sent.is_empty(), "neither as leader nor otherwise: {:?}", bench.sent);
    bench.run_machine();
    *no_block.borrow_mut() = false;
    bench.step(Input::Tick);
    assert_eq!((promises(&bench), &bench.halted, &bench.disk_full), (1, &None, &None));
}

#[test]
fn a_cut_waits_for_room_and_nothing_is_appended_before_it() {
    let mut bench = Bench::new();
    bench.step(message(9, 1, lead(2, &quorum(2, &[1, 2, 3]), 1)));
    let stream = accept(&mut bench, 1);
    bench.step(message(2, 1, Body::Batch { stream, base: 0, batches: entries(0, 1, &["a", "b"]), hw: 0, start: 0 }));
    bench.flush();
    bench.step(message(9, 2, lead(3, &quorum(2, &[1, 2, 3]), 2)));
    let (stream, end, last_epoch) = opened(&bench);
    let no_block = Rc::clone(&bench.partition.log().no_block);
    *no_block.borrow_mut() = true;
    bench.sent.clear();
    bench.step(message(3, 2, Body::Diverge { stream, end, last_epoch, epoch: None, stop: 0 }));
    assert!(bench.disk_full.is_some() && bench.sent.is_empty(), "the next question waits for the cut");
    assert_eq!(bench.partition.log().lost, [0; 0], "nothing is given up yet");
    *no_block.borrow_mut() = false;
    bench.step(Input::Tick);
    assert_eq!(bench.partition.log().lost, [0, 1]);
    assert_eq!(opened(&bench).1, 0, "and asks anew from where it cut");
    assert_eq!((&bench.disk_full, &bench.halted), (&None, &None));
}

fn opened(bench: &Bench) -> (highwater_wire::StreamId, Offset, Option<Epoch>) {
    let open = bench.sent.iter().rev().find_map(|envelope| match envelope.body {
        Body::Open { stream, end, last_epoch } => Some((stream, end, last_epoch)),
        _ => None,
    });
    open.expect("a follower opens a stream")
}

fn accept(bench: &mut Bench, epoch: u32) -> highwater_wire::StreamId {
    let (stream, end, last_epoch) = opened(bench);
    bench.step(message(2, epoch, Body::Accept { stream, end, last_epoch, hw: 0, start: 0 }));
    stream
}

#[test]
fn a_flush_that_ends_before_a_cut_that_waits_counts_only_after_it() {
    let mut bench = Bench::new();
    bench.step(message(9, 1, lead(2, &quorum(2, &[1, 2, 3]), 1)));
    let stream = accept(&mut bench, 1);
    bench.step(message(2, 1, Body::Batch { stream, base: 0, batches: entries(0, 1, &["a", "b"]), hw: 0, start: 0 }));
    let running = bench.flush.take().expect("a flush is under way");
    bench.step(message(9, 2, lead(3, &quorum(2, &[1, 2, 3]), 2)));
    let (stream, end, last_epoch) = opened(&bench);
    let no_block = Rc::clone(&bench.partition.log().no_block);
    *no_block.borrow_mut() = true;
    bench.step(message(3, 2, Body::Diverge { stream, end, last_epoch, epoch: None, stop: 0 }));
    bench.step(Input::FlushDone(running));
    assert_eq!(bench.partition.status(0).end, 2, "the log is not cut yet");
    *no_block.borrow_mut() = false;
    bench.step(Input::Tick);
    assert_eq!((bench.partition.status(0).end, bench.partition.status(0).leo, &bench.halted), (0, 0, &None));
}

#[test]
fn a_leader_whose_first_entry_waits_is_not_told_to_lead_before_it() {
    let mut bench = Bench::new();
    let no_block = Rc::clone(&bench.partition.log().no_block);
    bench.step(message(9, 1, Body::PromiseRequest { ballot: 1 }));
    *no_block.borrow_mut() = true;
    bench.step(message(9, 1, lead(1, &quorum(1, &[1]), 1)));
    assert!(bench.disk_full.is_some(), "there is no room for the control entry");
    assert_eq!(bench.run_machine(), None, "the log does not end where the machine would begin");
    *no_block.borrow_mut() = false;
    bench.step(Input::Tick);
    bench.flush();
    let (_, end) = bench.run_machine().expect("now it leads");
    assert_eq!((end, bench.partition.status(0).published, &bench.halted), (1, 1, &None));
}
