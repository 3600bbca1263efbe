//! Telling who leads: to all replicas on every change, to whoever asks, and as the answer to a change of the set. Always the committed record.

use highwater_wire::{Body, NodeId, Sender};

use crate::driver::{Action, Coordinator};
use crate::record::PartitionRecord;

impl Coordinator {
    /// Tells every replica of the record.
    pub(crate) fn announce(&self, record: &PartitionRecord, out: &mut Vec<Action>) {
        assert!(!record.replicas.is_empty(), "a partition has replicas");
        for replica in &record.replicas {
            self.tell(record, replica.node, out);
        }
    }

    /// Tells one node of the record; nothing before the first appointment.
    pub(crate) fn tell(&self, record: &PartitionRecord, node: NodeId, out: &mut Vec<Action>) {
        if let Some((epoch, lead)) = record.lead() {
            assert!(lead.lossy <= Some(epoch), "a lossy epoch on record is not a later one");
            out.push(Action::Send(node, self.envelope(record.id, Some(epoch), Body::Lead(lead))));
        }
    }

    /// A replica asks who leads. While a ballot is under way nobody is sent to a leader that is being replaced: it would be refused there, and ask
    /// again at once. One that has not promised may have missed the request (it may have been opened only now), so it is asked again.
    pub(crate) fn who_leads(&self, record: &PartitionRecord, sender: Sender, out: &mut Vec<Action>) {
        if self.ballots.contains_key(&record.id) {
            self.ask_again(record, sender.peer, out);
        } else {
            self.tell(record, sender.peer.node, out);
        }
    }
}
