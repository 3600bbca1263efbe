//! The classes of faults, and which of them strike in a run.
//!
//! Every seed draws a subset of them: all at once would mask each other. One seed in ten has none at all.

use crate::rng::Rng;

/// A class of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A process is killed, between two effects or in the middle of a write; what it wrote stays in the file system.
    Kill,
    /// A machine loses power: any subset of the sectors that were not synced is gone.
    Power,
    /// All machines lose power at once.
    PowerAll,
    /// A process is stopped for a while; what arrives meanwhile is taken in late.
    Pause,
    /// The network falls into parts.
    Partition,
    /// A node can send and not receive, or the reverse.
    OneWay,
    /// Messages are lost.
    Loss,
    /// Messages arrive again, also much later.
    Duplicate,
    /// Messages overtake each other.
    Reorder,
    /// A link is clogged and let go later.
    Clog,
    /// Connections break.
    Disconnect,
    /// Flushes are slow.
    SlowDisk,
    /// A write or a flush fails.
    IoError,
    /// A disk is full for a while.
    DiskFull,
    /// Clocks run at different rates.
    Skew,
    /// Requests and answers between clients and nodes are lost.
    ClientLoss,
    /// Bytes of a node's files rot after they were flushed.
    BitRot,
    /// A write is confirmed, synced, and never stored.
    LostWrite,
    /// A write is stored somewhere else.
    Misdirected,
    /// A read fails, once or whenever it is tried.
    ReadError,
    /// A byte of a message is changed on its way.
    Garbled,
    /// Two nodes do not reach each other, and all others reach both.
    Partial,
    /// A disk stands still for a second or so.
    Stall,
    /// A node's clock jumps forward, or stands still.
    ClockJump,
    /// A node comes back with an empty folder.
    Wiped,
    /// A node comes back with an older copy of its folder.
    Older,
    /// Elections misbehave: decisions come late, twice, out of order or to the wrong node, nodes are taken for dead that live, and several coordinate.
    Elections,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 27] = [
        Fault::Kill,
        Fault::Power,
        Fault::PowerAll,
        Fault::Pause,
        Fault::Partition,
        Fault::OneWay,
        Fault::Loss,
        Fault::Duplicate,
        Fault::Reorder,
        Fault::Clog,
        Fault::Disconnect,
        Fault::SlowDisk,
        Fault::IoError,
        Fault::DiskFull,
        Fault::Skew,
        Fault::ClientLoss,
        Fault::BitRot,
        Fault::LostWrite,
        Fault::Misdirected,
        Fault::ReadError,
        Fault::Garbled,
        Fault::Partial,
        Fault::Stall,
        Fault::ClockJump,
        Fault::Wiped,
        Fault::Older,
        Fault::Elections,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Power => "power-loss",
            Fault::PowerAll => "power-loss-of-all",
            Fault::Pause => "pause",
            Fault::Partition => "partition",
            Fault::OneWay => "one-way-partition",
            Fault::Loss => "message-loss",
            Fault::Duplicate => "message-duplicated",
            Fault::Reorder => "message-reordered",
            Fault::Clog => "clogged-link",
            Fault::Disconnect => "disconnect",
            Fault::SlowDisk => "slow-disk",
            Fault::IoError => "io-error",
            Fault::DiskFull => "disk-full",
            Fault::Skew => "clock-skew",
            Fault::ClientLoss => "client-message-loss",
            Fault::BitRot => "bit-rot",
            Fault::LostWrite => "lost-write",
            Fault::Misdirected => "misdirected-write",
            Fault::ReadError => "read-error",
            Fault::Garbled => "garbled-message",
            Fault::Partial => "partial-partition",
            Fault::Stall => "disk-stall",
            Fault::ClockJump => "clock-jump",
            Fault::Wiped => "wiped-disk",
            Fault::Older => "older-folder",
            Fault::Elections => "misbehaving-elections",
        }
    }

    /// Whether it usually ends a leadership when it strikes the leader.
    fn ends_leadership(self) -> bool {
        matches!(self, Fault::Kill | Fault::Power | Fault::PowerAll | Fault::Pause)
    }

    /// The mean time between two strikes in milliseconds; `None` if it holds all the time.
    pub fn gap_ms(self) -> Option<u64> {
        match self {
            Fault::Kill | Fault::Power | Fault::Pause => Some(3_000),
            Fault::Partition | Fault::OneWay => Some(4_000),
            Fault::PowerAll => Some(12_000),
            Fault::Clog | Fault::Disconnect | Fault::SlowDisk => Some(2_500),
            Fault::IoError | Fault::DiskFull => Some(6_000),
            Fault::BitRot | Fault::LostWrite | Fault::Misdirected | Fault::ReadError => Some(5_000),
            Fault::Partial | Fault::Stall | Fault::ClockJump => Some(3_500),
            Fault::Wiped => Some(7_000),
            // One strike takes the copy, a later one puts it in place.
            Fault::Older => Some(2_000),
            Fault::Elections => Some(1_500),
            Fault::Loss | Fault::Duplicate | Fault::Reorder | Fault::Skew | Fault::ClientLoss | Fault::Garbled => None,
        }
    }
}

/// Draws the classes of a run.
pub fn draw(rng: &mut Rng) -> Vec<Fault> {
    if rng.percent(10) {
        return Vec::new();
    }
    let chance = *rng.pick(&[12, 25, 40]);
    let mut apart = rng.clone().fork(1);
    let mut drawn: Vec<Fault> = Fault::ALL
        .into_iter()
        .filter(|fault| match fault {
            // From a generator of its own: runs without it are what they were before there was such a fault.
            Fault::Older => apart.percent(chance),
            _ => rng.percent(chance),
        })
        .collect();
    if !drawn.iter().any(|fault| fault.ends_leadership()) {
        drawn.push(*rng.pick(&[Fault::Kill, Fault::Power, Fault::Pause]));
    }
    drawn.sort();
    drawn
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn subsets_vary_every_class_occurs_and_some_runs_have_none() {
        let plans: BTreeSet<Vec<Fault>> = (0..300).map(|seed| draw(&mut Rng::new(seed))).collect();
        assert!(plans.len() > 100, "{} different subsets in 300 seeds", plans.len());
        assert!(plans.contains(&Vec::new()));
        assert!(plans.iter().all(|plan| plan.is_empty() || plan.iter().any(|fault| fault.ends_leadership())));
        let occurring: BTreeSet<Fault> = plans.into_iter().flatten().collect();
        assert_eq!(occurring.len(), Fault::ALL.len());
    }
}
