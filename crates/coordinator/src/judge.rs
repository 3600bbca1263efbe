//! Judging what arrived by what is on record, before anything is done about it.
//!
//! What no honest node could have sent, however late it arrives, is rejected: it changes nothing, is proposed to nobody, and the connection that it came on
//! is closed. Most of it the metadata would find void as well, but only after it had been written to every voter's log.
//!
//! | Says | Rejected if |
//! |---|---|
//! | anything of a replica on record | its epoch is far above the greatest one known of that partition |
//! | `Register` | its start counter is far above the one that the folder registered last |
//! | `ChangeSet` of the record's leader, at the record's version | the rule has no ISR, the members are not replicas on record, lack the leader or are fewer than the minimum, or others were asked for at this very version |

use highwater_wire::check::{EPOCH_JUMP_MAX, STARTS_JUMP_MAX};
use highwater_wire::{Body, CommitRule, Envelope, Epoch, PeerId, Sender, Unfit, Version};

use crate::command::Command;
use crate::driver::Coordinator;
use crate::metadata::Metadata;
use crate::record::{PartitionRecord, sorted};

impl Coordinator {
    /// Whether an honest node can have sent this.
    pub(crate) fn judge(&self, envelope: &Envelope, metadata: &Metadata) -> Result<(), Unfit> {
        let sender = envelope.sender;
        if let Body::Register { .. } = &envelope.body {
            return judge_starts(sender, metadata);
        }
        let Some(record) = metadata.partition(envelope.partition) else { return Ok(()) };
        if metadata.incarnation(sender.peer) != Some(sender.incarnation) || !record.replicas.contains(&sender.peer) {
            return Ok(()); // Nothing that it says counts.
        }
        self.judge_leap(record, envelope.epoch)?;
        match &envelope.body {
            Body::Refused { promised } => self.judge_leap(record, Some(*promised)),
            Body::ChangeSet { version, members } => self.judge_change(record, envelope, *version, members),
            _ => Ok(()),
        }
    }

    fn judge_leap(&self, record: &PartitionRecord, epoch: Option<Epoch>) -> Result<(), Unfit> {
        let known = record.epoch.max(self.epochs_heard.get(&record.id).copied());
        let near = epoch.is_none_or(|epoch| epoch.0 <= known.map_or(0, |known| known.0).saturating_add(EPOCH_JUMP_MAX));
        Unfit::unless(near, "epochs rise by at most 2^20 unseen", (known, epoch))
    }

    fn judge_change(
        &self,
        record: &PartitionRecord,
        envelope: &Envelope,
        version: Version,
        members: &[PeerId],
    ) -> Result<(), Unfit> {
        let Sender { peer, incarnation } = envelope.sender;
        let leads = record.leader == Some((peer, incarnation)) && record.epoch == envelope.epoch;
        if !leads || record.version != version {
            return Ok(()); // It is answered with the record.
        }
        let CommitRule::Isr { min } = record.rule() else {
            return Err(Unfit::new("only an ISR changes by its leader's word", record.rule()));
        };
        let enough = members.len() >= min as usize && members.contains(&peer);
        let replicas = sorted(members) && members.iter().all(|member| record.replicas.contains(member));
        Unfit::unless(enough && replicas, "an ISR is of replicas, with their leader, and keeps its minimum", members)?;
        let another = self.changing.get(&record.id).is_some_and(|(asked, _)| match asked {
            Command::ChangeSet { version: of, epoch, members: others, .. } => {
                *of == version && Some(*epoch) == envelope.epoch && others != members
            }
            _ => false,
        });
        Unfit::unless(!another, "a leader proposes one set for each version", members)
    }
}

fn judge_starts(sender: Sender, metadata: &Metadata) -> Result<(), Unfit> {
    let Some(known) = metadata.registered(sender.peer) else { return Ok(()) };
    let near = sender.incarnation.starts <= known.starts.saturating_add(STARTS_JUMP_MAX);
    Unfit::unless(near, "start counters rise by at most 2^20 unseen", (known.starts, sender.incarnation.starts))
}

#[cfg(test)]
#[path = "tests/judge.rs"]
mod tests;
