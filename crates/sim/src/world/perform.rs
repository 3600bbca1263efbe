//! One step of a host, and what came out of it, performed in order. A process may die between any two effects.

use highwater_host::{Effect, Input};
use highwater_partition::Command;
use highwater_replica::Role;
use highwater_wire::{Envelope, NodeId, PartitionId};

use super::World;
use super::event::{AtNode, Event};
use super::folders::SimJob;
use super::node::Doom;
use super::node::{Database, Work};
use crate::clients::Instant;
use crate::facts::Observation;

impl World {
    /// Lets a node take one input in, and performs what follows.
    pub(super) fn step(&mut self, id: NodeId, input: Input) {
        let received = match &input {
            Input::Message(envelope) => Some(envelope.clone()),
            _ => None,
        };
        if let Some(envelope) = received
            && !self.see(Observation::Received { node: self.node(id).seen_as(), envelope })
        {
            return;
        }
        let now = self.node(id).clock.shows(self.now);
        let Some(process) = self.node_mut(id).process.as_mut() else { return };
        let mut out = Vec::new();
        process.host.step(now, input, &mut out);
        if !self.take_notes()
            || !self.watch(id, &out)
            || !self.see(Observation::StepEnded { node: self.node(id).seen_as() })
        {
            return;
        }
        self.perform(id, out);
    }

    /// Performs effects in order, until the process dies of what was ordered for it.
    pub(super) fn perform(&mut self, id: NodeId, effects: Vec<Effect<SimJob>>) {
        let life = self.node(id).life;
        // The disk failed in the middle of the step: nothing of what the step decided is done any more.
        if let Some(Doom { effects: None, power }) = self.node(id).doom
            && effects.iter().any(|effect| matches!(effect, Effect::Halted(..)))
        {
            self.die(id, power);
            return;
        }
        for effect in effects {
            if let Some(Doom { effects: Some(left), power }) = self.node_mut(id).doom.as_mut() {
                if *left == 0 {
                    let power = *power;
                    self.die(id, power);
                    return;
                }
                *left -= 1;
            }
            self.perform_one(id, effect);
            if self.broken.is_some() || self.node(id).life != life {
                return;
            }
        }
    }

    fn perform_one(&mut self, id: NodeId, effect: Effect<SimJob>) {
        let now = self.now;
        match effect {
            Effect::Persist(state) => self.node_mut(id).state = state,
            Effect::Send(to, envelope) => self.send(id, to, envelope),
            Effect::Flush(partition, job) => self.schedule_flush(id, partition, job),
            Effect::Opened(partition, _) => {
                let node = self.node_mut(id);
                let machine = match node.store.open() {
                    Ok(machine) => machine,
                    Err(error) => return self.machine_failed(id, &format!("opening it: {error}")),
                };
                let applied = machine.applied();
                if let Some(process) = node.process.as_mut() {
                    let (work, turning, stopped) = (Default::default(), false, false);
                    process.database = Some(Database { partition, machine, work, turning, stopped });
                }
                self.tell(id, Input::Partition(partition, highwater_partition::Input::Rewound(applied)));
            }
            Effect::Machine(partition, command) => self.command(id, partition, command),
            Effect::Answer(ticket, outcome) => self.answer(id, ticket, outcome),
            Effect::Role(partition, role) => self.role(id, partition, role),
            // Nobody lies in the simulator. What is rejected there shows a bug of whoever sent it, or of whoever judges.
            Effect::Reject(node, unfit) => panic!("node {id} rejects what node {node} sent: {unfit}"),
            Effect::DiskFull(partition, reason) => {
                self.trace.note(now, &(id, partition, reason.is_some()), || {
                    format!("node {id}: partition {}, room on the disk: {reason:?}", partition.0)
                });
            }
            Effect::Halted(partition, reason) => {
                self.trace
                    .note(now, &(id, partition), || format!("node {id}: partition {} halted: {reason}", partition.0));
                let node = self.node_mut(id);
                let (excused, harmed) = (node.may_halt(), node.harm.is_some());
                if let Some(process) = node.process.as_mut() {
                    process.halted = Some(reason.clone());
                }
                let place = self.place(id, partition);
                if !self.see(Observation::Halted { place, reason, excused }) {
                    return;
                }
                // Whoever watches over the process starts it anew, unless that would be in vain.
                if self.plot_is_over().is_some() || harmed && self.rng.percent(50) {
                    return;
                }
                let after = self.rng.range(10_000, 400_000);
                self.later(id, now + after, AtNode::Die { power: false });
            }
        }
    }

    fn role(&mut self, id: NodeId, partition: PartitionId, role: Role) {
        self.trace.note(self.now, &(id, partition, &role), || format!("node {id}: partition {} {role:?}", partition.0));
        let metadata = partition == PartitionId::METADATA;
        match role {
            Role::Leader { .. } if metadata => self.counted.metadata_elections += 1,
            // A leader of an earlier epoch may begin late, and resign before anybody hears of it.
            Role::Leader { epoch, .. } if self.leader_epoch < Some(epoch) => {
                self.counted.leader_changes += 1;
                self.leader_epoch = Some(epoch);
                self.leader = Some(id);
            }
            Role::Leader { .. } => {}
            _ if !metadata && self.leader == Some(id) => self.leader = None,
            _ => {}
        }
        let place = self.place(id, partition);
        self.see(Observation::Role { place, role });
    }

    /// A message leaves.
    fn send(&mut self, from: NodeId, to: NodeId, envelope: Envelope) {
        assert_eq!(highwater_wire::check(&envelope), Ok(()), "no honest message is unfit: {envelope:?}");
        if !self.claims(from, &envelope)
            || !self.see(Observation::Sent { from: self.node(from).seen_as(), envelope: envelope.clone() })
        {
            return;
        }
        self.trace.note(self.now, &(from, to, &envelope), || format!("{from} -> {to}: {}", brief(&envelope)));
        for (to, arrival) in self.travels(from, to, &envelope) {
            let (connection, envelope) = (arrival.connection, envelope.clone());
            let event = match arrival.garbled {
                true => Event::Garbled { from, to, connection, envelope },
                false => Event::Deliver { from, to, connection, envelope },
            };
            self.queue.at(arrival.when, event);
        }
    }

    /// A message arrives.
    pub(super) fn deliver(&mut self, from: NodeId, to: NodeId, connection: Option<u64>, envelope: Envelope) {
        let node = self.node(to);
        if node.process.is_none() || !self.network.arrives(from, to, connection) {
            return;
        }
        if node.paused_until > self.now {
            let when = node.paused_until;
            self.queue.at(when, Event::Deliver { from, to, connection, envelope });
            return;
        }
        self.step(to, Input::Message(envelope));
    }

    fn schedule_flush(&mut self, id: NodeId, partition: PartitionId, job: SimJob) {
        let (now, slow) = (self.now, self.node(id).slow_until > self.now);
        let (shortest, longest) = if slow { (20_000, 800_000) } else { self.profile.flush_us() };
        let takes: Instant = self.rng.range(shortest, longest);
        let place = self.place(id, partition);
        self.cuts.remove(&place);
        self.later(id, now + takes, AtNode::Flush { partition, job });
    }

    /// A flush runs: what it covers is durable, whether or not the process lives to hear of it.
    pub(super) fn flush(&mut self, id: NodeId, partition: PartitionId, job: SimJob) {
        let stalled_until = self.node(id).stalled_until;
        if stalled_until > self.now {
            self.later(id, stalled_until, AtNode::Flush { partition, job });
            return;
        }
        let place = self.place(id, partition);
        let (done, seen) = job.run(place, &self.cuts);
        if !self.see(seen) {
            return;
        }
        if done.result.is_err()
            && let Some(Doom { effects: None, power }) = self.node(id).doom
        {
            self.die(id, power);
            return;
        }
        let after = self.now + self.rng.range(5, 300);
        self.later(id, after, AtNode::Flushed { partition, done });
    }

    fn command(&mut self, id: NodeId, partition: PartitionId, command: Command) {
        let place = self.place(id, partition);
        self.trace.note(self.now, &place, || format!("node {id}: machine {}", told(&command)));
        let keeps = self.rng.percent(8);
        let node = self.node_mut(id);
        let Some(database) = node.process.as_mut().and_then(|process| process.database.as_mut()) else {
            let error = format!("it is told {command:?} before it was opened");
            self.see(Observation::MachineStopped { node: id, error, excused: false });
            return;
        };
        if let Command::Publish { hw } = command {
            // Seen by readers before any later effect.
            let machine = &mut database.machine;
            let shown = machine.publish(hw).and_then(|()| machine.shown()).and_then(|shown| {
                if keeps && shown.is_some() {
                    machine.keep()?;
                }
                Ok(shown)
            });
            match shown {
                Ok(None) => {}
                Ok(Some(shown)) => {
                    self.see(Observation::Published { place, at: shown.at, content: shown.content });
                }
                Err(error) => self.machine_failed(id, &format!("publishing {hw}: {error}")),
            }
            return;
        }
        database.work.push_back(Work::Command(command));
        self.turn_machine(id);
    }
}

/// A command in a few words.
fn told(command: &Command) -> String {
    match command {
        Command::Apply { from, to, committed, .. } => format!("applies [{from}, {to}), committed: {committed}"),
        other => format!("{other:?}"),
    }
}

/// A message in one line.
fn brief(envelope: &Envelope) -> String {
    let epoch = envelope.epoch.map_or_else(|| "-".to_owned(), |epoch| epoch.to_string());
    match &envelope.body {
        highwater_wire::Body::Batch { stream, base, batches, hw, .. } => {
            format!(
                "p{} e{epoch} Batch stream {} base {base}, {} bytes, HW {hw}",
                envelope.partition.0,
                stream.0,
                batches.len()
            )
        }
        body => format!("p{} e{epoch} {body:?}", envelope.partition.0),
    }
}
