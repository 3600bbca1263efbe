//! The state machine's own thread: it takes up what it was told one thing at a time, some while later, and tells the host in order.

use highwater_host::Input;
use highwater_partition::{self as partition, Command, Proposal};
use highwater_wire::NodeId;

use super::World;
use super::event::{AtNode, Attempt};
use super::node::{Waiting, Work};
use crate::clients::{Ask, End};

impl World {
    /// Sees to it that the machine takes up what it was told.
    pub(super) fn turn_machine(&mut self, id: NodeId) {
        let after = if self.rng.permille(20) { self.rng.range(2_000, 60_000) } else { self.rng.range(5, 200) };
        let when = self.now + after;
        let Some(database) = self.node_mut(id).process.as_mut().and_then(|process| process.database.as_mut()) else {
            return;
        };
        if !database.turning && !database.work.is_empty() {
            database.turning = true;
            self.later(id, when, AtNode::MachineTurn);
        }
    }

    /// The machine takes up one thing.
    pub(super) fn machine_turn(&mut self, id: NodeId) {
        let Some(database) = self.node_mut(id).process.as_mut().and_then(|process| process.database.as_mut()) else {
            return;
        };
        database.turning = false;
        let (partition, machine) = (database.partition, &mut database.machine);
        let tells = |input| Input::Partition(partition, input);
        let result = match database.work.pop_front() {
            None => Ok(None),
            Some(Work::Command(Command::Apply { from, to, batches, .. })) => {
                machine.apply(from, to, &batches).map(|()| Some(tells(partition::Input::Applied(to))))
            }
            Some(Work::Command(Command::Lead { reign, end })) => machine.lead(reign, end).map(|()| None),
            Some(Work::Command(Command::Rewind { to })) => {
                machine.rewind(to).map(|at| Some(tells(partition::Input::Rewound(at))))
            }
            Some(Work::Command(Command::Publish { .. })) => Err("a publication waited in line".to_owned()),
            Some(Work::Request { attempt, ask }) => {
                self.execute(id, attempt, ask);
                Ok(None)
            }
        };
        match result {
            Ok(Some(input)) => self.tell(id, input),
            Ok(None) => {}
            Err(error) => {
                self.break_law("machine-is-driven-in-order", format!("node {id}: {error}"));
                return;
            }
        }
        self.turn_machine(id);
    }

    /// Executes a request ahead of the log, proposes its effect and has its answer held.
    fn execute(&mut self, id: NodeId, attempt: Attempt, ask: Ask) {
        let Ask::Write { entry, leader_ack } = ask else { return };
        let timestamp_ms = (self.now / 1000) as i64;
        let executed = self
            .node_mut(id)
            .process
            .as_mut()
            .and_then(|process| process.database.as_mut())
            .and_then(|database| Some((database.partition, database.machine.execute(&entry, timestamp_ms)?)));
        let Some((partition, executed)) = executed else {
            self.answer_client(id, attempt, End::Failed);
            return;
        };
        let wrote = executed.proposal.is_some();
        // An answer that shows what others wrote waits for the commit, whatever it asked for.
        let committed = !(leader_ack && wrote);
        let (answer, until, before, reign) = (executed.answer, executed.until, executed.before, executed.reign);
        let ticket = self.wait(id, Waiting::Write { attempt, answer, until, before, wrote, committed });
        if let Some((base, batches)) = executed.proposal {
            self.tell(id, Input::Partition(partition, partition::Input::Propose(Proposal { reign, base, batches })));
        }
        let ack = if committed { partition::AckPolicy::Committed } else { partition::AckPolicy::Leader };
        self.tell(id, Input::Partition(partition, partition::Input::Hold { ticket, reign, until, wrote, ack }));
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
