//! Identities and positions.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of an entry in a log, from 0.
pub type Offset = u64;

/// Milliseconds of a node's own monotonic clock. Never compared between nodes.
pub type Millis = u64;

/// A node, named by configuration. Two processes with one id are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u32);

/// A random id made together with a log's folder. It survives restarts and does not survive a wiped disk, so that a promise given by a lost
/// disk is never taken for one of its replacement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LogId(pub u64);

/// One process start: a counter kept in the folder, and a random number for the case that the folder was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation {
    /// How often this folder has been started, from 1.
    pub starts: u64,
    /// Drawn anew at every start.
    pub random: u64,
}

/// A unit of replication: one log, one leader, one replica set. [`PartitionId::METADATA`] elects its own leader; all others are led by appointment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartitionId(pub u32);

impl PartitionId {
    /// The partition that holds the records of all others.
    pub const METADATA: PartitionId = PartitionId(0);
}

/// A leader epoch: raised by every election, unique to one leader of one partition. `None` in an `Option<Epoch>` is less than every epoch.
/// At most [`Epoch::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u32);

impl Epoch {
    /// The greatest epoch that is ever entered: 2^30. In batches an epoch is Kafka's `i32`, which leaves as much room above.
    pub const MAX: Epoch = Epoch(1 << 30);

    /// The epoch after this one; `None` if epochs are exhausted, after 2^30 elections of one partition or by a node that lied. Nobody is elected then any more.
    pub fn next(self) -> Option<Epoch> {
        (self < Epoch::MAX).then(|| Epoch(self.0 + 1))
    }
}

/// A number per partition, raised by every change of its record; compare-and-set guards it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version(pub u64);

/// A follower's stream. It grows within an incarnation, and holds the start counter: an answer to an earlier process of the same log, which may have asked the
/// very same question, is not taken for one to the present process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamId(pub u64);

impl StreamId {
    /// What comes before the first stream of this process.
    ///
    /// # Panics
    /// If the start counter does not fit into 32 bits, which is seen to before a node starts.
    pub fn before_first_of(process: Incarnation) -> StreamId {
        assert!(process.starts < 1 << 32, "starts are counted by 32 bits here: {process:?}");
        StreamId(process.starts << 32)
    }

    /// Which stream of its process this is, counted from 1.
    pub fn number(self) -> u64 {
        self.0 & u64::from(u32::MAX)
    }
}

/// A replica as the protocol counts it: a node together with its log. A promise, vote, acknowledgement or confirmation counts only if its log
/// id is the one that the record names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PeerId {
    /// The node that holds the log.
    pub node: NodeId,
    /// The log it holds.
    pub log: LogId,
}

/// How good a log is when leaders are chosen: the epoch of its last entry first, then its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rank {
    /// The epoch of the entry just before the LEO; `None` for an empty log.
    pub last_epoch: Option<Epoch>,
    /// The log end offset, durable.
    pub leo: Offset,
}

/// The end of a transaction in one partition: what a write returns and what a read may ask for. An offset alone is not enough after a
/// failover. Its text form is `partition:epoch:offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// The partition it is a position of.
    pub partition: PartitionId,
    /// The epoch of the entry just before `offset`.
    pub epoch: Option<Epoch>,
    /// The offset after the transaction's last entry.
    pub offset: Offset,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.epoch {
            Some(epoch) => write!(f, "{}:{}:{}", self.partition.0, epoch, self.offset),
            None => write!(f, "{}:-:{}", self.partition.0, self.offset),
        }
    }
}

impl std::str::FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || format!("a position has the form PARTITION:EPOCH:OFFSET, as in 1:4:1207; found {text:?}");
        let mut parts = text.split(':');
        let (Some(partition), Some(epoch), Some(offset), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed());
        };
        Ok(Position {
            partition: PartitionId(partition.parse().map_err(|_| malformed())?),
            epoch: match epoch {
                "-" => None,
                number => Some(Epoch(number.parse().map_err(|_| malformed())?)),
            },
            offset: offset.parse().map_err(|_| malformed())?,
        })
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}/{:?}", self.node.0, self.log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_epoch_is_less_than_all_and_rank_looks_at_the_epoch_first() {
        assert!(None < Some(Epoch(0)));
        assert!(Rank { last_epoch: Some(Epoch(1)), leo: 1 } > Rank { last_epoch: Some(Epoch(0)), leo: 9 });
        assert!(Rank { last_epoch: Some(Epoch(1)), leo: 2 } > Rank { last_epoch: Some(Epoch(1)), leo: 1 });
    }

    #[test]
    fn positions_read_back_what_they_print() {
        for epoch in [None, Some(Epoch(7))] {
            let position = Position { partition: PartitionId(1), epoch, offset: 42 };
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        assert!("1:2".parse::<Position>().unwrap_err().contains("PARTITION:EPOCH:OFFSET"));
        assert!("1:2:x".parse::<Position>().is_err());
    }
}
