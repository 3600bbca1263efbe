//! Beginning to lead an epoch.
//!
//! `epoch_start` is the end of the log as it is: everything below comes from earlier epochs. Under `quorum` and in the self-electing partition one
//! control entry is appended at once, because HW passes only entries of the leader's own epoch (Raft, section 5.4.2), so that without it the
//! earlier ones would stand uncommitted until somebody writes. Under `isr` none is needed: HW is the least LEO of the ISR, whatever the epoch.

use std::collections::BTreeMap;

use highwater_wire::batch::{self, Control};
use highwater_wire::{Body, CommitRule, Lead, PeerId};

use crate::Effect;
use crate::state::{Leading, Part, Peer, Replica};

impl Replica {
    /// Takes up the leadership of the promised epoch as `lead` describes it.
    pub(crate) fn begin_to_lead(&mut self, lead: Lead, out: &mut Vec<Effect>) {
        let epoch = self.hard.promised.expect("a leader has promised its epoch");
        assert!(self.led < Some(epoch), "{epoch:?} was led by this incarnation before");
        assert!(self.log.last_epoch() < Some(epoch), "a new epoch has no entries yet: {:?}", self.log);
        let new_peer = || Peer {
            heard_at: self.timers.now,
            lag_since: self.timers.now,
            lag_target: self.log.flushed,
            ..Peer::default()
        };
        let peers: BTreeMap<PeerId, Peer> =
            lead.replicas.iter().filter(|peer| **peer != self.me).map(|peer| (*peer, new_peer())).collect();
        let control = matches!(lead.set.rule, CommitRule::Quorum { .. });
        self.led = Some(epoch);
        self.answered = false;
        self.hears_leader = false;
        self.canvass = None;
        self.part = Part::Leader(Box::new(Leading {
            epoch_start: self.log.end,
            replicas: lead.replicas,
            committed: lead.set,
            proposed: None,
            version: lead.version,
            peers,
            waiting: Vec::new(),
            round: None,
        }));
        out.push(Effect::Role(self.role()));
        if control {
            self.append_own(batch::build_control(&Control::EpochStart, 0), out)
                .expect("a control batch built here is a batch");
        }
        self.announce(out);
        self.advance_high_watermark(out);
    }

    /// A self-elected leader tells every voter that it leads.
    pub(crate) fn announce(&self, out: &mut Vec<Effect>) {
        assert!(self.part.leading().is_some(), "only a leader announces itself");
        for voter in self.voters().into_iter().flatten().filter(|voter| **voter != self.me) {
            self.send(voter.node, self.own_lead(), out);
        }
    }

    /// What a leader says of itself.
    pub(crate) fn own_lead(&self) -> Body {
        let leading = self.part.leading().expect("only a leader announces itself");
        Body::Lead(Lead {
            leader: self.me,
            incarnation: self.incarnation,
            replicas: leading.replicas.clone(),
            set: leading.committed.clone(),
            version: leading.version,
            lossy: self.hard.lossy,
        })
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::CommitRule;

    use crate::bench::Bench;

    #[test]
    fn under_quorum_the_control_entry_commits_what_came_before_though_nobody_writes() {
        let mut bench = Bench::appointed(3, CommitRule::Quorum { q: 2 });
        bench.appoint(0, 1, &[0, 1, 2]);
        bench.settle();
        assert_eq!((bench.ends(), bench.hws()), (vec![1, 1, 1], vec![1, 1, 1]));
        bench.appoint(1, 2, &[1, 2]);
        bench.settle();
        assert_eq!((bench.ends()[1], bench.hws()[1]), (2, 2));
    }

    #[test]
    fn under_isr_an_epoch_writes_nothing_of_its_own() {
        let mut bench = Bench::appointed(3, CommitRule::Isr { min: 2 });
        bench.appoint(0, 1, &[0, 1, 2]);
        bench.settle();
        assert_eq!(bench.ends(), [0, 0, 0]);
        bench.write(0).expect("all are in reach");
        bench.settle();
        assert_eq!(bench.hws(), [1, 1, 1]);
    }
}
