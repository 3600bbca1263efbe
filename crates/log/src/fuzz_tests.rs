//! Files that nobody wrote: the control file, the headers, and whole folders.

use bytes::{Bytes, BytesMut};
use highwater_fuzz::{fuzz, fuzz_costly};
use highwater_wire::batch::{self, Record};
use highwater_wire::{Epoch, HardState, LogId};

use crate::control::{Control, Cut, open, seal};
use crate::frame::{FrameHeader, HEADER_BYTES, Slot};
use crate::io::Io;
use crate::mem::MemIo;
use crate::segment::SegmentHeader;
use crate::{Log, LogStore, Options};

const LOG_ID: LogId = LogId(0x10c);
const KIND: [u8; 8] = *b"fuzzkind";
const OPTIONS: Options = Options { segment_bytes: 4096 + 1024, zero_bytes: 512, cache_bytes: 600, create: false };

/// Puts the checksum at the end right, and the length in a sealed file's header.
fn repair_sealed(input: &mut [u8]) {
    let (Some(covered), Some(length)) = (input.len().checked_sub(4), input.len().checked_sub(26)) else { return };
    input[18..22].copy_from_slice(&(length as u32).to_be_bytes());
    let checksum = crc32c::crc32c(&input[..covered]).to_be_bytes();
    input[covered..].copy_from_slice(&checksum);
}

fn repair_at(covered: usize) -> impl Fn(&mut [u8]) {
    move |input| {
        if input.len() >= covered + 4 {
            let checksum = crc32c::crc32c(&input[..covered]).to_be_bytes();
            input[covered..covered + 4].copy_from_slice(&checksum);
        }
    }
}

#[test]
fn fuzz_sealed_files() {
    fuzz(&[seal(KIND, 1, b"payload"), seal(KIND, 2, b"")], repair_sealed, |input| match open(KIND, input) {
        Ok((version, payload)) => {
            assert_eq!(seal(KIND, version, payload), input, "there is one way to seal a payload");
            format!("{} bytes", if payload.is_empty() { "no" } else { "some" })
        }
        Err(error) => error.to_string(),
    });
}

#[test]
fn fuzz_control_files() {
    let made = Control::new(LOG_ID);
    let used = Control {
        hard: HardState { promised: Some(Epoch(7)), hw_hint: (12, Some(Epoch(6))), ..HardState::default() },
        flushed: 20,
        cut: Cut { offset: 14, generation: 3, before: 0x44 },
        last_segment: Some(8),
        clean: Some(20),
        ..Control::new(LOG_ID)
    };
    fuzz(&[made.encode(), used.encode()], repair_sealed, |input| match Control::decode(input) {
        Ok(control) => format!("{:?}", (control.clean.is_some(), control.last_segment.is_some())),
        Err(error) => error.to_string(),
    });
}

#[test]
fn fuzz_frame_headers() {
    let header = FrameHeader {
        log_id: LOG_ID,
        generation: 3,
        offset: 9,
        count: 2,
        epoch: Epoch(4),
        length: 100,
        batch_crc: 0x1234_5678,
        flushed_before: 8,
        previous: 0x9abc_def0,
    };
    fuzz(&[header.encode().to_vec()], repair_at(60), |input| {
        let Ok(bytes) = <&[u8; HEADER_BYTES]>::try_from(input) else { return "another length".to_owned() };
        match FrameHeader::decode(bytes) {
            Ok(header) => {
                assert!(header.size() >= HEADER_BYTES as u64, "a frame is longer than its header");
                "a header".to_owned()
            }
            Err(Slot::Damaged(what)) => what.split("0x").next().unwrap_or_default().to_owned(),
            Err(slot) => format!("{slot:?}"),
        }
    });
}

#[test]
fn fuzz_segment_headers() {
    let first = SegmentHeader { log_id: LOG_ID, base: 0, previous: None };
    let later = SegmentHeader { log_id: LOG_ID, base: 90, previous: Some(40) };
    let samples = [first, later].map(|header| header.encode()[..48].to_vec());
    fuzz(&samples, repair_at(40), |input| match SegmentHeader::decode(input) {
        Ok(header) => {
            assert!(header.previous.is_none_or(|previous| previous < header.base), "segments rise");
            format!("{:?}", header.previous.is_some())
        }
        Err(what) => what.split("0x").next().unwrap_or_default().to_owned(),
    });
}

/// A log of some batches in two segments, closed or left behind by a crash.
fn folder(clean: bool) -> (MemIo, Bytes) {
    let io = MemIo::new();
    let mut log = Log::open(io.clone(), Options { create: true, ..OPTIONS }, LOG_ID).expect("an empty folder opens");
    let mut all = BytesMut::new();
    for base in 0..8u64 {
        let record = Record { key: None, value: Some(Bytes::from(vec![base as u8; 300])) };
        let mut one = batch::build(&[record], 1_000);
        batch::stamp(&mut one, base, Epoch(base as u32 / 3)).expect("what was built can be stamped");
        all.extend_from_slice(&one);
        log.append(&one.freeze()).expect("the disk is whole");
        let job = log.begin_flush().expect("there is something to flush");
        log.finish_flush(job.run()).expect("the disk is whole");
    }
    if clean {
        log.close().expect("the disk is whole");
    }
    (io, all.freeze())
}

/// Whatever one file of a folder holds, opening it is refused, or what is read is what was written up to where it ends.
#[test]
fn fuzz_folders() {
    for clean in [true, false] {
        let (whole, written) = folder(clean);
        let names = whole.list().expect("the disk is whole");
        assert!(names.len() >= 3, "a control file and two segments: {names:?}");
        for name in &names {
            fuzz_costly(
                &[whole.contents(name)],
                |_| {},
                |input| {
                    let io = whole.copy();
                    io.remove(name).expect("the disk is whole");
                    io.put(name, input);
                    let log = match Log::open(io, OPTIONS, LOG_ID) {
                        Ok(log) => log,
                        Err(error) => return error.to_string().chars().take(30).collect(),
                    };
                    assert_eq!(log.shape().start, 0, "nothing was removed from the front");
                    let mut read = BytesMut::new();
                    let mut next = 0;
                    while next < log.shape().end {
                        let some = log.read(next, 1 << 20).expect("what was recovered is whole");
                        assert!(!some.is_empty(), "there is an entry at {next}");
                        next += batch::split(&some).map(|part| part.expect("a whole batch").0.count).sum::<u64>();
                        read.extend_from_slice(&some);
                    }
                    assert!(written.starts_with(&read), "entries that were never written are read");
                    if clean {
                        assert_eq!(next, 8, "a log that was closed in good order is whole or refused");
                    }
                    format!("{} entries", "x".repeat(next as usize))
                },
            );
        }
    }
}
