//! The messages between nodes.
//!
//! Connections break; messages are lost, repeated, delayed and reordered across connections. Nothing relies on their order except for speed.
//! An answer that no longer fits its question is dropped by whoever asked.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Incarnation, NodeId, Offset, PartitionId, PeerId, Rank, StreamId, Version};

/// Who sends: a replica (or the coordinator beside it) in one incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Sender {
    /// The node and its log of this partition.
    pub peer: PeerId,
    /// The sender's process start.
    pub incarnation: Incarnation,
}

/// A message of one partition, with what fences it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Envelope {
    /// The partition the message is about.
    pub partition: PartitionId,
    /// Who sends it.
    pub sender: Sender,
    /// The epoch it belongs to: the sender's own, or the one asked for in `PromiseRequest` and `Stand`. `None` from a replica that knows none.
    pub epoch: Option<Epoch>,
    /// What it says.
    pub body: Body,
}

/// Where an envelope goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dest {
    /// The replica of the same partition on that node.
    Node(NodeId),
    /// Whoever coordinates: the leader of the metadata partition, as far as this node knows.
    Coordinator,
}

/// What decides HW and who may be elected; the two belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CommitRule {
    /// HW is the least LEO of the maximal ISR, which never shrinks below `min`.
    Isr {
        /// The floor, at least 1.
        min: u32,
    },
    /// HW is the `q`-th greatest LEO of the set, for entries of the leader's own epoch.
    Quorum {
        /// How many copies commit, at least 1 and at most the set's size.
        q: u32,
    },
}

/// A rule with the members it counts: under `isr` the ISR, under `quorum` all replicas.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Set {
    /// How the members count.
    pub rule: CommitRule,
    /// The members, sorted and without repetition.
    pub members: Vec<PeerId>,
}

/// Who leads a partition, as the coordinator has it on record (or as a self-elected leader says of itself).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lead {
    /// The leader of the envelope's epoch.
    pub leader: PeerId,
    /// The incarnation that promised. A leader in another incarnation neither obeys this nor is followed.
    pub incarnation: Incarnation,
    /// Everyone who holds the partition; a superset of the set's members.
    pub replicas: Vec<PeerId>,
    /// The committed set.
    pub set: Set,
    /// The record's version.
    pub version: Version,
    /// The greatest lossy epoch on record, at most the envelope's epoch.
    pub lossy: Option<Epoch>,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Body {
    /// Node to coordinator at every start, before anything else: the incarnations since the last acknowledged one, this one included.
    Register {
        /// Oldest first; the last is the sender's.
        incarnations: Vec<Incarnation>,
        /// Where the node's clients and peers reach it.
        address: String,
    },
    /// The answer. A refused node is an older copy of its folder and must take new log ids.
    Registered {
        /// The incarnation that registered: an answer meant for an earlier process of the same node is not this one's.
        incarnation: Incarnation,
        /// Whether the registration was accepted.
        accepted: bool,
    },
    /// Node to coordinator at every heartbeat: keeps the node's session alive.
    Heartbeat {
        /// The node is about to stop in good order: what it leads should be led by others.
        leaving: bool,
    },
    /// Coordinator to replica: promise the envelope's epoch.
    PromiseRequest {
        /// Names the asking coordinator's attempt; promises count for this ballot alone.
        ballot: u64,
    },
    /// The promise, once durable.
    Promise {
        /// The ballot asked.
        ballot: u64,
        /// The present rank.
        rank: Rank,
    },
    /// Coordinator or self-elected leader to all.
    Lead(Lead),
    /// Replica to coordinator (or, in the metadata, to a voter): who leads?
    WhoLeads,
    /// Follower to leader: serve me from here. `end` is the *append* end: an unflushed tail is stated, not hidden. Never an acknowledgement.
    Open {
        /// The new stream.
        stream: StreamId,
        /// The append end of the follower's log.
        end: Offset,
        /// The epoch of its last entry.
        last_epoch: Option<Epoch>,
    },
    /// The follower's log is a prefix of the leader's; batches follow from `end` on.
    Accept {
        /// The stream asked for.
        stream: StreamId,
        /// The `end` asked.
        end: Offset,
        /// The `last_epoch` asked.
        last_epoch: Option<Epoch>,
        /// The leader's HW.
        hw: Offset,
        /// The leader's log start.
        start: Offset,
    },
    /// The logs part: cut and ask again.
    Diverge {
        /// The stream asked for.
        stream: StreamId,
        /// The `end` asked.
        end: Offset,
        /// The `last_epoch` asked.
        last_epoch: Option<Epoch>,
        /// The leader's greatest epoch at most `last_epoch`.
        epoch: Option<Epoch>,
        /// That epoch's end at the leader; 0 if there is none.
        stop: Offset,
    },
    /// Leader to follower: entries, or none as a heartbeat.
    Batch {
        /// The stream.
        stream: StreamId,
        /// The offset of the first entry, or the leader's next for this stream if there is none.
        base: Offset,
        /// Whole record batches, one behind the other; empty for a heartbeat.
        batches: Bytes,
        /// The leader's HW.
        hw: Offset,
        /// The leader's log start.
        start: Offset,
    },
    /// Follower to leader: everything below `leo` is durable here.
    Ack {
        /// The stream.
        stream: StreamId,
        /// The follower's durable end.
        leo: Offset,
        /// How far its state machine has applied.
        applied: Offset,
    },
    /// Leader to coordinator: replace the ISR, if the record still has this version.
    ChangeSet {
        /// The version the leader knows.
        version: Version,
        /// The new members, sorted.
        members: Vec<PeerId>,
    },
    /// Leader to replica or coordinator: do I still lead?
    Confirm {
        /// Numbers the leader's rounds. Even numbers ask replicas, odd ones the coordinator, whose answer alone is enough and must not be taken for
        /// that of the replica beside it.
        round: u64,
    },
    /// Yes, for that round.
    Confirmed {
        /// The round asked.
        round: u64,
    },
    /// Candidate to voter: I stand for the envelope's epoch.
    Stand {
        /// The candidate's rank.
        rank: Rank,
        /// Only asks whether it would win; nobody changes state for that.
        pre: bool,
    },
    /// Voter to candidate.
    Vote {
        /// Whether the vote is for the candidate.
        granted: bool,
        /// Answers a `pre` question.
        pre: bool,
    },
    /// Follower to leader: an index for a linearizable read.
    ReadIndex {
        /// The follower's number for the question.
        id: u64,
    },
    /// The leader's answer, once its leadership was confirmed after the question arrived; `None` if it cannot be had now.
    ReadIndexAnswer {
        /// The question's number.
        id: u64,
        /// Everything below it must be applied before the read.
        index: Option<Offset>,
    },
    /// Back to anything of an epoch below the one promised.
    Refused {
        /// The promised epoch.
        promised: Epoch,
    },
    /// Voter to voter of the self-electing partition, back to anything that an incarnation older than the newest seen has sent: its folder is an older
    /// copy. The present process of an honest node heeds no answer that names an earlier one. Since version 2 of the protocol.
    OlderCopy {
        /// The incarnation refused.
        refused: Incarnation,
        /// The newest that the sender has seen.
        newest: Incarnation,
    },
}

impl Body {
    /// The least version of the protocol whose nodes understand this.
    pub fn since_version(&self) -> u16 {
        match self {
            Body::OlderCopy { .. } => 2,
            _ => 1,
        }
    }
}
