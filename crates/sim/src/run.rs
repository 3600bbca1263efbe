//! Runs seeds, on several threads if told so. Each seed is a world of its own on one thread.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::options::{Profile, RunOptions};
use crate::report::{Report, SeedReport, Violation};
use crate::world::World;

thread_local! {
    /// What the panic of the seed that runs on this thread said, while one runs.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static RUNS: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs seeds and reports.
///
/// # Panics
/// If there are no jobs to run them.
pub fn run(options: &RunOptions) -> Report {
    assert!(options.jobs > 0, "seeds run on at least one thread");
    catch_panics();
    let next = AtomicU64::new(0);
    let mut seeds: Vec<SeedReport> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs)
            .map(|_| {
                scope.spawn(|| {
                    let mut reports = Vec::new();
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= options.seeds {
                            return reports;
                        }
                        reports.push(run_seed(options.first_seed + index, options.profile, options.trace));
                    }
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect()
    });
    seeds.sort_by_key(|report| report.seed);
    Report { seeds }
}

/// Runs one seed. An assertion that fails inside a node is a broken law as well.
fn run_seed(seed: u64, profile: Profile, trace: bool) -> SeedReport {
    let mut world = World::new(seed, profile, trace);
    RUNS.with_borrow_mut(|runs| *runs = true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| world.run()));
    RUNS.with_borrow_mut(|runs| *runs = false);
    let drawn = world.profile();
    let broken = match outcome {
        Ok(()) => world.broken().map(|broken| (broken.law.to_owned(), broken.what.clone())),
        Err(_) => {
            let message = PANIC.with_borrow_mut(Option::take).unwrap_or_else(|| "a panic".to_owned());
            Some(("assertions-hold".to_owned(), message))
        }
    };
    let violation = broken.map(|(law, what)| Violation {
        seed,
        profile: drawn,
        law,
        what,
        replay: format!("highwater sim --profile {} --seed {seed} --trace", profile.name()),
    });
    let (simulated_us, counted) = (world.elapsed_us(), world.counted());
    let trace = world.into_trace();
    SeedReport {
        seed,
        profile: drawn,
        simulated_us,
        steps: trace.steps(),
        operations: counted.operations,
        succeeded: counted.succeeded,
        leader_changes: counted.leader_changes.saturating_sub(1),
        faults: counted.faults,
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
        let options = RunOptions { seeds: 1, first_seed: 11, profile: Profile::Quorum3, jobs: 1, trace: false };
        let (first, again) = (run(&options), run(&options));
        assert_eq!(first.seeds[0].trace_hash, again.seeds[0].trace_hash);
        assert_eq!(first.seeds[0].steps, again.seeds[0].steps);
        let other = run(&RunOptions { first_seed: 12, ..options });
        assert_ne!(first.seeds[0].trace_hash, other.seeds[0].trace_hash);
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
            let report = run(&RunOptions { seeds: 6, first_seed: 1, profile, jobs: 2, trace: false });
            assert_eq!(report.violations().count(), 0, "{report}");
            assert!(report.operations_min() >= 500, "{report}");
            assert!(report.seeds_with_leader_change() >= 4, "{report}");
        }
    }
}
