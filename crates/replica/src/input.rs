//! What goes into a replica.

use highwater_wire::{Envelope, HardState, Incarnation, LogShape, Millis, NodeId, Offset, PartitionId, PeerId};

/// How a partition gets its leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The metadata partition: it elects its own leader among these voters and commits by a majority of them.
    SelfElecting {
        /// The configuration in the log, sorted.
        voters: Vec<PeerId>,
    },
    /// Every other partition: led by appointment.
    Appointed,
}

/// Durations, in milliseconds of the node's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// A leader sends something on every stream at least this often (100).
    pub heartbeat_ms: Millis,
    /// The shortest and the longest randomised time without a leader after which a voter asks whether it would win (150, 300).
    pub election_ms: (Millis, Millis),
    /// How long a follower may take to reach the leader's LEO of when that time began, before it is out of sync (2000).
    pub replica_lag_max_ms: Millis,
    /// Bytes that may be under way, unacknowledged, on one stream (4 MiB).
    pub window_bytes: usize,
}

impl Default for Timing {
    fn default() -> Self {
        Timing { heartbeat_ms: 100, election_ms: (150, 300), replica_lag_max_ms: 2000, window_bytes: 4 << 20 }
    }
}

/// What a replica starts from: who it is, and what recovery found.
#[derive(Clone, Debug)]
pub struct Start {
    /// The partition.
    pub partition: PartitionId,
    /// This node and its log.
    pub me: PeerId,
    /// This process start.
    pub incarnation: Incarnation,
    /// How leaders come about.
    pub mode: Mode,
    /// Durations.
    pub timing: Timing,
    /// What election jitter is drawn from.
    pub seed: u64,
    /// The recovered log, all of it flushed.
    pub shape: LogShape,
    /// The recovered promises.
    pub hard: HardState,
    /// The time now.
    pub now: Millis,
}

/// One event. Proposals come in by `Replica::propose`, since their caller needs the answer at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A message for this partition arrived.
    Message(Envelope),
    /// Time has passed. Call it at least every ten milliseconds or so; what is due is decided inside.
    Tick,
    /// Does at once what `Tick` would do when that timer runs out, for checkers that explore every order of events and know no time.
    Timeout(Timeout),
    /// The log is durable up to this offset. Never above its end; entries cut while the flush ran are not counted.
    Flushed(Offset),
    /// The state machine has applied this far; told to the leader with acknowledgements.
    Applied(Offset),
    /// A linearizable read arrived; answered by [`crate::Effect::Read`] with this number.
    Read(u64),
    /// The connection to that node broke, and nothing more will arrive from what was sent before.
    Disconnected(NodeId),
}

/// Timers that checkers may fire by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timeout {
    /// Self-electing: no leader was heard of for the randomised time.
    Election,
    /// Leader: a heartbeat is due on every stream, unanswered questions (confirmations, set changes) are asked again. Follower or idle: ask who
    /// leads, open again.
    Heartbeat,
    /// Leader under `isr`: this member has not kept up within `replica_lag_max`.
    Lagging(PeerId),
    /// Follower: its live stream was silent for three heartbeats.
    Silent,
}
