//! Looking at a log folder without changing it: its frames for people, what cuts gave up, and whether recovery would take it.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use highwater_wire::{Epoch, HardState, LogId, LogShape, Offset};

use crate::error::OpenError;
use crate::frame::{HEADER_BYTES, Reader, Slot, frame_size};
use crate::io::Io;
use crate::segment::{self, FIRST_FRAME};
use crate::survey::{Survey, survey};

/// One thing found in a file of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A whole frame.
    Frame(Frame),
    /// Where a frame was expected, something else lies; nothing further is looked at in this file.
    Damage {
        /// The file.
        name: String,
        /// The byte.
        position: u64,
        /// What is wrong.
        what: String,
    },
}

/// A frame, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The file.
    pub name: String,
    /// The byte it begins at.
    pub position: u64,
    /// The log it was written for.
    pub log_id: LogId,
    /// The log's generation when it was written.
    pub generation: u64,
    /// The offset of its first entry.
    pub offset: Offset,
    /// How many entries it has.
    pub count: u32,
    /// Their epoch.
    pub epoch: Epoch,
    /// Everything below was durable when it was written.
    pub flushed_before: Offset,
    /// It does not follow the one before it, and so is no part of the log: a cut left it behind.
    pub dead: bool,
    /// The record batch.
    pub batch: Bytes,
}

impl Frame {
    /// The bytes of its file that it takes, header and batch; the padding behind them is not among them.
    pub fn bytes(&self) -> std::ops::Range<u64> {
        self.position..self.position + (HEADER_BYTES + self.batch.len()) as u64
    }

    /// The byte at which the next frame may begin: behind the padding.
    pub fn end(&self) -> u64 {
        self.position + frame_size(self.batch.len())
    }
}

/// The frames of several files, in order.
pub struct Frames<'a, I: Io> {
    io: &'a I,
    names: std::vec::IntoIter<String>,
    file: Option<(String, Arc<I::File>, u64)>,
    /// The end and generation of the last live frame.
    last: Option<(Offset, u64)>,
}

/// The frames of all segments. What lies behind the log's end is listed too, as dead or as damage, as far as it can be read.
pub fn frames<I: Io>(io: &I) -> io::Result<Frames<'_, I>> {
    let mut names = io.list()?;
    names.retain(|name| segment::base_of(name).is_some());
    names.sort();
    Ok(Frames { io, names: names.into_iter(), file: None, last: None })
}

/// The frames of one lost tail.
pub fn lost_tail<'a, I: Io>(io: &'a I, tail: &LostTail) -> Frames<'a, I> {
    Frames { io, names: vec![tail.name.clone()].into_iter(), file: None, last: None }
}

/// What one cut gave up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostTail {
    /// Where the log was cut.
    pub offset: Offset,
    /// The log's generation before the cut.
    pub generation: u64,
    /// The file.
    pub name: String,
}

/// What cuts have given up in this folder, by offset.
pub fn lost_tails<I: Io>(io: &I) -> io::Result<Vec<LostTail>> {
    let mut tails: Vec<_> = io.list()?.into_iter().filter_map(parse_lost_tail).collect();
    tails.sort();
    Ok(tails)
}

fn parse_lost_tail(name: String) -> Option<LostTail> {
    let (offset, generation) = name.strip_prefix("lost-tail-")?.split_once('-')?;
    let (offset, generation) = (offset.parse().ok()?, generation.parse().ok()?);
    Some(LostTail { offset, generation, name })
}

/// What [`verify`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Whose folder it is.
    pub log_id: LogId,
    /// The outline; `flushed` as far as it is on record.
    pub shape: LogShape,
    /// The promises.
    pub hard: HardState,
    /// The generation.
    pub generation: u64,
    /// It was closed in good order.
    pub clean: bool,
    /// Why the end is taken for a torn write, if it is.
    pub torn: Option<&'static str>,
}

/// Reads everything, with every checksum, as recovery would, and changes nothing. `None` if the folder is empty.
pub fn verify<I: Io>(io: &I) -> Result<Option<Verified>, OpenError> {
    let (control, shape, torn) = match survey(io, None)? {
        Survey::Empty => return Ok(None),
        Survey::HalfMade(control) => (control, LogShape::default(), None),
        Survey::Log(found) => (found.control, found.shape, found.torn),
    };
    let clean = control.clean.is_some();
    Ok(Some(Verified {
        log_id: control.log_id,
        shape,
        hard: control.hard,
        generation: control.cut.generation,
        clean,
        torn: torn.filter(|_| !clean),
    }))
}

impl<I: Io> Frames<'_, I> {
    fn step(&mut self) -> io::Result<Option<Item>> {
        loop {
            let (name, file, position) = match self.file.take() {
                Some(open) => open,
                None => {
                    let Some(name) = self.names.next() else { return Ok(None) };
                    let first = if segment::base_of(&name).is_some() { FIRST_FRAME } else { 0 };
                    let file = self.io.open(&name)?;
                    (name, file, first)
                }
            };
            let (log, batch) = match Reader::new(&*file, 0)?.slot(position)? {
                Slot::Frame(header, batch) => (header, batch),
                Slot::Nothing => continue,
                Slot::Damaged(what) => return Ok(Some(Item::Damage { name, position, what })),
                Slot::Newer(version) => {
                    let what = format!("a frame of format {version}, which this build does not know");
                    return Ok(Some(Item::Damage { name, position, what }));
                }
            };
            let follows = |(end, generation)| log.offset == end && log.generation >= generation;
            let dead = !self.last.is_none_or(follows);
            if !dead {
                self.last = Some((log.end(), log.generation));
            }
            self.file = Some((name.clone(), file, position + log.size()));
            return Ok(Some(Item::Frame(Frame {
                name,
                position,
                log_id: log.log_id,
                generation: log.generation,
                offset: log.offset,
                count: log.count,
                epoch: log.epoch,
                flushed_before: log.flushed_before,
                dead,
                batch,
            })));
        }
    }
}

impl<I: Io> Iterator for Frames<'_, I> {
    type Item = io::Result<Item>;

    fn next(&mut self) -> Option<io::Result<Item>> {
        let item = self.step().transpose();
        if matches!(item, Some(Err(_))) {
            // An error is told once; the file it came from is not tried again.
            (self.names, self.file) = (Vec::new().into_iter(), None);
        }
        item
    }
}
