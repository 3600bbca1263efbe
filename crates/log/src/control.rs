//! Small files that are replaced as a whole: the envelope they all share, and the log's own, `control`.
//!
//! ```text
//! 0    magic     8 bytes   "HWSEAL\r\n"
//! 8    kind      8 bytes   what the payload is, so that one file is never taken for another
//! 16   version   u16       of the payload, big endian like everything
//! 18   length    u32       of the payload
//! 22   payload
//! ..   checksum  u32       CRC-32C of everything before it; nothing follows
//! ```

use highwater_wire::{Epoch, HardState, LogId, Offset, PeerId};
use serde::{Deserialize, Serialize};

const MAGIC: [u8; 8] = *b"HWSEAL\r\n";
const HEADER_BYTES: usize = 22;

/// The name of the log's control file.
pub(crate) const NAME: &str = "control";
const KIND: [u8; 8] = *b"log-ctrl";
const VERSION: u16 = 2;

/// Why bytes are not a sealed file of the kind wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The bytes end too early, or go on behind the checksum.
    #[error("it has {found} bytes where its header says {wanted}")]
    Length {
        /// By the header, or the least there can be.
        wanted: usize,
        /// There are.
        found: usize,
    },
    /// It does not begin as sealed files do.
    #[error("it does not begin with the magic of Highwater's files")]
    Magic,
    /// It is a sealed file of another kind.
    #[error("it is a file of kind {found:?}, not {wanted:?}")]
    Kind {
        /// Asked for.
        wanted: String,
        /// In the header.
        found: String,
    },
    /// Its bytes were changed.
    #[error("its checksum is {found:#010x} where its bytes give {wanted:#010x}")]
    Checksum {
        /// Computed from the bytes.
        wanted: u32,
        /// Stored.
        found: u32,
    },
    /// A later version wrote it: upgrade.
    #[error("it is of version {found}, and this build knows up to {known}: use the newer build that wrote it")]
    Version {
        /// In the header.
        found: u16,
        /// The greatest known.
        known: u16,
    },
    /// The checksum holds, and the payload still does not read.
    #[error("its payload does not read: {0}")]
    Payload(String),
}

/// Puts a payload into the envelope.
///
/// # Panics
/// If the payload has more than `u32::MAX` bytes.
pub fn seal(kind: [u8; 8], version: u16, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a sealed payload has at most u32::MAX bytes");
    let mut out = Vec::with_capacity(HEADER_BYTES + payload.len() + 4);
    out.extend(MAGIC);
    out.extend(kind);
    out.extend(version.to_be_bytes());
    out.extend(length.to_be_bytes());
    assert_eq!(out.len(), HEADER_BYTES, "the layout above");
    out.extend(payload);
    out.extend(crc32c::crc32c(&out).to_be_bytes());
    out
}

/// Takes a payload of that kind out of its envelope, with its version, which is for the caller to judge.
pub fn open(kind: [u8; 8], bytes: &[u8]) -> Result<(u16, &[u8]), SealError> {
    let found = bytes.len();
    if found < HEADER_BYTES + 4 {
        return Err(SealError::Length { wanted: HEADER_BYTES + 4, found });
    }
    let (covered, checksum) = bytes.split_at(found - 4);
    if covered[..8] != MAGIC {
        return Err(SealError::Magic);
    }
    let length = u32::from_be_bytes([covered[18], covered[19], covered[20], covered[21]]) as usize;
    if covered.len() - HEADER_BYTES != length {
        return Err(SealError::Length { wanted: HEADER_BYTES + length + 4, found });
    }
    let wanted = crc32c::crc32c(covered);
    let found = u32::from_be_bytes([checksum[0], checksum[1], checksum[2], checksum[3]]);
    if wanted != found {
        return Err(SealError::Checksum { wanted, found });
    }
    if covered[8..16] != kind {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        return Err(SealError::Kind { wanted: text(&kind), found: text(&covered[8..16]) });
    }
    Ok((u16::from_be_bytes([covered[16], covered[17]]), &covered[HEADER_BYTES..]))
}

/// The newest cut: a frame at or above the offset and of a lower generation is dead, whatever it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cut {
    /// Where the log ended then.
    pub(crate) offset: Offset,
    /// The log's generation since.
    pub(crate) generation: u64,
    /// The checksum in the header of the frame before it; 0 if there was none.
    pub(crate) before: u32,
}

/// What the log keeps beside its entries. Version 2.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Control {
    /// Whose folder this is.
    pub(crate) log_id: LogId,
    /// The replica's promises.
    pub(crate) hard: HardState,
    /// The first offset held.
    pub(crate) start: Offset,
    /// The epoch of the entry before it.
    pub(crate) base_epoch: Option<Epoch>,
    /// The newest cut. Its generation is the log's.
    pub(crate) cut: Cut,
    /// Everything below was durable when this was written.
    pub(crate) flushed: Offset,
    /// The base of the newest segment that may hold frames; `None` while the folder is being made.
    pub(crate) last_segment: Option<Offset>,
    /// The end of a log that was closed in good order; taken away before the next append.
    pub(crate) clean: Option<Offset>,
}

/// The promises of version 1: promised, to whom, lossy, the HW hint. It did not know which incarnations had been seen.
type HardStateV1 = (Option<Epoch>, Option<PeerId>, Option<Epoch>, (Offset, Option<Epoch>));

/// The fields of version 1, in their order there.
type ControlV1 = (LogId, HardStateV1, Offset, Option<Epoch>, Cut, Offset, Option<Offset>, Option<Offset>);

impl Control {
    /// The control file of a log that does not exist yet.
    pub(crate) fn new(log_id: LogId) -> Control {
        Control {
            log_id,
            hard: HardState::default(),
            start: 0,
            base_epoch: None,
            cut: Cut { offset: 0, generation: 0, before: 0 },
            flushed: 0,
            last_segment: None,
            clean: None,
        }
    }

    /// The bytes of the file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.check();
        let payload = postcard::to_stdvec(self).expect("a control file has nothing that cannot be written");
        seal(KIND, VERSION, &payload)
    }

    /// Reads the file.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Control, SealError> {
        let (version, payload) = open(KIND, bytes)?;
        match version {
            1 => read(payload).map(Control::of_version_one),
            VERSION => read(payload),
            found => Err(SealError::Version { found, known: VERSION }),
        }
    }

    fn of_version_one(before: ControlV1) -> Control {
        let (log_id, hard, start, base_epoch, cut, flushed, last_segment, clean) = before;
        let (promised, promised_to, lossy, hw_hint) = hard;
        let hard = HardState { promised, promised_to, lossy, hw_hint, ..HardState::default() };
        Control { log_id, hard, start, base_epoch, cut, flushed, last_segment, clean }
    }

    fn check(&self) {
        assert!(self.start <= self.flushed, "a log is durable up to its start at least: {self:?}");
        assert!(
            self.clean.is_none_or(|end| end == self.flushed),
            "a log closed in good order is durable to its end: {self:?}"
        );
    }
}

/// Reads a payload to its end.
fn read<T: serde::de::DeserializeOwned>(payload: &[u8]) -> Result<T, SealError> {
    match postcard::take_from_bytes::<T>(payload) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(SealError::Payload(format!("{} bytes too many", rest.len()))),
        Err(error) => Err(SealError::Payload(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_wire::{Incarnation, NodeId};
    use proptest::prelude::*;

    fn control() -> Control {
        Control {
            hard: HardState { promised: Some(Epoch(7)), hw_hint: (12, Some(Epoch(6))), ..HardState::default() },
            flushed: 20,
            cut: Cut { offset: 14, generation: 3, before: 0x44 },
            last_segment: Some(8),
            ..Control::new(LogId(0x0102_0304_0506_0708))
        }
    }

    const LOG_ID: [u8; 9] = [0x88, 0x8e, 0x98, 0xa8, 0xc0, 0xe0, 0x80, 0x81, 0x01];
    const PROMISES: [u8; 7] = [1, 7, 0, 0, 12, 1, 6];
    const REST: [u8; 9] = [0, 0, 14, 3, 0x44, 20, 1, 8, 0];

    /// These bytes are what folders hold. If a field is added, the version rises and the old one is still read.
    #[test]
    fn version_two_is_these_bytes() {
        let mut control = control();
        let voter = PeerId { node: NodeId(3), log: LogId(9) };
        control.hard.seen.insert(voter, Incarnation { starts: 5, random: 6 });
        let bytes = control.encode();
        let payload = &bytes[HEADER_BYTES..bytes.len() - 4];
        assert_eq!(payload, [&LOG_ID[..], &PROMISES, &[1, 3, 9, 5, 6], &REST].concat());
        assert_eq!(Control::decode(&bytes), Ok(control));
    }

    #[test]
    fn version_one_knew_of_no_incarnations_and_is_read() {
        let bytes = seal(KIND, 1, &[&LOG_ID[..], &PROMISES, &REST].concat());
        assert_eq!(Control::decode(&bytes), Ok(control()));
    }

    #[test]
    fn every_single_changed_byte_is_found() {
        let bytes = control().encode();
        for place in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[place] ^= flip;
                assert!(Control::decode(&changed).is_err(), "byte {place} flipped by {flip:#x}");
            }
        }
        for len in 0..bytes.len() {
            assert!(Control::decode(&bytes[..len]).is_err(), "cut short at {len}");
        }
    }

    #[test]
    fn another_kind_or_version_is_named() {
        let other = seal(*b"otherkin", VERSION, &[]);
        assert!(matches!(Control::decode(&other), Err(SealError::Kind { .. })));
        let newer = seal(KIND, VERSION + 1, &[]);
        assert_eq!(Control::decode(&newer), Err(SealError::Version { found: 3, known: 2 }));
        assert!(matches!(Control::decode(&seal(KIND, VERSION, &[1])), Err(SealError::Payload(_))));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            prop_assert!(Control::decode(&bytes).is_err());
            let _ = Control::decode(&seal(KIND, VERSION, &bytes));
        }
    }
}
