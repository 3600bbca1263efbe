//! The bounds of what a folder remembers of its starts, which are those of what other nodes take.

use tempfile::TempDir;

use super::*;
use crate::adopt;

/// A folder that was started once, as left by this change of what it remembers.
fn left(change: impl FnOnce(&mut NodeState)) -> (TempDir, Config) {
    let place = TempDir::new().expect("a temporary folder");
    let config = Config::single(place.path().join("data"));
    let (folder, mut state) = DataFolder::take(&config).expect("it is new");
    change(&mut state);
    folder.persist(&state).expect("it is kept");
    (place, config)
}

#[test]
fn a_folder_that_registers_with_nobody_forgets_its_oldest_starts_but_the_acknowledged_one() {
    let acknowledged = Incarnation { starts: 1, random: 7 };
    let (_place, config) = left(|state| {
        state.starts = 1 + INCARNATIONS_MAX as u64;
        let later = (2..=state.starts).map(|starts| Incarnation { starts, random: starts });
        state.incarnations = std::iter::once(acknowledged).chain(later).collect();
    });
    for _ in 0..2 {
        let (_, state) = DataFolder::take(&config).expect("it starts");
        assert_eq!((state.incarnations.len(), state.incarnations[0]), (INCARNATIONS_MAX, acknowledged));
        assert_eq!(state.incarnations.last().map(|last| last.starts), Some(state.starts));
    }
}

#[test]
fn a_folder_is_started_as_often_as_other_nodes_take() {
    let (_place, config) = left(|state| state.starts = STARTS_MAX - 1);
    assert!(DataFolder::take(&config).is_ok());
    let error = DataFolder::take(&config).map(|(_, state)| state.starts);
    assert!(matches!(error, Err(StartError::StartsExhausted { starts: STARTS_MAX, .. })), "{error:?}");
}

#[test]
fn an_address_that_other_nodes_would_refuse_is_refused_here() {
    let (_place, mut config) = left(|_| {});
    config.address = "a".repeat(255);
    assert!(DataFolder::take(&config).is_ok());
    config.address.push('a');
    assert!(matches!(DataFolder::take(&config), Err(StartError::Address { found: 256 })));
}

#[test]
fn an_adopted_start_stands_among_the_others_in_order_and_the_next_is_above_it() {
    let (_place, config) = left(|state| state.older_copy = true);
    let start = Incarnation { starts: 9, random: 3 };
    let done = adopt(&config.data, start).expect("nobody uses it");
    assert_eq!((done.starts_before, done.starts, done.known, done.was_shut_out), (1, 9, false, true));
    let lower = Incarnation { starts: 1, random: 4 };
    adopt(&config.data, lower).expect("nobody uses it");
    let (_, state) = DataFolder::take(&config).expect("it starts");
    let starts: Vec<u64> = state.incarnations.iter().map(|one| one.starts).collect();
    assert_eq!((starts, state.older_copy), (vec![1, 1, 9, 10], false));
    assert!(state.incarnations.contains(&start) && state.incarnations.contains(&lower));
}

#[test]
fn no_start_is_adopted_into_a_folder_that_is_none() {
    let place = TempDir::new().expect("a temporary folder");
    let start = Incarnation { starts: 9, random: 3 };
    assert!(matches!(adopt(place.path(), start), Err(StartError::Adopt { .. })));
    assert!(matches!(adopt(&place.path().join("nowhere"), start), Err(StartError::Adopt { .. })));
    assert!(!place.path().join("nowhere").exists(), "and none is made");
}
