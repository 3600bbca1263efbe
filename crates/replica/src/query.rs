//! What can be seen of a replica.

use highwater_wire::{Epoch, LogShape, Millis, Offset, PeerId, Set, Version};

use crate::Role;
use crate::state::{Leading, Part, Replica};

/// What a leader knows of another replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// The replica.
    pub peer: PeerId,
    /// The greatest LEO it has acknowledged in this epoch.
    pub leo: Offset,
    /// The applied offset it told last.
    pub applied: Offset,
    /// Under `isr`: a member of the ISR on record. Under `quorum`: not behind for longer than the allowed lag.
    pub in_sync: bool,
    /// Whether its stream is live.
    pub live: bool,
    /// Milliseconds since it was last heard of, or since this leadership began.
    pub heard_ms_ago: Millis,
}

impl Replica {
    /// The present role.
    pub fn role(&self) -> Role {
        let epoch = || self.hard.promised.expect("a role has an epoch");
        match &self.part {
            Part::Idle => Role::Idle,
            Part::Follower(following) => Role::Follower { epoch: epoch(), leader: following.leader },
            Part::Candidate { .. } => Role::Candidate { epoch: epoch() },
            Part::Leader(leading) => Role::Leader { epoch: epoch(), epoch_start: leading.epoch_start },
        }
    }

    /// The highest epoch promised or entered.
    pub fn promised(&self) -> Option<Epoch> {
        self.hard.promised
    }

    /// The leader of the promised epoch, as far as this replica knows.
    pub fn leader(&self) -> Option<PeerId> {
        match &self.part {
            Part::Leader(_) => Some(self.me),
            Part::Follower(following) => Some(following.leader),
            Part::Idle | Part::Candidate { .. } => None,
        }
    }

    /// Whether this replica leads `epoch` now.
    pub fn leads(&self, epoch: Epoch) -> bool {
        self.part.leading().is_some() && self.hard.promised == Some(epoch)
    }

    /// The high watermark as this replica knows it.
    pub fn hw(&self) -> Offset {
        self.hw
    }

    /// What is committed as far as this replica's leader has told, which may be more than it holds itself; a leader's own HW. `None` if no leader's word is
    /// live here.
    pub fn told(&self) -> Option<Offset> {
        match &self.part {
            Part::Leader(_) => Some(self.hw),
            Part::Follower(_) => self.stream().filter(|stream| stream.live).map(|stream| stream.told),
            Part::Idle | Part::Candidate { .. } => None,
        }
    }

    /// The outline of the log, as it is once the effects given out so far are performed.
    pub fn shape(&self) -> &LogShape {
        &self.log
    }

    /// This replica.
    pub fn me(&self) -> PeerId {
        self.me
    }

    /// The set on record as this leader knows it.
    ///
    /// # Panics
    /// If this replica does not lead.
    pub fn set(&self) -> &Set {
        &self.leading().committed
    }

    /// The members of a change of the set whose outcome this leader does not know.
    ///
    /// # Panics
    /// If this replica does not lead.
    pub fn proposed(&self) -> Option<&[PeerId]> {
        self.leading().proposed.as_deref()
    }

    /// The record's version as this leader knows it.
    ///
    /// # Panics
    /// If this replica does not lead.
    pub fn version(&self) -> Version {
        self.leading().version
    }

    /// The follower's stream is accepted: its log is a prefix of the leader's.
    pub fn stream_is_live(&self) -> bool {
        self.stream().is_some_and(|stream| stream.live)
    }

    /// Every other replica as this leader sees it; empty if this replica does not lead.
    pub fn peers(&self, now: Millis) -> Vec<PeerView> {
        let Some(leading) = self.part.leading() else { return Vec::new() };
        let now = now.max(self.timers.now);
        let allowed_ms = self.timing.replica_lag_max_ms;
        let view = |(id, peer): (&PeerId, &crate::state::Peer)| PeerView {
            peer: *id,
            leo: peer.acked,
            applied: peer.applied,
            in_sync: match leading.committed.rule {
                highwater_wire::CommitRule::Isr { .. } => leading.committed.members.contains(id),
                highwater_wire::CommitRule::Quorum { .. } => {
                    peer.accepted && (peer.acked >= peer.lag_target || now - peer.lag_since < allowed_ms)
                }
            },
            live: peer.live,
            heard_ms_ago: now - peer.heard_at,
        };
        leading.peers.iter().map(view).collect()
    }

    fn leading(&self) -> &Leading {
        self.part.leading().expect("only a leader knows the set")
    }
}
