//! What a replica keeps in memory.
//!
//! Everything here is ordered, comparable and hashable, so that a checker can store and compare states. Times change nothing but what
//! [`crate::Input::Tick`] finds due: a checker that always passes time 0 sees a finite state space.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use highwater_wire::{
    Epoch, HardState, Incarnation, LogShape, Millis, NodeId, Offset, PartitionId, PeerId, Set, StreamId, Version,
};

use crate::{Mode, Timing};

/// One replica of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica {
    pub(crate) partition: PartitionId,
    pub(crate) me: PeerId,
    pub(crate) incarnation: Incarnation,
    pub(crate) mode: Mode,
    pub(crate) timing: Timing,
    pub(crate) seed: u64,
    /// The outline of the log as it will be when the effects given out so far are performed.
    pub(crate) log: LogShape,
    /// The promises, durable as soon as the effects given out so far are performed.
    pub(crate) hard: HardState,
    pub(crate) hw: Offset,
    /// The epoch `hw` was learned in.
    pub(crate) hw_epoch: Option<Epoch>,
    /// How far the state machine here has applied.
    pub(crate) applied: Offset,
    pub(crate) part: Part,
    /// The greatest epoch this incarnation has led: an epoch is led once.
    pub(crate) led: Option<Epoch>,
    /// Whether this incarnation has promised the promised epoch to a coordinator and has followed nobody in it: only then may it be appointed there.
    pub(crate) answered: bool,
    /// The newest stream this incarnation has opened.
    pub(crate) last_stream: StreamId,
    /// Numbers this incarnation's confirmation rounds and questions for a read index.
    pub(crate) last_question: u64,
    /// The greatest epoch that somebody is known to have entered. Self-electing: by what they say; appointed: by the committed record alone.
    pub(crate) heard_epoch: Option<Epoch>,
    /// Self-electing: a running question whether this replica would win.
    pub(crate) canvass: Option<Canvass>,
    /// Self-electing: a leader of the promised epoch is believed to be alive.
    pub(crate) hears_leader: bool,
    pub(crate) timers: Timers,
}

/// A role with what belongs to it. Its epoch is always the promised one, since a later one is entered only by leaving the role.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    Idle,
    Follower(Following),
    Candidate {
        /// Who voted for this replica, itself included.
        votes: BTreeSet<PeerId>,
    },
    Leader(Box<Leading>),
}

/// What a follower keeps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Following {
    pub(crate) leader: PeerId,
    /// The stream, from its question on; none after it ended and before it is opened anew.
    pub(crate) stream: Option<Stream>,
    /// The question for a read index that is under way: its number, and the reads it serves.
    pub(crate) asking: Option<(u64, Vec<u64>)>,
    /// Reads that arrived after that question was sent.
    pub(crate) waiting: Vec<u64>,
}

/// A stream as its follower sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    /// Accepted: the log is a prefix of the leader's.
    pub(crate) live: bool,
    /// The (end, last epoch) of the question. An answer to any other question is dead.
    pub(crate) asked: (Offset, Option<Epoch>),
    /// The last HW told on this stream.
    pub(crate) told: Offset,
    /// An acknowledgement of everything below this waits for its flush.
    pub(crate) owed: Option<Offset>,
}

/// What a leader keeps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leading {
    /// The end of the log when the epoch began.
    pub(crate) epoch_start: Offset,
    /// All replicas of the partition, sorted.
    pub(crate) replicas: Vec<PeerId>,
    /// The set on record, as far as is known.
    pub(crate) committed: Set,
    /// The members of a change whose outcome is not known.
    pub(crate) proposed: Option<Vec<PeerId>>,
    pub(crate) version: Version,
    /// Every other replica.
    pub(crate) peers: BTreeMap<PeerId, Peer>,
    /// Reads that no confirmation round serves yet.
    pub(crate) waiting: Vec<WaitingRead>,
    /// The round under way.
    pub(crate) round: Option<Round>,
}

/// What a leader knows of another replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    /// The newest question: (incarnation, stream) and the (end, last epoch) it named. None before the first.
    pub(crate) stream: Option<(Incarnation, StreamId, (Offset, Option<Epoch>))>,
    /// That question was answered by `Accept`.
    pub(crate) accepted: bool,
    /// Accepted, and the connection is not known to have broken since.
    pub(crate) live: bool,
    /// The next offset to send.
    pub(crate) next: Offset,
    /// A `Ship` was given out, and has not come back.
    pub(crate) shipping: bool,
    /// Sent and not acknowledged: (end, bytes), oldest first.
    pub(crate) in_flight: VecDeque<(Offset, usize)>,
    /// The last HW told.
    pub(crate) told: Offset,
    /// The greatest LEO acknowledged on a stream accepted in this epoch.
    pub(crate) acked: Offset,
    pub(crate) applied: Offset,
    pub(crate) heard_at: Millis,
    /// The lag clock: when it began, and the leader's LEO then.
    pub(crate) lag_since: Millis,
    pub(crate) lag_target: Offset,
}

/// Who waits for a read index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reader {
    /// The caller of this replica, with its number.
    Own(u64),
    /// A follower's question.
    Follower(NodeId, u64),
}

/// A read that waits for a confirmation round.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WaitingRead {
    pub(crate) reader: Reader,
    /// The maximal set when the read arrived.
    pub(crate) set: Vec<PeerId>,
}

/// A confirmation round.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Round {
    /// Its number towards replicas, even; the coordinator is asked with the odd number after it.
    pub(crate) number: u64,
    /// Whom it serves.
    pub(crate) readers: Vec<Reader>,
    /// HW when the round was sent.
    pub(crate) index: Offset,
    /// Whose confirmations count.
    pub(crate) set: Vec<PeerId>,
    /// Who has confirmed, the leader included.
    pub(crate) confirmed: BTreeSet<PeerId>,
}

/// A question whether this replica would win an election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Canvass {
    pub(crate) epoch: Epoch,
    pub(crate) yes: BTreeSet<PeerId>,
}

/// When things last happened. Only `Tick` looks at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Timers {
    /// The latest time any input came with.
    pub(crate) now: Millis,
    /// When the heartbeat procedure last ran; none before the first time, so that it runs at once after a start.
    pub(crate) heartbeat_at: Option<Millis>,
    /// When a leader was last heard, an epoch was last entered or an election last tried.
    pub(crate) leader_at: Millis,
    /// When the stream was opened or last brought something.
    pub(crate) stream_at: Millis,
    /// How many elections this replica has tried: each draws another randomised time.
    pub(crate) attempts: u32,
}

impl Part {
    pub(crate) fn leading(&self) -> Option<&Leading> {
        match self {
            Part::Leader(leading) => Some(leading),
            _ => None,
        }
    }

    pub(crate) fn leading_mut(&mut self) -> Option<&mut Leading> {
        match self {
            Part::Leader(leading) => Some(leading),
            _ => None,
        }
    }

    pub(crate) fn following_mut(&mut self) -> Option<&mut Following> {
        match self {
            Part::Follower(following) => Some(following),
            _ => None,
        }
    }
}

impl Leading {
    /// Committed and proposed members together: no set that the coordinator may have recorded holds anybody else.
    pub(crate) fn maximal(&self) -> Vec<PeerId> {
        let mut members: BTreeSet<PeerId> = self.committed.members.iter().copied().collect();
        members.extend(self.proposed.iter().flatten());
        members.into_iter().collect()
    }
}
