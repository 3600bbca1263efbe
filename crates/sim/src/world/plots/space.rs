//! Plots about disks that are full at a moment that matters.

use highwater_log::dump::{self, Item};
use highwater_log::mem::MemIo;
use highwater_replica::Role;
use highwater_wire::NodeId;

use super::World;
use super::disks::segments;

/// A control entry does not fit into less space than this, with its frame.
const CONTROL_FRAME_BYTES: u64 = 120;
/// What the control file takes while it is replaced.
const CONTROL_FILE_BYTES: u64 = 1_000;

/// The space that a log's newest file has behind the last frame, in bytes.
fn space_left(folder: &MemIo) -> Option<u64> {
    let name = segments(folder).pop()?;
    let frames = dump::frames(folder).ok()?.filter_map(|item| match item {
        Ok(Item::Frame(frame)) if !frame.dead && frame.name == name => Some(frame),
        _ => None,
    });
    let end = frames.last()?.end();
    (folder.contents(&name).len() as u64).checked_sub(end)
}

impl World {
    /// A deposed leader's flush stands still while its last entries are to be cut, for which there is no room; it ends before there is.
    pub(super) fn full_at_cut(&mut self, act: u32) -> bool {
        let node = self.staged().node;
        let Some(database) = self.database() else { return false };
        match act {
            0 => self.cast_leader(),
            1 => {
                self.silence(node);
                self.node_mut(node).stalled_until = self.now + 2_000_000;
                true
            }
            2 if self.another_leads() => {
                self.network.heal();
                let shape = self.replica_of(node).map(|partition| partition.replica().shape());
                if shape.is_some_and(|shape| shape.end > shape.flushed) { true } else { self.begin_anew() }
            }
            2 => false,
            3 => {
                let leads = |role| matches!(role, Role::Leader { .. });
                if self.replica_of(node).is_none_or(|partition| leads(partition.replica().role())) {
                    return false;
                }
                self.leave_room(node, 0);
                true
            }
            4 if self.waited(2_500_000) => {
                self.node(node).disk.folder(database).set_capacity(None);
                true
            }
            4 => false,
            _ => self.waited(1_000_000) && self.is_live(node) && self.end_plot(),
        }
    }

    /// A node is made leader, and has room for its promise and none for its first entry.
    pub(super) fn full_at_start(&mut self, act: u32) -> bool {
        let node = self.staged().node;
        let Some(database) = self.database() else { return false };
        match act {
            0 => self.cast_leader(),
            1 => {
                let end = self.oracle.facts().log(self.place(node, database)).end();
                if end == self.staged().end {
                    return false;
                }
                self.staged().end = end;
                let tight = |peer: &NodeId| {
                    let left = space_left(&self.node(*peer).disk.folder(database));
                    self.is_live(*peer) && left.is_some_and(|left| left < CONTROL_FRAME_BYTES)
                };
                let Some(peer) = self.peers(node).into_iter().find(tight) else { return false };
                self.staged().node = peer;
                self.leave_room(peer, CONTROL_FILE_BYTES);
                self.die(node, false);
                true
            }
            2 if self.leads_now() == Some(node) => true,
            2 if self.another_leads() && self.waited(100_000) => {
                self.node(node).disk.folder(database).set_capacity(None);
                self.begin_anew()
            }
            2 => false,
            3 if self.waited(500_000) => {
                self.node(node).disk.folder(database).set_capacity(None);
                true
            }
            3 => false,
            _ => self.waited(1_000_000) && self.all_is_well() && self.end_plot(),
        }
    }

    /// The log of the database has room for so many bytes more on that node.
    fn leave_room(&self, id: NodeId, bytes: u64) {
        let Some(database) = self.database() else { return };
        let folder = self.node(id).disk.folder(database);
        folder.set_capacity(Some(folder.used_bytes() + bytes));
    }
}
