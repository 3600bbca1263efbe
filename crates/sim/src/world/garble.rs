//! Messages that are changed on their way: they go through the real codec, which must refuse them at once, and the connection is of no more use.

use bytes::BytesMut;
use highwater_wire::codec::{self, CodecError, VERSION_MAX};
use highwater_wire::{Envelope, NodeId};

use super::World;
use crate::rng::Rng;

/// The error that refuses a message's frame if one bit of it is changed. A message is never made of it, and nothing behind it is waited for.
fn refused(envelope: &Envelope, rng: &mut Rng) -> Result<CodecError, String> {
    let mut frame = BytesMut::new();
    codec::encode(envelope, VERSION_MAX, &mut frame)
        .map_err(|error| format!("a message that was sent cannot be: {error}"))?;
    let at = rng.below(frame.len() as u64) as usize;
    frame[at] ^= 1 << rng.below(8);
    match codec::decode(&mut frame, VERSION_MAX) {
        Err(error) => Ok(error),
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
            Ok(error) => {
                self.trace.note(self.now, &(from, to), || format!("{from} -> {to}: garbled: {error}"));
                self.disconnect(from, to);
            }
            Err(what) => self.break_law("garbled-messages-are-refused", what),
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
