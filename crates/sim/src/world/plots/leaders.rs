//! Plots about who leads.

use highwater_host::Input;
use highwater_log::mem::{Fault as DiskFault, Op};
use highwater_partition::Command;
use highwater_replica::Role;

use super::World;
use crate::faults::Fault;
use crate::world::node::Work;

impl World {
    /// The leader is cut off until another has led for a while, and its connections have ended. All that it knows of the others afterwards is what it asks them.
    pub(super) fn replaced_leader(&mut self, act: u32) -> bool {
        let node = self.staged().node;
        match act {
            0 => self.cast_leader(),
            1 => {
                self.cut_off(node);
                true
            }
            2 => self.another_leads(),
            _ => {
                let quiet = self.counted.operations >= self.operations_min()
                    && self.seats.iter().all(|seat| seat.call.is_none());
                quiet && self.waited(2_000_000) && self.end_plot()
            }
        }
    }

    /// The leader's log cannot be written any more. Its process lives on, and never recovers.
    pub(super) fn halted_leader(&mut self, act: u32) -> bool {
        let node = self.staged().node;
        match act {
            0 => self.cast_leader(),
            1 => {
                let Some(database) = self.database() else { return false };
                self.harm(node, Fault::ReadError);
                let fault = DiskFault { op: Some(Op::Write), after: 0, full: false, for_ever: true, short: false };
                self.node(node).disk.folder(database).fail(fault);
                true
            }
            _ => {
                let halted = self.replica_of(node).is_some_and(|partition| partition.halted().is_some());
                halted && self.staged().lost.insert(node) && self.end_plot()
            }
        }
    }

    /// The leader's state machine stops. Its process lives on, and never recovers.
    pub(super) fn stopped_machine(&mut self, act: u32) -> bool {
        let node = self.staged().node;
        match act {
            0 => self.cast_leader(),
            _ => {
                let Some(partition) = self.database() else { return false };
                self.harm(node, Fault::ReadError);
                if let Some(database) =
                    self.node_mut(node).process.as_mut().and_then(|process| process.database.as_mut())
                {
                    database.stopped = true;
                }
                self.step(node, Input::MachineStopped(partition, "it was ordered to".to_owned()));
                self.staged().lost.insert(node);
                self.end_plot()
            }
        }
    }

    /// A leader that is cut off has entries that nobody else has, and refuses the next: its machine is to be rewound to the log's end, and has not begun when it learns that
    /// another leads, by whom those entries are cut.
    pub(super) fn cut_while_rewinding(&mut self, act: u32) -> bool {
        let node = self.staged().node;
        let ahead =
            self.replica_of(node).is_some_and(|partition| partition.replica().shape().end > partition.replica().hw());
        match act {
            0 => self.cast_leader(),
            1 => {
                self.silence(node);
                true
            }
            2 => {
                let database = self.node(node).process.as_ref().and_then(|process| process.database.as_ref());
                let rewinds = |work: &Work| matches!(work, Work::Command(Command::Rewind { .. }));
                let rewinds = database.is_some_and(|database| database.work.iter().any(rewinds));
                if !ahead || !rewinds {
                    return false;
                }
                self.staged().holds = Some(node);
                true
            }
            3 if self.another_leads() => {
                self.network.heal();
                true
            }
            3 => false,
            4 => {
                let leads = |role| matches!(role, Role::Leader { .. });
                self.replica_of(node).is_some_and(|partition| !leads(partition.replica().role()))
            }
            5 => self.waited(100_000) && self.end_plot(),
            _ => false,
        }
    }
}
