//! Judging what arrived by what only the node as a whole knows, before it is routed.
//!
//! | About a database | Rejected if |
//! |---|---|
//! | `Lead` of the epoch on record here | it names another leader, or another process of it, than the committed record |
//! | `Lead` to its own leader | its version is on record here with another set, or is far above what is on record |
//!
//! A record that is not applied here yet cannot be compared; a node that lies about it is a coordinator that lies (docs/fault-model.md).

use highwater_wire::{Body, Envelope, Lead, Unfit};

use crate::api::Folders;
use crate::host::Host;

/// By how much a version may exceed the one on record here: each is an entry of the metadata's log.
const VERSION_JUMP_MAX: u64 = 1 << 32;

impl<F: Folders> Host<F> {
    /// Whether an honest node can have sent this.
    pub(crate) fn judge(&self, envelope: &Envelope) -> Result<(), Unfit> {
        let Body::Lead(lead) = &envelope.body else { return Ok(()) };
        let Some(record) = self.view.partition(envelope.partition) else { return Ok(()) };
        let near = lead.version.0 <= record.version.0.saturating_add(VERSION_JUMP_MAX);
        Unfit::unless(near, "versions rise by at most 2^32 unseen", (record.version, lead.version))?;
        let on_record = envelope.epoch.is_some() && record.epoch == envelope.epoch;
        match record.lead().filter(|_| on_record) {
            Some((_, known)) => judge_record(lead, &known),
            None => Ok(()),
        }
    }
}

fn judge_record(lead: &Lead, known: &Lead) -> Result<(), Unfit> {
    let same = (lead.leader, lead.incarnation) == (known.leader, known.incarnation);
    Unfit::unless(same, "who leads is who is on record", (known.leader, lead.leader))?;
    let same = lead.version != known.version || lead.set == known.set;
    Unfit::unless(same, "a version of the record has one set", (known.version, &known.set, &lead.set))
}
