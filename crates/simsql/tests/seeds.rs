//! Whole runs on SQLite. More seeds run in the check that has time for them.

use highwater_sim::{Profile, RunOptions, run};

fn options(first_seed: u64, seeds: u64) -> RunOptions {
    highwater_simsql::provide();
    RunOptions { first_seed, seeds, profile: Profile::Sqlite, jobs: 2, each: true, ..RunOptions::default() }
}

#[test]
fn the_first_seeds_keep_all_laws_and_serve_clients() {
    let report = run(&options(1, 3));
    assert!(report.passed(), "{report}");
    assert!(report.each.iter().all(|seed| seed.operations >= 500 && seed.succeeded >= 300), "{report}");
}

#[test]
fn the_same_seed_gives_the_same_trace_on_sqlite_too() {
    let (first, again) = (run(&options(11, 1)), run(&options(11, 1)));
    assert_eq!(first.each[0].trace_hash, again.each[0].trace_hash);
    assert_eq!(first.each[0].steps, again.each[0].steps);
}
