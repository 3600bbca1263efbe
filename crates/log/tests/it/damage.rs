//! Damage of every kind to every file of a small folder: found, or harmless, and never a log that is silently another one.

use crate::common::{LOG_ID, OPTIONS, batches, flush, open, stamped};
use bytes::Bytes;
use highwater_log::mem::MemIo;
use highwater_log::{Io, Log, LogStore, OpenError, dump};
use highwater_wire::{Epoch, HardState, LogId};

/// A folder of a few segments, with dead frames behind the end and a lost tail, and what it holds.
fn folder(clean: bool) -> (MemIo, Vec<Bytes>) {
    let mut io = MemIo::new();
    let mut log = open(&io);
    log.persist(&HardState { promised: Some(Epoch(2)), ..HardState::default() }).expect("nothing fails");
    for base in 0..7 {
        log.append(&stamped(base, 1, 1, 250)).expect("nothing fails");
        flush(&mut log).expect("nothing fails");
    }
    log.cut(5).expect("nothing fails");
    log.append(&stamped(5, 2, 1, 20)).expect("nothing fails");
    flush(&mut log).expect("nothing fails");
    log.append(&stamped(6, 2, 1, 20)).expect("nothing fails");
    flush(&mut log).expect("nothing fails");
    let wanted = batches(&log, 0).expect("nothing fails");
    match clean {
        true => log.close().expect("nothing fails"),
        false => io.kill(),
    }
    (io, wanted)
}

fn names(io: &MemIo) -> Vec<String> {
    io.list().expect("nothing fails")
}

/// Opens the folder, if it will, and gives back what it holds.
fn contents(io: &MemIo) -> Result<(Vec<Bytes>, HardState), String> {
    let log = Log::open(io.clone(), OPTIONS, LOG_ID).map_err(|error| error.to_string())?;
    let all = batches(&log, 0).map_err(|error| error.to_string())?;
    Ok((all, log.hard_state().clone()))
}

#[test]
fn a_flipped_byte_anywhere_is_found_or_harmless() {
    let (disk, wanted) = folder(true);
    let (mut found, mut harmless) = (0, 0);
    for name in names(&disk) {
        for at in 0..disk.contents(&name).len() {
            let io = disk.copy();
            io.flip(&name, at, 1 << (at % 8));
            match contents(&io) {
                Ok((all, hard)) => {
                    assert_eq!(all, wanted, "{name}, byte {at}");
                    assert_eq!(hard.promised, Some(Epoch(2)), "{name}, byte {at}");
                    harmless += 1;
                }
                Err(error) => {
                    assert!(error.contains(&name), "{name}, byte {at}: {error}");
                    found += 1;
                }
            }
        }
    }
    assert!(found > 1500 && harmless > 1000, "{found} found, {harmless} harmless");
}

/// After a crash, the last flush may be on no record: a flip there looks like a torn write. Anything before it is found.
#[test]
fn after_a_crash_a_flipped_byte_costs_at_most_what_no_record_says_was_flushed() {
    let (disk, wanted) = folder(false);
    let segments: Vec<_> = names(&disk).into_iter().filter(|name| name.ends_with(".log")).collect();
    let mut shortened = 0;
    for name in segments {
        for at in 0..disk.contents(&name).len() {
            let io = disk.copy();
            io.flip(&name, at, 0x20);
            let Ok((all, _)) = contents(&io) else { continue };
            assert!(wanted.starts_with(&all), "{name}, byte {at}");
            assert!(all.len() + 1 >= wanted.len(), "{name}, byte {at}: the one before was on record");
            shortened += usize::from(all.len() < wanted.len());
        }
    }
    assert!(shortened > 0, "the last one is on no record");
}

#[test]
fn a_shortened_file_is_found_or_harmless() {
    let (disk, wanted) = folder(true);
    for name in names(&disk) {
        let whole = disk.contents(&name);
        for len in (0..whole.len()).step_by(3) {
            let io = disk.copy();
            io.put(&name, &whole[..len]);
            match contents(&io) {
                Ok((all, _)) => assert_eq!(all, wanted, "{name} shortened to {len}"),
                Err(error) => assert!(error.contains(&name), "{name} shortened to {len}: {error}"),
            }
        }
    }
}

#[test]
fn a_missing_file_is_named() {
    let (disk, wanted) = folder(true);
    for name in names(&disk) {
        let mut io = disk.copy();
        io.remove(&name).expect("nothing fails");
        io.sync_dir().expect("nothing fails");
        match contents(&io) {
            Ok((all, _)) => {
                assert!(name.starts_with("lost-tail-"), "{name}");
                assert_eq!(all, wanted);
            }
            Err(error) => assert!(error.contains(&name) && error.contains("missing"), "{error}"),
        }
        io.kill();
    }
}

#[test]
fn two_files_swapped_are_found() {
    let (disk, _) = folder(true);
    let names = names(&disk);
    for (index, first) in names.iter().enumerate() {
        for second in &names[index + 1..] {
            let io = disk.copy();
            let (a, b) = (io.contents(first), io.contents(second));
            io.put(first, &b);
            io.put(second, &a);
            assert!(contents(&io).is_err(), "{first} and {second}");
        }
    }
}

#[test]
fn a_folder_of_another_log_is_refused_and_a_file_too() {
    let (disk, _) = folder(true);
    let other = LogId(0xbad);
    let error = Log::open(disk.copy(), OPTIONS, other).expect_err("it is not that log's");
    assert!(matches!(error, OpenError::OtherLog { .. }), "{error}");

    let foreign = MemIo::new();
    drop(Log::open(foreign.clone(), OPTIONS, other).expect("it is new"));
    let io = disk.copy();
    let name = "00000000000000000000.log";
    io.put(name, &foreign.contents(name));
    let error = Log::open(io, OPTIONS, LOG_ID).expect_err("the segment is another log's");
    assert!(matches!(&error, OpenError::OtherLog { name: named, .. } if named == name), "{error}");
}

/// An older control file beside newer segments would forget a promise and cut entries. Its generation gives it away.
#[test]
fn an_older_control_file_is_refused() {
    let (mut io, _) = folder(true);
    let older = io.contents("control");
    let mut log = open(&io);
    log.append(&stamped(7, 2, 1, 20)).expect("nothing fails");
    flush(&mut log).expect("nothing fails");
    drop(log);
    io.kill();
    io.put("control", &older);
    let error = Log::open(io, OPTIONS, LOG_ID).expect_err("the control file is older");
    assert!(error.to_string().contains("older than the log"), "{error}");
}

#[test]
fn a_refused_folder_is_not_touched() {
    let (disk, _) = folder(true);
    let io = disk.copy();
    io.flip("00000000000000000000.log", 4200, 1);
    let before: Vec<_> = names(&io).into_iter().map(|name| io.contents(&name)).collect();
    let error = Log::open(io.clone(), OPTIONS, LOG_ID).expect_err("a flushed entry is damaged");
    let OpenError::Corrupt { position, offset, flushed, .. } = error else { panic!("{error}") };
    assert_eq!((position, offset, flushed), (4096, 0, 7));
    let after: Vec<_> = names(&io).into_iter().map(|name| io.contents(&name)).collect();
    assert_eq!(before, after);
}

#[test]
fn a_folder_with_other_files_is_not_taken_for_an_empty_one() {
    let io = MemIo::new();
    io.put("notes.txt", b"mine");
    let error = Log::open(io, OPTIONS, LOG_ID).expect_err("it is somebody's");
    assert!(matches!(&error, OpenError::NotALog { found } if found == "notes.txt"), "{error}");

    let options = highwater_log::Options { create: false, ..OPTIONS };
    let error = Log::open(MemIo::new(), options, LOG_ID).expect_err("a log was there");
    assert!(matches!(error, OpenError::Missing { .. }), "{error}");
}

#[test]
fn a_dump_shows_what_there_is_and_what_is_dead() {
    let (io, wanted) = folder(true);
    let mut live = Vec::new();
    let mut dead = 0;
    for item in dump::frames(&io).expect("nothing fails") {
        match item.expect("nothing fails") {
            dump::Item::Frame(frame) if frame.dead => dead += 1,
            dump::Item::Frame(frame) => live.push(frame.batch),
            dump::Item::Damage { .. } => {}
        }
    }
    assert_eq!(live, wanted);
    let tails = dump::lost_tails(&io).expect("nothing fails");
    assert_eq!(tails.iter().map(|tail| tail.offset).collect::<Vec<_>>(), [5]);
    assert_eq!(dump::lost_tail(&io, &tails[0]).count(), 2);
    let verified = dump::verify(&io).expect("it is whole").expect("it is there");
    assert_eq!((verified.log_id, verified.shape.end, verified.clean, verified.torn), (LOG_ID, 7, true, None));
    assert!(dead <= 1, "at most the frame that ends behind the new ones");
    assert_eq!(dump::verify(&MemIo::new()).expect("it reads"), None);
}
