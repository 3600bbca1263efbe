//! What the metadata's entries say: one record per command, whose value is a version byte and the command in postcard.

use bytes::{Bytes, BytesMut};
use highwater_wire::batch::{self, BatchError, Record};
use highwater_wire::{CommitRule, Epoch, Incarnation, PartitionId, PeerId, Version};
use serde::{Deserialize, Serialize};

/// The format of the bytes behind the version byte.
const FORMAT: u8 = 1;

/// Kafka's "no timestamp": commands mean the same whenever they are applied.
const NO_TIMESTAMP: i64 = -1;

/// A change of the metadata. It applies only where what it was made for still stands, and is void otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Command {
    /// A node process started. It is compare-and-set on the last incarnation known of that log: none, or one of those sent.
    RegisterNode {
        /// The node with its folder's log id.
        peer: PeerId,
        /// Those since the last acknowledged registration, that one included, oldest first; the last is the one that registers.
        incarnations: Vec<Incarnation>,
        /// Where clients and peers reach the node.
        address: String,
    },
    /// A new partition. It is compare-and-set on its id and its name being free.
    CreatePartition {
        /// The next free id.
        id: PartitionId,
        /// The database's name.
        name: String,
        /// The commit rule.
        rule: CommitRule,
        /// Who holds it, sorted. All are members of the first set.
        replicas: Vec<PeerId>,
    },
    /// A leader, chosen by a ballot begun at `version`.
    Appoint {
        /// The partition.
        id: PartitionId,
        /// The record's version when the ballot began.
        version: Version,
        /// The epoch that was promised.
        epoch: Epoch,
        /// The chosen one.
        leader: PeerId,
        /// The incarnation in which it promised.
        incarnation: Incarnation,
        /// The new set, sorted.
        members: Vec<PeerId>,
    },
    /// Another ISR, asked for by the leader of `epoch`.
    ChangeSet {
        /// The partition.
        id: PartitionId,
        /// The version the leader knows.
        version: Version,
        /// The leader's epoch.
        epoch: Epoch,
        /// The new set, sorted.
        members: Vec<PeerId>,
    },
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Applied {
    /// What it asks for is now so.
    Done,
    /// It changed nothing.
    Void(Void),
}

/// Why a command was void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Void {
    /// The last registered incarnation is not among those sent.
    #[error(
        "the folder is an older copy: the incarnation registered last is not among those since its last acknowledged registration"
    )]
    OlderCopy,
    /// A command that its own fields contradict.
    #[error("the command contradicts itself")]
    Malformed,
    /// The partition's id or name is taken, or the id is not the next.
    #[error("the partition's id or name is taken")]
    Taken,
    /// The replicas cannot keep the rule, or the name is none.
    #[error("the partition cannot be kept as declared")]
    Rule,
    /// There is no such partition.
    #[error("there is no such partition")]
    NoPartition,
    /// The record has another version.
    #[error("the record has version {}", found.0)]
    Version {
        /// The record's.
        found: Version,
    },
    /// The epoch does not rise (appointment), or is not the record's (change of the set).
    #[error("the record has epoch {found:?}")]
    Epoch {
        /// The record's.
        found: Option<Epoch>,
    },
    /// The chosen leader runs in another incarnation by now.
    #[error("the chosen leader has restarted since it promised")]
    Incarnation,
    /// The set breaks its rule: too small, without the leader, not of replicas, or not of this change's making.
    #[error("the new set breaks the commit rule")]
    Set,
}

/// Why a record of the metadata's log is not a command. The replica must not go on: it would part from those that understand it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The record has no value, or an empty one.
    #[error("a metadata record is empty where a command was expected")]
    Empty,
    /// Another format, of a newer version of the program.
    #[error(
        "a metadata record has format {found}, and this program reads format {FORMAT}; start a newer program on this folder"
    )]
    Format {
        /// The version byte found.
        found: u8,
    },
    /// The bytes do not decode, or go on after the command.
    #[error("a metadata record of format {FORMAT} does not decode: {0}")]
    Malformed(String),
    /// The batch that should hold the records is none.
    #[error("a metadata batch cannot be read: {0}")]
    Batch(#[from] BatchError),
}

impl Command {
    /// The bytes of the record's value.
    pub fn encode(&self) -> Bytes {
        let bytes = postcard::to_extend(self, vec![FORMAT])
            .unwrap_or_else(|error| unreachable!("commands always encode: {error}"));
        assert!(bytes.len() > 1, "a command has at least one byte behind the format");
        bytes.into()
    }

    /// Reads what [`Command::encode`] wrote, to its last byte.
    pub fn decode(value: &[u8]) -> Result<Command, CommandError> {
        let (format, rest) = value.split_first().ok_or(CommandError::Empty)?;
        if *format != FORMAT {
            return Err(CommandError::Format { found: *format });
        }
        match postcard::take_from_bytes(rest) {
            Ok((command, [])) => Ok(command),
            Ok((_, more)) => Err(CommandError::Malformed(format!("{} bytes follow the command", more.len()))),
            Err(error) => Err(CommandError::Malformed(error.to_string())),
        }
    }

    /// A batch of this one command, not yet stamped.
    pub fn batch(&self) -> BytesMut {
        batch::build(&[Record { key: None, value: Some(self.encode()) }], NO_TIMESTAMP)
    }

    /// The commands in batches that lie one behind the other, in order. Control batches hold none.
    pub fn read_batches(batches: &Bytes) -> Result<Vec<Command>, CommandError> {
        let mut commands = Vec::new();
        for next in batch::split(batches) {
            let (header, bytes) = next?;
            if header.control {
                continue;
            }
            for record in batch::records(&bytes)? {
                commands.push(Command::decode(&record.value.ok_or(CommandError::Empty)?)?);
            }
        }
        Ok(commands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_wire::batch::{Control, build_control, stamp};
    use highwater_wire::{LogId, NodeId};

    fn commands() -> Vec<Command> {
        let peer = PeerId { node: NodeId(1), log: LogId(7) };
        let incarnation = Incarnation { starts: 1, random: 9 };
        let id = PartitionId(1);
        vec![
            Command::RegisterNode { peer, incarnations: vec![incarnation], address: "127.0.0.1:8080".into() },
            Command::CreatePartition {
                id,
                name: "main".into(),
                rule: CommitRule::Quorum { q: 1 },
                replicas: vec![peer],
            },
            Command::Appoint {
                id,
                version: Version(1),
                epoch: Epoch(0),
                leader: peer,
                incarnation,
                members: vec![peer],
            },
            Command::ChangeSet { id, version: Version(2), epoch: Epoch(0), members: vec![peer] },
        ]
    }

    #[test]
    fn commands_read_back_from_batches_and_control_batches_hold_none() {
        let mut batches = build_control(&Control::EpochStart, NO_TIMESTAMP);
        for command in commands() {
            batches.unsplit(command.batch());
        }
        assert_eq!(stamp(&mut batches, 3, Epoch(2)), Ok(8));
        assert_eq!(Command::read_batches(&batches.freeze()), Ok(commands()));
    }

    #[test]
    fn bad_bytes_are_told_apart() {
        assert_eq!(Command::decode(&[]), Err(CommandError::Empty));
        assert_eq!(Command::decode(&[2, 0]), Err(CommandError::Format { found: 2 }));
        for command in commands() {
            let mut bytes = command.encode().to_vec();
            for cut in 1..bytes.len() {
                assert!(
                    matches!(Command::decode(&bytes[..cut]), Err(CommandError::Malformed(_))),
                    "{command:?} cut at {cut}"
                );
            }
            bytes.push(0);
            assert!(matches!(Command::decode(&bytes), Err(CommandError::Malformed(_))));
        }
        assert!(matches!(Command::read_batches(&Bytes::from_static(b"nonsense")), Err(CommandError::Batch(_))));
    }
}
