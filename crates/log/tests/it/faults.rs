//! A disk that fails at the Nth operation, once and for ever, for every N over a scripted run.
//!
//! Whatever happens: the log keeps its first reason, what it had called durable is there when it is opened again on a disk that works, and what it
//! refused for want of space never is.

use crate::common::{LOG_ID, OPTIONS, batches, flush, several, stamped};
use bytes::Bytes;
use highwater_log::mem::{Fault, MemIo, Op};
use highwater_log::{Log, LogError, LogStore};
use highwater_wire::{Epoch, HardState, Offset};

/// What a run knows of its log.
#[derive(Debug, Default)]
struct Known {
    /// Batches in the log, the first `durable` of them for certain.
    batches: Vec<Bytes>,
    durable: usize,
    /// The promise, and one that may have been made.
    promised: Option<Epoch>,
    perhaps_promised: Option<Epoch>,
    /// Cuts that may or may not have happened: then a prefix of these may be there instead.
    perhaps: Vec<Vec<Bytes>>,
    poisoned: Option<LogError>,
    full: usize,
}

impl Known {
    /// Notes a result. Once poisoned, nothing works any more and the reason stays the same.
    fn note(&mut self, result: Result<(), LogError>) -> bool {
        match (&self.poisoned, result) {
            (None, Ok(())) => return true,
            (None, Err(error @ LogError::Poisoned(_))) => self.poisoned = Some(error),
            (None, Err(LogError::Full(_))) => self.full += 1,
            (Some(first), result) => assert_eq!(result.as_ref(), Err(first), "the first reason stays"),
        }
        false
    }

    fn append(&mut self, log: &mut Log<MemIo>, bytes: Bytes) {
        let result = log.append(&bytes);
        let parts: Vec<_> = highwater_wire::batch::split(&bytes).map(|part| part.expect("a batch").1).collect();
        let may_be_there = self.poisoned.is_none() && matches!(result, Err(LogError::Poisoned(_)));
        if may_be_there {
            // A failed write may have reached the disk all the same. Nobody was told that it is there, nor that it is not.
            self.perhaps.push([self.batches.clone(), parts.clone()].concat());
        }
        if self.note(result) {
            self.batches.extend(parts);
        }
    }

    fn cut(&mut self, log: &mut Log<MemIo>, keep: usize, to: Offset) {
        let before = self.batches.clone();
        let kept = before[..keep.min(before.len())].to_vec();
        let result = log.cut(to);
        if matches!(result, Err(LogError::Poisoned(_))) && self.poisoned.is_none() {
            self.perhaps.push(kept.clone());
            self.durable = self.durable.min(keep);
        }
        if self.note(result) {
            self.durable = self.durable.min(keep);
            self.batches = kept;
        }
    }

    fn persist(&mut self, log: &mut Log<MemIo>, epoch: u32) {
        let hard = HardState { promised: Some(Epoch(epoch)), ..HardState::default() };
        let result = log.persist(&hard);
        if matches!(result, Err(LogError::Poisoned(_))) && self.poisoned.is_none() {
            self.perhaps_promised = Some(Epoch(epoch));
        }
        if self.note(result) {
            self.promised = Some(Epoch(epoch));
        }
    }

    fn flush(&mut self, log: &mut Log<MemIo>) {
        let covers = self.batches.len();
        let result = flush(log);
        if self.poisoned.is_some() {
            // Nothing begins any more, so there is nothing to refuse.
            return;
        }
        if self.note(result.map(drop)) {
            self.durable = covers;
        }
    }
}

/// The scripted run: appends over several segments, flushes, promises, cuts, and appends after them. Skips what a refused step makes senseless.
fn script(io: &MemIo) -> (Known, bool) {
    let mut known = Known::default();
    let Ok(mut log) = Log::open(io.clone(), OPTIONS, LOG_ID) else { return (known, false) };
    let log = &mut log;
    known.persist(log, 1);
    let append = |known: &mut Known, log: &mut Log<MemIo>, epoch: u32, sizes: &[usize]| {
        let base = log.shape().end;
        known.append(log, several(base, epoch, sizes));
    };
    append(&mut known, log, 1, &[300]);
    known.flush(log);
    append(&mut known, log, 1, &[10, 200, 30]);
    append(&mut known, log, 1, &[400]);
    known.flush(log);
    append(&mut known, log, 2, &[700]);
    known.persist(log, 3);
    let to = log.shape().end.min(3);
    known.cut(log, to as usize, to);
    append(&mut known, log, 3, &[100, 100]);
    known.flush(log);
    append(&mut known, log, 3, &[600, 10]);
    let to = log.shape().end.saturating_sub(1);
    known.cut(log, to as usize, to);
    append(&mut known, log, 4, &[20]);
    known.flush(log);
    (known, true)
}

/// What a power loss keeps of what is pending.
#[derive(Clone, Copy, Debug)]
enum Keep {
    Nothing,
    Everything,
    /// A mixture that the number decides.
    Some(u64),
}

impl Keep {
    fn choose(self) -> impl FnMut(usize) -> usize {
        let mut state = match self {
            Keep::Some(seed) => seed,
            _ => 0,
        };
        move |n| match self {
            Keep::Nothing => 0,
            Keep::Everything => n - 1,
            Keep::Some(_) => {
                // Knuth's constants; the high bits are the good ones.
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % n
            }
        }
    }
}

/// Opens the log again, on a disk that works, after a power loss.
fn check(mut io: MemIo, known: &Known, keep: Keep, what: &str) {
    io.heal();
    io.crash(keep.choose());
    let log = match Log::open(io, OPTIONS, LOG_ID) {
        Ok(log) => log,
        Err(error) => panic!("{what}: the log opens again: {error}\n{known:?}"),
    };
    let found = batches(&log, 0).expect("the disk works");
    let holds = |wanted: &Vec<Bytes>| found.len() <= wanted.len() && found[..] == wanted[..found.len()];
    let explained = holds(&known.batches) || known.perhaps.iter().any(holds);
    assert!(explained, "{what}: {} batches that nobody appended so", found.len());
    assert!(found.len() >= known.durable, "{what}: {} batches of {} durable ones", found.len(), known.durable);
    let promised = log.hard_state().promised;
    assert!(
        promised == known.promised || promised == known.perhaps_promised,
        "{what}: {promised:?} was not promised: {known:?}"
    );
}

#[test]
fn every_operation_fails_once_and_for_ever() {
    let whole = MemIo::new();
    let (known, opened) = script(&whole);
    assert!(opened && known.poisoned.is_none() && known.batches.len() == 7, "the script runs through: {known:?}");
    let operations: u64 = [Op::Write, Op::Sync, Op::Name].iter().map(|op| whole.count(*op)).sum();
    assert!(operations > 80, "the script does a good deal: {operations}");
    let (mut poisoned, mut full, mut not_opened) = (0, 0, 0);
    for after in 0..operations {
        for (is_full, for_ever, short) in [
            (false, false, false),
            (false, true, false),
            (false, false, true),
            (true, false, false),
            (true, false, true),
            (true, true, true),
        ] {
            for keep in [Keep::Nothing, Keep::Everything, Keep::Some(after), Keep::Some(after + 1_000_000)] {
                let io = MemIo::new();
                io.fail(Fault { op: None, after, full: is_full, for_ever, short });
                let (known, opened) = script(&io);
                let what = format!("operation {after}, full {is_full}, for ever {for_ever}, short {short}, {keep:?}");
                if !opened {
                    not_opened += 1;
                }
                poisoned += u32::from(known.poisoned.is_some());
                full += known.full;
                check(io, &known, keep, &what);
            }
        }
    }
    assert!(
        poisoned > 100 && full > 50 && not_opened > 10,
        "{poisoned} poisoned, {full} full, {not_opened} not opened"
    );
}

/// The power goes after every single operation of the script, with nothing failing before.
#[test]
fn the_power_goes_after_every_operation() {
    let whole = MemIo::new();
    script(&whole);
    let operations: u64 = [Op::Write, Op::Sync, Op::Name].iter().map(|op| whole.count(*op)).sum();
    for after in 0..operations {
        for seed in 0..4 {
            // A machine that stops is one on which everything fails from then on.
            let io = MemIo::new();
            io.fail(Fault { op: None, after, full: false, for_ever: true, short: seed % 2 == 0 });
            let (known, _) = script(&io);
            check(io, &known, Keep::Some(after * 4 + seed), &format!("after operation {after}, seed {seed}"));
        }
    }
}

/// An operation that fails while the log is opened leaves a folder for which the same is decided again.
#[test]
fn recovery_that_is_interrupted_anywhere_decides_the_same_again() {
    let mut disk = MemIo::new();
    let (known, _) = script(&disk);
    disk.kill();
    for after in 0..40 {
        for keep in [Keep::Nothing, Keep::Everything, Keep::Some(after)] {
            let mut io = disk.copy();
            io.fail(Fault { op: None, after, full: false, for_ever: true, short: true });
            let opened = Log::open(io.clone(), OPTIONS, LOG_ID).is_ok();
            assert!(!opened || after > 5, "recovery writes something");
            io.heal();
            io.crash(keep.choose());
            let log = crate::common::open(&io);
            assert_eq!(batches(&log, 0).expect("the disk works"), known.batches, "after {after}, {keep:?}");
        }
    }
}

#[test]
fn reads_that_fail_poison_with_the_first_reason() {
    let io = MemIo::new();
    let mut log = crate::common::open(&io);
    for base in 0..6 {
        log.append(&stamped(base, 1, 1, 300)).expect("nothing fails");
    }
    io.fail(Fault { op: Some(Op::Read), after: 0, full: false, for_ever: false, short: false });
    let first = log.read(0, 10).expect_err("the oldest is not in memory");
    assert!(first.to_string().contains("could not be read"), "{first}");
    assert_eq!(log.read(0, 10), Err(first.clone()), "the disk works again, the log does not");
    assert_eq!(log.append(&stamped(6, 1, 1, 10)), Err(first));
}

#[test]
fn a_failed_flush_is_never_tried_again() {
    let io = MemIo::new();
    let mut log = crate::common::open(&io);
    log.append(&stamped(0, 1, 1, 10)).expect("nothing fails");
    io.fail(Fault { op: Some(Op::Sync), after: 0, full: false, for_ever: false, short: false });
    let first = flush(&mut log).expect_err("the sync failed");
    assert!(log.begin_flush().is_none(), "it is not tried again");
    assert_eq!(log.persist(&HardState::default()), Err(first.clone()));
    assert_eq!(log.cut(0), Err(first.clone()));
    assert_eq!(log.reserve(1), Err(first.clone()));
    assert_eq!(log.close(), Err(first));
}

/// After a failed sync the kernel may show what it has lost. What recovery found and calls durable must be, though the sync of the last process
/// failed and its own reports success.
#[test]
fn what_recovery_found_is_durable_though_the_last_sync_failed() {
    for flushed in [0u64, 1, 3, 9] {
        let mut io = MemIo::new();
        let mut log = crate::common::open(&io);
        for base in 0..10 {
            log.append(&stamped(base, 1, 1, 250)).expect("nothing fails");
            if base + 1 == flushed {
                flush(&mut log).expect("nothing fails");
            }
        }
        io.fail(Fault { op: Some(Op::Sync), after: 0, full: false, for_ever: true, short: false });
        assert!(flush(&mut log).is_err(), "the sync fails");
        io.heal();
        io.kill();
        let wanted = batches(&crate::common::open(&io), 0).expect("nothing fails");
        assert!(wanted.len() as u64 >= flushed, "what was durable is there");
        io.crash(|_| 0);
        assert_eq!(batches(&crate::common::open(&io), 0).expect("nothing fails"), wanted, "flushed {flushed}");
    }
}

/// A disk of limited size: appends are refused, reads go on, and when there is space again so do appends, without any repair.
#[test]
fn a_full_disk_refuses_appends_and_nothing_else() {
    let io = MemIo::new();
    let mut log = crate::common::open(&io);
    log.persist(&HardState::default()).expect("nothing fails");
    let mut wanted = Vec::new();
    let mut add = |log: &mut Log<MemIo>, bytes: usize| {
        let batch = stamped(log.shape().end, 1, 1, bytes);
        log.append(&batch).map(|()| wanted.push(batch))
    };
    for _ in 0..4 {
        add(&mut log, 200).expect("nothing fails");
    }
    io.set_capacity(Some(io.used_bytes() + 700));
    let mut refused = 0;
    for _ in 0..20 {
        match add(&mut log, 200) {
            Ok(()) => {}
            Err(LogError::Full(_)) => refused += 1,
            Err(error) => panic!("a full disk does not poison: {error}"),
        }
        flush(&mut log).expect("what is there can be flushed");
    }
    assert!(refused > 10, "the disk was full {refused} times");
    assert!(log.poisoned().is_none());
    batches(&log, 500).expect("reads go on");
    io.set_capacity(None);
    for _ in 0..5 {
        add(&mut log, 200).expect("there is space");
    }
    assert_eq!(batches(&log, 500).expect("nothing fails"), wanted);
    drop(log);
    let mut io = io;
    io.kill();
    assert_eq!(batches(&crate::common::open(&io), 500).expect("nothing fails"), wanted);
}

/// After `reserve`, appending that much cannot meet a full disk, whatever the batches.
#[test]
fn reserved_space_is_there() {
    for sizes in [&[1usize; 30][..], &[900], &[10, 300, 10]] {
        let io = MemIo::new();
        let mut log = crate::common::open(&io);
        for round in 0..6 {
            let batches = several(log.shape().end, 1, sizes);
            log.reserve(batches.len()).expect("there is space");
            io.set_capacity(Some(io.used_bytes()));
            log.append(&batches).unwrap_or_else(|error| panic!("round {round} of {sizes:?}: {error}"));
            io.set_capacity(None);
        }
    }
}

/// The write of the space, of all but the first header, or of that: a file system that needs space for overwriting may refuse each in its middle.
/// What was refused never shows up, and the log goes on.
#[test]
fn an_append_refused_in_the_middle_never_comes_to_life() {
    for after in 0..3 {
        for (more, power) in [(0, true), (0, false), (1, true), (1, false), (2, true), (2, false)] {
            let mut io = MemIo::new();
            // All in one segment: the writes are those of the append and no others.
            let options = highwater_log::Options { segment_bytes: 1 << 20, ..OPTIONS };
            let mut log = Log::open(io.clone(), options, LOG_ID).expect("it is new");
            log.append(&stamped(0, 1, 1, 50)).expect("nothing fails");
            flush(&mut log).expect("nothing fails");
            io.fail(Fault { op: Some(Op::Write), after, full: true, for_ever: false, short: true });
            // Half of the write is all of the first and second, though their first header comes last.
            let refused = log.append(&several(1, 1, &[140, 140, 900]));
            assert!(matches!(refused, Err(LogError::Full(_))), "write {after}: {refused:?}");
            let mut known = vec![stamped(0, 1, 1, 50)];
            let mut generation = None;
            for offset in 1..=more {
                // The first is the very one that was refused, so it ends where the second of those lies.
                known.push(stamped(offset, 1, 1, 140));
                log.append(&known[offset as usize]).expect("there is space");
                let last = generation.replace(log.generation());
                assert!(last.is_none_or(|last| last == log.generation()), "what was left behind is declared dead once");
            }
            assert_eq!(batches(&log, 0).expect("nothing fails"), known);
            match power {
                true => io.crash(|n| if more > 0 { n - 1 } else { 0 }),
                false => io.kill(),
            }
            assert_eq!(
                batches(&crate::common::open(&io), 0).expect("nothing fails"),
                known,
                "write {after}, {more} more"
            );
        }
    }
}

/// The log stops for the first reason and keeps it, also when a flush that had begun before comes back with another.
#[test]
fn the_first_reason_stays_though_a_flush_brings_another() {
    let io = MemIo::new();
    let mut log = crate::common::open(&io);
    for base in 0..6 {
        log.append(&stamped(base, 1, 1, 300)).expect("nothing fails");
    }
    let job = log.begin_flush().expect("there is something to flush");
    io.fail(Fault { op: Some(Op::Read), after: 0, full: false, for_ever: false, short: false });
    let first = log.read(0, 10).expect_err("the oldest is not in memory");
    io.fail(Fault { op: Some(Op::Sync), after: 0, full: false, for_ever: false, short: false });
    assert_eq!(log.finish_flush(job.run()), Err(first.clone()), "not that the sync failed");
    assert_eq!(log.poisoned().map(|reason| LogError::Poisoned(reason.to_owned())), Some(first));
}
