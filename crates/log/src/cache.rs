//! What was appended last, kept in memory: followers that keep up are served from here, and the bytes shipped are the very ones that were appended.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use highwater_wire::{Offset, batch};

/// The newest appends, one behind the other.
pub(crate) struct Cache {
    /// (offset of the first entry, batches).
    pieces: VecDeque<(Offset, Bytes)>,
    held_bytes: usize,
    most_bytes: usize,
}

impl Cache {
    pub(crate) fn new(most_bytes: usize) -> Cache {
        Cache { pieces: VecDeque::new(), held_bytes: 0, most_bytes }
    }

    /// Adds an append, and drops the oldest as far as needed.
    pub(crate) fn push(&mut self, base: Offset, batches: &Bytes) {
        assert!(self.pieces.back().is_none_or(|(last, _)| *last < base), "appends come in order");
        assert!(!batches.is_empty(), "an append has bytes");
        self.held_bytes += batches.len();
        self.pieces.push_back((base, batches.clone()));
        while self.held_bytes > self.most_bytes {
            let Some((_, dropped)) = self.pieces.pop_front() else { break };
            self.held_bytes -= dropped.len();
        }
    }

    /// Forgets everything from `to` on, which lies between batches.
    pub(crate) fn cut(&mut self, to: Offset) {
        while let Some((base, batches)) = self.pieces.pop_back() {
            self.held_bytes -= batches.len();
            if base < to {
                let kept = before(&batches, to);
                self.held_bytes += kept.len();
                self.pieces.push_back((base, kept));
                break;
            }
        }
    }

    /// Whole batches from the one that holds `from`: at least one, and no more than `max_bytes` otherwise. `None` if it is not held.
    pub(crate) fn read(&self, from: Offset, max_bytes: usize) -> Option<Bytes> {
        let first = self.pieces.partition_point(|(base, _)| *base <= from).checked_sub(1)?;
        let mut chosen = Vec::new();
        let mut room = max_bytes;
        for (index, (_, batches)) in self.pieces.iter().enumerate().skip(first) {
            let rest = if index == first { from_batch(batches, from) } else { batches.clone() };
            let whole = rest.len();
            let taken = up_to(rest, room, chosen.is_empty());
            let all = taken.len() == whole;
            room = room.saturating_sub(taken.len());
            if !taken.is_empty() {
                chosen.push(taken);
            }
            if !all || room == 0 {
                break;
            }
        }
        match chosen.as_slice() {
            [one] => Some(one.clone()),
            several => {
                let mut joined = BytesMut::with_capacity(several.iter().map(Bytes::len).sum());
                several.iter().for_each(|piece| joined.extend_from_slice(piece));
                Some(joined.freeze())
            }
        }
    }
}

/// Where each batch begins and ends, with its header.
fn places(batches: &Bytes) -> impl Iterator<Item = (usize, batch::BatchHeader)> + use<> {
    let mut at = 0;
    batch::split(batches).map(move |one| {
        let (header, _) = one.expect("what was appended was checked");
        let begin = at;
        at += header.size_bytes;
        (begin, header)
    })
}

fn before(batches: &Bytes, to: Offset) -> Bytes {
    let end = places(batches).take_while(|(_, header)| header.base < to).last();
    batches.slice(..end.map_or(0, |(begin, header)| begin + header.size_bytes))
}

fn from_batch(batches: &Bytes, from: Offset) -> Bytes {
    let holder = places(batches).find(|(_, header)| from < header.base + header.count);
    batches.slice(holder.expect("the piece holds the offset").0..)
}

fn up_to(batches: Bytes, room: usize, at_least_one: bool) -> Bytes {
    if batches.len() <= room {
        return batches;
    }
    let mut end = 0;
    for (begin, header) in places(&batches) {
        if begin + header.size_bytes > room && !(at_least_one && begin == 0) {
            break;
        }
        end = begin + header.size_bytes;
    }
    batches.slice(..end)
}
