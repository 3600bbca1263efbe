//! The search against histories that break it, and against every order tried one by one.

use proptest::prelude::*;

use super::*;

const MAX: usize = 100_000;

fn op(invoke: u64, end: u64, did: Did) -> Op {
    Op { id: invoke, invoke, end: Some(end), did }
}

fn unknown(invoke: u64, did: Did) -> Op {
    Op { id: invoke, invoke, end: None, did }
}

fn impossible(ops: &[Op]) -> String {
    match check(0, ops, MAX) {
        Verdict::Impossible(why) => why,
        other => panic!("{ops:?} is {other:?}"),
    }
}

fn fine(ops: &[Op]) {
    assert_eq!(check(0, ops, MAX), Verdict::Linearizable, "{ops:?}");
}

#[test]
fn a_stale_read_is_refused_and_an_overlapping_one_is_not() {
    let wrote = op(1, 4, Did::Wrote(7));
    fine(&[wrote, op(2, 3, Did::Read(0))]);
    fine(&[wrote, op(2, 3, Did::Read(7))]);
    fine(&[wrote, op(4, 5, Did::Read(0))]);
    let why = impossible(&[wrote, op(5, 6, Did::Read(0))]);
    assert!(why.contains("read 0") && why.contains("held 7"), "{why}");
    impossible(&[wrote, op(2, 3, Did::Read(7)), op(5, 6, Did::Read(0))]);
    impossible(&[op(1, 9, Did::Wrote(7)), op(2, 3, Did::Read(7)), op(4, 5, Did::Read(0))]);
}

#[test]
fn two_swaps_of_one_value_cannot_both_succeed() {
    fine(&[op(1, 5, Did::Swapped(0, 1)), op(2, 6, Did::Refused(0))]);
    fine(&[op(1, 5, Did::Refused(0)), op(2, 6, Did::Swapped(0, 1))]);
    impossible(&[op(1, 5, Did::Swapped(0, 1)), op(2, 6, Did::Swapped(0, 2))]);
    impossible(&[op(1, 2, Did::Refused(0)), op(3, 6, Did::Swapped(0, 2))]);
}

#[test]
fn values_from_nowhere_and_from_the_future_are_refused() {
    assert!(impossible(&[op(1, 2, Did::Read(9))]).contains("nobody wrote"));
    assert!(impossible(&[op(1, 2, Did::Swapped(9, 10))]).contains("nobody wrote"));
    assert!(impossible(&[op(1, 2, Did::Read(9)), op(3, 4, Did::Wrote(9))]).contains("began"));
    assert!(impossible(&[op(1, 2, Did::Read(9)), unknown(3, Did::Wrote(9))]).contains("began"));
}

#[test]
fn an_unknown_write_may_be_done_late_or_never_and_only_once() {
    let lost = unknown(1, Did::Wrote(7));
    fine(&[lost, op(2, 3, Did::Read(0)), op(4, 5, Did::Read(0))]);
    fine(&[lost, op(2, 3, Did::Read(0)), op(4, 5, Did::Read(7))]);
    impossible(&[lost, op(2, 3, Did::Read(7)), op(4, 5, Did::Read(0))]);
    impossible(&[lost, op(2, 3, Did::Read(7)), op(4, 5, Did::Wrote(8)), op(6, 7, Did::Read(7))]);
}

#[test]
fn an_unknown_write_that_nobody_saw_explains_one_refusal() {
    fine(&[unknown(1, Did::Wrote(7)), op(2, 3, Did::Refused(0))]);
    fine(&[unknown(1, Did::Swapped(0, 7)), op(2, 3, Did::Refused(0))]);
    impossible(&[unknown(4, Did::Wrote(7)), op(2, 3, Did::Refused(0))]);
    impossible(&[unknown(1, Did::Swapped(5, 7)), op(2, 3, Did::Refused(0))]);
    let two = [op(2, 3, Did::Refused(0)), op(4, 5, Did::Wrote(1)), op(6, 7, Did::Refused(1))];
    impossible(&[&[unknown(1, Did::Wrote(7))], &two[..]].concat());
    fine(&[&[unknown(1, Did::Wrote(7)), unknown(5, Did::Wrote(8))], &two[..]].concat());
    impossible(&[&[unknown(1, Did::Wrote(7)), unknown(8, Did::Wrote(8))], &two[..]].concat());
    // Once it has explained the refusal, the value that was there is gone.
    impossible(&[unknown(1, Did::Wrote(7)), op(2, 3, Did::Refused(0)), op(4, 5, Did::Read(0))]);
}

#[test]
fn what_an_unknown_swap_replaced_was_there_if_somebody_saw_what_it_wrote() {
    let chain = [unknown(1, Did::Wrote(7)), unknown(2, Did::Swapped(7, 8)), op(5, 6, Did::Read(8))];
    fine(&chain);
    impossible(&[&chain[..], &[op(7, 8, Did::Read(7))]].concat());
    impossible(&[unknown(2, Did::Swapped(7, 8)), op(5, 6, Did::Read(8))]);
}

#[test]
fn a_search_that_is_too_large_says_so() {
    let wide: Vec<Op> = (0..12).map(|at| op(at, 100 + at, Did::Wrote(at + 1))).collect();
    assert!(matches!(check(0, &wide, 50), Verdict::NotDecided(_)));
    fine(&wide);
    let wider: Vec<Op> = (0..65).map(|at| op(at, 100 + at, Did::Wrote(at + 1))).collect();
    assert!(matches!(check(0, &wider, MAX), Verdict::NotDecided(_)));
    let twice = [op(1, 2, Did::Wrote(5)), op(3, 4, Did::Wrote(5))];
    assert!(matches!(check(0, &twice, MAX), Verdict::NotDecided(_)));
}

/// Every order of every subset that holds all certain operations, tried one by one.
fn brute(ops: &[Op]) -> bool {
    fn go(ops: &[Op], done: u32, holds: u64) -> bool {
        let open = || (0..ops.len()).filter(move |at| done & (1 << at) == 0);
        if open().all(|at| ops[at].end.is_none()) {
            return true;
        }
        open().any(|at| {
            // Nothing that ended before this began may come after it.
            if open().any(|other| ops[other].end.is_some_and(|end| end < ops[at].invoke)) {
                return false;
            }
            let after = match ops[at].did {
                Did::Wrote(value) => value,
                Did::Swapped(expected, value) if holds == expected => value,
                Did::Refused(expected) if holds != expected => holds,
                Did::Read(value) if holds == value => holds,
                Did::Swapped(..) | Did::Refused(_) | Did::Read(_) => return false,
            };
            go(ops, done | 1 << at, after)
        })
    }
    go(ops, 0, 0)
}

/// How an operation is made: what kind, how long before and after its point it lasts, whether its outcome is lost, and whether it then happened.
type Made = (u8, u64, u64, u8, bool);

/// A history of a register that works: the operations take effect one after the other, at 10, 20, 30 and so on.
fn simulate(made: &[Made]) -> Vec<Op> {
    let (mut holds, mut before, mut ops) = (0, 0, Vec::new());
    for ((kind, early, late, lost, happens), at) in made.iter().zip(1u64..) {
        let point = at * 10;
        let lost = *lost == 0 && matches!(kind, 0 | 1);
        let happens = *happens || !lost;
        // Half of the swaps expect what was there before.
        let expected = if early % 2 == 0 { holds } else { before };
        let did = match kind {
            0 => Did::Wrote(at),
            1 if holds == expected || lost => Did::Swapped(expected, at),
            1 => Did::Refused(expected),
            _ => Did::Read(holds),
        };
        if happens && (matches!(did, Did::Wrote(_)) || did == Did::Swapped(holds, at)) {
            (before, holds) = (holds, at);
        }
        ops.push(Op { id: at, invoke: point.saturating_sub(*early), end: (!lost).then_some(point + late), did });
    }
    ops
}

fn made(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Made>> {
    prop::collection::vec((0u8..3, 0u64..35, 0u64..35, 0u8..4, any::<bool>()), count)
}

/// The same with one answer changed.
fn mutated(mut ops: Vec<Op>, which: usize, to: u64) -> Vec<Op> {
    let at = which % ops.len();
    let to = to % (ops.len() as u64 + 1);
    ops[at].did = match ops[at].did {
        Did::Read(_) => Did::Read(to),
        Did::Swapped(expected, _) => Did::Refused(expected),
        Did::Refused(expected) => Did::Swapped(expected, ops[at].id),
        Did::Wrote(value) => Did::Wrote(value),
    };
    ops
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_a_working_register_shows_is_accepted(made in made(1..60)) {
        let ops = simulate(&made);
        prop_assert_eq!(check(0, &ops, MAX), Verdict::Linearizable);
    }

    #[test]
    fn small_histories_are_judged_as_by_trying_every_order(made in made(1..8), which in 0usize..8, to in 0u64..9) {
        let ops = mutated(simulate(&made), which, to);
        prop_assert_eq!(check(0, &ops, MAX) == Verdict::Linearizable, brute(&ops), "{:?}", ops);
    }
}

#[test]
fn changed_answers_are_mostly_refused() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut refused, mut changed) = (0, 0);
    for case in 0..500usize {
        let made = made(10..40).new_tree(&mut runner).expect("a tree").current();
        let ops = simulate(&made);
        let other = mutated(ops.clone(), case, case as u64 * 7);
        if other != ops {
            changed += 1;
            refused += usize::from(check(0, &other, MAX) != Verdict::Linearizable);
        }
    }
    assert!(changed > 200 && refused * 2 > changed, "{refused} of {changed} changed histories were refused");
}
