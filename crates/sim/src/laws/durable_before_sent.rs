//! docs/protocol.md section 12, its first two rows: nothing of an epoch leaves before the promise of that epoch is durable, a vote or a candidacy not
//! before it is known to whom; and no acknowledgement leaves before what it acknowledges is durable.

use highwater_wire::Body;

use super::Law;
use crate::facts::{Facts, Observation, Place};

/// See the module.
#[derive(Debug)]
pub(super) struct DurableBeforeSent;

impl Law for DurableBeforeSent {
    fn name(&self) -> &'static str {
        "durable-before-sent"
    }

    fn before(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        let Observation::Sent { from, envelope } = seen else { return Ok(()) };
        // What a coordinator says of a partition speaks of no promise of its own.
        let by_replica = matches!(
            envelope.body,
            Body::Promise { .. }
                | Body::Stand { pre: false, .. }
                | Body::Vote { granted: true, pre: false }
                | Body::Ack { .. }
                | Body::Open { .. }
                | Body::Accept { .. }
                | Body::Diverge { .. }
                | Body::Batch { .. }
        );
        if !by_replica {
            return Ok(());
        }
        let log = facts.log(Place { partition: envelope.partition, node: *from });
        if log.hard.promised < envelope.epoch {
            return Err(format!(
                "node {from} sends {:?} of epoch {:?}, and a power loss would leave it with a promise of {:?}",
                envelope.body, envelope.epoch, log.hard.promised
            ));
        }
        match &envelope.body {
            Body::Ack { leo, .. } if *leo > log.durable => {
                Err(format!("node {from} acknowledges {leo}, and only {} of its entries are durable", log.durable))
            }
            Body::Promise { rank, .. } if rank.leo > log.durable => Err(format!(
                "node {from} promises with rank {rank:?}, and only {} of its entries are durable",
                log.durable
            )),
            Body::Stand { rank, .. }
                if rank.leo > log.durable || log.hard.promised_to != Some(envelope.sender.peer) =>
            {
                Err(format!(
                    "node {from} stands with rank {rank:?}, and has durably {:?} and {} entries",
                    log.hard, log.durable
                ))
            }
            Body::Vote { .. } if log.hard.promised_to.is_none() => {
                Err(format!("node {from} votes, and nothing durable says for whom"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{CommitRule, Epoch, HardState, NodeId, Rank, StreamId};

    use super::*;
    use crate::laws::testing::{append, envelope, place, see, take, three};

    #[test]
    fn an_acknowledgement_before_the_flush_and_a_promise_before_its_write_are_found() {
        let sends = |promised: Option<u32>, durable, body| {
            let mut facts = three(CommitRule::Quorum { q: 2 });
            append(&mut facts, 1, 0, 7, durable);
            let hard = HardState { promised: promised.map(Epoch), ..HardState::default() };
            take(&mut facts, &Observation::Persisted { place: place(1), hard });
            let sent = Observation::Sent { from: NodeId(1), envelope: envelope(1, 3, body) };
            see(&mut DurableBeforeSent, &mut facts, sent)
        };
        let ack = || Body::Ack { stream: StreamId(1), leo: 1, applied: 0 };
        assert!(sends(Some(3), true, ack()).is_ok());
        assert!(sends(Some(3), false, ack()).is_err());
        assert!(sends(Some(2), true, ack()).is_err());
        let promise = || Body::Promise { ballot: 1, rank: Rank { last_epoch: Some(Epoch(0)), leo: 1 } };
        assert!(sends(Some(3), true, promise()).is_ok());
        assert!(sends(None, true, promise()).is_err());
    }
}
