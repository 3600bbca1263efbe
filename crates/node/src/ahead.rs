//! How much has been executed and is not committed yet.
//!
//! The SQL writer runs ahead of the log; what it proposes lies in memory and in queues until HW has passed it. Beyond a bound further writes are
//! refused as overloaded before they are executed, so that a slow disk or a missing follower never fills memory.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use highwater_wire::Offset;

/// The accounts of one database.
pub(crate) struct Ahead {
    max_bytes: u64,
    bytes: AtomicU64,
    pending: Mutex<VecDeque<(Offset, u64)>>,
}

impl Ahead {
    pub(crate) fn new(max_bytes: u64) -> Ahead {
        Ahead { max_bytes, bytes: AtomicU64::new(0), pending: Mutex::new(VecDeque::new()) }
    }

    /// Notes a proposal from `base` on.
    pub(crate) fn proposed(&self, base: Offset, bytes: u64) {
        self.pending.lock().expect("no holder of this lock panics").push_back((base, bytes));
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// HW has reached `hw`.
    pub(crate) fn committed(&self, hw: Offset) {
        let mut pending = self.pending.lock().expect("no holder of this lock panics");
        while let Some((_, bytes)) = pending.front().copied().filter(|(base, _)| *base < hw) {
            pending.pop_front();
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Whatever ran ahead was thrown away: a rewind was asked for, or one that was carried out is over.
    pub(crate) fn rewound(&self) {
        let mut pending = self.pending.lock().expect("no holder of this lock panics");
        for (_, bytes) in pending.drain(..) {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes proposed and not committed.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether another write may be executed.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes() < self.max_bytes
    }

    /// The bound.
    pub(crate) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_proposed_too_late_to_count_takes_no_room_in_the_next_reign() {
        let ahead = Ahead::new(100);
        ahead.proposed(50, 60);
        ahead.rewound();
        // The writer had not heard of it yet.
        ahead.proposed(60, 60);
        ahead.proposed(70, 60);
        assert!(!ahead.has_room());
        // The next reign begins, at a lower offset: HW cannot pass 70 before anything is executed.
        ahead.rewound();
        assert!(ahead.has_room());
        ahead.proposed(51, 60);
        ahead.committed(52);
        assert_eq!(ahead.bytes(), 0);
    }

    #[test]
    fn room_returns_with_commits_and_with_rewinds() {
        let ahead = Ahead::new(100);
        ahead.proposed(0, 60);
        assert!(ahead.has_room());
        ahead.proposed(5, 60);
        assert!(!ahead.has_room());
        ahead.committed(5);
        assert_eq!(ahead.bytes(), 60, "what begins at HW is not committed");
        ahead.proposed(9, 60);
        ahead.rewound();
        assert_eq!(ahead.bytes(), 0);
        assert!(ahead.has_room());
    }
}
