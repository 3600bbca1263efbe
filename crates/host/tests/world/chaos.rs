//! A network and disks that misbehave, as drawn from a seed: messages are lost, repeated, delayed and reordered, links are cut one way, flushes
//! take their time.

use std::collections::BTreeSet;

use highwater_wire::{Envelope, PartitionId};

use super::disk::Job;

/// What is under way.
#[derive(Default)]
pub struct Chaos {
    state: u64,
    /// (from, to, message).
    pub wire: Vec<(u32, u32, Envelope)>,
    /// Links that carry nothing, one way.
    pub cut: BTreeSet<(u32, u32)>,
    pub flushes: Vec<(u32, PartitionId, Job)>,
}

impl Chaos {
    pub fn new(seed: u64) -> Chaos {
        Chaos { state: seed, ..Chaos::default() }
    }

    /// A number below `below` (splitmix64).
    pub fn draw(&mut self, below: usize) -> usize {
        assert!(below > 0, "there is something to draw from");
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below as u64) as usize
    }

    /// The next message to arrive, out of any order; it may be lost, or stay to arrive again.
    pub fn next_message(&mut self) -> Option<(u32, Envelope)> {
        if self.wire.is_empty() {
            return None;
        }
        // Mostly among the oldest, so that things get done.
        let within = if self.draw(4) == 0 { self.wire.len() } else { self.wire.len().min(4) };
        let at = self.draw(within);
        let (from, to) = (self.wire[at].0, self.wire[at].1);
        if self.cut.contains(&(from, to)) || self.draw(20) == 0 {
            self.wire.remove(at);
            return None;
        }
        let (_, to, envelope) = if self.draw(20) == 0 { self.wire[at].clone() } else { self.wire.remove(at) };
        Some((to, envelope))
    }
}
