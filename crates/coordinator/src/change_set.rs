//! A change of the in-sync set (docs/protocol.md section 7), the coordinator's side.
//!
//! It is proposed only if epoch and version are the record's and the record's leader asks, in the incarnation that the record names. Otherwise the
//! answer is the record at once; of what was proposed, the announcement once it is applied. The leader repeats the same proposal until it has
//! learned of a higher version, so a lost answer is asked for again.

use highwater_wire::{Epoch, PeerId, Sender, Version};

use crate::command::Command;
use crate::driver::{Action, Coordinator};
use crate::record::{PartitionRecord, sorted};

impl Coordinator {
    /// `ChangeSet` arrived from a registered replica of the record.
    pub(crate) fn change_set(
        &mut self,
        record: &PartitionRecord,
        sender: Sender,
        (epoch, version): (Option<Epoch>, Version),
        members: &[PeerId],
        out: &mut Vec<Action>,
    ) {
        let leads = record.leader == Some((sender.peer, sender.incarnation)) && record.epoch == epoch;
        let (true, Some(epoch)) = (leads && record.version == version && sorted(members), epoch) else {
            return self.tell(record, sender.peer.node, out);
        };
        let command = Command::ChangeSet { id: record.id, version, epoch, members: members.to_vec() };
        let under_way =
            self.changing.get(&record.id).is_some_and(|(asked, at)| *asked == command && !self.overdue(*at));
        if !under_way {
            self.changing.insert(record.id, (command.clone(), self.now));
            out.push(Action::Propose(command));
        }
    }
}
