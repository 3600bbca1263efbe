//! How messages travel: frames with a length and a checksum, and the versioned hello that opens a connection.
//!
//! Both ends send a [`Hello`] first, in a layout that no version changes; the greatest version both speak ([`Hello::agree`]) decides how what
//! follows is read. Then come frames, each one envelope:
//!
//! ```text
//! 0   length    u32, big endian   bytes after both checksums, at most FRAME_BYTES_MAX
//! 4   of length u32               CRC-32C of the length's four bytes; since version 3
//! 8   checksum  u32               CRC-32C of the length's four bytes and of everything after the checksum
//! 12  version   u8                how the rest is encoded: 1 is postcard
//! 13  envelope
//! ```
//!
//! TCP's own checksum is weak, and base offset and epoch of a batch lie outside the batch's: hence these. The length has its own, because a length that was changed on its way
//! would otherwise have the receiver wait for bytes that nobody meant as this frame's, and swallow what comes behind it. Any malformed input is answered by
//! an error, after which the connection is of no more use: where the next frame begins is not known. A frame that does not become whole within [`FRAME_WAIT`] is
//! malformed as well.

use bytes::{Buf, BufMut, BytesMut};

use crate::ids::{Incarnation, LogId, NodeId};
use crate::message::Envelope;

/// The most bytes a frame carries, its version and envelope: 64 MiB.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
/// How long whoever receives waits for the rest of a frame before it gives the connection up: the network is too slow, or the other end is of a version whose
/// lengths have no checksum, and one was changed on its way.
pub const FRAME_WAIT: std::time::Duration = std::time::Duration::from_secs(10);
/// The least protocol version this build speaks.
pub const VERSION_MIN: u16 = 1;
/// The greatest protocol version this build speaks. What each added to messages, [`crate::Body::since_version`] says; 3 gave the length
/// of a frame a checksum of its own.
pub const VERSION_MAX: u16 = 3;
/// The most bytes of a hello's proof.
pub const PROOF_BYTES_MAX: usize = 1024;

/// The length of a frame has a checksum of its own from here on.
const LENGTH_IS_CHECKED: u16 = 3;
/// The encoding of envelopes written here.
const FRAME_VERSION: u8 = 1;

/// What a hello begins with. The line break at the end shows a connection that translates them, and no HTTP request begins like this.
const HELLO_MAGIC: [u8; 8] = *b"HWPEER\r\n";
/// A hello up to and with the length of its proof.
const HELLO_FIXED_BYTES: usize = 8 + 2 + 2 + 8 + 4 + 8 + 8 + 8 + 2;

/// Why bytes from a connection are no message, or a message cannot travel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// What was sent first is not a hello: the other end is not a node.
    #[error("the other end is not a node: its first bytes are {found:02x?}, where a node's are {HELLO_MAGIC:02x?}")]
    Magic {
        /// The first bytes sent.
        found: Vec<u8>,
    },
    /// A hello or a frame is longer than any can be.
    #[error("a length of {found} bytes, where at most {most} are allowed")]
    TooLong {
        /// The length stated, or needed.
        found: usize,
        /// The bound.
        most: usize,
    },
    /// The rest of a frame did not come.
    #[error("a frame of which {found} bytes came was not whole within {} s: its length was changed on its way, or the network is too slow", FRAME_WAIT.as_secs())]
    Overdue {
        /// Bytes received.
        found: usize,
    },
    /// The checksum does not hold.
    #[error("a checksum of {found:#010x} where the bytes give {wanted:#010x}")]
    Checksum {
        /// Computed from the bytes.
        wanted: u32,
        /// Sent.
        found: u32,
    },
    /// The two ends have no protocol version in common: upgrade the older one.
    #[error(
        "no version in common: this node speaks {ours_min} to {ours_max}, the other {theirs_min} to {theirs_max}; upgrade the older one"
    )]
    Version {
        /// The least this end speaks.
        ours_min: u16,
        /// The greatest this end speaks.
        ours_max: u16,
        /// The least the other end speaks.
        theirs_min: u16,
        /// The greatest the other end speaks.
        theirs_max: u16,
    },
    /// An envelope in an encoding that was not agreed on.
    #[error("an envelope in encoding {found}, where {FRAME_VERSION} was agreed on")]
    Encoding {
        /// The frame's version byte.
        found: u8,
    },
    /// The checksum holds, but the bytes are no envelope.
    #[error("not an envelope: {0}")]
    Malformed(String),
}

/// Opens a connection, from either end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The least protocol version the sender speaks.
    pub version_min: u16,
    /// The greatest protocol version the sender speaks.
    pub version_max: u16,
    /// The cluster it belongs to.
    pub cluster: u64,
    /// The node it is.
    pub node: NodeId,
    /// The log id of its replica of the metadata partition, which tells two nodes of one id apart.
    pub log: LogId,
    /// Its process start.
    pub incarnation: Incarnation,
    /// A proof that it knows the cluster's secret; its form is the node's business. At most [`PROOF_BYTES_MAX`].
    pub proof: Vec<u8>,
}

impl Hello {
    /// The bytes to send.
    ///
    /// # Panics
    /// If the proof is longer than [`PROOF_BYTES_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.proof.len() <= PROOF_BYTES_MAX, "a proof has at most {PROOF_BYTES_MAX} bytes");
        let mut out = Vec::with_capacity(HELLO_FIXED_BYTES + self.proof.len() + 4);
        out.put_slice(&HELLO_MAGIC);
        out.put_u16(self.version_min);
        out.put_u16(self.version_max);
        out.put_u64(self.cluster);
        out.put_u32(self.node.0);
        out.put_u64(self.log.0);
        out.put_u64(self.incarnation.starts);
        out.put_u64(self.incarnation.random);
        out.put_u16(self.proof.len() as u16);
        assert_eq!(out.len(), HELLO_FIXED_BYTES, "the layout above");
        out.put_slice(&self.proof);
        out.put_u32(crc32c::crc32c(&out));
        out
    }

    /// Takes a hello off the front of what was received; `None` if more bytes are needed.
    pub fn decode(received: &mut BytesMut) -> Result<Option<Hello>, CodecError> {
        // A stranger is told apart by its first wrong byte: it may never send as many as a hello has.
        let seen = received.len().min(HELLO_MAGIC.len());
        if received[..seen] != HELLO_MAGIC[..seen] {
            return Err(CodecError::Magic { found: received[..seen].to_vec() });
        }
        if received.len() < HELLO_FIXED_BYTES {
            return Ok(None);
        }
        let mut fields = &received[HELLO_MAGIC.len()..HELLO_FIXED_BYTES];
        let mut hello = Hello {
            version_min: fields.get_u16(),
            version_max: fields.get_u16(),
            cluster: fields.get_u64(),
            node: NodeId(fields.get_u32()),
            log: LogId(fields.get_u64()),
            incarnation: Incarnation { starts: fields.get_u64(), random: fields.get_u64() },
            proof: Vec::new(),
        };
        let proof_bytes = usize::from(fields.get_u16());
        if proof_bytes > PROOF_BYTES_MAX {
            return Err(CodecError::TooLong { found: proof_bytes, most: PROOF_BYTES_MAX });
        }
        let end = HELLO_FIXED_BYTES + proof_bytes;
        if received.len() < end + 4 {
            return Ok(None);
        }
        let whole = received.split_to(end + 4);
        let wanted = crc32c::crc32c(&whole[..end]);
        let found = (&whole[end..]).get_u32();
        if wanted != found {
            return Err(CodecError::Checksum { wanted, found });
        }
        hello.proof = whole[HELLO_FIXED_BYTES..end].to_vec();
        Ok(Some(hello))
    }

    /// The greatest version that this hello's sender and the other's both speak.
    pub fn agree(&self, theirs: &Hello) -> Result<u16, CodecError> {
        let version = self.version_max.min(theirs.version_max);
        if version < self.version_min.max(theirs.version_min) {
            return Err(CodecError::Version {
                ours_min: self.version_min,
                ours_max: self.version_max,
                theirs_min: theirs.version_min,
                theirs_max: theirs.version_max,
            });
        }
        Ok(version)
    }
}

/// Where the checksum over everything lies in a frame of that protocol version; what it covers begins four bytes later.
fn checksum_at(version: u16) -> usize {
    if version >= LENGTH_IS_CHECKED { 8 } else { 4 }
}

/// Appends the frame of an envelope, as the protocol version that both ends agreed on has it. On an error nothing was appended; the only one is
/// [`CodecError::TooLong`].
pub fn encode(envelope: &Envelope, version: u16, out: &mut BytesMut) -> Result<(), CodecError> {
    let (begin, at) = (out.len(), checksum_at(version));
    out.put_bytes(0, at + 4);
    out.put_u8(FRAME_VERSION);
    postcard::serialize_with_flavor(envelope, Growing(out))
        .map_err(|error| CodecError::Malformed(error.to_string()))?;
    let frame = &mut out[begin..];
    let body = frame.len() - at - 4;
    if body > FRAME_BYTES_MAX {
        out.truncate(begin);
        return Err(CodecError::TooLong { found: body, most: FRAME_BYTES_MAX });
    }
    let length = (body as u32).to_be_bytes();
    let whole = checksum(length, &frame[at + 4..]);
    frame[..4].copy_from_slice(&length);
    if at > 4 {
        frame[4..at].copy_from_slice(&crc32c::crc32c(&length).to_be_bytes());
    }
    frame[at..at + 4].copy_from_slice(&whole.to_be_bytes());
    Ok(())
}

/// Takes an envelope off the front of what was received in that protocol version; `None` if more bytes are needed. A frame whose length is damaged or too
/// long is refused as soon as its length is there, so that nobody waits for it.
pub fn decode(received: &mut BytesMut, version: u16) -> Result<Option<Envelope>, CodecError> {
    let at = checksum_at(version);
    if received.len() < at {
        return Ok(None);
    }
    let (length, mut of_length) = received[..at].split_at(4);
    let length: [u8; 4] = length.try_into().expect("four bytes");
    if !of_length.is_empty() {
        let (wanted, found) = (crc32c::crc32c(&length), of_length.get_u32());
        if wanted != found {
            return Err(CodecError::Checksum { wanted, found });
        }
    }
    let body_bytes = u32::from_be_bytes(length) as usize;
    if body_bytes > FRAME_BYTES_MAX {
        return Err(CodecError::TooLong { found: body_bytes, most: FRAME_BYTES_MAX });
    }
    if received.len() < at + 4 + body_bytes {
        return Ok(None);
    }
    let frame = received.split_to(at + 4 + body_bytes);
    let found = (&frame[at..]).get_u32();
    let body = &frame[at + 4..];
    let wanted = checksum(length, body);
    if wanted != found {
        return Err(CodecError::Checksum { wanted, found });
    }
    let Some((&version, envelope)) = body.split_first() else {
        return Err(CodecError::Malformed("the frame is empty".to_owned()));
    };
    if version != FRAME_VERSION {
        return Err(CodecError::Encoding { found: version });
    }
    match postcard::take_from_bytes(envelope) {
        Ok((envelope, [])) => Ok(Some(envelope)),
        Ok((_, rest)) => Err(CodecError::Malformed(format!("{} bytes follow it", rest.len()))),
        Err(error) => Err(CodecError::Malformed(error.to_string())),
    }
}

/// Lets postcard write behind what is there. Its own adapter for growing buffers goes byte by byte, which is felt with batches.
struct Growing<'a>(&'a mut BytesMut);

impl postcard::ser_flavors::Flavor for Growing<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.put_u8(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.put_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

fn checksum(length: [u8; 4], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&length), body)
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
