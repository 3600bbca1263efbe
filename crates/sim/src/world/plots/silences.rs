//! A plot about processes that stand still for a moment, for which no write may be refused.

use highwater_partition::Outcome;
use highwater_replica::ProposeError;
use highwater_wire::NodeId;

use super::{Plot, World};

/// How often each of the two happens.
const TIMES: u32 = 12;
/// Followers stand still for so long: less than the three heartbeats after which a leader misses them.
const FOLLOWERS_US: u64 = 150_000;
/// All stand still for so long: longer than that, and less than a session.
const ALL_US: u64 = 400_000;

impl World {
    /// By turns the followers stand still for a moment, and everybody does: then nobody's word waits for the leader when it goes on.
    pub(super) fn short_silences(&mut self, act: u32) -> bool {
        let node = self.staged().node;
        match act {
            0 => self.cast_leader(),
            _ if !self.waited(700_000) => false,
            _ if act > 2 * TIMES => self.end_plot(),
            _ => {
                let (stand_still, takes) = if act.is_multiple_of(2) {
                    (self.peers(node), FOLLOWERS_US)
                } else {
                    (self.nodes.keys().copied().collect(), ALL_US)
                };
                let until = self.now + takes;
                stand_still.into_iter().for_each(|id| self.node_mut(id).paused_until = until);
                true
            }
        }
    }

    /// A write is answered. In that plot nobody is refused for want of followers.
    pub(in crate::world) fn refuses_in_plot(&mut self, id: NodeId, outcome: &Outcome) {
        let plays = self.staging.as_ref().is_some_and(|staging| staging.plot == Plot::ShortSilences && staging.act > 0);
        if plays && let Outcome::Refused(ProposeError::TooFewInReach { needed, in_reach }) = outcome {
            let what =
                format!("node {id} refuses a write: it reaches {in_reach} of {needed}, and nobody was silent for long");
            self.break_law("short-silences-refuse-nobody", what);
        }
    }
}
