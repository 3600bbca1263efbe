//! The choice (docs/protocol.md section 4, step 3), among members of the set that promised the new epoch in this ballot:
//!
//! - `isr`: any member, since each holds all that is committed; the greatest rank is taken for speed. Members that did not promise leave the set
//!   in the same compare-and-set, if at least `min` promised; else the set stays, and HW waits for all of it.
//! - `quorum:q` of n: once n - q + 1 have promised, one whose rank is at least that of n - q + 1 of them, itself included: whatever was committed
//!   on q replicas is on one of any n - q + 1, and on all whose rank is no less. The set stays.
//! - under either rule: the record's leader, in the incarnation that the record names, on its own promise alone. It holds whatever was committed in
//!   its epoch, because HW never passes its own LEO.
//!
//! Of several with the same rank, the record's leader is taken, so that a needless ballot moves nothing; else the first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use highwater_wire::{CommitRule, Incarnation, PeerId, Rank};

use crate::record::PartitionRecord;

/// A promise of the ballot's epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Promised {
    /// The incarnation that promised.
    pub incarnation: Incarnation,
    /// The durable log's rank when it promised. It cannot have grown in an older epoch since.
    pub rank: Rank,
}

/// A choice, ready to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The new leader.
    pub leader: PeerId,
    /// The incarnation that promised.
    pub incarnation: Incarnation,
    /// The new set, sorted.
    pub members: Vec<PeerId>,
}

/// Whom the record and these promises allow to lead; `None` as long as nobody may. Promises of replicas that the set does not name count for
/// nothing.
pub fn choose(record: &PartitionRecord, promises: &BTreeMap<PeerId, Promised>) -> Option<Choice> {
    let members = &record.set.members;
    assert!(!members.is_empty(), "a set has members: {record:?}");
    let counted: Vec<(PeerId, Promised)> =
        members.iter().filter_map(|peer| promises.get(peer).map(|promised| (*peer, *promised))).collect();
    let leads_on = |peer: PeerId, promised: Promised| record.leader == Some((peer, promised.incarnation));
    let best = counted
        .iter()
        .max_by_key(|(peer, promised)| (promised.rank, leads_on(*peer, *promised), Reverse(*peer)))
        .copied();
    let (leader, promised) = match record.rule() {
        CommitRule::Isr { .. } => best?,
        CommitRule::Quorum { q } => {
            let n = members.len();
            assert!(q >= 1 && q as usize <= n, "a quorum is of its set: {record:?}");
            // The greatest rank is at least that of all who promised, so it may lead exactly when enough have.
            if counted.len() > n - q as usize {
                best?
            } else {
                counted.iter().copied().find(|(peer, promised)| leads_on(*peer, *promised))?
            }
        }
    };
    let members = match record.rule() {
        CommitRule::Isr { min } if counted.len() >= min as usize => counted.iter().map(|(peer, _)| *peer).collect(),
        CommitRule::Isr { .. } | CommitRule::Quorum { .. } => members.clone(),
    };
    assert!(members.contains(&leader), "the leader is in its set");
    Some(Choice { leader, incarnation: promised.incarnation, members })
}

#[cfg(test)]
#[path = "tests/choose.rs"]
mod tests;
