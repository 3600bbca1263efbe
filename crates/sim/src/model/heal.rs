//! A healed cluster: what happens from a state on when nothing goes wrong any more.
//!
//! What was under way is lost. From then on messages arrive in order, everything is flushed at once, nobody crashes, and time passes, so that the replicas'
//! own timers decide. One replica may be dead for good. The coordinator answers whatever is asked, and begins a ballot if the leader on record is dead, has
//! restarted, or is refused by somebody who promised more. Everything is determined by the state it begins with.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use highwater_partition::{Input, Outcome, Ticket};
use highwater_replica::Role;
use highwater_wire::{Body, CommitRule, Envelope, Epoch, Millis, PeerId, Rank, Version};

use super::disk;
use super::local::Done;
use super::world::{COORDINATOR, Node, Record, from_coordinator, ticket_of_write};
use super::{Config, REPLICAS, coordinator};

/// How much time passes between two looks at the clock.
const TICK_MS: Millis = 50;

/// More messages than this at one moment are a storm that does not end.
const MESSAGES_MAX: usize = 10_000;

/// A ballot that is under way: its epoch, and the promises so far.
struct Ballot {
    epoch: Epoch,
    promises: BTreeMap<usize, (u64, Rank)>,
}

pub(super) struct Healed {
    config: Config,
    /// The replicas; none for the one that is dead.
    pub(super) nodes: [Option<Node>; REPLICAS],
    pub(super) record: Record,
    wire: VecDeque<(usize, Envelope)>,
    answers: BTreeMap<Ticket, Outcome>,
    ballot: Option<Ballot>,
    /// A replica that nothing reaches, though what it sends arrives. Service is demanded of the others.
    deaf: Option<usize>,
    /// The greatest epoch that somebody is known to have promised.
    heard: Option<Epoch>,
    now: Millis,
}

impl Healed {
    pub(super) fn new(config: &Config, nodes: [Option<Node>; REPLICAS], record: Record, deaf: Option<usize>) -> Healed {
        let (config, wire, answers) = (config.clone(), VecDeque::new(), BTreeMap::new());
        Healed { config, nodes, record, wire, answers, ballot: None, deaf, heard: None, now: 0 }
    }

    /// Those of which service is demanded: who lives, and can be reached.
    pub(super) fn living(&self) -> impl Iterator<Item = (usize, &Node)> {
        let reached = |index: &usize| Some(*index) != self.deaf;
        (0..REPLICAS).filter(reached).filter_map(|index| Some((index, self.nodes[index].as_ref()?)))
    }

    /// For this many ticks nobody hears anybody, and the coordinator hears nobody.
    pub(super) fn cut_off(&mut self, ticks: usize) {
        for _ in 0..ticks {
            self.now += TICK_MS;
            (0..REPLICAS).for_each(|index| self.give(index, Input::Tick));
            self.wire.clear();
        }
    }

    /// The replica that leads, if one does that none of the others has promised beyond.
    pub(super) fn leader(&self) -> Option<(usize, Epoch, u64)> {
        let latest = self.living().filter_map(|(_, node)| node.replica().promised()).max();
        self.living().find_map(|(index, node)| match node.replica().role() {
            Role::Leader { epoch, epoch_start } if Some(epoch) == latest => Some((index, epoch, epoch_start)),
            _ => None,
        })
    }

    /// A while passes.
    ///
    /// # Errors
    /// If there is no end of messages.
    pub(super) fn pass(&mut self) -> Result<(), String> {
        self.now += TICK_MS;
        for index in 0..REPLICAS {
            self.give(index, Input::Tick);
        }
        if self.config.rule.is_some() {
            self.coordinate();
        }
        for _ in 0..MESSAGES_MAX {
            match self.wire.pop_front() {
                None => return Ok(()),
                Some((COORDINATOR, envelope)) => self.answer(envelope),
                Some((to, _)) if Some(to) == self.deaf => {}
                Some((to, envelope)) => self.give(to, Input::Message(envelope)),
            }
        }
        Err(format!("there is no end of messages: {:?} is next", self.wire.front()))
    }

    fn give(&mut self, index: usize, input: Input) {
        self.act(index, |node, now, done| {
            node.give(now, [input], done);
            node.catch_up(now, done);
        });
        if self.nodes[index].as_ref().is_some_and(|node| node.disk().durable() < node.log().len()) {
            self.act(index, |node, now, done| {
                node.give(now, [Input::FlushDone(disk::flushed())], done);
                node.catch_up(now, done);
            });
        }
    }

    fn act(&mut self, index: usize, what: impl FnOnce(&mut Node, Millis, &mut Done)) {
        let Some(node) = self.nodes[index].as_mut() else { return };
        let mut done = Done::default();
        what(node, self.now, &mut done);
        self.wire.extend(done.sent);
        self.answers.extend(done.answers);
    }

    /// A client's write comes to the leader. Returns the log's end after it.
    ///
    /// # Errors
    /// If it is refused.
    pub(super) fn write(&mut self, index: usize, id: u8) -> Result<u64, String> {
        let before = self.nodes[index].as_ref().map(|node| node.log().len());
        self.act(index, |node, now, done| {
            node.write(now, id, done);
            node.catch_up(now, done);
        });
        let node = self.nodes[index].as_ref().ok_or("the leader is dead")?;
        if Some(node.log().len()) == before {
            return Err(format!("a write is refused: {:?}", self.answers.get(&ticket_of_write(id))));
        }
        Ok(node.log().len() as u64)
    }

    /// What was answered to the write of this number.
    pub(super) fn answer_to_write(&self, id: u8) -> Option<&Outcome> {
        self.answers.get(&ticket_of_write(id))
    }

    fn tell(&mut self, to: usize, envelope: Envelope) {
        self.wire.push_back((to, envelope));
    }

    /// The coordinator begins a ballot if one is called for, and ends it once all living replicas have promised.
    fn coordinate(&mut self) {
        let leader = self.record.leader;
        let leads =
            leader.is_some_and(|(index, starts)| self.nodes[index].as_ref().is_some_and(|node| node.starts == starts));
        let lost = self.ballot.as_ref().is_some_and(|ballot| Some(ballot.epoch) < self.heard);
        if lost || self.ballot.is_none() && (!leads || self.heard > self.record.epoch) {
            let next = self.heard.max(self.record.epoch).map_or(Some(Epoch(0)), Epoch::next);
            let epoch = next.expect("a model counts a few epochs");
            self.ballot = Some(Ballot { epoch, promises: BTreeMap::new() });
            let request = from_coordinator(epoch, Body::PromiseRequest { ballot: self.record.version.0 });
            (0..REPLICAS).for_each(|index| self.tell(index, request.clone()));
        } else if let Some(ballot) = &self.ballot
            && ballot.promises.len() == self.living().count()
            && let Some((epoch, leader, starts, set)) = self.chosen(ballot)
        {
            self.ballot = None;
            let version = Version(self.record.version.0 + 1);
            self.record = Record { epoch: Some(epoch), leader: Some((leader, starts)), version, set };
            self.tell_record();
        }
    }

    /// Of those who may be chosen, the one with the greatest rank.
    fn chosen(&self, ballot: &Ballot) -> Option<(Epoch, usize, u64, BTreeSet<usize>)> {
        let in_set = || ballot.promises.iter().filter(|(index, _)| self.record.set.contains(index));
        let set: BTreeSet<usize> = match self.config.commit_rule() {
            CommitRule::Isr { min } => Some(in_set().map(|(index, _)| *index).collect())
                .filter(|set: &BTreeSet<usize>| set.len() >= min as usize)?,
            CommitRule::Quorum { q } => {
                Some(self.record.set.clone()).filter(|set| ballot.promises.len() > set.len() - q as usize)?
            }
        };
        let (leader, (starts, _)) = in_set().max_by_key(|(_, (_, rank))| *rank)?;
        Some((ballot.epoch, *leader, *starts, set))
    }

    fn tell_record(&mut self) {
        let told = coordinator::told(&self.record, &self.config);
        (0..REPLICAS).for_each(|index| self.tell(index, told.clone()));
    }

    /// The coordinator answers a message.
    fn answer(&mut self, envelope: Envelope) {
        let from = envelope.sender.peer.node.0 as usize;
        match envelope.body {
            Body::WhoLeads => self.heard = self.heard.max(envelope.epoch),
            // Whoever refuses the record is not told it again: a ballot begins.
            Body::Refused { promised } => return self.heard = self.heard.max(Some(promised)),
            Body::Promise { rank, .. } => {
                let ballot = self.ballot.as_mut().filter(|ballot| Some(ballot.epoch) == envelope.epoch);
                if let Some(ballot) = ballot {
                    ballot.promises.insert(from, (envelope.sender.incarnation.starts, rank));
                }
                return;
            }
            Body::ChangeSet { version, ref members }
                if version == self.record.version && envelope.epoch == self.record.epoch =>
            {
                self.record.set = members.iter().map(|member: &PeerId| member.node.0 as usize).collect();
                self.record.version = Version(version.0 + 1);
                return self.tell_record();
            }
            Body::Confirm { round } if envelope.epoch == self.record.epoch => {
                let epoch = envelope.epoch.expect("it is the record's");
                return self.tell(from, from_coordinator(epoch, Body::Confirmed { round }));
            }
            _ => {}
        }
        if self.record.leader.is_some() && envelope.epoch <= self.record.epoch {
            let told = coordinator::told(&self.record, &self.config);
            self.tell(from, told);
        }
    }
}
