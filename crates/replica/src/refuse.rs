//! Refusing what belongs to an epoch below the promised one, and being refused.
//!
//! A refusal names the promised epoch and changes nothing else at who refuses. Whoever is refused by a later epoch: a follower ends its stream and
//! asks who leads; a leader under a coordinator stays leader, since the coordinator decides, and asks as well: if the word that another leads was
//! lost, nobody would ever repeat it to one who asks for no change of the set; a self-electing leader or candidate raises to that epoch, which
//! somebody has entered and which it could otherwise never lead past.

use highwater_wire::{Body, Epoch, NodeId, PeerId};

use crate::Effect;
use crate::state::{Part, Replica};

/// Whether a message of an older epoch is answered with a refusal. Answers and news of other kinds are dropped: nobody waits for a reaction to them.
pub(crate) fn is_refused(body: &Body) -> bool {
    matches!(
        body,
        Body::PromiseRequest { .. }
            | Body::Lead(_)
            | Body::Open { .. }
            | Body::Accept { .. }
            | Body::Diverge { .. }
            | Body::Batch { .. }
            | Body::Ack { .. }
            | Body::Confirm { .. }
            | Body::Stand { .. }
            | Body::ReadIndex { .. }
    )
}

impl Replica {
    /// Refuses something that came from `node`.
    pub(crate) fn refuse(&self, node: NodeId, out: &mut Vec<Effect>) {
        let promised = self.hard.promised.expect("only a promised epoch refuses");
        self.send(node, Body::Refused { promised }, out);
    }

    /// `from` has promised `epoch` and refuses what this replica sent. In the self-electing partition only voters promise.
    pub(crate) fn refused(&mut self, from: PeerId, epoch: Epoch, out: &mut Vec<Effect>) {
        if Some(epoch) <= self.hard.promised || self.voters().is_some_and(|voters| !voters.contains(&from)) {
            return;
        }
        let electing = self.voters().is_some();
        match &self.part {
            Part::Follower(_) => {
                self.end_stream();
                self.ask_who_leads(out);
            }
            Part::Leader(_) | Part::Candidate { .. } if electing => self.raise(epoch, None, out),
            Part::Leader(_) => self.ask_who_leads(out),
            Part::Candidate { .. } | Part::Idle => {}
        }
        assert!(electing || self.hard.promised < Some(epoch), "under a coordinator a refusal raises nobody");
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::{Body, CommitRule, Epoch};

    use crate::bench::Bench;
    use crate::{Input, Role, Timeout};

    #[test]
    fn an_appointed_leader_stays_and_asks_who_leads_as_its_follower_does() {
        let mut bench = Bench::appointed(2, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1]);
        bench.settle();
        bench.coordinator.clear();
        bench.receive(0, 1, 1, Body::Refused { promised: Epoch(5) });
        assert!(bench.replicas[0].leads(Epoch(1)));
        assert_eq!(bench.coordinator.pop().map(|envelope| envelope.body), Some(Body::WhoLeads));
        bench.receive(1, 0, 1, Body::Refused { promised: Epoch(5) });
        assert!(!bench.replicas[1].stream_is_live());
        assert_eq!(bench.replicas[1].promised(), Some(Epoch(1)));
        assert_eq!(bench.coordinator.pop().map(|envelope| envelope.body), Some(Body::WhoLeads));
    }

    #[test]
    fn a_refused_follower_opens_again_at_its_heartbeat_and_not_at_the_coordinators_word() {
        let mut bench = Bench::appointed(2, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1]);
        bench.settle();
        bench.receive(1, 0, 1, Body::Refused { promised: Epoch(5) });
        let lead = bench.lead(0);
        bench.tell(&[1], 1, &lead);
        assert_eq!(bench.under_way(0), [], "who refused a moment ago is not asked again at once");
        bench.step(1, Input::Timeout(Timeout::Heartbeat));
        assert!(matches!(bench.under_way(0)[..], [Body::Open { .. }]));
    }

    #[test]
    fn a_self_elected_leader_raises_to_the_epoch_that_refuses_it_and_stands_above_it() {
        let mut bench = Bench::electing(3);
        bench.step(0, Input::Timeout(Timeout::Election));
        bench.settle();
        bench.receive(0, 1, 5, Body::Refused { promised: Epoch(5) });
        assert_eq!((bench.replicas[0].role(), bench.replicas[0].promised()), (Role::Idle, Some(Epoch(5))));
        bench.step(1, Input::Timeout(Timeout::Silent));
        bench.wire.clear();
        bench.step(0, Input::Timeout(Timeout::Election));
        bench.settle();
        assert!(bench.replicas[0].leads(Epoch(6)));
    }
}
