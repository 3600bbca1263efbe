//! The bytes of one file: as they read now, as they were synced last, and what lies between the two.

use std::collections::{BTreeMap, VecDeque};

use super::view::View;

/// The unit that a power loss keeps or loses, but for tearing.
pub const SECTOR_BYTES: u64 = 512;

/// So many synced writes of a file are remembered.
const WRITES_KEPT: usize = 48;

#[derive(Clone, Debug)]
enum Pending {
    Bytes { at: u64, bytes: Vec<u8> },
    Len(u64),
}

/// A write that was synced, and what it replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The file.
    pub name: String,
    /// Where it begins.
    pub at: u64,
    /// What was there before; zeros behind what was then the file's end.
    pub before: Vec<u8>,
    /// What was written: as many bytes.
    pub bytes: Vec<u8>,
}

impl Written {
    /// The byte behind it.
    pub fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }
}

/// A file's bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    id: u64,
    synced: View,
    now: View,
    pending: Vec<Pending>,
    written: VecDeque<Written>,
}

impl Inode {
    /// An empty file. Numbers tell files apart in an order that does not change.
    pub(super) fn new(id: u64) -> Inode {
        Inode { id, ..Inode::default() }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// As a process reads them.
    pub(super) fn bytes(&self) -> &[u8] {
        self.now.bytes()
    }

    /// As they would read if everything pending were lost.
    pub(super) fn synced(&self) -> &[u8] {
        self.synced.bytes()
    }

    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) {
        self.now.put(at, bytes);
        self.pending.push(Pending::Bytes { at, bytes: bytes.to_vec() });
    }

    pub(super) fn set_len(&mut self, len: u64) {
        self.now.resize(len);
        self.pending.push(Pending::Len(len));
    }

    /// After a sync, successful or not, nothing is pending; only the successful one has made it durable. With `remember` it is noted what was replaced.
    pub(super) fn sync(&mut self, successful: bool, remember: bool) {
        let pending = std::mem::take(&mut self.pending);
        for one in pending.into_iter().filter(|_| successful) {
            match one {
                Pending::Bytes { at, bytes } => {
                    if remember {
                        self.remember(at, &bytes);
                    }
                    self.synced.put(at, &bytes);
                }
                Pending::Len(len) => self.synced.resize(len),
            }
        }
    }

    fn remember(&mut self, at: u64, bytes: &[u8]) {
        let there = self.synced.bytes().get(at as usize..).unwrap_or_default();
        let mut before = there[..there.len().min(bytes.len())].to_vec();
        before.resize(bytes.len(), 0);
        if self.written.len() == WRITES_KEPT {
            self.written.pop_front();
        }
        self.written.push_back(Written { name: String::new(), at, before, bytes: bytes.to_vec() });
    }

    /// Of the writes remembered, those over which nothing was written since, the newest first.
    pub(super) fn uncovered(&self) -> Vec<Written> {
        let range = |one: &Pending| match one {
            Pending::Bytes { at, bytes } => (*at, at + bytes.len() as u64),
            Pending::Len(len) => (*len, u64::MAX),
        };
        let mut covered: Vec<(u64, u64)> = self.pending.iter().map(range).collect();
        let mut out = Vec::new();
        for one in self.written.iter().rev() {
            if covered.iter().all(|(from, to)| one.end() <= *from || *to <= one.at) {
                out.push(one.clone());
            }
            covered.push((one.at, one.end()));
        }
        out
    }

    /// As if it had always been so.
    pub(super) fn replace(&mut self, bytes: &[u8]) {
        (self.synced, self.now) = (View::new(bytes), View::new(bytes));
        self.pending.clear();
        self.written.clear();
    }

    /// The file ends there.
    pub(super) fn end_at(&mut self, len: u64) {
        self.synced.resize(len);
        self.now.resize(len);
    }

    pub(super) fn flip(&mut self, at: usize, mask: u8) {
        self.now.flip(at, mask);
        self.synced.flip(at, mask);
    }

    /// The disk shows something else from now on, whatever was written.
    pub(super) fn spoil(&mut self, at: u64, bytes: &[u8]) {
        self.now.spoil(at, bytes);
        self.synced.spoil(at, bytes);
    }

    pub(super) fn spoiled(&self) -> bool {
        self.now.spoiled()
    }

    /// What was spoiled, and not written since, is right again.
    pub(super) fn mend(&mut self) {
        self.now.mend();
        self.synced.mend();
    }

    /// What a power loss leaves; all of it is synced then.
    pub(super) fn crash(&mut self, choose: &mut impl FnMut(usize) -> usize) {
        let pending = std::mem::take(&mut self.pending);
        // How many writes have touched each sector; then, how many of them are kept, and how many bytes of the next.
        let mut sectors: BTreeMap<u64, usize> = BTreeMap::new();
        for one in &pending {
            for sector in sectors_of(one) {
                *sectors.entry(sector).or_default() += 1;
            }
        }
        let fates: BTreeMap<u64, (usize, usize)> = sectors
            .into_iter()
            .map(|(sector, writes)| {
                let kept = choose(writes + 1);
                let torn = if kept < writes && choose(4) == 0 { choose(SECTOR_BYTES as usize) } else { 0 };
                (sector, (kept, torn))
            })
            .collect();
        let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
        for one in &pending {
            for sector in sectors_of(one) {
                let nth = seen.entry(sector).or_default();
                let (kept, torn) = fates[&sector];
                let reaches = match (*nth).cmp(&kept) {
                    std::cmp::Ordering::Less => SECTOR_BYTES,
                    std::cmp::Ordering::Equal => torn as u64,
                    std::cmp::Ordering::Greater => 0,
                };
                *nth += 1;
                let Pending::Bytes { at, bytes } = one else { continue };
                let begin = (sector * SECTOR_BYTES).max(*at);
                let end = (sector * SECTOR_BYTES + reaches).min(at + bytes.len() as u64);
                if begin < end {
                    self.synced.put(begin, &bytes[(begin - at) as usize..(end - at) as usize]);
                }
            }
            if let Pending::Len(len) = one
                && choose(2) == 1
            {
                self.synced.resize(*len);
            }
        }
        self.now = self.synced.clone();
        self.written.clear();
    }
}

fn sectors_of(pending: &Pending) -> std::ops::Range<u64> {
    match pending {
        Pending::Bytes { at, bytes } => at / SECTOR_BYTES..(at + bytes.len() as u64).div_ceil(SECTOR_BYTES),
        Pending::Len(_) => 0..0,
    }
}
