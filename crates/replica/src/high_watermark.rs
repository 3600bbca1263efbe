//! The high watermark: everything below it is committed.
//!
//! Under `isr` it is the least LEO over the maximal ISR, committed and proposed members together. Under `quorum:q` it is the q-th greatest LEO over
//! the set, and moves only to an offset whose entry is of the leader's own epoch: an older entry on q replicas can still be overwritten by
//! a later epoch's (Raft, section 5.4.2 and figure 8). In both, the leader counts its own part by what is durable here, and HW never passes that.
//! A follower's HW is the lesser of what it was last told on its live stream and its own LEO.

use highwater_wire::{CommitRule, Offset, PeerId};

use crate::Effect;
use crate::state::{Leading, Replica};

/// The q-th greatest of `leos`.
///
/// # Panics
/// If `q` is 0 or there are fewer than `q`.
fn qth_greatest(mut leos: Vec<Offset>, q: u32) -> Offset {
    let q = q as usize;
    assert!(q >= 1 && q <= leos.len(), "a quorum of {q} among {}", leos.len());
    leos.sort_unstable_by(|a, b| b.cmp(a));
    leos[q - 1]
}

impl Replica {
    /// The LEO that counts for `peer`.
    fn counted(&self, leading: &Leading, peer: PeerId) -> Offset {
        if peer == self.me { self.log.flushed } else { leading.peers.get(&peer).map_or(0, |peer| peer.acked) }
    }

    /// The leader's count of its rule, where it may be HW.
    fn reached(&self, leading: &Leading) -> Option<Offset> {
        match leading.committed.rule {
            CommitRule::Isr { .. } => {
                let least = leading.maximal().into_iter().map(|peer| self.counted(leading, peer)).min();
                Some(least.expect("a set has members").min(self.log.flushed))
            }
            CommitRule::Quorum { q } => {
                let leos = leading.committed.members.iter().map(|peer| self.counted(leading, *peer)).collect();
                let reached = qth_greatest(leos, q).min(self.log.flushed);
                Some(reached).filter(|reached| self.log.epoch_before(*reached) == self.hard.promised)
            }
        }
    }

    /// Leader: HW follows what is counted now; it never goes down. Reads that waited for it go on, followers are told.
    pub(crate) fn advance_high_watermark(&mut self, out: &mut Vec<Effect>) {
        let Some(leading) = self.part.leading() else { return };
        if let Some(reached) = self.reached(leading)
            && reached > self.hw
        {
            assert!(reached <= self.log.flushed, "HW is at most the leader's own LEO");
            self.set_high_watermark(reached, out);
            self.start_round(out);
            self.pump(out);
        }
    }

    /// Follower: HW is what was told on the live stream, as far as it is durable here.
    pub(crate) fn follow_high_watermark(&mut self, out: &mut Vec<Effect>) {
        let Some(stream) = self.stream().filter(|stream| stream.live) else { return };
        let known = stream.told.min(self.log.flushed);
        if known > self.hw {
            self.set_high_watermark(known, out);
        }
    }

    fn set_high_watermark(&mut self, hw: Offset, out: &mut Vec<Effect>) {
        assert!(hw > self.hw, "HW {} does not go down to {hw}", self.hw);
        assert!(hw <= self.log.flushed, "HW {hw} is at most the LEO {}", self.log.flushed);
        self.hw = hw;
        self.hw_epoch = self.hard.promised;
        out.push(Effect::HighWatermark(hw));
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{Body, CommitRule, Epoch, StreamId};

    use super::qth_greatest;
    use crate::bench::Bench;

    /// Raft's figure 8: an entry of an earlier epoch on q replicas is not committed by that.
    #[test]
    fn an_entry_of_an_earlier_epoch_is_committed_only_under_one_of_the_leaders_own() {
        let mut bench = Bench::appointed(3, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1]);
        bench.flush(0);
        bench.wire.clear();
        bench.appoint(0, 2, &[0, 1]);
        bench.flush(0);
        assert_eq!(bench.ends()[0], 2, "a control entry of epoch 1 and one of epoch 2");
        bench.receive(0, 1, 2, Body::Open { stream: StreamId(9), end: 0, last_epoch: None });
        bench.receive(0, 1, 2, Body::Ack { stream: StreamId(9), leo: 1, applied: 0 });
        assert_eq!(bench.hws()[0], 0);
        bench.receive(0, 1, 2, Body::Ack { stream: StreamId(9), leo: 2, applied: 0 });
        assert_eq!(bench.hws()[0], 2);
        assert_eq!(bench.replicas[0].hw_epoch, Some(Epoch(2)));
    }

    #[test]
    fn the_qth_greatest_is_what_q_replicas_have_reached() {
        let leos = vec![4, 9, 7, 7, 1];
        let reached: Vec<u64> = (1..=5).map(|q| qth_greatest(leos.clone(), q)).collect();
        assert_eq!(reached, [9, 7, 7, 4, 1]);
        for q in 1..=5 {
            let mark = qth_greatest(leos.clone(), q);
            assert!(leos.iter().filter(|leo| **leo >= mark).count() >= q as usize);
        }
    }

    #[test]
    #[should_panic(expected = "a quorum of 3 among 2")]
    fn a_quorum_larger_than_the_set_is_a_bug() {
        qth_greatest(vec![1, 2], 3);
    }
}
