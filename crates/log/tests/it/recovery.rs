//! One folder for each row of the recovery table, so that no row is there in theory only.

use crate::common::{LOG_ID, OPTIONS, flush, open, stamped};
use highwater_log::mem::MemIo;
use highwater_log::{Log, LogStore, OpenError, Options, dump};
use highwater_wire::LogId;

const SEGMENT: &str = "00000000000000000000.log";
/// Everything in one segment.
const WIDE: Options = Options { segment_bytes: 1 << 20, ..OPTIONS };

/// A log of `count` batches of equal size, each flushed on its own if asked to be, whose process died.
fn dead_log(count: u64, flushed: bool) -> MemIo {
    let io = MemIo::new();
    let mut log = Log::open(io.clone(), WIDE, LOG_ID).expect("it is new");
    add(&mut log, count, 1, flushed);
    died(io)
}

fn add(log: &mut Log<MemIo>, count: u64, epoch: u32, flushed: bool) {
    for _ in 0..count {
        log.append(&stamped(log.shape().end, epoch, 1, 100)).expect("nothing fails");
        if flushed {
            flush(log).expect("nothing fails");
        }
    }
}

fn died(mut io: MemIo) -> MemIo {
    io.kill();
    io
}

/// Where the frame of an entry lies, and how long it is.
fn place(io: &MemIo, offset: u64) -> (usize, usize) {
    let frames: Vec<_> = dump::frames(io)
        .expect("nothing fails")
        .filter_map(|item| match item.expect("nothing fails") {
            dump::Item::Frame(frame) => Some((frame.offset, frame.position as usize)),
            dump::Item::Damage { .. } => None,
        })
        .collect();
    let at = frames.iter().position(|(found, _)| *found == offset).expect("it is there");
    (frames[at].1, frames[1].1 - frames[0].1)
}

/// Overwrites the frame of an entry.
fn overwrite(io: &MemIo, offset: u64, with: impl Fn(&mut [u8])) {
    let (position, size) = place(io, offset);
    let mut bytes = io.contents(SEGMENT);
    with(&mut bytes[position..position + size]);
    io.put(SEGMENT, &bytes);
}

fn zero(frame: &mut [u8]) {
    frame.fill(0);
}

fn damage(frame: &mut [u8]) {
    frame[100] ^= 1;
}

/// Opens it: the end and why it is torn, or why it is refused and where.
fn opened(io: &MemIo) -> Result<(u64, &'static str), (u64, &'static str)> {
    match Log::open(io.clone(), WIDE, LOG_ID) {
        Ok(log) => Ok((log.shape().end, log.recovered().torn.unwrap_or("not torn"))),
        Err(OpenError::Corrupt { offset, why, .. }) => Err((offset, why)),
        Err(error) => panic!("{error}"),
    }
}

/// A log with entries 1 and 2 over dead ones of the same size, and the dead frame of entry 1.
fn over_dead_frames(flushed: bool) -> (MemIo, Vec<u8>) {
    let io = dead_log(5, true);
    let (position, size) = place(&io, 1);
    let old = io.contents(SEGMENT)[position..position + size].to_vec();
    let mut log = Log::open(io.clone(), WIDE, LOG_ID).expect("it is whole");
    log.cut(1).expect("nothing fails");
    flush(&mut log).map(drop).expect("nothing fails");
    add(&mut log, 2, 2, flushed);
    (died(io), old)
}

#[test]
fn the_end() {
    assert_eq!(opened(&dead_log(4, false)), Ok((4, "not torn")));
    assert_eq!(opened(&dead_log(0, false)), Ok((0, "not torn")));
}

#[test]
fn the_end_after_a_cut() {
    let (io, _) = over_dead_frames(true);
    assert!(place(&io, 3).0 > place(&io, 2).0, "dead frames lie behind");
    assert_eq!(opened(&io), Ok((3, "not torn")));
}

#[test]
fn the_last_write_was_torn() {
    let io = dead_log(4, false);
    overwrite(&io, 3, damage);
    assert_eq!(opened(&io), Ok((3, "the last write was torn")));
}

#[test]
fn only_fragments_are_left() {
    let io = dead_log(4, false);
    overwrite(&io, 1, zero);
    assert_eq!(opened(&io), Ok((1, "a power loss kept only fragments of what was written last")));
}

#[test]
fn torn_with_fragments_behind() {
    let io = dead_log(4, false);
    overwrite(&io, 1, damage);
    assert_eq!(opened(&io), Ok((1, "a power loss tore what was written last")));
}

#[test]
fn a_dead_frame_with_fragments_behind() {
    let (io, old) = over_dead_frames(false);
    overwrite(&io, 1, |frame| frame.copy_from_slice(&old));
    assert_eq!(opened(&io), Ok((1, "a power loss lost what was written last over dead frames")));
}

#[test]
fn flushed_entries_are_gone() {
    let io = dead_log(4, true);
    overwrite(&io, 1, zero);
    assert_eq!(opened(&io), Err((1, "entries that had been flushed are gone")));
}

#[test]
fn flushed_entries_are_damaged() {
    let io = dead_log(4, true);
    overwrite(&io, 2, damage);
    assert_eq!(opened(&io), Err((2, "entries that had been flushed are damaged")));
}

/// The disk confirmed a write over a dead frame and lost it.
#[test]
fn a_lost_write_shows_an_older_frame() {
    let (io, old) = over_dead_frames(true);
    overwrite(&io, 1, |frame| frame.copy_from_slice(&old));
    let why = "entries that had been flushed are gone, and older ones show in their place";
    assert_eq!(opened(&io), Err((1, why)));
}

/// The same below a newer cut, which says nothing of it: along a log generations never go down.
#[test]
fn a_lost_write_below_a_newer_cut_shows_an_older_frame() {
    let (io, old) = over_dead_frames(true);
    drop(Log::open(io.clone(), WIDE, LOG_ID).expect("it is whole, and its end the newest cut now"));
    let io = died(io);
    let (position, size) = place(&io, 1);
    let mut bytes = io.contents(SEGMENT);
    bytes[position..position + size].copy_from_slice(&old);
    io.put(SEGMENT, &bytes);
    let Err((2, why)) = opened(&io) else { panic!("entry 2 was written behind another entry 1") };
    assert!(why.contains("do not belong together"), "{why}");
}

/// The same with the very last entry, of which only the control file speaks: it names what lay before the newest cut.
#[test]
fn a_lost_write_just_below_a_newer_cut_shows_an_older_frame() {
    for (count, why) in [
        (1, "the two do not belong together"),
        // Here the frame before is of a later generation than the one that shows, and generations never go down.
        (2, "entries that had been flushed are gone, and older ones show in their place"),
    ] {
        let io = dead_log(5, true);
        let (position, size) = place(&io, count);
        let old = io.contents(SEGMENT)[position..position + size].to_vec();
        let mut log = Log::open(io.clone(), WIDE, LOG_ID).expect("it is whole");
        log.cut(1).expect("nothing fails");
        add(&mut log, count, 2, true);
        drop(log);
        let io = died(io);
        drop(Log::open(io.clone(), WIDE, LOG_ID).expect("it is whole, and its end the newest cut now"));
        let io = died(io);
        let mut bytes = io.contents(SEGMENT);
        bytes[position..position + size].copy_from_slice(&old);
        io.put(SEGMENT, &bytes);
        let Err((_, found)) = opened(&io) else { panic!("entry {count} is not the one that was flushed") };
        assert!(found.contains(why), "{found}");
    }
}

/// A frame of this log at another place, or one of another log at this place, is no entry: its header says where it belongs.
#[test]
fn misdirected_writes_are_found() {
    let io = dead_log(4, true);
    let (position, size) = place(&io, 3);
    let other = io.contents(SEGMENT)[position..position + size].to_vec();
    overwrite(&io, 1, |frame| frame.copy_from_slice(&other));
    assert!(matches!(opened(&io), Err((1, _))), "entry 3 in place of entry 1");

    let foreign = MemIo::new();
    let mut log = Log::open(foreign.clone(), WIDE, LogId(77)).expect("it is new");
    add(&mut log, 4, 1, true);
    let (position, size) = place(&foreign, 1);
    let foreign = foreign.contents(SEGMENT)[position..position + size].to_vec();
    let io = dead_log(4, true);
    overwrite(&io, 1, |frame| frame.copy_from_slice(&foreign));
    assert!(matches!(opened(&io), Err((1, _))), "entry 1 of another log");
}

/// A batch of the same offset, epoch and size, whole in itself, is not the one its frame was written for.
#[test]
fn an_exchanged_batch_is_found() {
    let io = dead_log(4, true);
    let record = highwater_wire::batch::Record { key: None, value: Some(vec![0xee; 100].into()) };
    let mut other = highwater_wire::batch::build(&[record], 1_001);
    highwater_wire::batch::stamp(&mut other, 1, highwater_wire::Epoch(1)).expect("it was built here");
    assert_eq!(other.len(), stamped(1, 1, 1, 100).len());
    overwrite(&io, 1, |frame| frame[64..64 + other.len()].copy_from_slice(&other));
    assert_eq!(opened(&io), Err((1, "entries that had been flushed are damaged")));
}

/// Each frame's epoch is at least that of the one before, or something else wrote it.
#[test]
fn an_epoch_that_goes_down_is_refused_even_at_the_very_end() {
    let io = dead_log(4, false);
    overwrite(&io, 3, |frame| {
        // In the frame's header, under its checksum, and in the batch's, outside its checksum.
        frame[36..40].fill(0);
        frame[64 + 12..64 + 16].fill(0);
        let checksum = crc32c::crc32c(&frame[..60]);
        frame[60..64].copy_from_slice(&checksum.to_be_bytes());
    });
    let Err((3, why)) = opened(&io) else { panic!("epoch 0 behind epoch 1") };
    assert!(why.contains("do not belong together"), "{why}");
}

/// A control file from before the last start: the frames behind it are of a later generation.
#[test]
fn a_contradiction_is_refused_even_at_the_very_end() {
    let io = dead_log(2, true);
    let control = io.contents("control");
    let mut log = Log::open(io.clone(), WIDE, LOG_ID).expect("it is whole");
    add(&mut log, 1, 1, false);
    let io = died(io);
    io.put("control", &control);
    let Err((2, why)) = opened(&io) else { panic!("a frame of a later generation than the control file's") };
    assert!(why.contains("older than the log"), "{why}");
}

/// The same, with segments that the older control file does not name.
#[test]
fn a_live_segment_that_nobody_names_is_refused() {
    let io = MemIo::new();
    let mut log = open(&io);
    log.append(&stamped(0, 1, 1, 250)).expect("nothing fails");
    let control = io.contents("control");
    for base in 1..6 {
        log.append(&stamped(base, 1, 1, 250)).expect("nothing fails");
    }
    flush(&mut log).expect("nothing fails");
    let io = died(io);
    io.put("control", &control);
    let error = Log::open(io, OPTIONS, LOG_ID).expect_err("the control file is older than the log");
    assert!(error.to_string().contains("older than the log"), "{error}");
}

/// A segment that was begun and not yet named, and segments behind a cut, are removed.
#[test]
fn leftovers_are_removed() {
    let mut io = MemIo::new();
    let mut log = open(&io);
    for base in 0..12 {
        log.append(&stamped(base, 1, 1, 250)).expect("nothing fails");
    }
    flush(&mut log).expect("nothing fails");
    let names = |io: &MemIo| highwater_log::Io::list(io).expect("nothing fails");
    let before = names(&io);
    assert!(before.len() > 4, "several segments: {before:?}");
    // The process dies in the middle of a cut: the control file has it, the segments are still there.
    let segments: Vec<_> = before.iter().filter(|name| name.ends_with(".log")).collect();
    let kept: Vec<_> = segments.iter().map(|name| (name.to_string(), io.contents(name))).collect();
    log.cut(2).expect("nothing fails");
    io.kill();
    for (name, bytes) in &kept {
        io.put(name, bytes);
    }
    io.put("00000000000000000002.log.tmp", b"half");
    let log = open(&io);
    assert_eq!(log.shape().end, 2);
    let after = names(&io);
    let segments: Vec<_> = after.iter().filter(|name| name.ends_with(".log")).collect();
    assert_eq!(
        segments,
        ["00000000000000000000.log", "00000000000000000002.log"],
        "the log ends where the second begins"
    );
    assert!(!after.iter().any(|name| name.ends_with(".tmp")), "{after:?}");
    assert!(after.iter().any(|name| name.starts_with("lost-tail-")), "{after:?}");
}

/// A loss of power may take the padding behind the last frame, whose bytes are zeros and were never missed until that frame was given up.
#[test]
fn a_frame_without_its_padding_can_be_cut() {
    let io = MemIo::new();
    let mut log = open(&io);
    log.append(&stamped(0, 1, 1, 21)).unwrap();
    log.append(&stamped(1, 1, 1, 21)).unwrap();
    flush(&mut log).unwrap();
    drop(log);
    let mut bytes = io.contents(SEGMENT);
    let frame = 64 + stamped(1, 1, 1, 21).len();
    assert_ne!(frame % 8, 0, "the sample has padding");
    bytes.truncate(4096 + frame.next_multiple_of(8) + frame);
    let control = io.contents("control");
    let io = MemIo::new();
    for file in ["control", SEGMENT] {
        io.put(file, if file == "control" { &control } else { &bytes });
    }
    let mut log = open(&io);
    assert_eq!(log.shape().end, 2);
    log.cut(1).unwrap();
    assert_eq!(log.shape().end, 1);
}
