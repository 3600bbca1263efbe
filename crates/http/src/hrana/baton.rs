//! Batons: what names a stream between two requests.
//!
//! A baton is (node, incarnation, stream, sequence, whether a transaction was open) with an HMAC-SHA256 over these, by a key of the cluster, so that it
//! cannot be forged and any node can read it. The sequence makes each baton good for one request. That a transaction was open travels in it so that
//! even a process that never knew the stream can say what was lost with it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use highwater_wire::{Incarnation, NodeId};
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// What a baton says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Baton {
    /// The node that holds the stream.
    pub(crate) node: NodeId,
    /// That node's process start.
    pub(crate) incarnation: Incarnation,
    /// The stream, unique within the incarnation.
    pub(crate) stream: u64,
    /// How many requests the stream has answered, from 1.
    pub(crate) sequence: u64,
    /// Whether a transaction was open when it was given out.
    pub(crate) in_transaction: bool,
}

/// Version, node, start counter, random, stream, sequence, flag.
const BODY_BYTES: usize = 1 + 4 + 8 + 8 + 8 + 8 + 1;
/// The HMAC, cut to half: 128 bits are more than anybody guesses.
const TAG_BYTES: usize = 16;
const VERSION: u8 = 1;

impl Baton {
    fn body(&self) -> [u8; BODY_BYTES] {
        let mut body = [0; BODY_BYTES];
        body[0] = VERSION;
        body[1..5].copy_from_slice(&self.node.0.to_be_bytes());
        body[5..13].copy_from_slice(&self.incarnation.starts.to_be_bytes());
        body[13..21].copy_from_slice(&self.incarnation.random.to_be_bytes());
        body[21..29].copy_from_slice(&self.stream.to_be_bytes());
        body[29..37].copy_from_slice(&self.sequence.to_be_bytes());
        body[37] = u8::from(self.in_transaction);
        body
    }

    /// The baton's text, for a JSON string.
    pub(crate) fn seal(&self, key: &[u8; 32]) -> String {
        let body = self.body();
        let tag = mac(key, &body).finalize().into_bytes();
        let mut bytes = Vec::with_capacity(BODY_BYTES + TAG_BYTES);
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(&tag[..TAG_BYTES]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads a baton; `None` if it was not made with this key.
    pub(crate) fn open(text: &str, key: &[u8; 32]) -> Option<Baton> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        if bytes.len() != BODY_BYTES + TAG_BYTES || bytes[0] != VERSION {
            return None;
        }
        let (body, tag) = bytes.split_at(BODY_BYTES);
        mac(key, body).verify_truncated_left(tag).ok()?;
        let word = |at: usize| u64::from_be_bytes(body[at..at + 8].try_into().expect("eight bytes"));
        Some(Baton {
            node: NodeId(u32::from_be_bytes(body[1..5].try_into().expect("four bytes"))),
            incarnation: Incarnation { starts: word(5), random: word(13) },
            stream: word(21),
            sequence: word(29),
            in_transaction: body[37] != 0,
        })
    }
}

impl Baton {
    /// Reads a baton that was made with any of these keys.
    pub(crate) fn open_by_any(text: &str, keys: &[[u8; 32]]) -> Option<Baton> {
        keys.iter().find_map(|key| Baton::open(text, key))
    }
}

fn mac(key: &[u8; 32], body: &[u8]) -> Hmac<Sha256> {
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(key).expect("HMAC takes keys of every length");
    mac.update(b"highwater baton");
    mac.update(body);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATON: Baton = Baton {
        node: NodeId(7),
        incarnation: Incarnation { starts: 3, random: u64::MAX },
        stream: 42,
        sequence: 1,
        in_transaction: true,
    };

    #[test]
    fn a_baton_reads_back_with_its_key_alone() {
        let text = BATON.seal(&[1; 32]);
        assert_eq!(Baton::open(&text, &[1; 32]), Some(BATON));
        assert_eq!(Baton::open(&text, &[2; 32]), None);
    }

    #[test]
    fn no_changed_byte_passes() {
        let sealed = URL_SAFE_NO_PAD.decode(BATON.seal(&[1; 32])).expect("its own encoding");
        for at in 0..sealed.len() {
            let mut forged = sealed.clone();
            forged[at] ^= 1;
            assert_eq!(Baton::open(&URL_SAFE_NO_PAD.encode(forged), &[1; 32]), None, "byte {at}");
        }
        assert_eq!(Baton::open("", &[1; 32]), None);
        assert_eq!(Baton::open("not a baton", &[1; 32]), None);
    }
}
