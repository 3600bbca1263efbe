//! Whoever waits behind a ticket is answered once, and nobody is answered who has stopped waiting or never did.

use std::collections::BTreeSet;

use highwater_partition::Ticket;
use highwater_wire::NodeId;

use super::Law;
use crate::facts::{Facts, Observation};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OneAnswer {
    waiting: BTreeSet<(NodeId, Ticket)>,
}

impl Law for OneAnswer {
    fn name(&self) -> &'static str {
        "one-answer-for-each-ticket"
    }

    fn after(&mut self, _: &Facts, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::Waits { node, ticket } => {
                self.waiting.insert((*node, *ticket));
            }
            Observation::Forgot { node, ticket } => {
                self.waiting.remove(&(*node, *ticket));
            }
            Observation::Answered { node, ticket } if !self.waiting.remove(&(*node, *ticket)) => {
                return Err(format!("node {node} answers {ticket:?}, for which nobody waits"));
            }
            Observation::Crashed { node } => self.waiting.retain(|(of, _)| of != node),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::CommitRule;

    use super::*;
    use crate::laws::testing::{see, three};

    #[test]
    fn a_second_answer_and_one_that_comes_too_late_are_found() {
        let (node, ticket) = (NodeId(1), Ticket(4));
        let answers = |between: Option<Observation>| {
            let (mut law, mut facts) = (OneAnswer::default(), three(CommitRule::Quorum { q: 2 }));
            see(&mut law, &mut facts, Observation::Waits { node, ticket })?;
            if let Some(between) = between {
                see(&mut law, &mut facts, between)?;
            }
            see(&mut law, &mut facts, Observation::Answered { node, ticket })
        };
        assert!(answers(None).is_ok());
        assert!(answers(Some(Observation::Answered { node, ticket })).is_err());
        assert!(answers(Some(Observation::Forgot { node, ticket })).is_err());
        assert!(answers(Some(Observation::Crashed { node })).is_err());
        assert!(answers(Some(Observation::Crashed { node: NodeId(2) })).is_ok());
    }
}
