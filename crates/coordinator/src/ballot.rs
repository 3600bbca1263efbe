//! The ballot (docs/protocol.md section 4): fence, choose, record.
//!
//! 1. *Why.* A partition has no leader yet; or its leader is gone, that is, runs in another incarnation than the record's, or its session ended; or
//!    somebody has promised an epoch above the record's, and so refuses the present leader.
//! 2. *Fence.* The coordinator takes an epoch above the record's and above any heard of and asks all replicas to promise it. Promises count for this
//!    ballot alone: its number holds the metadata's epoch, which no other coordinator shares.
//! 3. *Choose.* By [`choose()`]. Under `isr` it waits until every living member has promised, or for a heartbeat, since who has not promised leaves
//!    the set.
//! 4. *Record.* The appointment is proposed for the version at which the ballot began. If that is void, so is the ballot.
//!
//! Who did not answer is asked again at every heartbeat. A ballot that gets nowhere is given up for a higher epoch after a bounded time, which
//! doubles with each attempt, so that a partition that cannot have a leader does not count epochs up without end; at once if somebody refused
//! it, since nothing else can come of it.
//!
//! Promises of a node whose session ended, or that is about to stop, do not count: a leader that is not there to stay would be replaced at once. A leader
//! that is about to stop is replaced if the others can elect one of themselves.

use std::collections::BTreeMap;

use highwater_wire::{Body, CommitRule, Epoch, Incarnation, Millis, PartitionId, PeerId, Rank, Sender, Version};

use crate::choose::{Promised, choose};
use crate::command::{Applied, Command};
use crate::driver::{Action, Coordinator};
use crate::metadata::Metadata;
use crate::record::PartitionRecord;

/// How often the time given to a ballot doubles.
const DOUBLINGS_MAX: u32 = 4;

/// A ballot under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ballot {
    number: u64,
    epoch: Epoch,
    /// The record's when it began.
    version: Version,
    /// How many came before it without an appointment.
    attempt: u32,
    began_at: Millis,
    asked_at: Millis,
    promises: BTreeMap<PeerId, Promised>,
    /// The appointment proposed, and when.
    proposed: Option<(Command, Millis)>,
}

impl Coordinator {
    /// Looks at every partition: see [`Coordinator::review`].
    pub(crate) fn review_all(&mut self, metadata: &Metadata, out: &mut Vec<Action>) {
        for record in metadata.partitions() {
            self.review(record, metadata, out);
        }
    }

    /// Begins, continues or gives up this partition's ballot, whatever is due.
    pub(crate) fn review(&mut self, record: &PartitionRecord, metadata: &Metadata, out: &mut Vec<Action>) {
        self.end_ballot_of_older_version(record);
        let Some(ballot) = self.ballots.get(&record.id) else {
            if self.needs_leader(record, metadata) {
                self.begin_ballot(record, 0, out);
            }
            return;
        };
        if let Some((command, at)) = &ballot.proposed {
            if self.overdue(*at) {
                let command = command.clone();
                self.propose_appointment(record.id, command, out);
            }
            return;
        }
        let refused = self.epochs_heard.get(&record.id).is_some_and(|heard| *heard > ballot.epoch);
        let patience_ms = self.session_ms << ballot.attempt.min(DOUBLINGS_MAX);
        if refused || self.now - ballot.began_at >= patience_ms {
            let attempt = ballot.attempt + 1;
            return self.begin_ballot(record, attempt, out);
        }
        if let Some(command) = self.decide(record, metadata) {
            return self.propose_appointment(record.id, command, out);
        }
        if self.now - ballot.asked_at >= self.heartbeat_ms {
            self.ask(record, out);
        }
    }

    /// Notes an epoch that somebody has promised or belongs to.
    pub(crate) fn hear_epoch(&mut self, id: PartitionId, epoch: Option<Epoch>) {
        if let Some(epoch) = epoch
            && self.epochs_heard.get(&id).is_none_or(|heard| *heard < epoch)
        {
            self.epochs_heard.insert(id, epoch);
        }
    }

    /// `Promise` arrived from a registered replica of the record.
    pub(crate) fn promised(
        &mut self,
        record: &PartitionRecord,
        sender: Sender,
        (number, epoch): (u64, Option<Epoch>),
        rank: Rank,
    ) {
        let alive = self.sessions.stays(sender.peer.node);
        let Some(ballot) = self.ballots.get_mut(&record.id) else { return };
        if ballot.number != number || Some(ballot.epoch) != epoch || !alive {
            return;
        }
        assert!(record.replicas.contains(&sender.peer), "only replicas on record are heard");
        ballot.promises.insert(sender.peer, Promised { incarnation: sender.incarnation, rank });
    }

    /// If a ballot is under way, not decided, in which that replica has not promised: asks it again.
    pub(crate) fn ask_again(&self, record: &PartitionRecord, peer: PeerId, out: &mut Vec<Action>) {
        let Some(ballot) = self.ballots.get(&record.id) else { return };
        if ballot.proposed.is_none() && !ballot.promises.contains_key(&peer) {
            let body = Body::PromiseRequest { ballot: ballot.number };
            out.push(Action::Send(peer.node, self.envelope(record.id, Some(ballot.epoch), body)));
        }
    }

    /// That replica runs in a new incarnation: what an older one promised could not be taken up by it, so it is asked anew.
    pub(crate) fn forget_promises(&mut self, peer: PeerId, incarnation: Incarnation) {
        for ballot in self.ballots.values_mut() {
            ballot.promises.retain(|from, promised| *from != peer || promised.incarnation == incarnation);
        }
    }

    /// Drops a ballot that the record has overtaken.
    pub(crate) fn end_ballot_of_older_version(&mut self, record: &PartitionRecord) {
        if let Some(ballot) = self.ballots.get(&record.id) {
            assert!(ballot.version <= record.version, "versions never go down");
            if ballot.version < record.version {
                self.ballots.remove(&record.id);
            }
        }
    }

    /// Drops the ballot whose appointment was void at its own version: the chosen one had restarted.
    pub(crate) fn void_appointment(&mut self, record: &PartitionRecord, command: &Command, applied: Applied) {
        if applied != Applied::Done
            && self
                .ballots
                .get(&record.id)
                .is_some_and(|b| b.proposed.as_ref().is_some_and(|(proposed, _)| proposed == command))
        {
            self.ballots.remove(&record.id);
        }
    }

    /// An appointment that was not taken in is decided anew.
    pub(crate) fn forget_appointment(&mut self, id: PartitionId, command: &Command) {
        if let Some(ballot) = self.ballots.get_mut(&id)
            && ballot.proposed.as_ref().is_some_and(|(proposed, _)| proposed == command)
        {
            ballot.proposed = None;
        }
    }

    fn needs_leader(&self, record: &PartitionRecord, metadata: &Metadata) -> bool {
        let refused = self.epochs_heard.get(&record.id).is_some_and(|heard| Some(*heard) > record.epoch);
        let leads = record.leader.is_some_and(|(peer, incarnation)| {
            metadata.incarnation(peer) == Some(incarnation) && self.sessions.alive(peer.node)
        });
        let leaves = record.leader.is_some_and(|(peer, _)| !self.sessions.stays(peer.node));
        refused || !leads || leaves && self.others_suffice(record)
    }

    /// Whether those that mean to stay could elect one of themselves. A leader that leaves is not deposed for nothing.
    fn others_suffice(&self, record: &PartitionRecord) -> bool {
        let members = &record.set.members;
        let staying = members.iter().filter(|peer| self.sessions.stays(peer.node)).count();
        match record.rule() {
            CommitRule::Quorum { q } => staying + q as usize > members.len(),
            CommitRule::Isr { min } => staying >= min as usize,
        }
    }

    fn begin_ballot(&mut self, record: &PartitionRecord, attempt: u32, out: &mut Vec<Action>) {
        let heard = self.epochs_heard.get(&record.id).copied();
        // With epochs exhausted there is none to ask for: the record stays as it is.
        let Some(epoch) = record.epoch.max(heard).map_or(Some(Epoch(0)), Epoch::next) else { return };
        assert!(Some(epoch) > record.epoch, "a ballot's epoch is above the record's");
        self.ballots_begun += 1;
        let ballot = Ballot {
            number: u64::from(self.epoch.0) << 32 | u64::from(self.ballots_begun),
            epoch,
            version: record.version,
            attempt,
            began_at: self.now,
            asked_at: self.now,
            promises: BTreeMap::new(),
            proposed: None,
        };
        self.epochs_heard.insert(record.id, epoch);
        self.ballots.insert(record.id, ballot);
        self.ask(record, out);
    }

    fn ask(&mut self, record: &PartitionRecord, out: &mut Vec<Action>) {
        for replica in &record.replicas {
            self.ask_again(record, *replica, out);
        }
        if let Some(ballot) = self.ballots.get_mut(&record.id) {
            ballot.asked_at = self.now;
        }
    }

    /// The appointment that the promises allow now, if any.
    fn decide(&self, record: &PartitionRecord, metadata: &Metadata) -> Option<Command> {
        let ballot = self.ballots.get(&record.id)?;
        assert!(ballot.version == record.version && ballot.proposed.is_none(), "a ballot decides once, at its version");
        // A replica that restarted since it promised cannot take up an appointment to that incarnation.
        let promises: BTreeMap<PeerId, Promised> = ballot
            .promises
            .iter()
            .filter(|(peer, promised)| {
                metadata.incarnation(**peer) == Some(promised.incarnation) && self.sessions.stays(peer.node)
            })
            .map(|(peer, promised)| (*peer, *promised))
            .collect();
        let waits = matches!(record.rule(), CommitRule::Isr { .. })
            && self.now - ballot.began_at < self.heartbeat_ms
            && record.set.members.iter().any(|peer| self.sessions.stays(peer.node) && !promises.contains_key(peer));
        if waits {
            return None;
        }
        let choice = choose(record, &promises)?;
        Some(Command::Appoint {
            id: record.id,
            version: record.version,
            epoch: ballot.epoch,
            leader: choice.leader,
            incarnation: choice.incarnation,
            members: choice.members,
        })
    }

    fn propose_appointment(&mut self, id: PartitionId, command: Command, out: &mut Vec<Action>) {
        let now = self.now;
        if let Some(ballot) = self.ballots.get_mut(&id) {
            ballot.proposed = Some((command.clone(), now));
            out.push(Action::Propose(command));
        }
    }
}
