//! What a record's value holds: a header of [`HEADER_BYTES`] bytes, then a payload whose form belongs to whoever makes records of that kind.
//!
//! ```text
//! byte 0   format version, 1
//! byte 1   kind, see [`Kind`]
//! byte 2   flags: bit 0 ends its transaction; bits 1 and 2 the acknowledgement requested (0 none, 1 committed, 2 leader); the rest zero
//! ```
//!
//! Every record must be understood: a replica that skipped one of a newer version would hold other rows than its leader. So whatever is unknown
//! is an error here, unlike a control batch of an unknown kind.

/// The size of the header.
pub const HEADER_BYTES: usize = 3;

/// The format version written here.
const VERSION: u8 = 1;
const ENDS_TRANSACTION: u8 = 1;
const ACK_SHIFT: u32 = 1;
const FLAGS_KNOWN: u8 = 0b111;

/// What the payload is. Its bytes are written and read by the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// One row inserted, updated or deleted.
    Row,
    /// One statement, executed again by every replica.
    Statement,
    /// One set of database pages.
    Pages,
    /// The effect of an idempotency key: the key, the hash of its request, and its result.
    Idempotency,
    /// Anything else about a database: its format, its settings.
    Meta,
}

/// The acknowledgement that a client asked for. A lost tail tells with it what had been promised for each transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestedAck {
    /// Answered when committed.
    Committed,
    /// Answered when durable on the leader alone.
    Leader,
}

/// The header of a record's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordHeader {
    /// What the payload is.
    pub kind: Kind,
    /// Whether this record is the last of its transaction.
    pub ends_transaction: bool,
    /// The acknowledgement requested; only ever on the last record of a transaction.
    pub ack: Option<RequestedAck>,
}

/// Why bytes are not a record's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RecordError {
    /// There are fewer bytes than a header has.
    #[error("a record's header has {HEADER_BYTES} bytes; found {found}")]
    Short {
        /// What is there.
        found: usize,
    },
    /// A later version wrote it. Upgrade this node.
    #[error("a record of format version {found}, where this build knows up to {VERSION}: upgrade this node")]
    Version {
        /// The version byte.
        found: u8,
    },
    /// A kind that this version does not have.
    #[error("a record of unknown kind {found}")]
    Kind {
        /// The kind byte.
        found: u8,
    },
    /// Flags that this version does not have, or that contradict each other.
    #[error("a record with unknown or contradictory flags {found:#04x}")]
    Flags {
        /// The flags byte.
        found: u8,
    },
}

impl RecordHeader {
    /// Appends the header. The payload follows.
    ///
    /// # Panics
    /// If an acknowledgement is requested on a record that does not end its transaction.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        assert!(self.ends_transaction || self.ack.is_none(), "only the last record carries the acknowledgement");
        let kind = match self.kind {
            Kind::Row => 1,
            Kind::Statement => 2,
            Kind::Pages => 3,
            Kind::Idempotency => 4,
            Kind::Meta => 5,
        };
        let ack = match self.ack {
            None => 0,
            Some(RequestedAck::Committed) => 1,
            Some(RequestedAck::Leader) => 2,
        };
        out.extend([VERSION, kind, u8::from(self.ends_transaction) | ack << ACK_SHIFT]);
    }

    /// Reads the header, and gives back the payload behind it.
    pub fn decode(value: &[u8]) -> Result<(RecordHeader, &[u8]), RecordError> {
        let Some((&[version, kind, flags], payload)) = value.split_first_chunk() else {
            return Err(match value.first() {
                Some(version) if *version != VERSION => RecordError::Version { found: *version },
                _ => RecordError::Short { found: value.len() },
            });
        };
        if version != VERSION {
            return Err(RecordError::Version { found: version });
        }
        let kind = match kind {
            1 => Kind::Row,
            2 => Kind::Statement,
            3 => Kind::Pages,
            4 => Kind::Idempotency,
            5 => Kind::Meta,
            found => return Err(RecordError::Kind { found }),
        };
        let ends_transaction = flags & ENDS_TRANSACTION != 0;
        let ack = match (flags & FLAGS_KNOWN) >> ACK_SHIFT {
            0 => None,
            1 => Some(RequestedAck::Committed),
            2 => Some(RequestedAck::Leader),
            _ => return Err(RecordError::Flags { found: flags }),
        };
        if flags & !FLAGS_KNOWN != 0 || (ack.is_some() && !ends_transaction) {
            return Err(RecordError::Flags { found: flags });
        }
        let header = RecordHeader { kind, ends_transaction, ack };
        Ok((header, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_header() -> Vec<RecordHeader> {
        let mut all = Vec::new();
        for kind in [Kind::Row, Kind::Statement, Kind::Pages, Kind::Idempotency, Kind::Meta] {
            for (ends_transaction, ack) in
                [(false, None), (true, None), (true, Some(RequestedAck::Committed)), (true, Some(RequestedAck::Leader))]
            {
                all.push(RecordHeader { kind, ends_transaction, ack });
            }
        }
        all
    }

    #[test]
    fn every_header_reads_back_with_its_payload() {
        for header in every_header() {
            let mut value = Vec::new();
            header.encode_into(&mut value);
            assert_eq!(value.len(), HEADER_BYTES);
            value.extend(b"payload");
            assert_eq!(RecordHeader::decode(&value), Ok((header, &b"payload"[..])));
        }
    }

    /// Of all three bytes there are, exactly the encodings of the headers there are can be read.
    #[test]
    fn everything_else_is_an_error() {
        let mut read = 0;
        for kind in 0..=255u8 {
            for flags in 0..=255u8 {
                let value = [VERSION, kind, flags];
                if let Ok((header, _)) = RecordHeader::decode(&value) {
                    let mut again = Vec::new();
                    header.encode_into(&mut again);
                    assert_eq!(again, value);
                    read += 1;
                }
            }
        }
        assert_eq!(read, every_header().len());
        assert_eq!(RecordHeader::decode(&[VERSION, 1]), Err(RecordError::Short { found: 2 }));
        assert_eq!(RecordHeader::decode(&[]), Err(RecordError::Short { found: 0 }));
        assert_eq!(RecordHeader::decode(&[9]), Err(RecordError::Version { found: 9 }));
        assert_eq!(RecordHeader::decode(&[VERSION + 1, 1, 1, 0]), Err(RecordError::Version { found: 2 }));
    }

    #[test]
    #[should_panic(expected = "only the last record")]
    fn an_acknowledgement_within_a_transaction_is_a_bug() {
        RecordHeader { kind: Kind::Row, ends_transaction: false, ack: Some(RequestedAck::Leader) }
            .encode_into(&mut Vec::new());
    }
}
