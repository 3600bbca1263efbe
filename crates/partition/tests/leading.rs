//! A leader's partition: nothing is answered or shown before its time, and what is lost is told as what it is.
#![allow(missing_docs)]

mod bench;

use bench::*;
use highwater_partition::{AckPolicy, Command, Input, Outcome, Reign, Ticket};
use highwater_replica::{ProposeError, ReadError};
use highwater_wire::{Body, Epoch, NodeId, Position};

fn hold(ticket: u64, reign: Reign, until: u64, wrote: bool) -> Input {
    Input::Hold { ticket: Ticket(ticket), reign, until, wrote, ack: AckPolicy::Committed }
}

fn at(epoch: u32, offset: u64) -> Position {
    Position { partition: PARTITION, epoch: Some(Epoch(epoch)), offset }
}

#[test]
fn a_write_is_answered_after_its_flush_and_after_readers_can_see_it() {
    let mut bench = Bench::new();
    let (reign, end) = bench.appoint(1, &quorum(1, &[1]));
    assert_eq!(end, 1, "the epoch begins with its control entry");
    bench.order.clear();
    bench.propose(reign, 1, &["a", "b"]);
    bench.step(hold(7, reign, 3, true));
    assert!(bench.answers.is_empty(), "nothing is durable yet");
    bench.flush();
    assert_eq!(bench.answer(7), Some(Outcome::Done(at(1, 3))));
    assert_eq!(bench.order, ["publish 3", "answer 7"]);
}

#[test]
fn a_write_waits_for_the_second_copy_and_ack_leader_does_not() {
    let mut bench = Bench::new();
    let (reign, _) = bench.appoint(1, &quorum(2, &[1, 2]));
    bench.open_stream(2, 1, 0, None);
    bench.propose(reign, 1, &["a"]);
    bench.step(hold(7, reign, 2, true));
    bench.step(Input::Hold { ticket: Ticket(8), reign, until: 2, wrote: true, ack: AckPolicy::Leader });
    assert!(bench.answers.is_empty());
    bench.flush();
    assert_eq!(bench.answer(8), Some(Outcome::Done(at(1, 2))), "durable on the leader");
    assert_eq!(bench.answer(7), None, "one copy of two");
    assert_eq!(bench.partition.status(0).published, 0);
    bench.ack(2, 1, 2);
    assert_eq!(bench.answer(7), Some(Outcome::Done(at(1, 2))));
    assert_eq!(bench.partition.status(0).published, 2);
}

#[test]
fn a_refused_proposal_rewinds_the_machine_and_ends_the_reign() {
    let mut bench = Bench::new();
    let (reign, _) = bench.appoint(1, &quorum(2, &[1, 2]));
    // Time passes for the leader too, so that the silence is the follower's.
    while bench.now <= 300 {
        bench.now += 50;
        bench.step(Input::Tick);
    }
    bench.propose(reign, 1, &["a"]);
    bench.propose(reign, 2, &["b"]);
    assert_eq!(bench.take_commands(), [Command::Rewind { to: 1 }]);
    bench.step(hold(7, reign, 2, true));
    bench.step(hold(8, reign, 3, true));
    bench.step(hold(9, reign, 3, false));
    bench.step(hold(10, reign, 1, false));
    let refused =
        |outcome| matches!(outcome, Some(Outcome::Refused(ProposeError::TooFewInReach { needed: 2, in_reach: 1 })));
    assert!(refused(bench.answer(7)));
    assert!(refused(bench.answer(8)), "what was executed on a refused proposal falls with it");
    assert_eq!(bench.answer(9), Some(Outcome::Lost(ReadError::LeadershipLost)));
    assert_eq!(bench.answer(10), None, "what lies before the refusal still waits");

    // The machine comes back at the log's end, and what is proposed now lands where the refused ones would have.
    bench.step(Input::Rewound(0));
    let (second, end) = bench.run_machine().expect("the machine leads again in the same epoch");
    assert_eq!((second.epoch, end), (reign.epoch, 1));
    assert_ne!(second, reign);
    bench.open_stream(2, 1, 0, None);
    bench.propose(second, 1, &["c"]);
    bench.propose(reign, 2, &["late"]);
    bench.step(hold(11, reign, 2, true));
    assert!(refused(bench.answer(11)), "another reign's entries at the same offsets are not this one's");
    bench.flush();
    bench.ack(2, 1, 2);
    bench.step(hold(12, second, 2, true));
    assert_eq!(bench.answer(12), Some(Outcome::Done(at(1, 2))));
    bench.confirm(2, 1);
    assert_eq!(bench.answer(10), Some(Outcome::Done(at(1, 1))));
    assert_eq!(bench.partition.status(0).end, 2);
}

#[test]
fn leadership_lost_during_a_rewind_to_the_logs_end_makes_the_machine_go_back_further() {
    let mut bench = Bench::new();
    let (reign, _) = bench.appoint(1, &quorum(2, &[1, 2]));
    bench.open_stream(2, 1, 0, None);
    bench.ack(2, 1, 1);
    bench.propose(reign, 1, &["a"]);
    bench.step(Input::Disconnected(NodeId(2)));
    bench.take_commands();
    bench.propose(reign, 2, &["b"]);
    assert_eq!(bench.take_commands(), [Command::Rewind { to: 2 }]);
    bench.step(message(9, 2, Body::PromiseRequest { ballot: 2 }));
    assert_eq!(bench.take_commands(), [], "one rewind at a time");
    bench.step(Input::Rewound(2));
    assert_eq!(bench.take_commands(), [Command::Rewind { to: 1 }], "a may be cut now");
    bench.step(Input::Rewound(1));
    assert_eq!(bench.take_commands(), [Command::Publish { hw: 1 }], "readers are not kept waiting for what was cut");
    assert_eq!(bench.halted, None);
}

#[test]
fn an_answer_that_only_looked_waits_for_a_confirmation_asked_after_it() {
    let mut bench = Bench::new();
    let (reign, _) = bench.appoint(1, &quorum(2, &[1, 2]));
    bench.open_stream(2, 1, 0, None);
    bench.ack(2, 1, 1);
    bench.confirm(2, 1);
    bench.step(hold(7, reign, 1, false));
    assert_eq!(bench.partition.status(0).hw, 1);
    assert_eq!(bench.answer(7), None, "another may lead and have gone on, though HW has passed what was seen");
    bench.confirm(2, 1);
    assert_eq!(bench.answer(7), Some(Outcome::Done(at(1, 1))));
    bench.step(hold(8, reign, 1, false));
    bench.step(message(9, 2, Body::PromiseRequest { ballot: 2 }));
    assert_eq!(bench.answer(8), Some(Outcome::Lost(ReadError::LeadershipLost)));
}

#[test]
fn a_deposed_leader_says_unknown_and_rewinds_to_hw() {
    let mut bench = Bench::new();
    let (reign, _) = bench.appoint(1, &quorum(2, &[1, 2]));
    bench.open_stream(2, 1, 0, None);
    bench.propose(reign, 1, &["a"]);
    bench.flush();
    bench.ack(2, 1, 2);
    bench.propose(reign, 2, &["b"]);
    bench.step(hold(7, reign, 3, true));
    bench.step(hold(8, reign, 3, false));
    bench.take_commands();
    bench.step(message(9, 2, Body::PromiseRequest { ballot: 2 }));
    assert_eq!(bench.take_commands(), [Command::Rewind { to: 2 }]);
    assert_eq!(bench.answer(7), Some(Outcome::Unknown(at(1, 3))));
    assert_eq!(bench.answer(8), Some(Outcome::Lost(ReadError::LeadershipLost)));
    bench.propose(reign, 3, &["c"]);
    bench.step(hold(9, reign, 4, true));
    assert!(
        matches!(bench.answer(9), Some(Outcome::Refused(ProposeError::NotLeader { .. }))),
        "never appended: failed"
    );
    bench.step(hold(10, reign, 2, true));
    assert_eq!(bench.answer(10), Some(Outcome::Done(at(1, 2))), "committed under its own epoch");
    bench.flush();
    assert_eq!(bench.partition.status(0).published, 0, "nothing is shown while the rewind runs");
    bench.step(Input::Rewound(2));
    assert_eq!(bench.partition.status(0).published, 2);
}

#[test]
fn a_full_disk_refuses_the_write_and_service_returns() {
    let mut bench = Bench::new();
    let (reign, _) = bench.appoint(1, &quorum(1, &[1]));
    let mut log = bench.partition.into_log();
    log.full = true;
    let mut bench = Bench::recovered(log);
    bench.step(Input::Rewound(0));
    let (again, _) = {
        // The control entry fits: room for it is kept ahead.
        bench.appoint(2, &quorum(1, &[1]))
    };
    assert!(again.epoch > reign.epoch);
    let end = bench.partition.status(0).end;
    bench.propose(again, end, &["a"]);
    bench.step(hold(7, again, end + 1, true));
    assert_eq!(bench.answer(7), Some(Outcome::Full("no space left".into())));
    bench.run_machine().expect("the machine leads again");
    bench.step(Input::Read { ticket: Ticket(8) });
    assert!(matches!(bench.answer(8), Some(Outcome::Done(_))), "reads go on");
    assert_eq!(bench.halted, None);
}

#[test]
fn a_failed_flush_halts_and_answers_everybody() {
    let mut bench = Bench::new();
    let (reign, _) = bench.appoint(1, &quorum(1, &[1]));
    bench.propose(reign, 1, &["a"]);
    bench.step(hold(7, reign, 2, true));
    bench.step(Input::AtLeast { ticket: Ticket(8), epoch: Some(Epoch(1)), until: 9 });
    let mut done = bench.flush.take().unwrap();
    done.result = Err(highwater_log::LogError::Poisoned("fdatasync: EIO".into()));
    bench.step(Input::FlushDone(done));
    assert!(bench.halted.as_deref().is_some_and(|reason| reason.contains("EIO")));
    assert!(matches!(bench.answer(7), Some(Outcome::Halted(_))));
    assert!(matches!(bench.answer(8), Some(Outcome::Halted(_))));
    bench.step(Input::Read { ticket: Ticket(9) });
    assert!(matches!(bench.answer(9), Some(Outcome::Halted(_))), "and whoever comes later");
    assert_eq!(bench.partition.status(0).leo, 1, "nothing counts as durable");
}
