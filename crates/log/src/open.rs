//! Opening: recovery's second half, and the making of a new log.
//!
//! What was decided is carried out in this order, and a crash at any point leaves a folder for which the same is decided again:
//!
//! 1. Write again what was found and is not known to have been flushed, then flush it. From here on it is durable, and `flushed` says so. Without the
//!    writing, a sync that failed in the last process would be made good by nothing: the kernel may have marked the lost pages clean, so that they
//!    read back, a second sync reports success, and a power loss takes them.
//! 2. Write the control file, durably: no mark of a clean shutdown, the end as the newest cut, in a new generation. Fragments of unfinished writes may lie
//!    behind the end; without this, one of them could come to life when a later append ends where it begins.
//! 3. Remove files that mean nothing any more.
//!
//! A new log: the control file first, so that promises can never be missing beside entries; then the first segment; then the control file names it.

use std::io;

use highwater_wire::{LogId, LogShape, Offset};

use crate::control::{self, Control, Cut};
use crate::error::OpenError;
use crate::frame::ALIGN;
use crate::io::{Io, IoFile};
use crate::log::{Log, Options};
use crate::replace::durable_replace;
use crate::segment::{self, Segment, SegmentHeader};
use crate::survey::{Survey, Surveyed, survey};

/// Bytes written again at once.
const WRITE_BYTES: usize = 1 << 20;

/// What opening found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The folder was empty, and is a log now.
    pub created: bool,
    /// The log had been closed in good order. If not, entries that nobody flushed may be gone.
    pub clean: bool,
    /// The log's end is where a write was torn, and why that is thought.
    pub torn: Option<&'static str>,
    /// The end.
    pub end: Offset,
}

impl<I: Io> Log<I> {
    /// Opens the log in a folder, or makes one where the folder is empty and the options allow it.
    pub fn open(io: I, options: Options, log_id: LogId) -> Result<Log<I>, OpenError> {
        assert!(options.segment_bytes > 0 && options.zero_bytes > 0, "sizes are at least 1: {options:?}");
        match survey(&io, Some(log_id))? {
            Survey::Log(found) => recover(io, options, found),
            Survey::HalfMade(control) => make(io, options, control),
            Survey::Empty if options.create => {
                let control = Control::new(log_id);
                durable_replace(&io, control::NAME, &control.encode())?;
                make(io, options, control)
            }
            Survey::Empty => Err(OpenError::Missing { log_id }),
        }
    }
}

fn make<I: Io>(io: I, options: Options, mut control: Control) -> Result<Log<I>, OpenError> {
    assert!(control.last_segment.is_none() && control.start == 0, "the folder is being made");
    let header = SegmentHeader { log_id: control.log_id, base: 0, previous: None };
    let name = segment::name(0);
    let segment = Segment::create(&io, header, &options).map_err(OpenError::io("make", &name))?;
    control.last_segment = Some(0);
    durable_replace(&io, control::NAME, &control.encode())?;
    let recovered = Recovered { created: true, clean: true, torn: None, end: 0 };
    Ok(Log::assemble(io, options, control, LogShape::default(), vec![segment], recovered))
}

/// Writes the frames from that of offset `from` on over themselves, so that the next sync has something to sync.
fn write_again<F: IoFile>(segment: &Segment<F>, from: Offset) -> io::Result<()> {
    let mut at = if from <= segment.base { 0 } else { segment.position_before(from) };
    assert!(at <= segment.position, "what is written again lies before the end: {at} of {}", segment.position);
    let mut buffer = vec![0; WRITE_BYTES];
    while at < segment.position {
        let wanted = WRITE_BYTES.min((segment.position - at) as usize);
        let read = segment.file.read_at(at, &mut buffer[..wanted])?;
        // The file may end in the padding behind the last frame, where a power loss has taken the rest of it.
        if read == 0 {
            assert!(segment.position - at < ALIGN, "the file ends at {at}, where frames were read before");
            break;
        }
        segment.file.write_at(at, &buffer[..read])?;
        at += read as u64;
    }
    Ok(())
}

fn recover<I: Io>(io: I, options: Options, found: Surveyed<I::File>) -> Result<Log<I>, OpenError> {
    let Surveyed { mut control, segments, mut shape, last_checksum, torn, leftovers } = found;
    let clean = control.clean.is_some();
    // Behind the end of a log that was closed in good order may lie the middle of a dead frame, which looks like a torn one.
    let torn = torn.filter(|_| !clean);
    for (index, segment) in segments.iter().enumerate() {
        let name = segment::name(segment.base);
        let end = segments.get(index + 1).map_or(shape.end, |next| next.base);
        if end > shape.flushed {
            write_again(segment, shape.flushed).map_err(OpenError::io("write again", &name))?;
        }
        segment.file.sync_data().map_err(OpenError::io("flush", &name))?;
    }
    // The names, too: a rename or a removal may have been waiting for its sync.
    io.sync_dir().map_err(OpenError::io("sync", "its folder"))?;
    shape.flushed = shape.end;
    control.flushed = shape.end;
    control.clean = None;
    control.cut = Cut { offset: shape.end, generation: control.cut.generation + 1, before: last_checksum };
    control.last_segment = segments.last().map(|segment| segment.base);
    durable_replace(&io, control::NAME, &control.encode())?;
    for name in leftovers.iter().filter(|name| **name != format!("{}.tmp", control::NAME)) {
        io.remove(name).map_err(OpenError::io("remove", name))?;
    }
    io.sync_dir().map_err(OpenError::io("sync", "its folder"))?;
    let recovered = Recovered { created: false, clean, torn, end: shape.end };
    Ok(Log::assemble(io, options, control, shape, segments, recovered))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use highwater_wire::batch::{self, Record};
    use highwater_wire::{Epoch, LogId};

    use super::*;
    use crate::mem::{Fault, MemIo, Op};
    use crate::store::LogStore;

    fn entry() -> Bytes {
        let record = Record { key: None, value: Some(Bytes::from_static(b"written once")) };
        let mut bytes = batch::build(&[record], 0);
        batch::stamp(&mut bytes, 0, Epoch(0)).expect("a batch that was just built can be stamped");
        bytes.freeze()
    }

    /// The kernel has marked the pages clean, and the next process finds them in its cache. Recovery calls them durable, so they must be.
    #[test]
    fn what_a_failed_sync_left_readable_is_durable_after_recovery() {
        let mut io = MemIo::new();
        let open = |io: &MemIo| Log::open(io.clone(), Options::default(), LogId(1)).expect("the log opens");
        let mut log = open(&io);
        log.append(&entry()).expect("there is room");
        io.fail(Fault { op: Some(Op::Sync), after: 0, full: false, for_ever: false, short: false });
        let done = log.begin_flush().expect("there is something to flush").run();
        assert!(log.finish_flush(done).is_err(), "the flush failed");
        io.kill();
        assert_eq!(open(&io).shape().flushed, 1);
        io.crash(|_| 0);
        assert_eq!(open(&io).shape().flushed, 1);
    }
}
