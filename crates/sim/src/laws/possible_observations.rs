//! What is seen from outside is possible at all: appends follow each other without a gap, and only logs that were opened change. [`Facts::take`] checks
//! it, since no other law could be trusted if it did not.
//!
//! [`Facts::take`]: crate::facts::Facts::take

/// What a failure is called.
pub(crate) const NAME: &str = "possible-observations";

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use highwater_wire::{CommitRule, Epoch, Set};

    use super::*;
    use crate::facts::{Facts, Observation};
    use crate::laws::testing::{entry, opened, peer, place, three};
    use crate::oracle::Oracle;

    #[test]
    fn an_append_with_a_gap_and_a_change_of_no_log_are_found() {
        let appends = |facts: &mut Facts, base| {
            facts.take(&Observation::Appended { place: place(1), batches: entry(base, 0, 7) })
        };
        let facts = || three(CommitRule::Quorum { q: 2 });
        assert!(appends(&mut facts(), 0).is_ok());
        assert!(appends(&mut facts(), 1).is_err());
        assert!(appends(&mut Facts::default(), 0).is_err());
        assert!(facts().take(&opened(1, Bytes::from_static(b"no batch at all"), None)).is_err());
    }

    #[test]
    fn the_oracle_says_so_by_this_name() {
        let set = Set { rule: CommitRule::Quorum { q: 1 }, members: vec![peer(1)] };
        let mut oracle = Oracle::new(set, Vec::new());
        oracle.see(&opened(1, Bytes::new(), None)).expect("a log is opened");
        let gap = Observation::Appended { place: place(1), batches: entry(4, 0, 7) };
        assert_eq!(oracle.see(&gap).map_err(|broken| broken.law), Err(NAME));
        let claim = Observation::HighWatermark { place: place(1), hw: 0, leads: Some(Epoch(0)) };
        assert!(oracle.see(&claim).is_ok());
    }
}
