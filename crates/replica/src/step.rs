//! One step: an input is handed to its procedure, and the laws of all positions are checked.

use highwater_wire::{Body, Envelope, Epoch, Millis, NodeId, Sender, StreamId};

use crate::refuse::is_refused;
use crate::state::{Part, Replica, Timers};
use crate::{Effect, Input, Start};

impl Replica {
    /// A replica as it comes out of recovery: idle, with what is durable.
    ///
    /// # Panics
    /// If recovery left something unflushed, or voters or lists that are not sorted.
    pub fn new(start: Start) -> Replica {
        let Start { partition, me, incarnation, mode, timing, seed, shape, mut hard, now } = start;
        shape.check();
        assert_eq!(shape.flushed, shape.end, "what recovery finds it flushes before anything is sent");
        if let crate::Mode::SelfElecting { voters } = &mode {
            assert!(voters.windows(2).all(|pair| pair[0] < pair[1]), "voters are sorted: {voters:?}");
        }
        if hard.promised < shape.last_epoch() {
            // Only the first entry of a cluster is written without a promise.
            hard.promised = shape.last_epoch();
            hard.promised_to = None;
        }
        let (hint, hint_epoch) = hard.hw_hint;
        let replica = Replica {
            partition,
            me,
            incarnation,
            mode,
            timing,
            seed,
            hw: hint.clamp(shape.start, shape.flushed),
            hw_epoch: hint_epoch,
            log: shape,
            hard,
            applied: 0,
            part: Part::Idle,
            led: None,
            answered: false,
            last_stream: StreamId::before_first_of(incarnation),
            last_question: 0,
            heard_epoch: None,
            canvass: None,
            hears_leader: false,
            timers: Timers { now, heartbeat_at: None, leader_at: now, stream_at: now, attempts: 0 },
        };
        replica.check(replica.milestones());
        replica
    }

    /// Takes in one event at the time `now`, and puts out what follows, in the order in which it must be performed.
    ///
    /// # Panics
    /// If a law is broken by this replica, or by a log that says it is durable beyond its end. What another sends breaks none: it is refused.
    pub fn step(&mut self, now: Millis, input: Input, out: &mut Vec<Effect>) {
        self.advance_clock(now);
        let before = self.milestones();
        match input {
            Input::Message(envelope) => self.receive(envelope, out),
            Input::Tick => self.tick(out),
            Input::Timeout(timeout) => self.timeout(timeout, out),
            Input::Flushed(offset) => self.flushed(offset, out),
            Input::Applied(offset) => self.applied = offset,
            Input::Read(id) => self.read(id, out),
            Input::Disconnected(node) => self.disconnected(node, out),
        }
        self.check(before);
    }

    /// The committed record names this epoch, by whatever leap.
    pub fn recorded(&mut self, epoch: Epoch) {
        assert!(self.voters().is_none(), "the self-electing partition has no record");
        self.heard_epoch = self.heard_epoch.max(Some(epoch));
    }

    fn receive(&mut self, envelope: Envelope, out: &mut Vec<Effect>) {
        assert_eq!(envelope.partition, self.partition, "a message of another partition");
        if let Err(unfit) = self.judge(&envelope) {
            return self.reject(&envelope, unfit, out);
        }
        let Envelope { sender, epoch, body, .. } = envelope;
        if !self.may_be_heard(sender, out) {
            return;
        }
        self.note_epoch(epoch, &body);
        match body {
            Body::Refused { promised } => self.refused(sender.peer, promised, out),
            Body::WhoLeads => self.answer_who_leads(sender, out),
            body => match epoch {
                Some(epoch) if Some(epoch) >= self.hard.promised => self.receive_in(sender, epoch, body, out),
                _ if is_refused(&body) && self.hard.promised.is_some() => self.refuse(sender.peer.node, out),
                _ => {}
            },
        }
    }

    /// What belongs to an epoch that is not below the promised one.
    fn receive_in(&mut self, sender: Sender, epoch: Epoch, body: Body, out: &mut Vec<Effect>) {
        assert!(Some(epoch) >= self.hard.promised, "what is older was refused before");
        let (from, own) = (sender.peer, Some(epoch) == self.hard.promised);
        match body {
            Body::PromiseRequest { ballot } => self.promise(from.node, epoch, ballot, out),
            Body::Lead(lead) => self.hear_lead(sender, epoch, lead, out),
            Body::Stand { rank, pre } => self.vote(sender, epoch, rank, pre, out),
            Body::Vote { granted, pre } => self.hear_vote(sender, epoch, granted, pre, out),
            Body::Confirm { round } => self.confirm(from.node, epoch, round, out),
            // Everything below speaks of a leader's epoch to those who are in it.
            Body::Open { stream, end, last_epoch } if own => self.serve_stream(sender, stream, (end, last_epoch), out),
            Body::Accept { stream, end, last_epoch, hw, .. } if own => {
                self.accept(from, stream, (end, last_epoch), hw, out);
            }
            Body::Diverge { stream, end, last_epoch, epoch, stop } if own => {
                self.diverge(from, stream, (end, last_epoch), (epoch, stop), out);
            }
            Body::Batch { stream, base, batches, hw, .. } if own => {
                self.take_batch(from, stream, base, batches, hw, out);
            }
            Body::Ack { stream, leo, applied } if own => self.count_ack(sender, stream, leo, applied, out),
            Body::Confirmed { round } if own => self.hear_confirmed(sender, round, out),
            Body::ReadIndex { id } if own => self.asked_for_index(from.node, id, out),
            Body::ReadIndexAnswer { id, index } if own => self.hear_index(from, id, index, out),
            _ => {}
        }
    }

    /// Self-electing: remembers the greatest epoch that somebody has entered, to stand above it. An epoch that is only asked about counts for nothing,
    /// or two replicas that ask each other would drive it up for ever.
    fn note_epoch(&mut self, epoch: Option<Epoch>, body: &Body) {
        let only_asked = matches!(body, Body::Stand { pre: true, .. } | Body::Vote { pre: true, granted: true });
        if self.voters().is_some() && !only_asked {
            let entered = match body {
                Body::Refused { promised } => epoch.max(Some(*promised)),
                _ => epoch,
            };
            self.heard_epoch = self.heard_epoch.max(entered.filter(|entered| Some(*entered) > self.hard.promised));
        }
    }

    /// A self-elected leader answers for itself; under a coordinator, replicas are not asked.
    fn answer_who_leads(&self, sender: Sender, out: &mut Vec<Effect>) {
        if self.voters().is_some() && self.part.leading().is_some() {
            self.send(sender.peer.node, self.own_lead(), out);
        }
    }

    /// An envelope of this replica.
    pub(crate) fn envelope(&self, epoch: Option<Epoch>, body: Body) -> Envelope {
        let sender = Sender { peer: self.me, incarnation: self.incarnation };
        Envelope { partition: self.partition, sender, epoch, body }
    }

    /// Sends to the replica on `node`, in the promised epoch.
    pub(crate) fn send(&self, node: NodeId, body: Body, out: &mut Vec<Effect>) {
        self.send_in(self.hard.promised, node, body, out);
    }

    /// Sends to the replica on `node`, in the epoch that the message is about.
    pub(crate) fn send_in(&self, epoch: Option<Epoch>, node: NodeId, body: Body, out: &mut Vec<Effect>) {
        out.push(Effect::Send(highwater_wire::Dest::Node(node), self.envelope(epoch, body)));
    }
}
