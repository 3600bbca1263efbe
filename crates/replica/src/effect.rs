//! What comes out of a replica.

use bytes::Bytes;
use highwater_wire::{Dest, Envelope, Epoch, HardState, NodeId, Offset, PeerId, StreamId, Unfit};

/// One thing to do. Effects are performed in order; if one fails, none of the later ones may be performed and the replica's log is poisoned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Make this durable before anything that follows.
    Persist(HardState),
    /// Append these batches, whose base is the log's end. Stamped; durable later, by a flush that is wanted now.
    Append(Bytes),
    /// Keep the entries at and above this offset in the lost tail, then cut the log there; both durable before anything that follows.
    Cut(Offset),
    /// Send a message.
    Send(Dest, Envelope),
    /// The follower's stream can take more: read whole batches from `from` on, send them as a `Batch`, and call `Replica::shipped`.
    Ship {
        /// The follower.
        to: PeerId,
        /// Its stream.
        stream: StreamId,
        /// The next offset to send.
        from: Offset,
        /// No more bytes than this, but at least one batch.
        max_bytes: usize,
    },
    /// HW is now this, on leader and follower alike. It never goes down, except where [`Role`] changes across a lossy epoch.
    HighWatermark(Offset),
    /// That node sent what no honest one sends, and what was sent changed nothing: close its connection, and say so.
    Reject(NodeId, Unfit),
    /// The role changed.
    Role(Role),
    /// The answer to [`crate::Input::Read`]: state up to the index, applied here, answers the read.
    Read(u64, Result<Offset, ReadError>),
}

/// A replica's role.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Knows of no leader that it may follow.
    Idle,
    /// Follows `leader` in `epoch`.
    Follower {
        /// The leader's epoch.
        epoch: Epoch,
        /// The leader.
        leader: PeerId,
    },
    /// Self-electing: stands for `epoch`.
    Candidate {
        /// The epoch it stands for.
        epoch: Epoch,
    },
    /// Leads `epoch`. Under `quorum` the epoch's control entry is appended right after this effect.
    Leader {
        /// The epoch.
        epoch: Epoch,
        /// The end of the log when it began: what lies below comes from earlier epochs.
        epoch_start: Offset,
    },
}

/// Why a proposal was not appended. Nothing of it will ever be in the log: these outcomes are *failed*, never *unknown*.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ProposeError {
    /// This replica does not lead the proposal's epoch.
    #[error("this replica does not lead epoch {asked} (leader: {leader:?})")]
    NotLeader {
        /// The epoch the proposal was made for.
        asked: Epoch,
        /// Who leads, as far as is known.
        leader: Option<PeerId>,
    },
    /// The proposal was made on another state of the log.
    #[error("the proposal starts at offset {asked}, but the log ends at {end}")]
    WrongBase {
        /// Where the proposal starts.
        asked: Offset,
        /// Where the log ends.
        end: Offset,
    },
    /// The commit rule cannot be met now.
    #[error("the commit rule needs {needed} copies in reach, and {in_reach} are")]
    TooFewInReach {
        /// What the rule needs.
        needed: u32,
        /// Replicas of the set with a live stream, the leader included.
        in_reach: u32,
    },
    /// The bytes are not record batches.
    #[error("the proposal is malformed: {0}")]
    Malformed(#[from] highwater_wire::batch::BatchError),
}

/// Why a linearizable read got no index. The read had no effect; it may be asked again elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ReadError {
    /// This replica leads nothing and knows nobody who does.
    #[error("no leader is known")]
    NoLeader,
    /// Leadership ended, or was not confirmed, while the read waited.
    #[error("leadership was lost while the read waited for its confirmation")]
    LeadershipLost,
}
