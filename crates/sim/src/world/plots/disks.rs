//! Plots about what a disk leaves of a log.

use highwater_log::Io;
use highwater_log::dump::{self, Item};
use highwater_log::mem::{Fault as DiskFault, MemIo, Op, Written};
use highwater_wire::{NodeId, batch};

use super::World;
use crate::faults::Fault;

/// A frame's header (docs/log-format.md): how long it is, its magic, and where its offset and the length of its batch lie.
const HEADER_BYTES: usize = 64;
const MAGIC: &[u8] = b"HWLF";
const OFFSET: std::ops::Range<usize> = 24..32;
const LENGTH: std::ops::Range<usize> = 40..44;

/// Of these writes, those of a live frame exactly over a dead one for the same offset: its file and place, and the dead frame. A frame's header and its batch are two of them.
fn over_a_dead_frame(writes: &[Written]) -> Option<(String, u64, Vec<u8>)> {
    writes.iter().find_map(|header| {
        let (before, after) = (&header.before, &header.bytes);
        let frames = before.starts_with(MAGIC) && after.starts_with(MAGIC) && before.len() >= HEADER_BYTES;
        if !frames || before[OFFSET] != after[OFFSET] || before[LENGTH] != after[LENGTH] {
            return None;
        }
        let length = u32::from_be_bytes(before[LENGTH].try_into().ok()?) as usize;
        let at = header.at + HEADER_BYTES as u64;
        let batch = writes.iter().find(|one| one.name == header.name && one.at == at && one.before.len() >= length)?;
        let dead = [&before[..HEADER_BYTES], &batch.before[..length]].concat();
        let whole = batch::check(&batch.before[..length]).is_ok() && before != after;
        whole.then(|| (header.name.clone(), header.at, dead))
    })
}

/// The names of a log's files of frames, rising.
pub(super) fn segments(folder: &MemIo) -> Vec<String> {
    let names = folder.list().unwrap_or_default();
    names.into_iter().filter(|name| name.ends_with(".log")).collect()
}

/// How often a log was cut, starts included; 0 if it does not read.
fn generation(folder: &MemIo) -> u64 {
    let found = dump::verify(folder).ok().flatten();
    found.map_or(0, |found| found.generation)
}

/// The file of a log's last frame, and where the frame ends without its padding, if a loss of power can let the file end there.
fn end_without_padding(folder: &MemIo) -> Option<(String, u64)> {
    let frames = dump::frames(folder).ok()?.filter_map(|item| match item {
        Ok(Item::Frame(frame)) => Some(frame),
        _ => None,
    });
    let last = frames.filter(|frame| !frame.dead).last()?;
    let end = last.bytes().end;
    let durable = folder.durable();
    let reaches =
        if segments(&durable).contains(&last.name) { durable.contents(&last.name).len() } else { return None };
    (end < last.end() && end > reaches as u64).then_some((last.name, end))
}

impl World {
    /// A deposed leader's last entries are cut, and others written in their place; later the same node leads, is deposed and cut once more, further on, so that this is the cut
    /// on record. Then its disk shows a dead frame again where a live one of its size was: all that tells them apart is the frame behind.
    pub(super) fn dead_frame(&mut self, act: u32) -> bool {
        let node = self.staged().node;
        let Some(database) = self.database() else { return false };
        let place = self.place(node, database);
        match act {
            0 => self.cast_leader(),
            1 => {
                self.silence(node);
                true
            }
            2 if self.another_leads() => {
                self.staged().end = self.oracle.facts().log(place).end();
                self.network.heal();
                true
            }
            5 if self.another_leads() => {
                self.network.heal();
                true
            }
            2 | 5 => false,
            3 => {
                let written_over = self.oracle.facts().log(place).durable > self.staged().end + 1;
                if !self.is_live(node) || !written_over {
                    return false;
                }
                let writes = self.node(node).disk.folder(database).written();
                self.staged().dead = over_a_dead_frame(&writes);
                self.staged().end = generation(&self.node(node).disk.folder(database));
                if self.staged().dead.is_some() { true } else { self.begin_anew() }
            }
            4 if self.leads_now() == Some(node) && self.waited(300_000) => {
                self.silence(node);
                true
            }
            4 => {
                if let Some(leader) = self.leads_now().filter(|leader| *leader != node)
                    && self.waited(300_000)
                    && self.all_is_well()
                {
                    self.die(leader, false);
                    self.staged().since = self.now;
                }
                false
            }
            6 if self.waited(500_000) && self.is_live(node) => {
                // Whatever it had that nobody else has was cut, unless it had nothing.
                let cut = generation(&self.node(node).disk.folder(database)) > self.staged().end;
                let Some((name, at, dead)) = self.staged().dead.take().filter(|_| cut) else {
                    return self.begin_anew();
                };
                self.die(node, false);
                self.harm(node, Fault::LostWrite);
                self.node(node).disk.folder(database).spoil(&name, at, &dead);
                true
            }
            6 => false,
            _ => self.waited(3_000_000) && self.end_plot(),
        }
    }

    /// A sync fails, so that the next process believes in space that a loss of power takes. It leads, is cut off, and loses power in the middle of the write of an entry that
    /// nobody else has: all of it is there but the padding. It must start again, and give that entry up.
    pub(super) fn torn_padding(&mut self, act: u32) -> bool {
        let node = self.staged().node;
        let Some(database) = self.database() else { return false };
        match act {
            0 => self.cast_third(),
            1 if self.has_new_space(node) => {
                let fault = DiskFault { op: Some(Op::Sync), after: 0, full: false, for_ever: false, short: false };
                self.node(node).disk.folder(database).fail(fault);
                self.node_mut(node).disk_fault = true;
                true
            }
            1 => false,
            2 if self.replica_of(node).is_some_and(|partition| partition.halted().is_some()) => {
                self.die(node, false);
                true
            }
            2 => false,
            3 => {
                let Some(leader) = self.leads_now().filter(|_| self.is_live(node)) else { return false };
                if leader == node {
                    return true;
                }
                self.die(leader, false);
                true
            }
            4 if self.leads_now() == Some(node) => {
                self.silence(node);
                true
            }
            4 => {
                if self.is_live(node) && !self.has_new_space(node) {
                    return self.begin_anew();
                }
                if let Some(leader) = self.leads_now()
                    && self.waited(100_000)
                {
                    self.die(leader, false);
                    self.staged().since = self.now;
                }
                false
            }
            5 => {
                let Some(partition) = self.replica_of(node) else { return self.begin_anew() };
                let shape = partition.replica().shape();
                if shape.end == shape.flushed || shape.end <= partition.replica().hw() {
                    return self.waited(3_000_000) && self.begin_anew();
                }
                let Some((name, end)) = end_without_padding(&self.node(node).disk.folder(database)) else {
                    return false;
                };
                self.die(node, false);
                self.node(node).disk.lose_power_within(database, &name, end);
                true
            }
            6 if self.another_leads() => {
                self.network.heal();
                true
            }
            6 => false,
            _ => self.waited(2_000_000) && self.is_live(node) && self.end_plot(),
        }
    }

    /// Whether the newest file of a node's log of the database has space that no sync has made durable.
    fn has_new_space(&self, id: NodeId) -> bool {
        let Some(database) = self.database().filter(|_| self.is_live(id)) else { return false };
        let folder = self.node(id).disk.folder(database);
        let Some(name) = segments(&folder).pop() else { return false };
        let durable = folder.durable();
        segments(&durable).contains(&name) && durable.contents(&name).len() < folder.contents(&name).len()
    }
}
