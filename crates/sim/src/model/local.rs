//! What one replica does on one input: the real partition takes its step, its log in memory and its machine do at once what they are told.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use highwater_partition::{AckPolicy, Command, Effect, Input, Kind, Outcome, Partition, Proposal, Ticket};
use highwater_replica::{Mode, Role, Start, Timeout, Timing};
use highwater_wire::{Body, Dest, Envelope, Epoch, HardState, Millis, Sender};

use super::begin::Left;
use super::disk::{self, Disk};
use super::machine::Machine;
use super::world::{
    Answer, COORDINATOR, Entry, Local, Node, PARTITION, incarnation, peer, ticket_of_look, ticket_of_read,
    ticket_of_write,
};
use super::{Config, REPLICAS};

/// What a step did.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    pub(super) sent: Vec<(usize, Envelope)>,
    /// The last HW announced.
    pub(super) hw: Option<u64>,
    /// An epoch that this replica began to lead, and its log then.
    pub(super) led: Option<(Epoch, Vec<Entry>)>,
    /// Where the log was cut, at the lowest.
    pub(super) cut: Option<u64>,
    /// What was shown to readers, or told to the machine as committed: the longest.
    pub(super) shown: Option<Vec<Entry>>,
    /// What was answered to whom.
    pub(super) answers: Vec<(Ticket, Outcome)>,
    /// The write was refused before anybody waited for it: nothing happened.
    pub(super) declined: bool,
}

impl Done {
    /// Whether there is something in it that the oracle remembers or judges.
    pub(super) fn is_announced(&self) -> bool {
        self.hw.is_some()
            || self.led.is_some()
            || self.cut.is_some()
            || self.shown.is_some()
            || !self.answers.is_empty()
    }

    fn show(&mut self, entries: &[Entry]) {
        if self.shown.as_ref().is_none_or(|shown| shown.len() <= entries.len()) {
            self.shown = Some(entries.to_vec());
        }
    }
}

/// A replica at the beginning.
pub(super) fn first(index: usize, left: Left, config: &Config) -> Node {
    let Left { starts, log, hard } = left;
    // They have met before: which incarnation is new where is of no interest to any law but its own.
    let others = (0..REPLICAS).filter(|other| *other != index);
    let seen = match config.rule {
        Some(_) => Default::default(),
        None => others.map(|other| (peer(other), incarnation(other, starts))).collect(),
    };
    let durable = log.len();
    let disk = Disk::new(log, durable, HardState { seen, ..hard });
    recover(index, starts, disk, Machine::new(config.late_machine), config, &mut Done::default())
}

/// A process starts on what is on its disk.
pub(super) fn recover(
    index: usize,
    starts: u64,
    disk: Disk,
    machine: Machine,
    config: &Config,
    done: &mut Done,
) -> Node {
    use highwater_log::LogStore;
    let (mode, kind) = match config.rule {
        Some(_) => (Mode::Appointed, Kind::Ahead),
        None => (Mode::SelfElecting { voters: (0..REPLICAS).map(peer).collect() }, Kind::AtHighWatermark),
    };
    let start = Start {
        partition: PARTITION,
        me: peer(index),
        incarnation: incarnation(index, starts),
        mode,
        timing: Timing::default(),
        seed: 0,
        shape: disk.shape().clone(),
        hard: disk.hard_state().clone(),
        now: 0,
    };
    let holds = machine.end();
    let mut node = Node { partition: Partition::new(start, disk, kind), machine, answer: None, starts };
    node.give(0, [Input::Rewound(holds)], done);
    node
}

/// Takes the step.
///
/// # Errors
/// What the replica says of itself when it breaks a law of its own and stops.
pub(super) fn step(
    index: usize,
    node: &Node,
    local: Local,
    message: Option<&Envelope>,
    config: &Config,
) -> Result<(Node, Done), String> {
    let run = || {
        let (mut node, mut done) = (node.clone(), Done::default());
        match local {
            Local::Deliver(_) => {
                let envelope = message.expect("a delivery has a message").clone();
                node.give(0, [Input::Message(envelope)], &mut done);
            }
            Local::Flush => node.give(0, [Input::FlushDone(disk::flushed())], &mut done),
            Local::Crash(kept) => {
                assert!(kept >= node.disk().durable(), "what is durable survives");
                let disk = node.disk().after_crash(kept);
                node = recover(index, node.starts + 1, disk, node.machine.after_crash(), config, &mut done);
            }
            Local::Write(id) => node.write(0, id, &mut done),
            Local::Stand => stand(index, &mut node, &mut done),
            Local::Fire(timeout) => node.give(0, [Input::Timeout(timeout)], &mut done),
            Local::Look(number) => node.look(number, &mut done),
            Local::Hold => node.hold(0, &mut done),
            Local::Turn => node.turn(0, &mut done),
            Local::Read(number) => node.give(0, [Input::Read { ticket: ticket_of_read(number) }], &mut done),
        }
        done.cut = node.disk().take_cut();
        (node, done)
    };
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| reason_of(panic.as_ref()))
}

/// What a panic said.
pub(super) fn reason_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// The question whether this replica would win is asked, and the others say yes: it decides only when somebody stands, and changes nobody.
fn stand(index: usize, node: &mut Node, done: &mut Done) {
    let mut asked = Done::default();
    node.give(0, [Input::Timeout(Timeout::Election)], &mut asked);
    assert!(!asked.is_announced(), "only a question is asked: {asked:?}");
    for (voter, question) in asked.sent {
        assert_ne!(voter, index, "nobody asks itself");
        // As the newest process that this one knows of: it would not listen to an older one, and of a newer one it hears by other messages.
        let newest = node.hard().seen.get(&peer(voter)).copied();
        let sender = Sender { peer: peer(voter), incarnation: newest.unwrap_or_else(|| incarnation(voter, 1)) };
        let body = Body::Vote { granted: true, pre: true };
        node.give(0, [Input::Message(Envelope { sender, body, ..question })], done);
    }
}

impl Answer {
    fn hold(self) -> Input {
        let Answer { ticket, reign, until, wrote } = self;
        Input::Hold { ticket, reign, until, wrote, ack: AckPolicy::Committed }
    }
}

impl Node {
    /// The partition takes these inputs, one after the other, and then what its machine answers.
    pub(super) fn give<const N: usize>(&mut self, now: Millis, inputs: [Input; N], done: &mut Done) {
        let mut inputs = VecDeque::from(inputs);
        while let Some(input) = inputs.pop_front() {
            let (hw, mut effects) = (self.replica().hw(), Vec::new());
            self.partition.step(now, input, &mut effects);
            done.hw = Some(self.replica().hw()).filter(|now| *now != hw).or(done.hw);
            inputs.extend(self.perform(effects, done));
        }
    }

    /// Performs the effects of one step, in order. Returns what the machine answers.
    fn perform(&mut self, effects: Vec<Effect<()>>, done: &mut Done) -> Vec<Input> {
        let (mut told, mut flushes) = (Vec::new(), false);
        for effect in effects {
            match effect {
                Effect::Send(to, mut envelope) => {
                    // How far a machine has applied is told for those who look; nothing is decided by it.
                    if let Body::Ack { applied, .. } = &mut envelope.body {
                        *applied = 0;
                    }
                    let to = match to {
                        Dest::Node(to) => to.0 as usize,
                        Dest::Coordinator => COORDINATOR,
                    };
                    done.sent.push((to, envelope));
                }
                Effect::Flush(()) => flushes = true,
                Effect::Machine(command) => {
                    let now = self.machine.tell(command);
                    told.extend(now.and_then(|command| self.carry_out(command, done)));
                }
                Effect::Answer(ticket, outcome) => {
                    if let (Outcome::Done(position), Some(_)) = (&outcome, super::world::read_of(ticket)) {
                        let shown = self.machine.published().map_or(0, <[Entry]>::len) as u64;
                        assert!(shown >= position.offset, "a read is served from what is published by then");
                    }
                    done.answers.push((ticket, outcome));
                }
                Effect::Role(Role::Leader { epoch, epoch_start }) => {
                    done.led = Some((epoch, self.disk().log()[..epoch_start as usize].to_vec()));
                }
                Effect::Role(_) => {}
                Effect::Reject(node, unfit) => panic!("a replica rejects what node {node} sent: {unfit}"),
                Effect::DiskFull(_) => panic!("a disk in memory is never full"),
                Effect::Halted(reason) => panic!("{reason}"),
            }
        }
        let unflushed = self.disk().durable() < self.disk().log().len();
        assert_eq!(flushes, unflushed, "exactly what is not durable is flushed");
        told
    }

    fn carry_out(&mut self, command: Command, done: &mut Done) -> Option<Input> {
        let committed = match &command {
            Command::Apply { to, committed: true, .. } | Command::Publish { hw: to } => Some(*to as usize),
            _ => None,
        };
        let says = self.machine.carry_out(command);
        if let Some(count) = committed {
            done.show(&self.machine.entries()[..count]);
        }
        says
    }

    /// The machine carries out one thing that it was told.
    fn turn(&mut self, now: Millis, done: &mut Done) {
        let command = self.machine.take_up().expect("something waits for the machine");
        if let Some(says) = self.carry_out(command, done) {
            self.give(now, [says], done);
        }
    }

    /// The answer that is on its way comes to be held.
    fn hold(&mut self, now: Millis, done: &mut Done) {
        let answer = self.answer.take().expect("an answer is on its way");
        self.give(now, [answer.hold()], done);
    }

    /// Nothing is late any more.
    pub(super) fn catch_up(&mut self, now: Millis, done: &mut Done) {
        if self.answer.is_some() {
            self.hold(now, done);
        }
        while self.machine.next().is_some() {
            self.turn(now, done);
        }
    }

    /// A client's question: answered from what was executed, once that is committed.
    fn look(&mut self, number: u8, done: &mut Done) {
        let reign = self.machine.reign().expect("it executes");
        let (ticket, until) = (ticket_of_look(number), self.machine.end());
        self.answer = Some(Answer { ticket, reign, until, wrote: false });
        if !self.machine.is_late() {
            self.hold(0, done);
        }
    }

    /// A client's write: the machine executes it ahead of the log where it may, and its answer is held until it is committed.
    pub(super) fn write(&mut self, now: Millis, id: u8, done: &mut Done) {
        let ticket = ticket_of_write(id);
        let Some(reign) = self.machine.reign() else { return self.write_behind(now, id, done) };
        let base = self.machine.end();
        self.machine.execute(id);
        let proposal = Proposal { reign, base, batches: disk::unstamped(id) };
        let answer = Answer { ticket, reign, until: self.machine.end(), wrote: true };
        if self.machine.is_late() {
            self.answer = Some(answer);
            self.give(now, [Input::Propose(proposal)], done);
        } else {
            self.give(now, [Input::Propose(proposal), answer.hold()], done);
        }
    }

    /// A write where the machine follows HW: it is appended, and its answer waits until it is shown.
    fn write_behind(&mut self, now: Millis, id: u8, done: &mut Done) {
        let epoch = self.replica().promised().expect("a leader has an epoch");
        let (hw, mut effects) = (self.replica().hw(), Vec::new());
        if !self.partition.append(now, epoch, disk::unstamped(id), &mut effects) {
            done.declined = true;
            return;
        }
        done.hw = Some(self.replica().hw()).filter(|now| *now != hw).or(done.hw);
        let until = self.replica().shape().end;
        for told in self.perform(effects, done) {
            self.give(now, [told], done);
        }
        self.give(now, [Input::AtLeast { ticket: ticket_of_write(id), epoch: Some(epoch), until }], done);
    }
}
