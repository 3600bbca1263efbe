//! The bytes of one file: as they read now, as they were synced last, and what lies between the two.

use std::collections::BTreeMap;

/// The unit that a power loss keeps or loses, but for tearing.
pub const SECTOR_BYTES: u64 = 512;

#[derive(Clone, Debug)]
enum Pending {
    Bytes { at: u64, bytes: Vec<u8> },
    Len(u64),
}

/// A file's bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    id: u64,
    synced: Vec<u8>,
    now: Vec<u8>,
    pending: Vec<Pending>,
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
        &self.now
    }

    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) {
        put(&mut self.now, at, bytes);
        self.pending.push(Pending::Bytes { at, bytes: bytes.to_vec() });
    }

    pub(super) fn set_len(&mut self, len: u64) {
        self.now.resize(len as usize, 0);
        self.pending.push(Pending::Len(len));
    }

    /// After a sync, successful or not, nothing is pending; only the successful one has made it durable.
    pub(super) fn sync(&mut self, successful: bool) {
        let pending = std::mem::take(&mut self.pending);
        for one in pending.into_iter().filter(|_| successful) {
            match one {
                Pending::Bytes { at, bytes } => put(&mut self.synced, at, &bytes),
                Pending::Len(len) => self.synced.resize(len as usize, 0),
            }
        }
    }

    /// As if it had always been so.
    pub(super) fn replace(&mut self, bytes: &[u8]) {
        (self.synced, self.now) = (bytes.to_vec(), bytes.to_vec());
        self.pending.clear();
    }

    pub(super) fn flip(&mut self, at: usize, mask: u8) {
        self.now[at] ^= mask;
        if let Some(byte) = self.synced.get_mut(at) {
            *byte ^= mask;
        }
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
                    put(&mut self.synced, begin, &bytes[(begin - at) as usize..(end - at) as usize]);
                }
            }
            if let Pending::Len(len) = one
                && choose(2) == 1
            {
                self.synced.resize(*len as usize, 0);
            }
        }
        self.now = self.synced.clone();
    }
}

fn sectors_of(pending: &Pending) -> std::ops::Range<u64> {
    match pending {
        Pending::Bytes { at, bytes } => at / SECTOR_BYTES..(at + bytes.len() as u64).div_ceil(SECTOR_BYTES),
        Pending::Len(_) => 0..0,
    }
}

fn put(bytes: &mut Vec<u8>, at: u64, new: &[u8]) {
    let (begin, end) = (at as usize, at as usize + new.len());
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[begin..end].copy_from_slice(new);
}
