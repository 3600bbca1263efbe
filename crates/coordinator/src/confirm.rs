//! Confirming a leader (PROTOCOL.md section 11): yes, if the record's epoch is the asker's *and this coordinator's own leadership was confirmed
//! after it was asked*. A read of the metadata does both: when it is answered, everything committed before the question is applied here.
//!
//! Each question gets a read of its own, begun after it arrived; the same round asked again while its read is under way does not.

use std::collections::BTreeMap;

use highwater_wire::{Body, Epoch, PartitionId, Sender};

use crate::driver::{Action, Coordinator};
use crate::metadata::Metadata;
use crate::record::PartitionRecord;

/// Questions whose reads are under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Confirms {
    last_read: u64,
    asked: BTreeMap<u64, Question>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Question {
    partition: PartitionId,
    sender: Sender,
    epoch: Option<Epoch>,
    round: u64,
}

impl Coordinator {
    /// `Confirm` arrived from a registered replica of the record.
    pub(crate) fn confirm(
        &mut self,
        record: &PartitionRecord,
        sender: Sender,
        (epoch, round): (Option<Epoch>, u64),
        out: &mut Vec<Action>,
    ) {
        let question = Question { partition: record.id, sender, epoch, round };
        if self.confirms.asked.values().any(|asked| *asked == question) {
            return;
        }
        // An older round of the same leader needs no answer any more: the newer one serves its readers too.
        self.confirms.asked.retain(|_, asked| (asked.partition, asked.sender) != (record.id, sender));
        self.confirms.last_read += 1;
        let before = self.confirms.asked.insert(self.confirms.last_read, question);
        assert!(before.is_none(), "reads are numbered once");
        out.push(Action::Read(self.confirms.last_read));
    }

    /// A read of the metadata was answered.
    pub(crate) fn read(&mut self, id: u64, confirmed: bool, metadata: &Metadata, out: &mut Vec<Action>) {
        assert!(id <= self.confirms.last_read, "only reads asked for are answered");
        let Some(question) = self.confirms.asked.remove(&id) else { return };
        let Some(record) = metadata.partition(question.partition).filter(|_| confirmed) else { return };
        let leads = record.leader == Some((question.sender.peer, question.sender.incarnation));
        if leads && record.epoch == question.epoch {
            let body = Body::Confirmed { round: question.round };
            out.push(Action::Send(question.sender.peer.node, self.envelope(record.id, question.epoch, body)));
        } else {
            self.tell(record, question.sender.peer.node, out);
        }
    }
}
