//! Law 10: once everything is healed the cluster comes back, step by step, each step within a bound of its own from the one before:
//!
//! | Step | Within |
//! |---|---|
//! | somebody leads the database | 10 s: some sixteen sessions of a node, or thirty election timeouts |
//! | HW reaches that leader's `epoch_start`; nobody need write for that | 5 s |
//! | the clients' calls are over, those included that a run still owes | 120 s |
//! | HW reaches the end of the leader's log; nobody writes any more | 5 s |
//! | a new write is acknowledged as committed | 10 s |
//! | every living replica, of the metadata too, leads or has a live stream, knows all that is committed, holds no more, and shows it to readers | 10 s |
//! | every living node answers a linearizable read | 5 s |
//!
//! Where nodes are far from each other and everything is configured to wait longer, the bounds are as much longer.
//!
//! Healed means: every link works, nothing is lost, every disk has room and no fault, no process is stopped, and every process runs, except for nodes that
//! can be spared: those are lost for ever, and nothing is asked of them.
//!
//! *Allowed to be stuck* is a cluster only while [`may_be_stuck`] says so: while too few of the logs that count are there, no rule can help. Everything
//! else must be live: one dead node among three or five, whichever it is; a leader whose last entries nobody else has; an ISR as small as it may be; a
//! ballot whose coordinator died; a change of the ISR whose outcome nobody learned.

use std::collections::BTreeSet;

use highwater_wire::{CommitRule, NodeId, Offset, PartitionId, PeerId, Set};

use crate::clients::Instant;

/// What a failure is called.
pub(crate) const NAME: &str = "live-once-healed";

/// The steps, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Somebody leads the database.
    Leader,
    /// HW reaches the leader's `epoch_start`.
    EpochStart,
    /// The clients' calls are over.
    Clients,
    /// HW reaches the end of the leader's log.
    Quiet,
    /// A new write is acknowledged.
    Write,
    /// Every living replica has it.
    Replicas,
    /// Every living node answers a read.
    Reads,
    /// Everything has come back.
    Over,
}

impl Step {
    fn bound_us(self) -> Instant {
        match self {
            Step::Leader | Step::Write | Step::Replicas => 10_000_000,
            Step::EpochStart | Step::Quiet | Step::Reads => 5_000_000,
            Step::Clients => 120_000_000,
            Step::Over => Instant::MAX,
        }
    }

    fn next(self) -> Step {
        match self {
            Step::Leader => Step::EpochStart,
            Step::EpochStart => Step::Clients,
            Step::Clients => Step::Quiet,
            Step::Quiet => Step::Write,
            Step::Write => Step::Replicas,
            Step::Replicas => Step::Reads,
            Step::Reads | Step::Over => Step::Over,
        }
    }
}

/// A replica of a living node that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    /// Whether it leads or has a live stream.
    pub(crate) live: bool,
    /// Its HW.
    pub(crate) hw: Offset,
    /// What its readers see; of the metadata, HW again.
    pub(crate) published: Offset,
    /// Its log's end.
    pub(crate) end: Offset,
}

/// A replica of a living node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replica {
    /// The node.
    pub(crate) node: NodeId,
    /// Of which partition.
    pub(crate) partition: PartitionId,
    /// What is committed of that partition.
    pub(crate) committed: Offset,
    /// `None` while the node has not opened it.
    pub(crate) open: Option<Open>,
}

/// The leader of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leader {
    /// Where its epoch began.
    pub(crate) epoch_start: Offset,
    /// Its HW.
    pub(crate) hw: Offset,
    /// Its log's end.
    pub(crate) end: Offset,
}

/// What there is to see of the cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sight {
    /// Who leads the database.
    pub(crate) leader: Option<Leader>,
    /// Whether no client waits or is owed a call.
    pub(crate) clients_done: bool,
    /// Whether the new write was acknowledged.
    pub(crate) written: bool,
    /// The living nodes' replicas.
    pub(crate) replicas: Vec<Replica>,
    /// Whether all of them have answered the last read.
    pub(crate) read: bool,
}

impl Sight {
    /// What a step still lacks.
    fn lacks(&self, step: Step) -> Option<String> {
        let unless = |there: bool, what: &str| (!there).then(|| what.to_owned());
        match step {
            Step::Leader => unless(self.leader.is_some(), "nobody leads the database"),
            Step::EpochStart => match self.leader {
                Some(Leader { epoch_start, hw, .. }) if hw >= epoch_start => None,
                Some(Leader { epoch_start, hw, .. }) => {
                    Some(format!("HW of the leader is {hw}, below its epoch_start {epoch_start}"))
                }
                None => Some("the leader is gone before HW reached its epoch_start".to_owned()),
            },
            Step::Quiet => match self.leader {
                Some(Leader { hw, end, .. }) if hw == end => None,
                Some(Leader { hw, end, .. }) => {
                    Some(format!("HW of the leader is {hw}, below the end of its log, {end}"))
                }
                None => Some("the leader is gone before HW reached the end of its log".to_owned()),
            },
            Step::Clients => unless(self.clients_done, "clients still wait"),
            Step::Write => unless(self.written, "a new write is not acknowledged"),
            Step::Replicas => {
                let lacks = |replica: &&Replica| {
                    let to = replica.committed;
                    replica.open != Some(Open { live: true, hw: to, published: to, end: to })
                };
                let behind = self.replicas.iter().find(lacks)?;
                Some(format!(
                    "{} entries of partition {} are committed, and node {} has {:?}",
                    behind.committed, behind.partition.0, behind.node, behind.open
                ))
            }
            Step::Reads => unless(self.read, "the last reads are not answered"),
            Step::Over => None,
        }
    }
}

/// How far the cluster has come back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comeback {
    step: Step,
    since: Instant,
    /// By how much all bounds are longer than those above.
    pace: u64,
}

impl Comeback {
    /// Everything is healed now; `pace` is by how much the bounds are longer.
    pub(crate) fn new(now: Instant, pace: u64) -> Comeback {
        Comeback { step: Step::Leader, since: now, pace }
    }

    /// The step that is not done yet.
    pub(crate) fn step(&self) -> Step {
        self.step
    }

    /// Takes in what there is to see now. An error says what has not come back in time.
    pub(crate) fn see(&mut self, now: Instant, sight: &Sight) -> Result<(), String> {
        loop {
            match sight.lacks(self.step) {
                None if self.step == Step::Over => return Ok(()),
                None => (self.step, self.since) = (self.step.next(), now),
                Some(lack) if now - self.since > self.step.bound_us().saturating_mul(self.pace) => {
                    return Err(format!("for {} ms, {lack}", (now - self.since) / 1000));
                }
                Some(_) => return Ok(()),
            }
        }
    }
}

/// Why a cluster may be stuck for ever, if it may: `able` are the peers whose processes run with the logs that they had.
///
/// - The metadata elects by a majority of its voters, and everything else needs the metadata.
/// - `quorum:q` of n: a leader needs promises from n - q + 1 members, a commit needs q.
/// - `isr:min`: a leader must be of the recorded ISR, of which any member will do. It commits with those that are able, once the ISR was changed to them,
///   but never with fewer than `min`: others who hold the partition are let in until there are so many.
pub(crate) fn may_be_stuck(voters: &Set, database: Option<&Set>, able: &BTreeSet<PeerId>) -> Option<String> {
    let of = |members: &[PeerId]| members.iter().filter(|member| able.contains(member)).count();
    let (voting, all) = (of(&voters.members), voters.members.len());
    if voting < all / 2 + 1 {
        return Some(format!("{voting} of {all} voters of the metadata are able"));
    }
    let set = database?;
    let (members, all) = (of(&set.members), set.members.len());
    match set.rule {
        CommitRule::Quorum { q } => {
            let needed = (q as usize).max(all + 1 - q as usize);
            (members < needed).then(|| format!("{members} of {all} members are able, and quorum:{q} needs {needed}"))
        }
        CommitRule::Isr { .. } if members == 0 => Some("no member of the recorded ISR is able".to_owned()),
        CommitRule::Isr { min } => {
            // Everyone who votes holds the database as well.
            (voting < min as usize)
                .then(|| format!("{voting} replicas are able, and isr:{min} commits with no fewer than {min}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::{PARTITION, peer};

    fn whole() -> Sight {
        let open = Some(Open { live: true, hw: 9, published: 9, end: 9 });
        let leader = Some(Leader { epoch_start: 7, hw: 9, end: 9 });
        Sight { leader, clients_done: true, written: true, replicas: vec![replica(open)], read: true }
    }

    fn replica(open: Option<Open>) -> Replica {
        Replica { node: NodeId(2), partition: PARTITION, committed: 9, open }
    }

    #[test]
    fn each_step_that_does_not_come_in_time_is_found_and_one_that_does_is_not() {
        let without = |open| Sight { replicas: vec![replica(open)], ..whole() };
        let open = Open { live: true, hw: 9, published: 9, end: 9 };
        let leads = |hw, end| Sight { leader: Some(Leader { epoch_start: 7, hw, end }), ..whole() };
        let lacking = [
            (Step::Leader, Sight { leader: None, ..whole() }),
            (Step::EpochStart, leads(6, 9)),
            (Step::Quiet, leads(8, 9)),
            (Step::Clients, Sight { clients_done: false, ..whole() }),
            (Step::Write, Sight { written: false, ..whole() }),
            (Step::Replicas, without(None)),
            (Step::Replicas, without(Some(Open { live: false, ..open }))),
            (Step::Replicas, without(Some(Open { hw: 8, ..open }))),
            (Step::Replicas, without(Some(Open { published: 8, ..open }))),
            (Step::Replicas, without(Some(Open { end: 10, ..open }))),
            (Step::Reads, Sight { read: false, ..whole() }),
        ];
        for (step, sight) in lacking {
            let mut comeback = Comeback::new(1_000, 1);
            assert_eq!(comeback.see(1_000 + step.bound_us(), &sight), Ok(()));
            assert_eq!(comeback.step(), step);
            assert!(comeback.clone().see(1_001 + 2 * step.bound_us(), &sight).is_err(), "{step:?}");
            assert_eq!(comeback.see(1_000 + step.bound_us(), &whole()), Ok(()));
            assert_eq!(comeback.step(), Step::Over);
        }
    }

    #[test]
    fn every_combination_of_living_logs_is_stuck_by_the_rule_alone() {
        let all: Vec<PeerId> = (1..=5).map(peer).collect();
        let voters = Set { rule: CommitRule::Quorum { q: 3 }, members: all.clone() };
        let stuck = |database: &Set, living: u32| {
            let able = all.iter().copied().filter(|peer| living & (1 << peer.node.0) != 0).collect();
            may_be_stuck(&voters, Some(database), &able).is_some()
        };
        for living in (0..64).step_by(2) {
            let count = u32::count_ones(living);
            assert_eq!(stuck(&voters, living), count < 3);
            let four = Set { rule: CommitRule::Quorum { q: 4 }, members: all.clone() };
            assert_eq!(stuck(&four, living), count < 4);
            let isr = Set { rule: CommitRule::Isr { min: 2 }, members: vec![peer(1), peer(2)] };
            assert_eq!(stuck(&isr, living), count < 3 || living & 0b110 == 0);
        }
        assert!(may_be_stuck(&voters, None, &all.iter().copied().collect()).is_none());
    }
}
