//! The coordinator's state and its dispatch: who is asked what, per event.
//!
//! It runs beside the metadata's leader, from the moment everything of that leader's own epoch is committed and applied until the role ends, and
//! keeps nothing over that. Whatever it says of a record it reads from the applied [`Metadata`], and whatever it wants changed it proposes as
//! a [`Command`] and believes only once it is applied.
//!
//! Messages about a partition count only from a replica that the record names, in the incarnation that its node registered last.

use std::collections::BTreeMap;

use highwater_wire::{
    Body, CommitRule, Envelope, Epoch, Incarnation, Millis, NodeId, PartitionId, PeerId, Sender, Unfit,
};

use crate::ballot::Ballot;
use crate::command::{Applied, Command};
use crate::confirm::Confirms;
use crate::metadata::Metadata;
use crate::sessions::Sessions;

/// What a coordinator starts from.
#[derive(Clone, Debug)]
pub struct CoordinatorStart {
    /// The metadata's leader, in whose name it speaks.
    pub me: Sender,
    /// The epoch in which that leads the metadata. It makes ballots unique among coordinators.
    pub epoch: Epoch,
    /// How often what was not answered is asked again (100).
    pub heartbeat_ms: Millis,
    /// Without a heartbeat for this long a node is taken for dead (600).
    pub session_ms: Millis,
    /// The voters of the metadata, who hold the configured databases.
    pub voters: Vec<PeerId>,
    /// Databases that must exist, with their rules.
    pub databases: Vec<(String, CommitRule)>,
    /// Nodes whose processes are known to be gone already.
    pub gone: Vec<NodeId>,
    /// The time now.
    pub now: Millis,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A message for the coordinator arrived.
    Message(Envelope),
    /// Time has passed.
    Tick,
    /// That node's process is gone: nothing listens where it was.
    Gone(NodeId),
    /// The metadata did not take in a proposed command, which will never be applied: too few voters were in reach, or there was no room. What it was for is decided
    /// anew when it is next looked at.
    NotProposed(Command),
    /// A command was committed, and `metadata` is as it left it.
    Applied(Command, Applied),
    /// The answer to [`Action::Read`].
    Read {
        /// Its number.
        id: u64,
        /// The metadata's leadership was confirmed after the read was asked for, and all committed before is applied.
        confirmed: bool,
    },
}

/// One thing to do, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Append the command to the metadata's log, if this node still leads it. It may be lost without notice.
    Propose(Command),
    /// Send a message to that node's replica of the envelope's partition (or to the node itself, for the metadata's).
    Send(NodeId, Envelope),
    /// That node sent what no honest one sends; it changed nothing.
    Reject(NodeId, Unfit),
    /// Read the metadata: confirm its leadership, then answer with [`Event::Read`]. Lost without notice if leadership ends.
    Read(u64),
}

/// The volatile driver beside the metadata's leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Coordinator {
    pub(crate) me: Sender,
    pub(crate) epoch: Epoch,
    pub(crate) heartbeat_ms: Millis,
    pub(crate) session_ms: Millis,
    pub(crate) voters: Vec<PeerId>,
    pub(crate) databases: Vec<(String, CommitRule)>,
    pub(crate) now: Millis,
    pub(crate) sessions: Sessions,
    /// The greatest epoch heard of or asked for, for each partition.
    pub(crate) epochs_heard: BTreeMap<PartitionId, Epoch>,
    pub(crate) ballots: BTreeMap<PartitionId, Ballot>,
    pub(crate) ballots_begun: u32,
    pub(crate) confirms: Confirms,
    /// Registrations proposed and not yet applied, with the time.
    pub(crate) registering: BTreeMap<(PeerId, Incarnation), Millis>,
    /// Changes of sets proposed and not yet applied, with the time.
    pub(crate) changing: BTreeMap<PartitionId, (Command, Millis)>,
    /// Databases proposed and not yet applied, with the time.
    pub(crate) creating: BTreeMap<String, Millis>,
}

impl Coordinator {
    /// Begins to coordinate: all sessions anew, then whatever the metadata lacks (databases, leaders).
    pub fn new(start: CoordinatorStart, metadata: &Metadata, out: &mut Vec<Action>) -> Coordinator {
        assert!(start.heartbeat_ms > 0 && start.heartbeat_ms < start.session_ms, "a session outlasts a heartbeat");
        let mut sessions = Sessions::new(start.session_ms, metadata.nodes().map(|node| node.node), start.now);
        for node in start.gone {
            sessions.gone(node);
        }
        let mut coordinator = Coordinator {
            me: start.me,
            epoch: start.epoch,
            heartbeat_ms: start.heartbeat_ms,
            session_ms: start.session_ms,
            voters: start.voters,
            databases: start.databases,
            now: start.now,
            sessions,
            epochs_heard: BTreeMap::new(),
            ballots: BTreeMap::new(),
            ballots_begun: 0,
            confirms: Confirms::default(),
            registering: BTreeMap::new(),
            changing: BTreeMap::new(),
            creating: BTreeMap::new(),
        };
        coordinator.create_missing(metadata, out);
        coordinator.review_all(metadata, out);
        coordinator
    }

    /// Takes one event in. `metadata` is what this node has applied.
    ///
    /// # Panics
    /// If `now` goes back.
    pub fn step(&mut self, now: Millis, event: Event, metadata: &Metadata, out: &mut Vec<Action>) {
        self.sessions.advance(now);
        self.now = now;
        match event {
            Event::Message(envelope) => self.message(&envelope, metadata, out),
            Event::Tick => {
                self.create_missing(metadata, out);
                self.review_all(metadata, out);
            }
            Event::Gone(node) => {
                self.sessions.gone(node);
                self.review_all(metadata, out);
            }
            Event::NotProposed(command) => self.not_proposed(&command),
            Event::Applied(command, applied) => self.applied(&command, applied, metadata, out),
            Event::Read { id, confirmed } => self.read(id, confirmed, metadata, out),
        }
    }

    /// Whether that node's session lives, for `highwater status`.
    pub fn alive(&self, node: NodeId) -> bool {
        self.sessions.alive(node)
    }

    fn message(&mut self, envelope: &Envelope, metadata: &Metadata, out: &mut Vec<Action>) {
        let sender = envelope.sender;
        if let Err(unfit) = self.judge(envelope, metadata) {
            return out.push(Action::Reject(sender.peer.node, unfit));
        }
        let registered = metadata.incarnation(sender.peer) == Some(sender.incarnation);
        match &envelope.body {
            Body::Register { incarnations, address } => {
                return self.register(sender, incarnations, address, metadata, out);
            }
            Body::Heartbeat { leaving } if registered => {
                self.sessions.heard(sender.peer.node, self.now);
                if *leaving && self.sessions.leaves(sender.peer.node) {
                    self.review_all(metadata, out);
                }
                return;
            }
            _ => {}
        }
        let Some(record) = metadata.partition(envelope.partition) else { return };
        if !registered || !record.replicas.contains(&sender.peer) {
            return;
        }
        self.hear_epoch(record.id, envelope.epoch);
        match &envelope.body {
            Body::Promise { ballot, rank } => self.promised(record, sender, (*ballot, envelope.epoch), *rank),
            Body::Refused { promised } => self.hear_epoch(record.id, Some(*promised)),
            Body::WhoLeads => self.who_leads(record, sender, out),
            Body::ChangeSet { version, members } => {
                self.change_set(record, sender, (envelope.epoch, *version), members, out);
            }
            Body::Confirm { round } => self.confirm(record, sender, (envelope.epoch, *round), out),
            _ => {}
        }
        self.review(record, metadata, out);
    }

    fn applied(&mut self, command: &Command, applied: Applied, metadata: &Metadata, out: &mut Vec<Action>) {
        match command {
            Command::RegisterNode { peer, incarnations, .. } => {
                self.registered(*peer, incarnations, applied, out);
                self.create_missing(metadata, out);
                self.review_all(metadata, out);
            }
            Command::CreatePartition { name, .. } => {
                self.creating.remove(name);
                self.create_missing(metadata, out);
                self.review_all(metadata, out);
            }
            Command::Appoint { id, .. } | Command::ChangeSet { id, .. } => {
                let Some(record) = metadata.partition(*id) else { return };
                if self.changing.get(id).is_some_and(|(asked, _)| asked == command) {
                    self.changing.remove(id);
                }
                if applied == Applied::Done {
                    self.announce(record, out);
                }
                self.end_ballot_of_older_version(record);
                self.void_appointment(record, command, applied);
                self.review(record, metadata, out);
            }
        }
    }

    /// Forgets that the command is under way. It is not proposed again at once, or it would be as often as the metadata refuses it.
    fn not_proposed(&mut self, command: &Command) {
        match command {
            Command::RegisterNode { peer, incarnations, .. } => {
                incarnations.last().and_then(|incarnation| self.registering.remove(&(*peer, *incarnation)));
            }
            Command::CreatePartition { name, .. } => {
                self.creating.remove(name);
            }
            Command::ChangeSet { id, .. } => {
                if self.changing.get(id).is_some_and(|(asked, _)| asked == command) {
                    self.changing.remove(id);
                }
            }
            Command::Appoint { id, .. } => self.forget_appointment(*id, command),
        }
    }

    /// An envelope of that partition from this coordinator.
    pub(crate) fn envelope(&self, partition: PartitionId, epoch: Option<Epoch>, body: Body) -> Envelope {
        Envelope { partition, sender: self.me, epoch, body }
    }

    /// Whether something proposed then should have been applied by now, if it ever will be.
    pub(crate) fn overdue(&self, proposed_at: Millis) -> bool {
        assert!(proposed_at <= self.now, "proposals were made before now");
        self.now - proposed_at >= self.session_ms
    }
}

#[cfg(test)]
#[path = "tests/driver.rs"]
pub(crate) mod tests;
