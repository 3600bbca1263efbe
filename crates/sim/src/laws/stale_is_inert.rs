//! A message of an epoch below the one durably promised changes no log.

use std::collections::BTreeMap;

use highwater_wire::{Body, NodeId, PartitionId};

use super::Law;
use crate::facts::{Facts, Observation, Place};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct StaleIsInert {
    /// The stale message that each node is taking in.
    stale: BTreeMap<NodeId, (PartitionId, String)>,
}

impl Law for StaleIsInert {
    fn name(&self) -> &'static str {
        "stale-is-inert"
    }

    fn after(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::Received { node, envelope } => {
                let to_replica = matches!(
                    envelope.body,
                    Body::Accept { .. }
                        | Body::Diverge { .. }
                        | Body::Batch { .. }
                        | Body::Ack { .. }
                        | Body::Open { .. }
                );
                let place = Place { partition: envelope.partition, node: *node };
                let promised = facts.logs.get(&place).and_then(|log| log.hard.promised);
                if to_replica && envelope.epoch < promised {
                    self.stale
                        .insert(*node, (envelope.partition, format!("{:?} of {:?}", envelope.body, envelope.epoch)));
                }
                Ok(())
            }
            Observation::StepEnded { node } | Observation::Crashed { node } => {
                self.stale.remove(node);
                Ok(())
            }
            Observation::Appended { place, .. } | Observation::Cut { place, .. } => match self.stale.get(&place.node) {
                Some((partition, message)) if *partition == place.partition => Err(format!(
                    "node {} has promised {:?} of partition {}, and changes its log on {message}",
                    place.node,
                    facts.log(*place).hard.promised,
                    partition.0
                )),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use highwater_wire::{CommitRule, StreamId};

    use super::*;
    use crate::laws::testing::{entry, envelope, opened, place, see, three};

    #[test]
    fn a_batch_of_an_older_epoch_that_is_appended_is_found() {
        let appends = |promised| {
            let (mut law, mut facts) = (StaleIsInert::default(), three(CommitRule::Quorum { q: 2 }));
            see(&mut law, &mut facts, opened(2, Bytes::new(), Some(promised))).unwrap();
            let body = Body::Batch { stream: StreamId(1), base: 0, batches: entry(0, 3, 7), hw: 0, start: 0 };
            let received = Observation::Received { node: NodeId(2), envelope: envelope(1, 3, body) };
            see(&mut law, &mut facts, received).unwrap();
            see(&mut law, &mut facts, Observation::Appended { place: place(2), batches: entry(0, 3, 7) })
        };
        assert!(appends(3).is_ok());
        assert!(appends(4).is_err());
    }
}
