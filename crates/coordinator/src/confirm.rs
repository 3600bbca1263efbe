//! Confirming a leader (docs/protocol.md section 11): yes, if the record's epoch is the asker's *and this coordinator's own leadership was confirmed
//! after it was asked*. A read of the metadata does both: when it is answered, everything committed before the question is applied here.
//!
//! A leader has one read under way; questions that arrive meanwhile wait for the next, which begins after they arrived. The last of them alone is
//! answered then: a newer round serves the older one's readers too.

use std::collections::BTreeMap;

use highwater_wire::{Body, Epoch, PartitionId, Sender};

use crate::driver::{Action, Coordinator};
use crate::metadata::Metadata;
use crate::record::PartitionRecord;

/// Questions and the reads that answer them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Confirms {
    last_read: u64,
    asked: BTreeMap<(PartitionId, Sender), Asked>,
}

/// What one leader asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asked {
    /// The number of the read under way.
    read: u64,
    /// What that read answers.
    question: Question,
    /// What the next one will answer.
    next: Option<Question>,
}

/// A leader's epoch and the number of its round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Question {
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
        let question = Question { epoch, round };
        match self.confirms.asked.get_mut(&(record.id, sender)) {
            Some(asked) if asked.question == question => {}
            Some(asked) => asked.next = Some(question),
            None => self.begin_read(record.id, sender, question, out),
        }
    }

    fn begin_read(&mut self, partition: PartitionId, sender: Sender, question: Question, out: &mut Vec<Action>) {
        self.confirms.last_read += 1;
        let read = self.confirms.last_read;
        let before = self.confirms.asked.insert((partition, sender), Asked { read, question, next: None });
        assert!(before.is_none(), "a leader has one read under way");
        out.push(Action::Read(read));
    }

    /// A read of the metadata was answered.
    pub(crate) fn read(&mut self, id: u64, confirmed: bool, metadata: &Metadata, out: &mut Vec<Action>) {
        assert!(id <= self.confirms.last_read, "only reads asked for are answered");
        let found = self.confirms.asked.iter().find(|(_, asked)| asked.read == id).map(|(key, asked)| (*key, *asked));
        let Some(((partition, sender), asked)) = found else { return };
        self.confirms.asked.remove(&(partition, sender));
        if let Some(next) = asked.next {
            self.begin_read(partition, sender, next, out);
        }
        let question = asked.question;
        let Some(record) = metadata.partition(partition).filter(|_| confirmed) else { return };
        let leads = record.leader == Some((sender.peer, sender.incarnation));
        if leads && record.epoch == question.epoch {
            let body = Body::Confirmed { round: question.round };
            out.push(Action::Send(sender.peer.node, self.envelope(record.id, question.epoch, body)));
        } else {
            self.tell(record, sender.peer.node, out);
        }
    }
}
