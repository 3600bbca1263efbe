//! The seam between a simulated node and its state machine, so that a run can be made with another machine than the map in memory: one that knows SQL,
//! say, of which this crate knows nothing.

use std::sync::OnceLock;

use bytes::{Bytes, BytesMut};
use highwater_partition::Reign;
use highwater_wire::{Epoch, NodeId, Offset};

use super::{Entry, Maps, Place, State, WriteAnswer};
use crate::options::Profile;
use crate::rng::Rng;

/// What executing a request ahead gave.
#[derive(Debug)]
pub struct Executed {
    /// What to answer, once it may leave.
    pub answer: WriteAnswer,
    /// The reign it was executed in.
    pub reign: Reign,
    /// The end of the state it was computed from, its own effect included.
    pub until: Offset,
    /// Whether it has an effect of its own, now or from an earlier attempt with the same key, which ends at `until`.
    pub wrote: bool,
    /// Where the effect lies that the same key had before, if that is not `until`.
    pub before: Option<Place>,
    /// What is proposed, in order: bases and batches.
    pub proposals: Vec<(Offset, BytesMut)>,
}

/// What readers see, in outline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The offset after the last transaction in it.
    pub at: Offset,
    /// The epoch of that transaction; `None` before the first.
    pub epoch: Option<Epoch>,
    /// See [`super::fold`].
    pub content: u64,
}

/// What a read of a register and a list sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The offset after the last transaction in the state.
    pub at: Offset,
    /// The epoch of that transaction; `None` before the first.
    pub epoch: Option<Epoch>,
    /// How many effects the state contains.
    pub effects: u64,
    /// The register.
    pub register: u64,
    /// The list's length.
    pub list_len: u64,
    /// The list's last element; 0 if it is empty.
    pub list_last: u64,
}

/// The state machine of one process. Every error ends the process: it is a broken law unless a fault of the disk was ordered.
pub trait Machine {
    /// How far it has applied.
    fn applied(&self) -> Offset;

    /// Carries out `Command::Apply`.
    fn apply(&mut self, from: Offset, to: Offset, batches: &Bytes, committed: bool) -> Result<(), String>;

    /// Carries out `Command::Lead`.
    fn lead(&mut self, reign: Reign, end: Offset) -> Result<(), String>;

    /// Executes a request ahead of the log; `None` if this machine does not lead.
    fn execute(&mut self, entry: &Entry, timestamp_ms: i64) -> Result<Option<Executed>, String>;

    /// Carries out `Command::Publish`.
    fn publish(&mut self, hw: Offset) -> Result<(), String>;

    /// Carries out `Command::Rewind`; returns what is applied now.
    fn rewind(&mut self, to: Offset) -> Result<Offset, String>;

    /// What readers see, if anything may be seen.
    fn shown(&mut self) -> Result<Option<Shown>, String>;

    /// Reads as a client does, at the state that readers see; `None` if nothing may be seen.
    fn look(&mut self, key: u8, list: u8) -> Result<Option<View>, String>;

    /// Everything that readers see, and up to which offset.
    fn everything(&mut self) -> Result<Option<(Offset, State)>, String>;

    /// Makes what readers see, or something before it, durable, if that is due.
    fn keep(&mut self) -> Result<(), String>;
}

/// A node's database as it lies on its disk. It survives processes.
pub trait Store {
    /// A process opens it. What it has applied then is never above what was committed.
    fn open(&mut self) -> Result<Box<dyn Machine>, String>;

    /// The process is gone, and the machine that it opened with it. With `power` gone too, any part of what was not synced is.
    fn crash(&mut self, power: bool, rng: &mut Rng);

    /// From some operation on all of them fail, until a crash: the moment at which the process is going to die. False if there is no disk to fail.
    fn fail_from(&mut self, rng: &mut Rng) -> bool;

    /// One operation fails, after some more have succeeded. False if there is no disk to fail.
    fn fail_once(&mut self, rng: &mut Rng) -> bool;

    /// The disk has no more room than is used now, and a little; or all the room there is again.
    fn set_full(&mut self, full: bool);

    /// When the process is gone, a bit of a file that the machine can make anew will have changed. False if there is no such file.
    fn rot(&mut self) -> bool;

    /// Nothing fails any more.
    fn heal(&mut self);
}

/// Makes the machines of a run.
pub trait Machines: Send + Sync {
    /// The database of a node whose folder has just been made.
    fn store(&self, node: NodeId, rng: Rng) -> Box<dyn Store>;

    /// What an empty machine holds that is given these batches, all of them committed, up to an offset. To be compared with a replica.
    fn replay(&self, batches: &Bytes, to: Offset) -> Result<State, String>;
}

/// Who makes machines that are SQLite.
static SQLITE: OnceLock<&'static dyn Machines> = OnceLock::new();

/// Says who makes the machines of [`Profile::Sqlite`]. To be called before the first seed of that profile; later calls change nothing.
pub fn provide(machines: &'static dyn Machines) {
    SQLITE.get_or_init(|| machines);
}

/// Who makes the machines of a profile.
///
/// # Panics
/// For SQLite, if nobody has said so.
pub(crate) fn for_profile(profile: Profile) -> &'static dyn Machines {
    match (profile, SQLITE.get()) {
        (Profile::Sqlite, Some(machines)) => *machines,
        (Profile::Sqlite, None) => {
            panic!("this binary has no SQLite to simulate: run `highwater sim --profile sqlite`")
        }
        _ => &Maps,
    }
}
