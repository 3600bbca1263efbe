//! Messages that are changed on their way: they go through the real codec, which must refuse them, and the connection is of no more use.
//!
//! If it is the length that was changed, to a greater one, the receiver swallows whatever follows until it has waited long enough; then the connection
//! breaks as well.

use bytes::BytesMut;
use highwater_wire::codec::{self, CodecError, FRAME_WAIT};
use highwater_wire::{Envelope, NodeId};

use super::World;
use super::event::{Event, Restore};
use crate::rng::Rng;

/// What becomes of a message's frame if one bit of it is changed: the error that refuses it, or none if more is waited for. A message is never made of it.
fn refused(envelope: &Envelope, rng: &mut Rng) -> Result<Option<CodecError>, String> {
    let mut frame = BytesMut::new();
    codec::encode(envelope, &mut frame).map_err(|error| format!("a message that was sent cannot be: {error}"))?;
    let at = rng.below(frame.len() as u64) as usize;
    frame[at] ^= 1 << rng.below(8);
    match codec::decode(&mut frame) {
        Err(error) => Ok(Some(error)),
        Ok(None) if at < 4 => Ok(None),
        Ok(None) => Err(format!("with byte {at} changed, more is waited for of the frame of {envelope:?}")),
        Ok(Some(found)) => Err(format!("with byte {at} changed, the frame of {envelope:?} is taken for {found:?}")),
    }
}

impl World {
    /// What is left of a message arrives.
    pub(super) fn garbled(&mut self, from: NodeId, to: NodeId, connection: Option<u64>, envelope: Envelope) {
        if self.node(to).process.is_none() || !self.network.arrives(from, to, connection) {
            return;
        }
        let mut rng = self.rng.fork(31);
        match refused(&envelope, &mut rng) {
            Ok(Some(error)) => {
                self.trace.note(self.now, &(from, to), || format!("{from} -> {to}: garbled: {error}"));
                self.disconnect(from, to);
            }
            Ok(None) => {
                self.trace.note(self.now, &(from, to), || format!("{from} -> {to}: garbled: more is waited for"));
                let (number, when) = (self.network.block(from, to), self.now + FRAME_WAIT.as_micros() as u64);
                self.queue.at(when, Event::Restore(Restore::Swallowing { from, to, number }));
            }
            Err(what) => self.break_law("garbled-messages-are-refused", what),
        }
    }

    /// The receiver has waited long enough for the rest of a frame.
    pub(super) fn stop_swallowing(&mut self, from: NodeId, to: NodeId, number: u64) {
        if self.network.unblock(from, to, number) {
            self.disconnect(from, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::Body;

    use super::*;
    use crate::laws::testing::envelope;

    #[test]
    fn whatever_bit_of_a_message_is_changed_it_is_refused_at_once() {
        let message = envelope(1, 3, Body::Heartbeat { leaving: false });
        for seed in 0..2000 {
            assert!(
                refused(&message, &mut Rng::new(seed)).is_ok(),
                "seed {seed}: {:?}",
                refused(&message, &mut Rng::new(seed))
            );
        }
    }
}
