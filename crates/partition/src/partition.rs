//! One step of a partition: an input goes to whoever decides about it, the replica's effects are performed on the log, the state machine is driven
//! on, answers whose time has come are released, and a flush is begun if anything is not yet durable.

use std::collections::VecDeque;

use highwater_log::{LogError, LogStore};
use highwater_replica::{self as replica, Replica, Role, Start};
use highwater_wire::{Body, Dest, Envelope, Millis, Offset, PartitionId, Position, Sender};

use crate::driver::Driver;
use crate::effect::{Effect, Outcome, PeerStatus, Status};
use crate::hold::Holds;
use crate::input::{Input, Ticket};
use crate::read::Reads;
use crate::starved::Starved;

/// When a state machine gets the entries of the leader's own log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Only once they are committed, on the leader as anywhere else: the metadata.
    AtHighWatermark,
    /// The leader's machine executes ahead of the log: SQL.
    Ahead,
}

/// A log, its replica and the driver of its state machine. Comparable where the log is, so that a checker can store and compare states.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Partition<L: LogStore> {
    pub(crate) id: PartitionId,
    sender: Sender,
    pub(crate) kind: Kind,
    pub(crate) replica: Replica,
    pub(crate) log: L,
    pub(crate) driver: Driver,
    pub(crate) holds: Holds,
    pub(crate) reads: Reads,
    pub(crate) starved: Option<Starved>,
    halted: Option<String>,
}

impl<L: LogStore> Partition<L> {
    /// Joins a recovered log with a replica that starts from it. The state machine gets no command before it has told what it has applied, by
    /// the first [`Input::Rewound`].
    ///
    /// # Panics
    /// If `start` was not made from this log: its shape and promises must be the log's.
    pub fn new(start: Start, log: L, kind: Kind) -> Self {
        assert_eq!(&start.shape, log.shape(), "a replica starts from its own log");
        assert_eq!(&start.hard, log.hard_state(), "a replica starts from its own promises");
        assert_eq!(start.shape.flushed, start.shape.end, "recovery flushes what it found before anything is sent");
        Partition {
            id: start.partition,
            sender: Sender { peer: start.me, incarnation: start.incarnation },
            kind,
            replica: Replica::new(start),
            log,
            driver: Driver::default(),
            holds: Holds::default(),
            reads: Reads::default(),
            starved: None,
            halted: None,
        }
    }

    /// Takes one event in and appends to `out` what must be done about it, in order.
    pub fn step(&mut self, now: Millis, input: Input, out: &mut Vec<Effect<L::FlushJob>>) {
        if let Some(reason) = &self.halted {
            if let Some(ticket) = ticket_of(&input) {
                out.push(Effect::Answer(ticket, Outcome::Halted(reason.clone())));
            }
            return;
        }
        let was_starved = self.starved.is_some();
        match self.try_step(now, input, out) {
            Ok(()) => {
                self.tell_of_room(was_starved, out);
                self.check();
            }
            Err(error) => self.halt(error.to_string(), out),
        }
    }

    /// Performs what the replica decided outside a step, as a step would.
    pub(crate) fn settle(&mut self, effects: Vec<replica::Effect>, out: &mut Vec<Effect<L::FlushJob>>) {
        let was_starved = self.starved.is_some();
        match self.perform(effects, out).and_then(|()| self.finish_step(out)) {
            Ok(()) => {
                self.tell_of_room(was_starved, out);
                self.check();
            }
            Err(error) => self.halt(error.to_string(), out),
        }
    }

    fn try_step(&mut self, now: Millis, input: Input, out: &mut Vec<Effect<L::FlushJob>>) -> Result<(), LogError> {
        if let Some(reason) = self.starved() {
            match &input {
                Input::Message(_) => return Ok(()),
                Input::Read { ticket } => {
                    out.push(Effect::Answer(*ticket, Outcome::Full(reason.to_owned())));
                    return Ok(());
                }
                Input::Tick if !self.try_again(out)? => return self.finish_step(out),
                // What was flushed meanwhile is counted once nothing waits any more.
                Input::Tick => self.drive(now, replica::Input::Flushed(self.log.shape().flushed), out)?,
                _ => {}
            }
        }
        match input {
            Input::Message(envelope) => self.message(now, envelope, out)?,
            Input::Tick => self.drive(now, replica::Input::Tick, out)?,
            Input::Timeout(timeout) => self.drive(now, replica::Input::Timeout(timeout), out)?,
            Input::Disconnected(node) => self.drive(now, replica::Input::Disconnected(node), out)?,
            Input::FlushDone(done) => {
                let flushed = self.log.finish_flush(done)?;
                // The replica's outline of the log may be ahead of a cut or an append that waits for room.
                if self.starved.is_none() {
                    self.drive(now, replica::Input::Flushed(flushed), out)?;
                }
            }
            Input::Propose(proposal) => self.propose(now, proposal, out)?,
            Input::Hold { ticket, reign, until, wrote, ack } => {
                self.hold(now, ticket, (reign, until), (wrote, ack), out)?;
            }
            Input::Read { ticket } => self.read(now, ticket, out)?,
            Input::AtLeast { ticket, epoch, until } => self.reads.at_least(ticket, epoch, until),
            Input::Forget { ticket } => {
                self.holds.forget(ticket);
                self.reads.forget(ticket);
            }
            Input::Applied(to) => {
                self.driver.applied(to);
                self.drive(now, replica::Input::Applied(self.driver.applied_offset()), out)?;
            }
            Input::Rewound(at) => {
                let end = self.log.shape().end;
                self.driver.rewound(at);
                if !self.driver.rewind_on(out) && at > end {
                    return Err(LogError::Poisoned(format!(
                        "the state machine has applied up to offset {at}, but the log ends at {end}: the log's folder is older than \
                         the database beside it, or was shortened; restore neither, wipe both and let this node join anew"
                    )));
                }
            }
        }
        self.finish_step(out)
    }

    /// Drives the machine on, releases what waited, and begins a flush if anything is not yet durable.
    fn finish_step(&mut self, out: &mut Vec<Effect<L::FlushJob>>) -> Result<(), LogError> {
        self.advance_machine(out)?;
        // The replica may have resigned already, which those who wait are told once that is durable.
        if self.starved.is_none() {
            self.release_holds(out);
        }
        self.release_reads(out);
        out.extend(self.log.begin_flush().map(Effect::Flush));
        Ok(())
    }

    /// Lets the replica decide about one input, and performs what it decided.
    pub(crate) fn drive(
        &mut self,
        now: Millis,
        input: replica::Input,
        out: &mut Vec<Effect<L::FlushJob>>,
    ) -> Result<(), LogError> {
        let mut effects = Vec::new();
        self.replica.step(now, input, &mut effects);
        self.perform(effects, out)
    }

    /// Performs the replica's effects in order: what must be durable first is, since the log's calls return only then.
    pub(crate) fn perform(
        &mut self,
        effects: Vec<replica::Effect>,
        out: &mut Vec<Effect<L::FlushJob>>,
    ) -> Result<(), LogError> {
        if let Some(starved) = &mut self.starved {
            starved.effects.extend(effects);
            return Ok(());
        }
        let mut queue = VecDeque::from(effects);
        while let Some(effect) = queue.pop_front() {
            let written = match &effect {
                replica::Effect::Persist(hard) => self.log.persist(hard),
                replica::Effect::Append(batches) => self.log.append(batches),
                replica::Effect::Cut(to) => {
                    assert!(!self.driver.holds_uncommitted(self.replica.hw()), "what is cut was rewound first");
                    self.log.cut(*to)
                }
                _ => Ok(()),
            };
            if let Err(LogError::Full(reason)) = written {
                queue.push_front(effect);
                self.starve(reason, queue);
                return Ok(());
            }
            written?;
            match effect {
                replica::Effect::Persist(_) | replica::Effect::Append(_) | replica::Effect::Cut(_) => {}
                replica::Effect::Send(dest, envelope) => out.push(Effect::Send(dest, envelope)),
                replica::Effect::Ship { to, stream, from, max_bytes } => {
                    let batches = self.log.read(from, max_bytes)?;
                    let upto = end_of(&batches)?.unwrap_or(from);
                    let size = batches.len();
                    let body = Body::Batch {
                        stream,
                        base: from,
                        batches,
                        hw: self.replica.hw(),
                        start: self.log.shape().start,
                    };
                    out.push(Effect::Send(Dest::Node(to.node), self.envelope(body)));
                    let mut more = Vec::new();
                    self.replica.shipped(to, stream, upto, size, &mut more);
                    queue.extend(more);
                }
                // HW is the replica's to keep; what follows from its rise is decided once, at the end of the step.
                replica::Effect::HighWatermark(_) => {}
                replica::Effect::Reject(node, unfit) => out.push(Effect::Reject(node, unfit)),
                replica::Effect::Role(role) => self.role_changed(role, out),
                replica::Effect::Read(id, result) => self.read_confirmed(Ticket(id), result, out),
            }
        }
        Ok(())
    }

    fn envelope(&self, body: Body) -> Envelope {
        Envelope { partition: self.id, sender: self.sender, epoch: self.replica.promised(), body }
    }

    fn role_changed(&mut self, role: Role, out: &mut Vec<Effect<L::FlushJob>>) {
        let leads = match role {
            Role::Leader { epoch, .. } => Some(epoch),
            _ => None,
        };
        self.driver.lead(leads, self.replica.hw(), out);
        self.lose_holds(leads, out);
        out.push(Effect::Role(role));
    }

    /// Halts for a reason from outside: this replica must not take part any more. A partition that has halted already keeps its own reason.
    pub fn stop(&mut self, reason: &str, out: &mut Vec<Effect<L::FlushJob>>) {
        if self.halted.is_none() {
            self.halt(reason.to_owned(), out);
        }
    }

    /// The log is poisoned: nothing more is decided here, and everybody who waits is told.
    fn halt(&mut self, reason: String, out: &mut Vec<Effect<L::FlushJob>>) {
        for ticket in self.holds.drain_tickets().into_iter().chain(self.reads.drain_tickets()) {
            out.push(Effect::Answer(ticket, Outcome::Halted(reason.clone())));
        }
        out.push(Effect::Halted(reason.clone()));
        self.halted = Some(reason);
    }

    /// The position laws that join the three.
    fn check(&self) {
        // What the replica has decided is not all done.
        if self.starved.is_some() {
            return;
        }
        let (shape, hw) = (self.log.shape(), self.replica.hw());
        assert_eq!(shape, self.replica.shape(), "the replica's outline of the log is the log's own");
        assert!(hw <= shape.end, "HW {hw} is at most the log's end {}", shape.end);
        if let Some(published) = self.driver.published() {
            assert!(published <= hw, "readers see {published}, which is above HW {hw}");
        }
        self.driver.check(shape.end, hw);
    }

    /// The replica, for those who look.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The log, for those who look.
    pub fn log(&self) -> &L {
        &self.log
    }

    /// Takes the log back, to close it.
    pub fn into_log(self) -> L {
        self.log
    }

    /// Why the partition halted, if it has.
    pub fn halted(&self) -> Option<&str> {
        self.halted.as_deref()
    }

    /// The position that ends at `offset`, which the log must hold.
    pub(crate) fn position(&self, offset: Offset) -> Position {
        Position { partition: self.id, epoch: self.log.shape().epoch_before(offset), offset }
    }

    /// What there is to see.
    pub fn status(&self, now: Millis) -> Status {
        let shape = self.log.shape();
        let leads = matches!(self.replica.role(), Role::Leader { .. });
        Status {
            role: self.replica.role(),
            epoch: self.replica.promised(),
            leader: self.replica.leader(),
            version: leads.then(|| self.replica.version()),
            set: leads.then(|| self.replica.set().clone()),
            hw: self.replica.hw(),
            end: shape.end,
            leo: shape.flushed,
            applied: if self.driver.executes() { shape.end } else { self.driver.applied_offset() },
            published: self.driver.published().unwrap_or(0),
            peers: self
                .replica
                .peers(now)
                .into_iter()
                .map(|peer| PeerStatus {
                    node: peer.peer.node,
                    leo: peer.leo,
                    applied: peer.applied,
                    in_sync: peer.in_sync,
                    heard_ms_ago: peer.heard_ms_ago,
                })
                .collect(),
            halted: self.halted.clone(),
        }
    }
}

/// The offset after the last of these batches; `None` if there are none. What the log hands out was checked when it was appended, so anything
/// else means that the log is damaged.
pub(crate) fn end_of(batches: &bytes::Bytes) -> Result<Option<Offset>, LogError> {
    let mut end = None;
    for batch in highwater_wire::batch::split(batches) {
        let (header, _) =
            batch.map_err(|error| LogError::Poisoned(format!("a batch read back is damaged: {error}")))?;
        end = Some(header.base + header.count);
    }
    Ok(end)
}

fn ticket_of(input: &Input) -> Option<Ticket> {
    match input {
        Input::Hold { ticket, .. } | Input::Read { ticket } | Input::AtLeast { ticket, .. } => Some(*ticket),
        _ => None,
    }
}
