//! How two nodes prove to each other that they know the cluster's secret, inside a TLS connection whose certificates prove nothing.
//!
//! ```text
//! dialler                                              acceptor
//!    | -- 1. PROOF  code(dials) -------------------------> |   wrong: the connection ends, nothing was said
//!    | <- 2. hello of the acceptor, code(accepts, it) ---- |   wrong: the connection ends
//!    | -- 3. hello of the dialler, code(joins, both) ----> |
//!    | <- 4. verdict, code(welcomes, both) --------------- |   a refusal says why
//! ```
//!
//! Each code is an HMAC-SHA256, keyed by the secret, over the connection's exported keying material (RFC 8446, section 7.5; RFC 9266 says why), the step's
//! name, and the hellos named: node ids, log ids and incarnations are in these. So
//!
//! - a code is good for one connection, one role and one step: it cannot be replayed, sent back, or relayed. Whoever stands between two nodes has two TLS
//!   connections with different keying material.
//! - the acceptor, whom anybody can reach, checks before it says or proves anything. The dialler says nothing of itself before the acceptor has proved.
//! - whoever poses as an acceptor gets one code of the dialler's. To find the secret by it takes as many tries as the secret has values, of which there are 2^128.
//!
//! This is a pure state machine: bytes in, bytes out. The dialler performs it on a thread that blocks, the acceptor as a task.

use bytes::{Buf, BytesMut};
use highwater_wire::NodeId;
use highwater_wire::codec::Hello;
use hmac::Mac;

use super::introduce::{Introduction, PeerRefused, Proven};
use crate::secret::Secret;

/// The label of the keying material that the codes are made over.
pub(crate) const EXPORTER: &[u8] = b"EXPORTER-highwater-node-proof";
/// Bytes of exported keying material.
pub(crate) const EXPORTED_BYTES: usize = 32;
/// The most bytes that may have been received and not understood: a hello with its proof is shorter.
pub(crate) const RECEIVED_BYTES_MAX: usize = 2048;

/// What the first message begins with.
const MAGIC: [u8; 8] = *b"HWPROOF1";
const CODE_BYTES: usize = 32;
/// The longest reason in a verdict.
const REASON_BYTES_MAX: usize = 512;

const DIALS: &[u8] = b"dials";
const ACCEPTS: &[u8] = b"accepts";
const JOINS: &[u8] = b"joins";
const WELCOMES: &[u8] = b"welcomes";

enum State {
    /// Acceptor: waits for the dialler's first code.
    Proof,
    /// Acceptor: waits for the dialler's hello.
    Joins { secret: Secret, ours: Hello },
    /// Dialler: waits for the acceptor's hello.
    Accepts { secret: Secret, wanted: NodeId },
    /// Dialler: waits for the verdict.
    Verdict { secret: Secret, ours: Hello, proven: Proven },
    /// It has ended, one way or the other.
    Ended,
}

/// One end of the exchange.
pub(crate) struct Handshake<'a> {
    introduction: &'a Introduction,
    exported: [u8; EXPORTED_BYTES],
    state: State,
}

impl<'a> Handshake<'a> {
    /// The end that was dialled.
    pub(crate) fn accepting(introduction: &'a Introduction, exported: [u8; EXPORTED_BYTES]) -> Handshake<'a> {
        Handshake { introduction, exported, state: State::Proof }
    }

    /// The end that dials `wanted`, and what it sends first.
    pub(crate) fn dialling(
        introduction: &'a Introduction,
        exported: [u8; EXPORTED_BYTES],
        wanted: NodeId,
    ) -> (Handshake<'a>, Vec<u8>) {
        let secrets = introduction.secrets().expect("who proves a secret has one");
        let secret = secrets.accepted()[0].clone();
        let mut first = MAGIC.to_vec();
        first.extend(code(&secret, &exported, DIALS, &[]));
        (Handshake { introduction, exported, state: State::Accepts { secret, wanted } }, first)
    }

    /// Takes what was received, and puts what is to be sent into `out`, which is to be sent also if the outcome is an error. `None`: more bytes are needed.
    pub(crate) fn received(
        &mut self,
        received: &mut BytesMut,
        out: &mut Vec<u8>,
    ) -> Result<Option<Proven>, PeerRefused> {
        let result = match std::mem::replace(&mut self.state, State::Ended) {
            State::Proof => self.check_proof(received, out),
            State::Joins { secret, ours } => self.check_joins(received, out, secret, ours),
            State::Accepts { secret, wanted } => self.check_accepts(received, out, secret, wanted),
            State::Verdict { secret, ours, proven } => self.check_verdict(received, secret, ours, proven),
            State::Ended => unreachable!("an exchange that has ended is given nothing more"),
        }?;
        if result.is_none() && received.len() > RECEIVED_BYTES_MAX {
            return Err(PeerRefused::TooMuch(received.len()));
        }
        Ok(result)
    }

    /// Step 1, at the acceptor.
    fn check_proof(&mut self, received: &mut BytesMut, out: &mut Vec<u8>) -> Result<Option<Proven>, PeerRefused> {
        let seen = received.len().min(MAGIC.len());
        if received[..seen] != MAGIC[..seen] {
            return Err(PeerRefused::WrongSecret);
        }
        if received.len() < MAGIC.len() + CODE_BYTES {
            self.state = State::Proof;
            return Ok(None);
        }
        received.advance(MAGIC.len());
        let theirs = received.split_to(CODE_BYTES);
        let accepted = self.introduction.secrets().expect("who checks a proof has a secret").accepted();
        let secret = accepted.iter().find(|secret| is_code(&theirs, secret, &self.exported, DIALS, &[]));
        let secret = secret.ok_or(PeerRefused::WrongSecret)?.clone();
        let ours = self.introduction.hello();
        let proof = code(&secret, &self.exported, ACCEPTS, &[&ours]);
        out.extend(Hello { proof, ..ours.clone() }.encode());
        self.state = State::Joins { secret, ours };
        Ok(None)
    }

    /// Step 2, at the dialler.
    fn check_accepts(
        &mut self,
        received: &mut BytesMut,
        out: &mut Vec<u8>,
        secret: Secret,
        wanted: NodeId,
    ) -> Result<Option<Proven>, PeerRefused> {
        let Some(mut theirs) = Hello::decode(received)? else {
            self.state = State::Accepts { secret, wanted };
            return Ok(None);
        };
        let proof = std::mem::take(&mut theirs.proof);
        if !is_code(&proof, &secret, &self.exported, ACCEPTS, &[&theirs]) {
            return Err(PeerRefused::WrongSecret);
        }
        let version = self.introduction.accept(&theirs)?;
        if theirs.node != wanted {
            return Err(PeerRefused::OtherNode { wanted, found: theirs.node });
        }
        let ours = self.introduction.hello();
        let proof = code(&secret, &self.exported, JOINS, &[&ours, &theirs]);
        out.extend(Hello { proof, ..ours.clone() }.encode());
        let proven = Proven { hello: theirs, version, secret: Some(secret.clone()) };
        self.state = State::Verdict { secret, ours, proven };
        Ok(None)
    }

    /// Step 3, at the acceptor.
    fn check_joins(
        &mut self,
        received: &mut BytesMut,
        out: &mut Vec<u8>,
        secret: Secret,
        ours: Hello,
    ) -> Result<Option<Proven>, PeerRefused> {
        let Some(mut theirs) = Hello::decode(received)? else {
            self.state = State::Joins { secret, ours };
            return Ok(None);
        };
        let proof = std::mem::take(&mut theirs.proof);
        if !is_code(&proof, &secret, &self.exported, JOINS, &[&theirs, &ours]) {
            return Err(PeerRefused::WrongSecret);
        }
        let outcome = self.introduction.accept(&theirs);
        let mut reason = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
        while reason.len() > REASON_BYTES_MAX {
            reason.pop();
        }
        out.push(u8::from(outcome.is_err()));
        out.extend((reason.len() as u16).to_be_bytes());
        out.extend(reason.as_bytes());
        out.extend(code(&secret, &self.exported, WELCOMES, &[&ours, &theirs]));
        Ok(Some(Proven { hello: theirs, version: outcome?, secret: Some(secret) }))
    }

    /// Step 4, at the dialler.
    fn check_verdict(
        &mut self,
        received: &mut BytesMut,
        secret: Secret,
        ours: Hello,
        proven: Proven,
    ) -> Result<Option<Proven>, PeerRefused> {
        let length = received.get(1..3).map(|bytes| usize::from(u16::from_be_bytes([bytes[0], bytes[1]])));
        let whole = length.map(|length| 3 + length + CODE_BYTES);
        let Some((length, whole)) = length.zip(whole).filter(|(_, whole)| received.len() >= *whole) else {
            self.state = State::Verdict { secret, ours, proven };
            return Ok(None);
        };
        if length > REASON_BYTES_MAX {
            return Err(PeerRefused::TooMuch(length));
        }
        let verdict = received.split_to(whole);
        if !is_code(&verdict[3 + length..], &secret, &self.exported, WELCOMES, &[&proven.hello, &ours]) {
            return Err(PeerRefused::WrongSecret);
        }
        match verdict[0] {
            0 => Ok(Some(proven)),
            _ => Err(PeerRefused::TurnedAway(String::from_utf8_lossy(&verdict[3..3 + length]).into_owned())),
        }
    }
}

fn mac(secret: &Secret, exported: &[u8; EXPORTED_BYTES], step: &[u8], hellos: &[&Hello]) -> hmac::Hmac<sha2::Sha256> {
    let mut mac = secret.mac();
    mac.update(b"highwater node proof 1");
    mac.update(exported);
    mac.update(&[step.len() as u8]);
    mac.update(step);
    for hello in hellos {
        assert!(hello.proof.is_empty(), "a code is over what is said, and not over other codes");
        mac.update(&hello.encode());
    }
    mac
}

fn code(secret: &Secret, exported: &[u8; EXPORTED_BYTES], step: &[u8], hellos: &[&Hello]) -> Vec<u8> {
    mac(secret, exported, step, hellos).finalize().into_bytes().to_vec()
}

/// Compares in a time that does not depend on the bytes.
fn is_code(found: &[u8], secret: &Secret, exported: &[u8; EXPORTED_BYTES], step: &[u8], hellos: &[&Hello]) -> bool {
    mac(secret, exported, step, hellos).verify_slice(found).is_ok()
}

#[cfg(test)]
#[path = "prove_tests.rs"]
mod tests;
