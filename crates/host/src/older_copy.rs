//! Ending a node's part whose folder is an older copy of itself (docs/protocol.md section 9).
//!
//! Two tell it so: a voter of the metadata that has seen a later start of this folder, and the coordinator, to whom a later one has registered. Either names
//! the incarnation that it refuses, and one that is not this process's means nothing: it answers a message that an earlier process sent.
//!
//! From then on the node neither votes, leads, follows nor serves. It remembers that, durably, before all else: the copy would otherwise have one start more each
//! time that somebody tries it again, until it outnumbers the true folder's and is believed.

use highwater_wire::{Body, Envelope, PartitionId};

use crate::api::{Effect, Folders};
use crate::databases::Database;
use crate::host::{Host, Job};
use crate::registration::Registration;

/// What a node says of itself then.
pub(crate) const OLDER_COPY: &str = "this node's data folder is an older copy of itself: the cluster has seen a later start of it. The copy lacks \
     what the node has promised and stored since, so it takes part in nothing: it does not vote, lead, follow or serve. Stop this process and put \
     the node's newest data folder back; no start of the copy will be accepted. If this folder is the newest and was never copied, somebody has registered a \
     start in its name: see `highwater node adopt --help`";

impl<F: Folders> Host<F> {
    /// Another voter says that it has seen a later incarnation of one of this node's.
    pub(crate) fn refused_by_voter(&mut self, envelope: &Envelope, out: &mut Vec<Effect<Job<F>>>) {
        let Body::OlderCopy { refused, newest } = envelope.body else { return };
        let of_this_process = refused == self.me.incarnation && self.voters.contains(&envelope.sender.peer);
        if of_this_process && refused != newest && self.registration != Registration::Refused {
            let later = format!(
                "{OLDER_COPY} (node {} knows of start {} with random part {:016x})",
                envelope.sender.peer.node, newest.starts, newest.random
            );
            self.retire(later, out);
        }
    }

    /// This node takes part in nothing more, for that reason.
    pub(crate) fn retire(&mut self, reason: String, out: &mut Vec<Effect<Job<F>>>) {
        assert_ne!(self.registration, Registration::Refused, "a node retires once");
        self.registration = Registration::Refused;
        if !self.state.older_copy {
            self.state.older_copy = true;
            out.push(Effect::Persist(self.state.clone()));
        }
        self.halt_metadata(reason.clone(), out);
        let open: Vec<PartitionId> = self.databases.keys().copied().collect();
        for id in open {
            if let Some(Database::Open(partition)) = self.databases.get_mut(&id) {
                let mut effects = Vec::new();
                partition.stop(&reason, &mut effects);
                self.database_effects(id, effects, out);
            }
        }
        let assigned = self.view.partitions().filter(|record| record.replicas.contains(&self.me.peer));
        for record in assigned {
            // Whoever asks for a database that was not opened yet hears why it never will be.
            self.databases.entry(record.id).or_insert_with(|| {
                out.push(Effect::Halted(record.id, reason.clone()));
                Database::Closed(reason.clone())
            });
        }
    }
}
