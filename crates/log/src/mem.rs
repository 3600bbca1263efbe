//! A disk in memory that loses what a real one may lose. Deterministic: whoever drives it makes every choice.
//!
//! Pending writes are kept apart from synced bytes. A power loss keeps, for each sector of 512 bytes, some prefix of the writes it has seen since the last
//! sync, and may tear the next; of pending creations, renames and removals it keeps any that still make sense. A failed sync leaves the pending writes
//! readable and no later sync makes them durable: that is what kernels do.
//!
//! A disk may also *spoil* what was synced: rotten bytes, writes that it confirmed and lost, or put elsewhere. What should be there is kept aside, so that
//! it can be put right again.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::io::{Io, IoFile};

mod inode;
mod view;

use inode::Inode;
pub use inode::{SECTOR_BYTES, Written};

/// A kind of operation, for choosing what fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Reading bytes, a length, or the list of names.
    Read,
    /// Writing bytes or a length.
    Write,
    /// Syncing a file or the folder.
    Sync,
    /// Creating, opening, renaming or removing a file.
    Name,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which operations; `None` for all but reads.
    pub op: Option<Op>,
    /// How many of them succeed first.
    pub after: u64,
    /// `ENOSPC` instead of `EIO`.
    pub full: bool,
    /// Every later one fails too; otherwise one.
    pub for_ever: bool,
    /// A failing write leaves its first half behind, in whole sectors, so that a small one is there although it failed; otherwise nothing.
    pub short: bool,
}

type Node = Arc<Mutex<Inode>>;

#[derive(Clone, Debug)]
enum NameOp {
    Link(String, Node),
    Rename(String, String),
    Unlink(String),
}

#[derive(Debug, Default)]
struct Disk {
    life: u64,
    inodes: u64,
    now: BTreeMap<String, Node>,
    synced: BTreeMap<String, Node>,
    pending: Vec<NameOp>,
    fault: Option<Fault>,
    counts: BTreeMap<Op, u64>,
    capacity_bytes: Option<u64>,
    remembers: bool,
}

/// The folder, as one process sees it: clones share the disk. After a crash only the handle that it was called on still works.
#[derive(Clone, Debug, Default)]
pub struct MemIo {
    disk: Arc<Mutex<Disk>>,
    life: u64,
}

/// An open file.
#[derive(Debug)]
pub struct MemFile {
    io: MemIo,
    node: Node,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that panics on purpose still wants its disk.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    /// Counts an operation; the fault if it is to fail.
    fn count(&mut self, op: Op) -> Result<(), Fault> {
        *self.counts.entry(op).or_default() += 1;
        let Some(fault) = &mut self.fault else { return Ok(()) };
        if fault.op.map_or(op == Op::Read, |wanted| wanted != op) {
            return Ok(());
        }
        if fault.after > 0 {
            fault.after -= 1;
            return Ok(());
        }
        let failing = *fault;
        if !failing.for_ever {
            self.fault = None;
        }
        Err(failing)
    }

    fn used_bytes(&self) -> u64 {
        self.now.values().map(|node| lock(node).bytes().len() as u64).sum()
    }

    fn new_inode(&mut self) -> Node {
        self.inodes += 1;
        Arc::new(Mutex::new(Inode::new(self.inodes)))
    }
}

fn apply_name(names: &mut BTreeMap<String, Node>, op: &NameOp) {
    match op {
        NameOp::Link(name, node) => {
            names.insert(name.clone(), Arc::clone(node));
        }
        NameOp::Rename(from, to) => {
            if let Some(node) = names.remove(from) {
                names.insert(to.clone(), node);
            }
        }
        NameOp::Unlink(name) => {
            names.remove(name);
        }
    }
}

impl MemIo {
    /// An empty disk.
    pub fn new() -> MemIo {
        MemIo::default()
    }

    /// The process dies and what it had written stays: later operations on other handles fail.
    pub fn kill(&mut self) {
        let mut disk = lock(&self.disk);
        disk.life += 1;
        self.life = disk.life;
    }

    /// The power goes. `choose(n)` picks a number below `n` for everything that may go one way or another.
    pub fn crash(&mut self, mut choose: impl FnMut(usize) -> usize) {
        self.kill();
        let mut disk = lock(&self.disk);
        let mut names = std::mem::take(&mut disk.synced);
        for op in std::mem::take(&mut disk.pending) {
            if choose(2) == 1 {
                apply_name(&mut names, &op);
            }
        }
        let mut nodes: Vec<_> = names.values().cloned().collect();
        nodes.sort_by_key(|node| lock(node).id());
        nodes.dedup_by(|a, b| Arc::ptr_eq(a, b));
        for node in nodes {
            lock(&node).crash(&mut choose);
        }
        disk.synced = names.clone();
        disk.now = names;
    }

    /// The power goes in the middle of the last write to a file, which ends there: of what was pending, only what lies behind is lost.
    ///
    /// # Panics
    /// If there is no such file, or what lies behind was synced.
    pub fn crash_within(&mut self, name: &str, end: u64) {
        let node = self.node(name);
        assert!(lock(&node).synced().len() as u64 <= end, "what was synced is not lost");
        self.crash(|choices| choices - 1);
        lock(&node).end_at(end);
    }

    /// From now on something fails. Replaces an earlier fault.
    pub fn fail(&self, fault: Fault) {
        lock(&self.disk).fault = Some(fault);
    }

    /// Nothing fails any more.
    pub fn heal(&self) {
        lock(&self.disk).fault = None;
    }

    /// How many operations of that kind there have been.
    pub fn count(&self, op: Op) -> u64 {
        lock(&self.disk).counts.get(&op).copied().unwrap_or(0)
    }

    /// Writes that would make all files together larger than this fail with `ENOSPC`, after what fits; overwriting goes on.
    pub fn set_capacity(&self, capacity_bytes: Option<u64>) {
        lock(&self.disk).capacity_bytes = capacity_bytes;
    }

    /// The size of all files together.
    pub fn used_bytes(&self) -> u64 {
        lock(&self.disk).used_bytes()
    }

    /// What is in a file.
    ///
    /// # Panics
    /// If there is none of that name.
    pub fn contents(&self, name: &str) -> Vec<u8> {
        lock(&self.node(name)).bytes().to_vec()
    }

    /// Puts a file there, or replaces what is in it, as if it had always been so.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut disk = lock(&self.disk);
        let node = match disk.now.get(name) {
            Some(node) => Arc::clone(node),
            None => disk.new_inode(),
        };
        lock(&node).replace(bytes);
        disk.now.insert(name.to_owned(), Arc::clone(&node));
        disk.synced.insert(name.to_owned(), node);
    }

    /// Flips bits of one byte, in what is synced and in what is not.
    ///
    /// # Panics
    /// If there is no such file or byte.
    pub fn flip(&self, name: &str, at: usize, mask: u8) {
        let node = self.node(name);
        lock(&node).flip(at, mask);
    }

    /// Remembers, from now on, what the newest writes of each file replaced when they were synced.
    pub fn remember_writes(&self) {
        lock(&self.disk).remembers = true;
    }

    /// Of the writes remembered, those over which nothing was written since, by file, the newest first. A power loss forgets them.
    pub fn written(&self) -> Vec<Written> {
        let disk = lock(&self.disk);
        let of = |(name, node): (&String, &Node)| {
            let uncovered = lock(node).uncovered();
            uncovered.into_iter().map(|one| Written { name: name.clone(), ..one }).collect::<Vec<_>>()
        };
        disk.now.iter().flat_map(of).collect()
    }

    /// The disk shows these bytes from now on in place of what was written there, as far as the file reaches, until it is mended or written over.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn spoil(&self, name: &str, at: u64, bytes: &[u8]) {
        let node = self.node(name);
        lock(&node).spoil(at, bytes);
    }

    /// Whether any file shows something else than was written.
    pub fn spoiled(&self) -> bool {
        lock(&self.disk).now.values().any(|node| lock(node).spoiled())
    }

    /// Everything that was spoiled, and not written over since, is right again.
    pub fn mend(&self) {
        let disk = lock(&self.disk);
        for node in disk.now.values().chain(disk.synced.values()) {
            lock(node).mend();
        }
    }

    /// A disk of its own with the same files, all of them synced, and no faults.
    pub fn copy(&self) -> MemIo {
        let copy = MemIo::new();
        for (name, node) in &lock(&self.disk).now {
            copy.put(name, lock(node).bytes());
        }
        copy
    }

    /// A disk of its own with what would be left if everything pending were lost.
    pub fn durable(&self) -> MemIo {
        let copy = MemIo::new();
        for (name, node) in &lock(&self.disk).synced {
            copy.put(name, lock(node).synced());
        }
        copy
    }

    fn node(&self, name: &str) -> Node {
        let disk = lock(&self.disk);
        Arc::clone(disk.now.get(name).unwrap_or_else(|| panic!("there is no file {name}")))
    }

    /// Counts the operation, and refuses it on a stale handle or by a fault.
    fn begin(&self, op: Op) -> Result<MutexGuard<'_, Disk>, Refused> {
        let mut disk = lock(&self.disk);
        if disk.life != self.life {
            return Err(Refused::Stale);
        }
        disk.count(op).map_err(Refused::Failing)?;
        Ok(disk)
    }
}

/// Why an operation does not happen.
enum Refused {
    /// The process that asks died in a crash.
    Stale,
    /// It was to fail.
    Failing(Fault),
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> io::Error {
        match refused {
            Refused::Stale => io::Error::other("this process crashed"),
            Refused::Failing(Fault { full: true, .. }) => full(),
            Refused::Failing(_) => io::Error::other("the simulated disk failed"),
        }
    }
}

fn full() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "no space left on the simulated disk")
}

fn not_found(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no file {name}"))
}

impl Io for MemIo {
    type File = MemFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.begin(Op::Read)?.now.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<MemFile>> {
        let disk = self.begin(Op::Name)?;
        let node = disk.now.get(name).ok_or_else(|| not_found(name))?;
        Ok(Arc::new(MemFile { io: self.clone(), node: Arc::clone(node) }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<MemFile>> {
        let mut disk = self.begin(Op::Name)?;
        if disk.now.contains_key(name) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("there is a file {name}")));
        }
        let node = disk.new_inode();
        disk.now.insert(name.to_owned(), Arc::clone(&node));
        disk.pending.push(NameOp::Link(name.to_owned(), Arc::clone(&node)));
        Ok(Arc::new(MemFile { io: self.clone(), node }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = self.begin(Op::Name)?;
        if !disk.now.contains_key(from) {
            return Err(not_found(from));
        }
        let op = NameOp::Rename(from.to_owned(), to.to_owned());
        apply_name(&mut disk.now, &op);
        disk.pending.push(op);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut disk = self.begin(Op::Name)?;
        if !disk.now.contains_key(name) {
            return Err(not_found(name));
        }
        let op = NameOp::Unlink(name.to_owned());
        apply_name(&mut disk.now, &op);
        disk.pending.push(op);
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut disk = self.begin(Op::Sync)?;
        disk.synced = disk.now.clone();
        disk.pending.clear();
        Ok(())
    }
}

impl IoFile for MemFile {
    fn len(&self) -> io::Result<u64> {
        let _disk = self.io.begin(Op::Read)?;
        Ok(lock(&self.node).bytes().len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let _disk = self.io.begin(Op::Read)?;
        let inode = lock(&self.node);
        let rest = inode.bytes().get(offset as usize..).unwrap_or_default();
        let read = rest.len().min(buffer.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (written, result) = match self.io.begin(Op::Write) {
            Ok(disk) => {
                let end = offset + bytes.len() as u64;
                let len = lock(&self.node).bytes().len() as u64;
                let room =
                    disk.capacity_bytes.map_or(u64::MAX, |capacity| len + capacity.saturating_sub(disk.used_bytes()));
                let fits = (room.max(offset).min(end) - offset) as usize;
                (fits, if fits == bytes.len() { Ok(()) } else { Err(full()) })
            }
            Err(Refused::Failing(fault)) if fault.short => {
                let half = (bytes.len() / 2).next_multiple_of(SECTOR_BYTES as usize);
                (half.min(bytes.len()), Err(Refused::Failing(fault).into()))
            }
            Err(refused) => (0, Err(refused.into())),
        };
        if written > 0 {
            lock(&self.node).write(offset, &bytes[..written]);
        }
        result
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let _disk = self.io.begin(Op::Write)?;
        lock(&self.node).set_len(len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let (result, remember) = match self.io.begin(Op::Sync) {
            Err(Refused::Stale) => return Err(Refused::Stale.into()),
            Ok(disk) => (Ok(()), disk.remembers),
            Err(refused) => (Err(refused.into()), false),
        };
        lock(&self.node).sync(result.is_ok(), remember);
        result
    }
}
