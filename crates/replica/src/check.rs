//! The laws of all positions, checked after every step; they stay on in release. A broken one stops the process: going on would turn a bug into lost
//! or contradictory data.
//!
//! ```text
//! start <= HW <= flushed (LEO) <= end        promised and HW never go down        a role's epoch is the promised one
//! ```

use highwater_wire::{Epoch, Offset};

use crate::state::{Part, Replica};

/// What never goes down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Milestones {
    promised: Option<Epoch>,
    hw: Offset,
}

impl Replica {
    /// Where the replica stands before a step.
    pub(crate) fn milestones(&self) -> Milestones {
        Milestones { promised: self.hard.promised, hw: self.hw }
    }

    /// Asserts the laws after a step that began at `before`.
    pub(crate) fn check(&self, before: Milestones) {
        self.log.check();
        assert!(self.log.start <= self.hw, "HW {} is below the log's start {}", self.hw, self.log.start);
        assert!(self.hw <= self.log.flushed, "HW {} is above the LEO {}", self.hw, self.log.flushed);
        assert!(before.hw <= self.hw, "HW went down from {} to {}", before.hw, self.hw);
        assert!(
            before.promised <= self.hard.promised,
            "the promised epoch went down from {:?} to {:?}",
            before.promised,
            self.hard.promised
        );
        assert!(self.log.last_epoch() <= self.hard.promised, "the log has entries of an epoch that was never entered");
        assert!(self.hw_epoch <= self.hard.promised, "HW was learned in an epoch that was never entered");
        self.check_part();
    }

    fn check_part(&self) {
        match &self.part {
            Part::Idle => {}
            Part::Follower(following) => {
                assert_ne!(following.leader, self.me, "nobody follows itself");
                if let Some(stream) = &following.stream {
                    assert!(stream.id <= self.last_stream, "streams are numbered by this incarnation");
                    assert!(stream.live || stream.owed.is_none(), "nothing is owed before the stream is accepted");
                    assert!(stream.owed.is_none_or(|owed| owed <= self.log.end), "only entries that are here are owed");
                    assert!(
                        stream.live || stream.asked == (self.log.end, self.log.last_epoch()),
                        "a log stands still while its question is out"
                    );
                }
            }
            Part::Candidate { votes } => {
                assert!(votes.contains(&self.me), "a candidate votes for itself");
                assert_eq!(self.hard.promised_to, Some(self.me), "a candidate has promised its epoch to itself");
            }
            Part::Leader(leading) => {
                assert_eq!(self.led, self.hard.promised, "a leader leads the promised epoch");
                assert!(leading.epoch_start <= self.log.end, "a leader's log is not cut");
                assert!(!leading.peers.contains_key(&self.me), "a leader is not its own peer");
                for peer in leading.peers.values() {
                    assert!(peer.acked <= self.log.end, "nobody has acknowledged what is not here");
                    assert!(!peer.live || peer.accepted, "a live stream was accepted");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{CommitRule, Epoch};

    use crate::Input;
    use crate::bench::Bench;

    fn leader() -> Bench {
        let mut bench = Bench::appointed(2, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1]);
        bench.settle();
        bench
    }

    #[test]
    #[should_panic(expected = "beyond the end")]
    fn a_log_cannot_be_durable_beyond_its_end() {
        leader().step(0, Input::Flushed(2));
    }

    #[test]
    #[should_panic(expected = "HW 1 is above the LEO 0")]
    fn hw_above_the_leo_stops_the_process() {
        let mut bench = leader();
        bench.replicas[0].log.flushed = 0;
        bench.step(0, Input::Applied(0));
    }

    #[test]
    #[should_panic(expected = "epoch that was never entered")]
    fn entries_of_an_epoch_that_was_not_entered_stop_the_process() {
        let mut bench = leader();
        bench.replicas[0].log.append(Epoch(2), 1);
        bench.step(0, Input::Applied(0));
    }
}
