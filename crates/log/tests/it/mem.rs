//! The disk in memory loses what it should, and only that: what is tested with it is only worth as much.

use std::collections::BTreeSet;

use highwater_log::mem::{Fault, MemIo, Op};
use highwater_log::{Io, IoFile, durable_replace};
use proptest::prelude::*;

/// Makes a synced file with those bytes.
fn file(io: &MemIo, name: &str, bytes: &[u8]) -> std::sync::Arc<highwater_log::mem::MemFile> {
    let file = io.create(name).expect("it is new");
    file.write_at(0, bytes).expect("nothing fails");
    file.sync_data().expect("nothing fails");
    io.sync_dir().expect("nothing fails");
    file
}

/// What a crash may leave of `write`, over all ways to choose that differ in the first eight choices.
fn outcomes(write: impl Fn(&MemIo)) -> BTreeSet<Option<Vec<u8>>> {
    (0..4096usize)
        .map(|choices| {
            let mut io = MemIo::new();
            write(&io);
            let mut turn = 0;
            io.crash(|n| {
                turn += 1;
                (choices >> (turn % 12)) % n
            });
            io.list().expect("nothing fails").contains(&"f".to_owned()).then(|| io.contents("f"))
        })
        .collect()
}

#[test]
fn unsynced_sectors_are_kept_lost_or_torn_each_by_itself() {
    let seen = outcomes(|io| {
        let file = file(io, "f", &[1; 1024]);
        file.write_at(0, &[2; 1024]).expect("nothing fails");
    });
    let sector = |byte: u8| [byte; 512];
    for (first, second) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        let bytes = [sector(first), sector(second)].concat();
        assert!(seen.contains(&Some(bytes)), "sectors {first} and {second}");
    }
    let torn = |bytes: &[u8]| bytes[..512].contains(&1) && bytes[..512].contains(&2);
    assert!(seen.iter().flatten().any(|bytes| torn(bytes)), "a sector torn");
    assert!(seen.iter().flatten().all(|bytes| bytes.len() == 1024), "nothing else");
}

#[test]
fn an_unsynced_name_may_be_lost_and_a_synced_one_may_not() {
    let unsynced = outcomes(|io| {
        let file = io.create("f").expect("it is new");
        file.write_at(0, b"x").expect("nothing fails");
        file.sync_data().expect("nothing fails");
    });
    assert_eq!(unsynced, BTreeSet::from([None, Some(b"x".to_vec())]));
    assert_eq!(outcomes(|io| drop(file(io, "f", b"x"))), BTreeSet::from([Some(b"x".to_vec())]));
    let removed = outcomes(|io| {
        file(io, "f", b"x");
        io.remove("f").expect("it is there");
    });
    assert_eq!(removed, BTreeSet::from([None, Some(b"x".to_vec())]));
}

#[test]
fn a_file_is_replaced_whole_or_not_at_all() {
    let seen = outcomes(|io| {
        durable_replace(io, "f", b"old").expect("nothing fails");
        io.fail(Fault { op: Some(Op::Sync), after: 1, full: false, for_ever: true, short: false });
        assert!(durable_replace(io, "f", b"newer").is_err(), "the folder was not synced");
    });
    assert_eq!(seen, BTreeSet::from([Some(b"old".to_vec()), Some(b"newer".to_vec())]));
    let seen = outcomes(|io| durable_replace(io, "f", b"new").expect("nothing fails"));
    assert_eq!(seen, BTreeSet::from([Some(b"new".to_vec())]));
}

#[test]
fn a_failed_sync_is_never_made_good() {
    let seen = outcomes(|io| {
        let file = file(io, "f", b"old");
        file.write_at(0, b"new").expect("nothing fails");
        io.fail(Fault { op: Some(Op::Sync), after: 0, full: false, for_ever: false, short: false });
        assert!(file.sync_data().is_err());
        assert_eq!(io.contents("f"), b"new", "it can still be read");
        file.sync_data().expect("the next one says that all is well");
    });
    assert_eq!(seen, BTreeSet::from([Some(b"old".to_vec())]));
}

#[test]
fn what_a_dead_process_holds_is_of_no_use() {
    let mut io = MemIo::new();
    let file = file(&io, "f", b"old");
    let dead = io.clone();
    file.write_at(0, b"new").expect("nothing fails");
    io.kill();
    assert_eq!(io.contents("f"), b"new", "the machine is up, so nothing was lost");
    assert!(file.write_at(0, b"not").is_err() && file.sync_data().is_err() && dead.create("g").is_err());
    io.crash(|_| 0);
    assert_eq!(io.contents("f"), b"old", "the sync of a dead process did nothing");
}

#[test]
fn faults_come_when_they_are_told_to() {
    let io = MemIo::new();
    let file = file(&io, "f", &[1; 2000]);
    io.fail(Fault { op: Some(Op::Write), after: 1, full: true, for_ever: false, short: true });
    file.write_at(0, &[2; 10]).expect("the first succeeds");
    let error = file.write_at(0, &[3; 2000]).expect_err("the second fails");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(
        io.contents("f"),
        [[3u8; 1024].as_slice(), &[1; 976]].concat(),
        "half of it was written, in whole sectors"
    );
    file.write_at(0, b"g").expect("once");
    io.put("f", b"gd345678");

    io.set_capacity(Some(10));
    file.write_at(0, b"overwrit").expect("space that is there may be overwritten");
    let error = file.write_at(6, b"longer").expect_err("there is no room for all of it");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(io.contents("f"), b"overwrlong");
}

proptest! {
    /// The same choices, the same disk.
    #[test]
    fn a_crash_is_decided_by_its_choices_alone(writes in proptest::collection::vec((0..3000u64, 1..900usize), 1..8), choices: Vec<u8>) {
        let run = || {
            let mut io = MemIo::new();
            let file = file(&io, "f", &[0; 100]);
            for (nth, (at, len)) in writes.iter().enumerate() {
                file.write_at(*at, &vec![nth as u8 + 1; *len]).expect("nothing fails");
            }
            let mut choices = choices.iter().chain(std::iter::repeat(&0));
            io.crash(|n| usize::from(*choices.next().expect("it never ends")) % n);
            io.contents("f")
        };
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn a_spoiled_disk_shows_something_else_and_is_right_again_once_mended_except_where_it_was_written_since() {
    let mut io = MemIo::new();
    let file = file(&io, "f", b"abcdef");
    io.spoil("f", 1, b"XYZ");
    assert!(io.spoiled());
    assert_eq!(io.contents("f"), b"aXYZef");
    file.write_at(2, b"-").expect("nothing fails");
    io.crash(|_| 0);
    assert_eq!(io.contents("f"), b"aXYZef", "what was pending is lost, and what was synced is as wrong as before");
    let file = io.open("f").expect("it is there");
    file.write_at(2, b"-").expect("nothing fails");
    file.sync_data().expect("nothing fails");
    io.mend();
    assert_eq!((io.contents("f"), io.spoiled()), (b"ab-def".to_vec(), false));
}

#[test]
fn writes_are_remembered_with_what_they_replaced_until_they_are_written_over() {
    let io = MemIo::new();
    io.remember_writes();
    let file = file(&io, "f", b"abcd");
    let found = |io: &MemIo| -> Vec<(u64, Vec<u8>, Vec<u8>)> {
        io.written().into_iter().map(|one| (one.at, one.before, one.bytes)).collect()
    };
    assert_eq!(found(&io), [(0, vec![0; 4], b"abcd".to_vec())]);
    file.write_at(4, b"ef").expect("nothing fails");
    file.sync_data().expect("nothing fails");
    file.write_at(2, b"C").expect("nothing fails");
    assert_eq!(found(&io), [(4, vec![0; 2], b"ef".to_vec())], "what is being written over counts no more");
    file.sync_data().expect("nothing fails");
    assert_eq!(found(&io), [(2, b"c".to_vec(), b"C".to_vec()), (4, vec![0; 2], b"ef".to_vec())]);
}

#[test]
fn what_is_durable_is_what_a_power_loss_leaves_if_all_that_is_pending_goes() {
    let io = MemIo::new();
    let file = file(&io, "f", b"old");
    file.write_at(0, b"new").expect("nothing fails");
    io.create("g").expect("it is new");
    let durable = io.durable();
    assert_eq!(durable.list().expect("nothing fails"), ["f"]);
    assert_eq!(durable.contents("f"), b"old");
}
