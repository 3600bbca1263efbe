//! Runs seeds, on several threads if told so. Each seed is a world of its own on one thread.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::faults::Fault;
use crate::laws::{Law, step_laws};
use crate::options::Profile;
use crate::plan::{Plan, Reduction, RunOptions};
use crate::report::{Report, SeedReport, Violation};
use crate::world::{Plot, World};

thread_local! {
    /// What the panic of the seed that runs on this thread said, while one runs.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static RUNS: RefCell<bool> = const { RefCell::new(false) };
}

/// How far a run of seeds has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Seeds that are over.
    pub seeds: u64,
    /// Those of them that broke a law.
    pub broken: u64,
}

/// Runs seeds and reports.
///
/// # Panics
/// If there are no jobs to run them.
pub fn run(options: &RunOptions) -> Report {
    run_while(options, &|_| true)
}

/// Runs seeds for as long as `go_on` says so; it is asked before each, on whatever thread runs it. Seeds that have begun are finished.
///
/// # Panics
/// If there are no jobs to run them.
pub fn run_while(options: &RunOptions, go_on: &(dyn Fn(Progress) -> bool + Sync)) -> Report {
    assert!(options.jobs > 0, "seeds run on at least one thread");
    let (next, seeds, broken) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let mut report = Report::default();
        loop {
            let progress = Progress { seeds: seeds.load(Ordering::Relaxed), broken: broken.load(Ordering::Relaxed) };
            if !go_on(progress) {
                return report;
            }
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= options.seeds {
                return report;
            }
            let seed = options.first_seed + index;
            let (profile, reduction) = (options.profile, options.reduction.clone());
            let done = run_seed(&Plan { seed, profile, reduction, text: options.trace });
            seeds.fetch_add(1, Ordering::Relaxed);
            broken.fetch_add(u64::from(done.violation.is_some()), Ordering::Relaxed);
            report.add(done, options.profile == Profile::Mixed && options.reduction.is_nothing(), options.each);
        }
    };
    let mut report = Report::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            match worker.join() {
                Ok(part) => report.merge(part),
                Err(panic) => panic::resume_unwind(panic),
            }
        }
    });
    report
}

/// Runs one seed. An assertion that fails inside a node is a broken law as well.
pub fn run_seed(plan: &Plan) -> SeedReport {
    run_seed_under(plan, step_laws())
}

/// Plays a plot with that seed, under all laws. With `text` the text of everything that happens is kept.
pub fn run_plot(plot: Plot, seed: u64, text: bool) -> SeedReport {
    let reduction = Reduction { without: Fault::ALL.to_vec(), calls: plot.calls(), ..Reduction::default() };
    let plan = Plan { seed, profile: plot.profile(), reduction, text };
    let mut world = World::new(&plan, step_laws());
    world.stage(plot);
    run_world(&plan, world)
}

/// Runs one seed under these laws of a step.
pub(crate) fn run_seed_under(plan: &Plan, laws: Vec<Box<dyn Law>>) -> SeedReport {
    run_world(plan, World::new(plan, laws))
}

fn run_world(plan: &Plan, mut world: World) -> SeedReport {
    catch_panics();
    RUNS.with_borrow_mut(|runs| *runs = true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| world.run()));
    RUNS.with_borrow_mut(|runs| *runs = false);
    let profile = world.profile();
    let broken = match outcome {
        Ok(()) => world.broken().map(|broken| (broken.law.to_owned(), broken.what.clone())),
        Err(_) => {
            let message = PANIC.with_borrow_mut(Option::take).unwrap_or_else(|| "a panic".to_owned());
            Some(("assertions-hold".to_owned(), message))
        }
    };
    let violation = broken.map(|(law, what)| {
        let replay = plan.replay();
        Violation { seed: plan.seed, profile, law, what, replay }
    });
    let (simulated_us, counted, classes) = (world.elapsed_us(), world.counted(), world.classes().to_vec());
    let marks = world.marks().clone();
    let trace = world.into_trace();
    SeedReport {
        seed: plan.seed,
        profile,
        classes,
        simulated_us,
        steps: trace.steps(),
        operations: counted.operations,
        succeeded: counted.succeeded,
        leader_changes: counted.leader_changes.saturating_sub(1),
        faults: counted.faults,
        strikes: counted.strikes,
        marks,
        trace_hash: trace.hash(),
        trace: trace.into_text(),
        violation,
    }
}

/// Panics of a running seed are kept for its report instead of being printed; all others go where they went before.
fn catch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if RUNS.with_borrow(|runs| *runs) {
                PANIC.with_borrow_mut(|kept| *kept = Some(info.to_string()));
            } else {
                before(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
        let plan = |seed| Plan { seed, profile: Profile::Quorum3, reduction: Reduction::default(), text: false };
        let (first, again) = (run_seed(&plan(11)), run_seed(&plan(11)));
        assert_eq!(first.trace_hash, again.trace_hash);
        assert_eq!(first.steps, again.steps);
        assert_ne!(first.trace_hash, run_seed(&plan(12)).trace_hash);
    }

    #[test]
    fn threads_share_the_seeds_and_a_run_ends_when_it_is_told_to() {
        let options =
            RunOptions { seeds: 5, first_seed: 3, profile: Profile::One, each: true, ..RunOptions::default() };
        let alone = run(&options);
        let shared = run(&RunOptions { jobs: 2, ..options.clone() });
        assert_eq!(alone.each.iter().map(|seed| seed.seed).collect::<Vec<_>>(), vec![3, 4, 5, 6, 7]);
        assert_eq!(alone.trace_hash, shared.trace_hash);
        let ended = run_while(&options, &|progress| progress.seeds < 2);
        assert_eq!(ended.seeds, 2);
    }

    #[test]
    fn a_panic_in_a_seed_is_a_broken_law_and_not_the_end() {
        catch_panics();
        RUNS.with_borrow_mut(|runs| *runs = true);
        let outcome = panic::catch_unwind(|| panic!("HW went back"));
        RUNS.with_borrow_mut(|runs| *runs = false);
        assert!(outcome.is_err());
        assert!(PANIC.with_borrow_mut(Option::take).is_some_and(|message| message.contains("HW went back")));
    }

    /// The first seeds of every profile; more of them run in the check that has time for them.
    #[test]
    fn every_profile_keeps_all_laws_changes_leaders_and_serves_clients() {
        for profile in Profile::ALL {
            let report = run(&RunOptions { seeds: 6, profile, jobs: 2, ..RunOptions::default() });
            assert!(report.passed(), "{report}");
            assert!(report.operations_min.is_some_and(|(operations, _)| operations >= 500), "{report}");
            assert!(report.seeds_with_leader_change >= 4, "{report}");
        }
    }
}
