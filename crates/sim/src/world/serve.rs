//! Clients' calls, and how a node serves them.

use highwater_host::Input;
use highwater_partition::{self as partition, Outcome, Ticket};
use highwater_wire::{NodeId, PartitionId, Position};

use super::World;
use super::event::{AtNode, Attempt, Event};
use super::node::{Waiting, Work};
use crate::clients::{Ask, Call, End, Freshness, Next, Seen};
use crate::facts::{Observation, Place};
use crate::faults::Fault;
use crate::machine::{OpId, View};

/// How long a node lets a request wait, microseconds.
const SERVER_WAIT_US: u64 = 700_000;
/// How long a client waits for an answer.
const CLIENT_WAIT_US: u64 = 1_000_000;
/// How long a client thinks between two calls, on average, while faults strike.
const THINK_US: u64 = 230_000;

impl World {
    /// A client begins a call.
    pub(super) fn begin_call(&mut self, client: usize) {
        let ended = self.counted.operations >= self.operations_min();
        if ended && (self.healed.is_some() || self.reduction.calls.is_some()) {
            return;
        }
        self.ops += 1;
        let (op, now) = (OpId(self.ops), self.now);
        let seat = &mut self.seats[client];
        let ask = seat.client.ask(op);
        let node = seat.client.first();
        seat.call = Some((op, ask));
        self.trace.note(now, &(client, ask), || format!("client {client}: {op:?} {ask:?}"));
        self.history.invoke(Call {
            client: client as u32,
            op,
            ask,
            invoked: now,
            returned: None,
            end: End::Unknown,
            node,
        });
        self.send_attempt(client, node);
    }

    /// A client sends its call to a node.
    pub(super) fn send_attempt(&mut self, client: usize, node: NodeId) {
        let Some((_, ask)) = self.seats[client].call else { return };
        let attempt = self.next_attempt(client);
        self.seats[client].attempt = attempt.number;
        if let Some(when) = self.client_message() {
            self.queue.at(when, Event::Request { node, attempt, ask });
        }
        self.queue.at(self.now + CLIENT_WAIT_US * self.profile.pace(), Event::GiveUp { attempt, node });
    }

    /// When a message between a client and a node that leaves now arrives; `None` if it is lost.
    fn client_message(&mut self) -> Option<u64> {
        if self.healed.is_none() && self.faults.contains(&Fault::ClientLoss) && self.rng.permille(30) {
            *self.counted.faults.entry(Fault::ClientLoss).or_default() += 1;
            return None;
        }
        Some(self.now + self.rng.range(50, 800))
    }

    /// A request arrives at a node.
    pub(super) fn request(&mut self, id: NodeId, attempt: Attempt, ask: Ask) {
        let node = self.node(id);
        if node.process.is_none() {
            // Connecting is refused: certainly nothing was done.
            self.answer_client(id, attempt, End::Failed);
            return;
        }
        if node.paused_until > self.now {
            let when = node.paused_until;
            self.queue.at(when, Event::Request { node: id, attempt, ask });
            return;
        }
        let Some(database) = self.node_mut(id).process.as_mut().and_then(|process| process.database.as_mut()) else {
            self.answer_client(id, attempt, End::Failed);
            return;
        };
        let partition = database.partition;
        let Ask::Read { key, list, freshness } = ask else {
            database.work.push_back(Work::Request { attempt, ask });
            // If it turns out to change nothing, it was a read.
            let place = Place { partition, node: id };
            if self.see(Observation::ReadAsked { place, read: attempt.number }) {
                self.turn_machine(id);
            }
            return;
        };
        let linearizable = freshness == Freshness::Linearizable;
        let waiting = Waiting::Read { attempt, key, list, linearizable };
        match freshness {
            Freshness::Eventual => match database.machine.look(key, list) {
                Ok(view) => {
                    let end = view.map_or(End::Failed, |view| End::Read(seen(partition, view)));
                    self.answer_client(id, attempt, end);
                }
                Err(error) => self.machine_failed(id, &format!("an eventual read: {error}")),
            },
            Freshness::Linearizable => {
                let place = Place { partition, node: id };
                if self.see(Observation::ReadAsked { place, read: attempt.number }) {
                    let ticket = self.wait(id, waiting);
                    self.step(id, Input::Partition(partition, partition::Input::Read { ticket }));
                }
            }
            Freshness::AtLeast(Position { epoch, offset, .. }) => {
                let ticket = self.wait(id, waiting);
                let input = partition::Input::AtLeast { ticket, epoch, until: offset };
                self.step(id, Input::Partition(partition, input));
            }
        }
    }

    /// Draws a ticket for somebody who waits.
    pub(super) fn wait(&mut self, id: NodeId, waiting: Waiting) -> Ticket {
        let when = self.now + SERVER_WAIT_US * self.profile.pace();
        let Some(process) = self.node_mut(id).process.as_mut() else { panic!("node {id} serves while it is down") };
        process.tickets += 1;
        let ticket = Ticket(process.tickets);
        process.waiting.insert(ticket, waiting);
        self.see(Observation::Waits { node: id, ticket });
        self.later(id, when, AtNode::Expire { ticket });
        ticket
    }

    /// A request has waited long enough.
    pub(super) fn expire(&mut self, id: NodeId, ticket: Ticket) {
        let Some(process) = self.node_mut(id).process.as_mut() else { return };
        let (Some(waiting), Some(database)) = (process.waiting.remove(&ticket), process.database.as_ref()) else {
            return;
        };
        let partition = database.partition;
        self.step(id, Input::Partition(partition, partition::Input::Forget { ticket }));
        self.see(Observation::Forgot { node: id, ticket });
        match waiting {
            Waiting::Write { attempt, wrote, .. } => {
                self.answer_client(id, attempt, if wrote { End::Unknown } else { End::Failed });
            }
            Waiting::Read { attempt, .. } => self.answer_client(id, attempt, End::Failed),
            Waiting::Everything => self.ask_everything_again(id, "in time"),
        }
    }

    /// A partition answers whoever waits behind a ticket.
    pub(super) fn answer(&mut self, id: NodeId, ticket: Ticket, outcome: Outcome) {
        if !self.see(Observation::Answered { node: id, ticket }) {
            return;
        }
        let Some(process) = self.node_mut(id).process.as_mut() else { return };
        let Some(waiting) = process.waiting.remove(&ticket) else { return };
        let Some(database) = process.database.as_mut() else { return };
        let partition = database.partition;
        let place = Place { partition, node: id };
        match waiting {
            Waiting::Write { attempt, answer, until, before, wrote, committed } => {
                self.refuses_in_plot(id, &outcome);
                if !self.see(Observation::Released { place, until, committed, outcome: outcome.clone() }) {
                    return;
                }
                let looked = !wrote && before.is_none() && matches!(outcome, Outcome::Done(_));
                if looked && !self.see(Observation::ReadAnswered { place, read: attempt.number, at: until }) {
                    return;
                }
                if before.is_some() && matches!(outcome, Outcome::Done(_)) && !self.see(Observation::Repeated { place })
                {
                    return;
                }
                let end = match outcome {
                    // A key that had its effect is told where that lies.
                    Outcome::Done(at) => {
                        let at =
                            before.map_or(at, |(epoch, offset)| Position { partition, epoch: Some(epoch), offset });
                        End::Wrote { answer, at }
                    }
                    Outcome::Refused(_) | Outcome::Full(_) | Outcome::Lost(_) => End::Failed,
                    Outcome::Unknown(_) | Outcome::Halted(_) | Outcome::Truncated { .. } if wrote => End::Unknown,
                    Outcome::Unknown(_) | Outcome::Halted(_) | Outcome::Truncated { .. } => End::Failed,
                };
                self.answer_client(id, attempt, end);
            }
            Waiting::Read { attempt, key, list, linearizable } => {
                let end = match outcome {
                    Outcome::Done(position) => match database.machine.look(key, list) {
                        Err(error) => return self.machine_failed(id, &format!("a read from {position}: {error}")),
                        Ok(view) => {
                            if !self.see(Observation::ReadServed { place, at: position.offset }) {
                                return;
                            }
                            view.map_or(End::Failed, |view| End::Read(seen(partition, view)))
                        }
                    },
                    Outcome::Truncated { .. } => End::Truncated,
                    _ => End::Failed,
                };
                if let (true, End::Read(seen)) = (linearizable, end)
                    && !self.see(Observation::ReadAnswered { place, read: attempt.number, at: seen.at.offset })
                {
                    return;
                }
                self.answer_client(id, attempt, end);
            }
            Waiting::Everything => self.read_everything(id, partition, &outcome),
        }
    }

    /// An answer leaves for a client.
    pub(super) fn answer_client(&mut self, id: NodeId, attempt: Attempt, end: End) {
        let database = self.database();
        let leader = self.node(id).process.as_ref().and_then(|process| {
            let partition = process.host.partition_here(database?)?;
            partition.replica().leader().map(|peer| peer.node)
        });
        if let Some(when) = self.client_message() {
            self.queue.at(when, Event::Reply { attempt, end, leader, node: id });
        }
    }

    /// An answer arrives at a client, or the client has waited long enough.
    pub(super) fn reply(&mut self, attempt: Attempt, end: End, leader: Option<NodeId>, node: NodeId) {
        let seat = &mut self.seats[attempt.client];
        let Some((op, ask)) = seat.call.filter(|_| seat.attempt == attempt.number) else { return };
        seat.attempt = 0;
        match seat.client.answered(&ask, end, leader) {
            Next::Again { node, after_us } => {
                self.queue.at(self.now + after_us, Event::Send { client: attempt.client, node });
            }
            Next::Done(end) => {
                seat.call = None;
                let thinks = seat.client.think_us(THINK_US * self.profile.pace());
                self.trace.note(self.now, &(op, end), || format!("client {}: {op:?} ended {end:?}", attempt.client));
                self.history.finish(op, end, node, self.now);
                self.counted.operations += 1;
                self.counted.succeeded += u64::from(matches!(end, End::Wrote { .. } | End::Read(_)));
                let until = self.history.call(op).and_then(Call::committed_write);
                if let (Some(until), Some(partition)) = (until, self.database())
                    && !self.see(Observation::Acknowledged { partition, until })
                {
                    return;
                }
                self.queue.at(self.now + thinks, Event::Call { client: attempt.client });
            }
        }
    }
}

/// What a client is told of what a read saw.
fn seen(partition: PartitionId, view: View) -> Seen {
    let View { at, epoch, effects, register, list_len, list_last } = view;
    Seen { at: Position { partition, epoch, offset: at }, effects, register, list_len, list_last }
}
