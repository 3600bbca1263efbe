//! Disks that do not keep what they confirmed: rotten bytes, writes that were lost or went elsewhere, reads that fail.
//!
//! What is hit was flushed, and must be known to have been: recovery cannot tell damage from a torn write where nothing that was durable says that more had
//! been flushed (docs/log-format.md, *What recovery cannot tell*). Which places those are is observed, on a copy of the disk as a loss of power would
//! leave it: everything below the greatest *flushed before* of any live frame, and below what the control file says. The rest, that is, the last
//! flush and what was written while the one before it ran, is left alone.
//!
//! Left alone are also a control file that is lost together with its rename, so that the one before it shows (a promise would be forgotten, and nothing
//! that is durable says so), and zeros, dead frames and lost tails, which nobody reads.

use std::collections::BTreeMap;

use highwater_log::dump::{self, Item};
use highwater_log::mem::{MemIo, SECTOR_BYTES, Written};
use highwater_wire::NodeId;

use super::World;
use crate::faults::Fault;
use crate::rng::Rng;

/// The name of a log's control file.
const CONTROL: &str = "control";
/// The part of a segment's header that its checksum covers, with the checksum.
const SEGMENT_HEADER_BYTES: u64 = 44;

/// A place whose loss recovery notices.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    name: String,
    at: u64,
    len: u64,
}

/// What is known, durably, to have been flushed, and what it cannot be found without.
#[derive(Debug, Default)]
struct Known {
    frames: Vec<Span>,
    /// Of the segments that hold them, and the control file.
    headers: Vec<Span>,
    /// Up to where everything in a file is known.
    ends: BTreeMap<String, u64>,
}

/// What is known of a folder; nothing if it is damaged already.
fn known(folder: &MemIo) -> Known {
    let durable = folder.durable();
    let (Ok(Some(found)), Ok(items)) = (dump::verify(&durable), dump::frames(&durable)) else {
        return Known::default();
    };
    let live: Vec<dump::Frame> = items
        .filter_map(|item| match item {
            Ok(Item::Frame(frame)) => Some(frame),
            _ => None,
        })
        .filter(|frame| !frame.dead && frame.offset < found.shape.end)
        .collect();
    let told = live.iter().map(|frame| frame.flushed_before).max().unwrap_or(0).max(found.shape.flushed);
    let mut known = Known::default();
    for frame in live.iter().filter(|frame| frame.offset + u64::from(frame.count) <= told) {
        let bytes = frame.bytes();
        known.frames.push(Span { name: frame.name.clone(), at: bytes.start, len: bytes.end - bytes.start });
        let header = Span { name: frame.name.clone(), at: 0, len: SEGMENT_HEADER_BYTES };
        if known.headers.last() != Some(&header) {
            known.headers.push(header);
        }
        known.ends.insert(frame.name.clone(), frame.end());
    }
    let len = durable.contents(CONTROL).len() as u64;
    known.headers.push(Span { name: CONTROL.to_owned(), at: 0, len });
    known.ends.insert(CONTROL.to_owned(), len);
    known
}

/// A bit of some byte rots. Says where; `None` if there is nothing that may.
fn rot(folder: &MemIo, rng: &mut Rng) -> Option<String> {
    let known = known(folder);
    let body = !known.frames.is_empty() && rng.percent(70);
    let spans = if body { &known.frames } else { &known.headers };
    let span = (!spans.is_empty()).then(|| rng.pick(spans))?;
    let at = span.at + rng.below(span.len);
    let byte = folder.contents(&span.name)[at as usize];
    folder.spoil(&span.name, at, &[byte ^ (1 << rng.below(8))]);
    Some(format!("byte {at} of {}", span.name))
}

/// A write that was confirmed and synced shows what was there before. `None` if there is none of which that may be.
fn lose(folder: &MemIo, known: &Known, rng: &mut Rng) -> Option<Written> {
    let may = |one: &Written| known.ends.get(&one.name).is_some_and(|end| one.end() <= *end);
    let writes: Vec<Written> = folder.written().into_iter().filter(|one| one.before != one.bytes && may(one)).collect();
    let lost = (!writes.is_empty()).then(|| rng.pick(&writes).clone())?;
    folder.spoil(&lost.name, lost.at, &lost.before);
    Some(lost)
}

/// A write is lost where it belongs, and shows in another place, at the same distance from the beginning of a sector. If it would reach into what is
/// not known to have been flushed, it is merely lost.
fn misdirect(folder: &MemIo, known: &Known, rng: &mut Rng) -> Option<Written> {
    let one = lose(folder, known, rng)?;
    let places: Vec<&Span> = known.frames.iter().chain(&known.headers).collect();
    let place = rng.pick(&places);
    let at = place.at / SECTOR_BYTES * SECTOR_BYTES + one.at % SECTOR_BYTES;
    if place.name == CONTROL || known.ends.get(&place.name).is_some_and(|end| at + one.bytes.len() as u64 <= *end) {
        folder.spoil(&place.name, at, &one.bytes);
    }
    Some(one)
}

impl World {
    /// The disk of a node shows something else than was written there. False if nothing there may be hit.
    pub(super) fn spoil(&mut self, id: NodeId, fault: Fault) -> bool {
        let mut rng = self.rng.fork(23);
        let node = self.node_mut(id);
        if fault == Fault::BitRot && node.strikes_store(&rng) && node.store.rot() {
            // No harm: the machine makes the file anew.
            self.trace
                .note(self.now, &(id, fault), || format!("node {id}: {} in its database, at its end", fault.name()));
            return true;
        }
        let folders = node.disk.folders();
        if !self.may_harm(id) || folders.is_empty() {
            return false;
        }
        let times = if fault == Fault::BitRot { rng.range(1, 3) } else { 1 };
        let mut told = Vec::new();
        for _ in 0..times {
            let folder = rng.pick(&folders);
            let of = |one: Written| format!("{} bytes at {} of {}", one.bytes.len(), one.at, one.name);
            told.extend(match fault {
                Fault::BitRot => rot(folder, &mut rng),
                Fault::LostWrite => lose(folder, &known(folder), &mut rng).map(of),
                _ => misdirect(folder, &known(folder), &mut rng).map(of),
            });
        }
        if !self.node(id).disk.spoiled() {
            return false;
        }
        self.trace.note(self.now, &(id, fault), || format!("node {id}: {}: {}", fault.name(), told.join(", ")));
        self.harm(id, fault);
        true
    }

    /// Reads of a node's disk fail: one, or all from some read on until the disk is mended.
    pub(super) fn fail_reads(&mut self, id: NodeId) {
        let mut rng = self.rng.fork(29);
        if rng.percent(40) && self.may_harm(id) {
            self.node(id).disk.fail_reads(&mut rng);
            self.harm(id, Fault::ReadError);
        } else {
            let node = self.node_mut(id);
            node.disk_fault = true;
            node.disk.fail_one_read(&mut rng);
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_log::{Log, LogStore, Options};
    use highwater_wire::LogId;

    use super::*;
    use crate::laws::testing::entry;

    const OPTIONS: Options = Options { segment_bytes: 6 << 10, zero_bytes: 1 << 10, cache_bytes: 0, create: false };

    /// A log of several segments whose process was killed; all of it was flushed, the last two entries by one flush.
    fn folder() -> MemIo {
        let mut io = MemIo::new();
        io.remember_writes();
        let mut log = Log::open(io.clone(), Options { create: true, ..OPTIONS }, LogId(7)).expect("an empty folder");
        for offset in 0..16 {
            log.append(&entry(offset, 0, offset)).expect("nothing fails");
            if offset != 14 {
                let job = log.begin_flush().expect("something was appended");
                log.finish_flush(job.run()).expect("nothing fails");
            }
        }
        drop(log);
        io.kill();
        io
    }

    fn opens(io: &MemIo) -> bool {
        Log::open(io.copy(), OPTIONS, LogId(7)).is_ok()
    }

    #[test]
    fn every_changed_byte_of_what_is_known_is_noticed_and_right_again_once_mended() {
        let io = folder();
        let known = known(&io);
        assert_eq!(known.frames.len(), 14, "all but the last flush");
        assert!(known.headers.len() > 2, "several segments: {:?}", known.headers);
        for span in known.frames.iter().chain(&known.headers) {
            for at in span.at..span.at + span.len {
                let byte = io.contents(&span.name)[at as usize];
                io.spoil(&span.name, at, &[byte ^ 4]);
                assert!(!opens(&io), "byte {at} of {} was changed", span.name);
                io.mend();
            }
        }
        assert!(opens(&io));
    }

    #[test]
    fn damage_to_the_last_flush_is_what_recovery_cannot_tell_from_a_torn_write() {
        let io = folder();
        let ends = known(&io).ends;
        let (name, end) = ends.iter().rfind(|(name, _)| *name != CONTROL).expect("there are segments");
        io.spoil(name, end + 70, &[0xff]);
        assert!(opens(&io));
    }

    #[test]
    fn writes_that_are_lost_or_go_elsewhere_are_noticed() {
        let io = folder();
        let mut lost = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let (rng, known) = (&mut Rng::new(seed), known(&io));
            let one = if seed % 2 == 0 { lose(&io, &known, rng) } else { misdirect(&io, &known, rng) };
            let one = one.expect("there are writes to lose");
            assert_eq!(
                opens(&io),
                !io.spoiled(),
                "seed {seed}: {} bytes at {} of {}",
                one.bytes.len(),
                one.at,
                one.name
            );
            lost.insert((one.name, one.at));
            io.mend();
        }
        assert!(lost.len() > 10, "not always the same one");
        assert!(opens(&io));
    }
}
