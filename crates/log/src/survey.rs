//! Recovery's first half: look, and decide. Nothing is written here.
//!
//! 1. Read the control file.
//! 2. Follow the segments from the last, which the control file names, to the first, each by the one that names it.
//! 3. Walk over the frames from the start, noting epochs and places, until one is not what must come next.
//! 4. Look at what lies behind for live frames, and for what they say had been flushed.
//! 5. Ask the table.

use std::sync::Arc;

use highwater_wire::{Epoch, LogId, LogShape, Offset};

use crate::control::{self, Control};
use crate::error::OpenError;
use crate::frame::{ALIGN, CHUNK_BYTES, FrameHeader, Reader, Slot};
use crate::io::{Io, IoFile};
use crate::replace::TEMPORARY;
use crate::segment::{self, FIRST_FRAME, Segment, SegmentHeader};
use crate::table::{self, Decision, Found, Stop};

/// What a folder holds.
pub(crate) enum Survey<F> {
    /// No file at all, or only one that a crash left while the folder was being made.
    Empty,
    /// The folder was being made when a crash came: nothing was ever appended.
    HalfMade(Control),
    /// A log.
    Log(Surveyed<F>),
}

/// A log as it was found.
pub(crate) struct Surveyed<F> {
    pub(crate) control: Control,
    /// From the first to the one that holds the end.
    pub(crate) segments: Vec<Segment<F>>,
    /// `flushed` is what is known to have been: recovery flushes the rest.
    pub(crate) shape: LogShape,
    /// The checksum in the header of the last frame; 0 if there is none.
    pub(crate) last_checksum: u32,
    /// Why the end is not a clean one; `None` if it is.
    pub(crate) torn: Option<&'static str>,
    /// Files that mean nothing any more.
    pub(crate) leftovers: Vec<String>,
}

/// Looks at a folder.
pub(crate) fn survey<I: Io>(io: &I, log_id: Option<LogId>) -> Result<Survey<I::File>, OpenError> {
    let mut names = io.list().map_err(OpenError::io("list", "its folder"))?;
    names.sort();
    let Some(control) = read_control(io, &names, log_id)? else { return Ok(Survey::Empty) };
    let Some(last) = control.last_segment else {
        check_leftovers(io, &control, &names)?;
        return Ok(Survey::HalfMade(control));
    };
    let segments = chain(io, &control, last, &names)?;
    let in_chain = |name: &String| segments.iter().any(|one| segment::name(one.base) == *name);
    let mut leftovers: Vec<_> = names
        .into_iter()
        .filter(|name| name.ends_with(TEMPORARY) || (segment::base_of(name).is_some() && !in_chain(name)))
        .collect();
    check_leftovers(io, &control, &leftovers)?;
    let Walked { shape, last_checksum, torn, kept, segments } = Walk::new(&control, segments).run()?;
    leftovers.extend(segments.iter().skip(kept).map(|one| segment::name(one.base)));
    let segments = segments.into_iter().take(kept).collect();
    Ok(Survey::Log(Surveyed { control, segments, shape, last_checksum, torn, leftovers }))
}

fn read_all<F: IoFile>(file: &F) -> std::io::Result<Vec<u8>> {
    // A control file is a few hundred bytes. One that has grown beyond all measure is damaged; it need not be read to its end to be refused.
    Ok(Reader::new(file, 64 * 1024)?.bytes(0, 64 * 1024)?.to_vec())
}

fn read_control<I: Io>(io: &I, names: &[String], log_id: Option<LogId>) -> Result<Option<Control>, OpenError> {
    if !names.iter().any(|name| name == control::NAME) {
        let ours = |name: &str| segment::base_of(name).is_some() || name.starts_with("lost-tail-");
        return match names.iter().find(|name| **name != format!("{}{TEMPORARY}", control::NAME)) {
            None => Ok(None),
            Some(name) if ours(name) => Err(OpenError::ControlMissing { beside: name.clone() }),
            Some(name) => Err(OpenError::NotALog { found: name.clone() }),
        };
    }
    let file = io.open(control::NAME).map_err(OpenError::io("open", control::NAME))?;
    let bytes = read_all(&*file).map_err(OpenError::io("read", control::NAME))?;
    let control = Control::decode(&bytes).map_err(|error| OpenError::ControlDamaged { error })?;
    match log_id {
        Some(wanted) if wanted != control.log_id => {
            Err(OpenError::OtherLog { name: control::NAME.to_owned(), wanted, found: control.log_id })
        }
        _ => Ok(Some(control)),
    }
}

/// Opens the segments, first to last.
fn chain<I: Io>(io: &I, control: &Control, last: Offset, names: &[String]) -> Result<Vec<Segment<I::File>>, OpenError> {
    let mut segments = Vec::new();
    let (mut base, mut named_by) = (last, control::NAME.to_owned());
    loop {
        let name = segment::name(base);
        if !names.contains(&name) {
            return Err(OpenError::SegmentMissing { name, named_by });
        }
        let file = io.open(&name).map_err(OpenError::io("open", &name))?;
        let mut reader = Reader::new(&*file, FIRST_FRAME as usize).map_err(OpenError::io("read", &name))?;
        let bytes = reader.bytes(0, FIRST_FRAME as usize).map_err(OpenError::io("read", &name))?;
        let len = reader.len();
        let header =
            SegmentHeader::decode(&bytes).map_err(|what| OpenError::SegmentDamaged { name: name.clone(), what })?;
        if header.log_id != control.log_id {
            return Err(OpenError::OtherLog { name, wanted: control.log_id, found: header.log_id });
        }
        if header.base != base {
            let what = format!("it is segment {} under another name", segment::name(header.base));
            return Err(OpenError::SegmentDamaged { name, what });
        }
        segments.push(Segment::new(base, file, len.max(FIRST_FRAME)));
        if base <= control.start {
            break;
        }
        let Some(previous) = header.previous else {
            let what = format!("it is the first, and the log begins before it, at offset {}", control.start);
            return Err(OpenError::SegmentDamaged { name, what });
        };
        (base, named_by) = (previous, name);
    }
    segments.reverse();
    assert!(segments.windows(2).all(|pair| pair[0].base < pair[1].base), "segments rise");
    Ok(segments)
}

/// Segments that nobody names come from an interrupted roll or cut. Any frame in them is dead. If one is alive, the control file is an older one.
fn check_leftovers<I: Io>(io: &I, control: &Control, names: &[String]) -> Result<(), OpenError> {
    for name in names {
        let Some(base) = segment::base_of(name) else { continue };
        let file = io.open(name).map_err(OpenError::io("open", name))?;
        let mut reader = Reader::new(&*file, FIRST_FRAME as usize).map_err(OpenError::io("read", name))?;
        let slot = reader.slot(FIRST_FRAME).map_err(OpenError::io("read", name))?;
        let alive = |frame: &FrameHeader| {
            frame.log_id == control.log_id && frame.offset == base && frame.generation >= control.cut.generation
        };
        if matches!(&slot, Slot::Frame(frame, _) if alive(frame)) {
            let (_, why) = table::decide(Stop { found: Found::Impossible, was_flushed: false, more_follows: false });
            return Err(OpenError::Corrupt {
                name: name.clone(),
                position: FIRST_FRAME,
                offset: base,
                flushed: control.flushed,
                why,
                what: format!("the control file's last segment is {:?}", control.last_segment),
            });
        }
    }
    Ok(())
}

/// The walk over the frames.
struct Walk<'a, F> {
    control: &'a Control,
    segments: Vec<Segment<F>>,
    shape: LogShape,
    /// The offset expected next.
    next: Offset,
    /// Of the last frame.
    generation: u64,
    epoch: Option<Epoch>,
    /// The checksum in its header; 0 before the first.
    last_checksum: u32,
}

/// Where the walk came to.
struct Walked<F> {
    shape: LogShape,
    last_checksum: u32,
    torn: Option<&'static str>,
    /// How many of the segments are still part of the log.
    kept: usize,
    segments: Vec<Segment<F>>,
}

impl<'a, F: IoFile> Walk<'a, F> {
    fn new(control: &'a Control, segments: Vec<Segment<F>>) -> Walk<'a, F> {
        let next = segments.first().expect("a chain has a segment").base;
        assert!(next <= control.start, "the first segment holds the start");
        let shape = LogShape {
            start: control.start,
            base_epoch: control.base_epoch,
            end: control.start,
            flushed: control.start,
            epochs: Vec::new(),
        };
        Walk { control, segments, shape, next, generation: 0, epoch: None, last_checksum: 0 }
    }

    fn run(mut self) -> Result<Walked<F>, OpenError> {
        let mut at = 0;
        let (found, what) = loop {
            let name = segment::name(self.segments[at].base);
            let (found, what) = self.walk_segment(at).map_err(OpenError::io("read", &name))?;
            // A segment is left exactly where the next one begins. What lies behind in it is of no matter.
            match self.segments.get(at + 1) {
                Some(following) if following.base == self.next && found != Found::Impossible => at += 1,
                _ => break (found, what),
            }
        };
        let name = segment::name(self.segments[at].base);
        let (later_flushed, live) = self.look_behind(at).map_err(OpenError::io("read", &name))?;
        let flushed = self.control.flushed.max(self.control.clean.unwrap_or(0)).max(later_flushed);
        let stop = Stop { found, was_flushed: self.next < flushed, more_follows: live || at + 1 < self.segments.len() };
        let (decision, why) = table::decide(stop);
        let torn = match decision {
            Decision::End => None,
            Decision::Cut => Some(why),
            Decision::RefuseDamage | Decision::RefuseContradiction => {
                return Err(OpenError::Corrupt {
                    name,
                    position: self.segments[at].position,
                    offset: self.next,
                    flushed,
                    why,
                    what,
                });
            }
        };
        // With the head removed, a log may have been cut to its very start.
        self.shape.flushed = flushed.clamp(self.shape.start, self.shape.end);
        self.shape.check();
        let Walk { shape, last_checksum, segments, .. } = self;
        Ok(Walked { shape, last_checksum, torn, kept: at + 1, segments })
    }

    /// Notes frames until one is not what must come next; says what it is instead.
    fn walk_segment(&mut self, at: usize) -> std::io::Result<(Found, String)> {
        let limit = self.segments.get(at + 1).map(|following| following.base);
        let file = Arc::clone(&self.segments[at].file);
        let mut reader = Reader::new(&*file, CHUNK_BYTES)?;
        loop {
            // What is not alive above the newest cut was never part of the log; what is below it must be what was there when it was made.
            let cut = self.control.cut;
            if self.next == cut.offset && self.last_checksum != cut.before {
                let what = "the frame before is not the one that lay before the newest cut".to_owned();
                return Ok((Found::Impossible, what));
            }
            if limit == Some(self.next) {
                return Ok((Found::Nothing, "the next segment begins".to_owned()));
            }
            let frame = match reader.slot(self.segments[at].position)? {
                Slot::Nothing => return Ok((Found::Nothing, "zeros, or the end of the file".to_owned())),
                Slot::Damaged(what) => return Ok((Found::Damaged, what)),
                Slot::Newer(version) => {
                    let what = format!("a frame of format {version}, which a newer build wrote: use that one");
                    return Ok((Found::Impossible, what));
                }
                Slot::Frame(frame, _) => frame,
            };
            if let Some(stop) = self.judge(&frame, limit) {
                return Ok((stop, format!("{frame:?}")));
            }
            self.take(at, &frame);
        }
    }

    /// What a whole frame is if it is not the next one.
    fn judge(&self, frame: &FrameHeader, limit: Option<Offset>) -> Option<Found> {
        let cut = self.control.cut;
        let dead = frame.offset >= cut.offset && frame.generation < cut.generation;
        if frame.log_id != self.control.log_id
            || frame.offset != self.next
            || dead
            || frame.generation < self.generation
        {
            return Some(Found::Stale);
        }
        // From here on the frame is alive, so it must agree with everything else that is known.
        let impossible = frame.generation > cut.generation
            || Some(frame.epoch) < self.epoch
            || (frame.offset >= self.control.start && Some(frame.epoch) < self.control.base_epoch)
            || (frame.offset < self.control.start && frame.end() > self.control.start)
            || (frame.offset < cut.offset && frame.end() > cut.offset)
            || frame.previous != self.last_checksum
            || limit.is_some_and(|limit| frame.end() > limit);
        impossible.then_some(Found::Impossible)
    }

    fn take(&mut self, at: usize, frame: &FrameHeader) {
        self.segments[at].note(frame.offset, frame.size());
        if frame.offset >= self.control.start {
            self.shape.append(frame.epoch, u64::from(frame.count));
        }
        self.next = frame.end();
        self.generation = frame.generation;
        self.epoch = Some(frame.epoch);
        self.last_checksum = frame.checksum();
    }

    /// Searches behind the stop in segment `at`, and in those after it, for live frames. Returns the greatest offset that one of them says had been
    /// flushed, and whether there is any.
    fn look_behind(&self, at: usize) -> std::io::Result<(Offset, bool)> {
        let (mut flushed, mut live) = (0, false);
        for (index, segment) in self.segments.iter().enumerate().skip(at) {
            let mut reader = Reader::new(&*segment.file, CHUNK_BYTES)?;
            // The frame at the stop itself, if its header is whole, says nothing that is not known.
            let mut from = if index == at { segment.position + ALIGN } else { FIRST_FRAME };
            while let Some((position, frame)) = reader.find_header(from)? {
                if frame.log_id == self.control.log_id
                    && frame.offset >= self.next
                    && frame.generation >= self.control.cut.generation
                    && frame.generation >= self.generation
                {
                    live = true;
                    flushed = flushed.max(frame.flushed_before);
                }
                from = position + ALIGN;
            }
        }
        Ok((flushed, live))
    }
}
