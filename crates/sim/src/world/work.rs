//! The state machine's own thread: it takes up what it was told one thing at a time, some while later, and tells the host in order.

use highwater_host::Input;
use highwater_partition::{self as partition, Command, Proposal};
use highwater_wire::NodeId;

use super::World;
use super::event::{AtNode, Attempt};
use super::node::{Waiting, Work};
use crate::clients::{Ask, End};
use crate::facts::Observation;

impl World {
    /// Sees to it that the machine takes up what it was told.
    pub(super) fn turn_machine(&mut self, id: NodeId) {
        let after = if self.rng.permille(20) { self.rng.range(2_000, 60_000) } else { self.rng.range(5, 200) };
        let when = self.now + after;
        let Some(database) = self.node_mut(id).process.as_mut().and_then(|process| process.database.as_mut()) else {
            return;
        };
        if !database.turning && !database.stopped && !database.work.is_empty() {
            database.turning = true;
            self.later(id, when, AtNode::MachineTurn);
        }
    }

    /// The machine takes up one thing.
    pub(super) fn machine_turn(&mut self, id: NodeId) {
        if self.holds_machine(id) {
            let when = self.now + 1_000;
            return self.later(id, when, AtNode::MachineTurn);
        }
        let Some(database) = self.node_mut(id).process.as_mut().and_then(|process| process.database.as_mut()) else {
            return;
        };
        database.turning = false;
        let (partition, machine) = (database.partition, &mut database.machine);
        let tells = |input| Input::Partition(partition, input);
        let result = match database.work.pop_front() {
            None => Ok(None),
            Some(Work::Command(Command::Apply { from, to, batches, committed })) => {
                machine.apply(from, to, &batches, committed).map(|()| Some(tells(partition::Input::Applied(to))))
            }
            Some(Work::Command(Command::Lead { reign, end })) => machine.lead(reign, end).map(|()| None),
            Some(Work::Command(Command::Rewind { to })) => {
                machine.rewind(to).map(|at| Some(tells(partition::Input::Rewound(at))))
            }
            Some(Work::Command(Command::Publish { .. })) => Err("a publication waited in line".to_owned()),
            Some(Work::Request { attempt, ask }) => {
                self.execute(id, attempt, ask);
                if self.node(id).process.is_none() {
                    return;
                }
                Ok(None)
            }
        };
        match result {
            Ok(Some(input)) => self.tell(id, input),
            Ok(None) => {}
            Err(error) => {
                self.machine_failed(id, &error);
                return;
            }
        }
        self.turn_machine(id);
    }

    /// Executes a request ahead of the log, proposes its effect and has its answer held.
    fn execute(&mut self, id: NodeId, attempt: Attempt, ask: Ask) {
        let Ask::Write { entry, leader_ack } = ask else { return };
        let timestamp_ms = (self.now / 1000) as i64;
        let Some(database) = self.node_mut(id).process.as_mut().and_then(|process| process.database.as_mut()) else {
            self.answer_client(id, attempt, End::Failed);
            return;
        };
        let partition = database.partition;
        let executed = match database.machine.execute(&entry, timestamp_ms) {
            Ok(Some(executed)) => executed,
            Ok(None) => {
                self.answer_client(id, attempt, End::Failed);
                return;
            }
            Err(error) => {
                self.machine_failed(id, &format!("executing {entry:?}: {error}"));
                return;
            }
        };
        let wrote = executed.wrote;
        // An answer that shows what others wrote waits for the commit, whatever it asked for.
        let committed = !(leader_ack && wrote);
        let (answer, until, before, reign) = (executed.answer, executed.until, executed.before, executed.reign);
        let ticket = self.wait(id, Waiting::Write { attempt, answer, until, before, wrote, committed });
        for (base, batches) in executed.proposals {
            self.tell(id, Input::Partition(partition, partition::Input::Propose(Proposal { reign, base, batches })));
        }
        let ack = if committed { partition::AckPolicy::Committed } else { partition::AckPolicy::Leader };
        self.tell(id, Input::Partition(partition, partition::Input::Hold { ticket, reign, until, wrote, ack }));
    }

    /// The machine has stopped, and its process with it.
    pub(super) fn machine_failed(&mut self, id: NodeId, error: &str) {
        let excused = self.node(id).may_fail();
        if !self.see(Observation::MachineStopped { node: id, error: error.to_owned(), excused }) {
            return;
        }
        let power = self.node(id).doom.is_some_and(|doom| doom.power);
        self.trace.note(self.now, &id, || format!("node {id}: the state machine stops: {error}"));
        self.die(id, power);
    }

    /// The machine tells the host something, behind what it has told before.
    pub(super) fn tell(&mut self, id: NodeId, input: Input) {
        let (now, takes) = (self.now, self.rng.range(1, 80));
        let Some(process) = self.node_mut(id).process.as_mut() else { return };
        let when = (now + takes).max(process.tells_until);
        process.tells_until = when;
        self.later(id, when, AtNode::Tell { input });
    }
}
