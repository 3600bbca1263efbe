//! Law 7: every round of reconciliation lowers (last_epoch, end) of the follower, and a stream is accepted only where the follower's log is a
//! prefix of the leader's. With law 2, an equal epoch at the same offset is an equal prefix.

use std::collections::BTreeMap;

use highwater_wire::{Body, Epoch, Offset, StreamId};

use super::Law;
use crate::facts::{Facts, Observation, Place};

/// What a follower asked last.
#[derive(Clone, Copy, Debug)]
struct Question {
    epoch: Option<Epoch>,
    stream: StreamId,
    asked: (Option<Epoch>, Offset),
    /// A `Diverge` for exactly this question was taken in.
    diverged: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Reconciliation {
    questions: BTreeMap<Place, Question>,
}

impl Law for Reconciliation {
    fn name(&self) -> &'static str {
        "reconciliation-descends"
    }

    fn after(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::Sent { from, envelope } => {
                let place = Place { partition: envelope.partition, node: *from };
                match &envelope.body {
                    Body::Open { stream, end, last_epoch } => {
                        let asked = (*last_epoch, *end);
                        let question = Question { epoch: envelope.epoch, stream: *stream, asked, diverged: false };
                        let before = self.questions.insert(place, question);
                        match before.filter(|before| before.diverged && before.epoch == envelope.epoch) {
                            Some(before) if asked >= before.asked => Err(format!(
                                "node {from} was told that its log parts at {:?}, and asks again with {asked:?}, which is not less",
                                before.asked
                            )),
                            _ => Ok(()),
                        }
                    }
                    Body::Accept { end, last_epoch, .. } => {
                        let held = facts.log(place).before(*end).map(|held| held.epoch);
                        match held == *last_epoch && *end <= facts.log(place).end() {
                            true => Ok(()),
                            false => Err(format!(
                                "node {from} accepts a stream at ({last_epoch:?}, {end}), and its own log has {held:?} before {end}"
                            )),
                        }
                    }
                    _ => Ok(()),
                }
            }
            Observation::Received { node, envelope } => {
                let place = Place { partition: envelope.partition, node: *node };
                // A refusal of a later epoch ends the stream, and with it the question: whatever answer is still under way is dead.
                if let Body::Refused { promised } = envelope.body
                    && self.questions.get(&place).is_some_and(|question| question.epoch < Some(promised))
                {
                    self.questions.remove(&place);
                }
                if let (Body::Diverge { stream, end, last_epoch, .. }, Some(question)) =
                    (&envelope.body, self.questions.get_mut(&place))
                {
                    let fits = question.stream == *stream && question.asked == (*last_epoch, *end);
                    question.diverged |= fits && question.epoch == envelope.epoch;
                }
                Ok(())
            }
            Observation::Crashed { node } => {
                self.questions.retain(|place, _| place.node != *node);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{CommitRule, NodeId};

    use super::*;
    use crate::laws::testing::{append, envelope, see, three};

    fn open(stream: u64, end: Offset, last_epoch: u32) -> Observation {
        let body = Body::Open { stream: StreamId(stream), end, last_epoch: Some(Epoch(last_epoch)) };
        Observation::Sent { from: NodeId(2), envelope: envelope(2, 3, body) }
    }

    #[test]
    fn a_round_that_does_not_descend_is_found() {
        let (mut law, mut facts) = (Reconciliation::default(), three(CommitRule::Quorum { q: 2 }));
        assert!(see(&mut law, &mut facts, open(1, 5, 1)).is_ok());
        let (stream, last_epoch) = (StreamId(1), Some(Epoch(1)));
        let body = Body::Diverge { stream, end: 5, last_epoch, epoch: Some(Epoch(0)), stop: 3 };
        let diverge = Observation::Received { node: NodeId(2), envelope: envelope(1, 3, body) };
        assert!(see(&mut law, &mut facts, diverge).is_ok());
        assert!(see(&mut law, &mut facts, open(2, 5, 1)).is_err());
    }

    #[test]
    fn a_question_that_a_refusal_ended_may_be_asked_again() {
        let (mut law, mut facts) = (Reconciliation::default(), three(CommitRule::Quorum { q: 2 }));
        assert!(see(&mut law, &mut facts, open(1, 5, 1)).is_ok());
        let refused = Body::Refused { promised: Epoch(4) };
        let refused = Observation::Received { node: NodeId(2), envelope: envelope(3, 4, refused) };
        assert!(see(&mut law, &mut facts, refused).is_ok());
        let (stream, last_epoch) = (StreamId(1), Some(Epoch(1)));
        let body = Body::Diverge { stream, end: 5, last_epoch, epoch: Some(Epoch(0)), stop: 3 };
        let diverge = Observation::Received { node: NodeId(2), envelope: envelope(1, 3, body) };
        assert!(see(&mut law, &mut facts, diverge).is_ok());
        assert!(see(&mut law, &mut facts, open(2, 5, 1)).is_ok());
    }

    #[test]
    fn a_stream_accepted_where_the_logs_part_is_found() {
        let (mut law, mut facts) = (Reconciliation::default(), three(CommitRule::Quorum { q: 2 }));
        append(&mut facts, 1, 2, 7, true);
        let mut accept = |end, last_epoch: u32| {
            let last_epoch = Some(Epoch(last_epoch));
            let body = Body::Accept { stream: StreamId(1), end, last_epoch, hw: 0, start: 0 };
            see(&mut law, &mut facts, Observation::Sent { from: NodeId(1), envelope: envelope(1, 3, body) })
        };
        assert!(accept(1, 2).is_ok());
        assert!(accept(1, 1).is_err());
        assert!(accept(2, 2).is_err());
    }
}
