//! Opening: recovery's second half, and the making of a new log.
//!
//! What was decided is carried out in this order, and a crash at any point leaves a folder for which the same is decided again:
//!
//! 1. Flush what was found. From here on it is durable, and `flushed` says so.
//! 2. Write the control file, durably: no mark of a clean shutdown, the end as the newest cut, in a new generation. Fragments of unfinished writes may lie
//!    behind the end; without this, one of them could come to life when a later append ends where it begins.
//! 3. Remove files that mean nothing any more.
//!
//! A new log: the control file first, so that promises can never be missing beside entries; then the first segment; then the control file names it.

use highwater_wire::{LogId, LogShape, Offset};

use crate::control::{self, Control, Cut};
use crate::error::OpenError;
use crate::io::{Io, IoFile};
use crate::log::{Log, Options};
use crate::replace::durable_replace;
use crate::segment::{self, Segment, SegmentHeader};
use crate::survey::{Survey, Surveyed, survey};

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

fn recover<I: Io>(io: I, options: Options, found: Surveyed<I::File>) -> Result<Log<I>, OpenError> {
    let Surveyed { mut control, segments, mut shape, torn, leftovers } = found;
    let clean = control.clean.is_some();
    // Behind the end of a log that was closed in good order may lie the middle of a dead frame, which looks like a torn one.
    let torn = torn.filter(|_| !clean);
    for segment in &segments {
        segment.file.sync_data().map_err(OpenError::io("flush", &segment::name(segment.base)))?;
    }
    // The names, too: a rename or a removal may have been waiting for its sync.
    io.sync_dir().map_err(OpenError::io("sync", "its folder"))?;
    shape.flushed = shape.end;
    control.flushed = shape.end;
    control.clean = None;
    control.cut = Cut { offset: shape.end, generation: control.cut.generation + 1 };
    control.last_segment = segments.last().map(|segment| segment.base);
    durable_replace(&io, control::NAME, &control.encode())?;
    for name in leftovers.iter().filter(|name| **name != format!("{}.tmp", control::NAME)) {
        io.remove(name).map_err(OpenError::io("remove", name))?;
    }
    io.sync_dir().map_err(OpenError::io("sync", "its folder"))?;
    let recovered = Recovered { created: false, clean, torn, end: shape.end };
    Ok(Log::assemble(io, options, control, shape, segments, recovered))
}
