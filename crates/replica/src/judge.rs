//! Judging what arrived by what this replica knows, before anything is done about it.
//!
//! A sender knows the cluster's secret, and may all the same be faulty or lie. What no honest replica or coordinator could have sent, however late it
//! arrives, is rejected: it changes nothing, and the connection that it came on is closed ([`Effect::Reject`]). What merely fits no question any more is
//! dropped, as ever. What can be seen by the message alone was judged before (`highwater_wire::check`).
//!
//! | Says | Rejected if |
//! |---|---|
//! | anything | its epoch, or its sender's start counter, is far above the greatest one known |
//! | `Lead` | another leads the same epoch here; or it appoints this process in an epoch that it did not promise, or has entries of; or it changes replicas or rule of the leader that is told |
//! | `Vote` | it is for an epoch that this replica never stood for |
//! | `Open` | it states entries of this leader's own epoch that this leader has not written |
//! | `Diverge` | following it would take away nothing, what is committed, or what is not there; the stream ends |
//! | `Ack` | it acknowledges what is not in this leader's log |
//! | `Batch` | it is not whole, sound and a continuation of this log (`follow`); the stream ends |

use highwater_wire::check::{EPOCH_JUMP_MAX, STARTS_JUMP_MAX};
use highwater_wire::{Body, Envelope, Epoch, Lead, Offset, Sender, Unfit};

use crate::Effect;
use crate::state::{Part, Replica};

impl Replica {
    /// Whether an honest sender can have sent this.
    pub(crate) fn judge(&self, envelope: &Envelope) -> Result<(), Unfit> {
        let sender = envelope.sender;
        self.judge_starts(sender)?;
        self.judge_leap(envelope.epoch)?;
        if let Body::Refused { promised } = &envelope.body {
            self.judge_leap(Some(*promised))?;
        }
        let Some(epoch) = envelope.epoch.filter(|epoch| Some(*epoch) >= self.hard.promised) else { return Ok(()) };
        let own = Some(epoch) == self.hard.promised;
        match &envelope.body {
            Body::Lead(lead) => self.judge_lead(sender, epoch, lead),
            Body::Vote { granted: true, pre: false } if self.voters().is_some() => {
                Unfit::unless(own, "a vote is for an epoch that its candidate stands for", (epoch, self.hard.promised))
            }
            Body::Open { end, last_epoch, .. } if own => self.judge_open(epoch, *end, *last_epoch),
            Body::Diverge { .. } => match self.cut_asked(envelope) {
                Some(to) => self.judge_cut(to),
                None => Ok(()),
            },
            Body::Ack { leo, .. } if self.ack_counts(envelope) => {
                let held = *leo <= self.log.end;
                Unfit::unless(held, "an acknowledgement is of what the leader's log holds", (leo, self.log.end))
            }
            _ => Ok(()),
        }
    }

    /// What was judged unfit changes nothing, but that a stream whose leader sends such things ends. It is opened anew at the next heartbeat.
    pub(crate) fn reject(&mut self, envelope: &Envelope, unfit: Unfit, out: &mut Vec<Effect>) {
        if matches!(envelope.body, Body::Diverge { .. }) && self.cut_asked(envelope).is_some() {
            self.end_stream();
        }
        out.push(Effect::Reject(envelope.sender.peer.node, unfit));
    }

    /// As [`Replica::step`] does with a message that it finds unfit, for what only the log's bytes show.
    pub fn reject_message(&mut self, envelope: &Envelope, unfit: Unfit, out: &mut Vec<Effect>) {
        let before = self.milestones();
        self.reject(envelope, unfit, out);
        self.check(before);
    }

    /// Where this message would have the log cut, if it answers the question that is out.
    pub fn cut_asked(&self, envelope: &Envelope) -> Option<Offset> {
        let Body::Diverge { stream: id, end, last_epoch, epoch, stop } = &envelope.body else { return None };
        let Part::Follower(following) = &self.part else { return None };
        let stream = following.stream.as_ref()?;
        let answers = envelope.epoch == self.hard.promised
            && following.leader == envelope.sender.peer
            && stream.id == *id
            && !stream.live
            && stream.asked == (*end, *last_epoch);
        answers.then(|| self.where_to_cut(*epoch, *stop))
    }

    /// Whether this message is an acknowledgement that this leader counts.
    pub fn ack_counts(&self, envelope: &Envelope) -> bool {
        let Body::Ack { stream, .. } = &envelope.body else { return false };
        let Some(leading) = self.part.leading().filter(|_| envelope.epoch == self.hard.promised) else { return false };
        let Sender { peer, incarnation } = envelope.sender;
        leading.peers.get(&peer).is_some_and(|peer| {
            peer.accepted && peer.stream.is_some_and(|(process, id, _)| (process, id) == (incarnation, *stream))
        })
    }

    /// Whether this message brings entries that would be appended.
    pub fn takes_batch(&self, envelope: &Envelope) -> bool {
        let Body::Batch { stream: id, base, batches, .. } = &envelope.body else { return false };
        let Part::Follower(following) = &self.part else { return false };
        let live = following.stream.as_ref().is_some_and(|stream| stream.live && stream.id == *id);
        let own = envelope.epoch == self.hard.promised && following.leader == envelope.sender.peer;
        live && own && *base == self.log.end && !batches.is_empty()
    }

    fn judge_starts(&self, sender: Sender) -> Result<(), Unfit> {
        let Some(newest) = self.hard.seen.get(&sender.peer) else { return Ok(()) };
        let near = sender.incarnation.starts <= newest.starts.saturating_add(STARTS_JUMP_MAX);
        Unfit::unless(near, "start counters rise by at most 2^20 unseen", (newest.starts, sender.incarnation.starts))
    }

    fn judge_leap(&self, epoch: Option<Epoch>) -> Result<(), Unfit> {
        let known = self.hard.promised.max(self.heard_epoch);
        let near = epoch.is_none_or(|epoch| epoch.0 <= known.map_or(0, |known| known.0).saturating_add(EPOCH_JUMP_MAX));
        Unfit::unless(near, "epochs rise by at most 2^20 unseen", (known, epoch))
    }

    /// `sender` says that `lead` is who leads `epoch`. What `hear_lead` does not heed is not judged.
    fn judge_lead(&self, sender: Sender, epoch: Epoch, lead: &Lead) -> Result<(), Unfit> {
        if let Some(voters) = self.voters() {
            let speaks_for_itself = sender.peer == lead.leader && sender.incarnation == lead.incarnation;
            if !speaks_for_itself || !voters.contains(&lead.leader) || lead.leader == self.me {
                return Ok(());
            }
        }
        let own = Some(epoch) == self.hard.promised;
        if lead.leader.node != self.me.node {
            let counted = lead.replicas.contains(&self.me) && lead.replicas.contains(&lead.leader);
            let other = match &self.part {
                Part::Leader(_) => Some(self.me),
                Part::Follower(following) => Some(following.leader).filter(|leader| *leader != lead.leader),
                Part::Idle | Part::Candidate { .. } => None,
            };
            return Unfit::unless(
                !(own && counted) || other.is_none(),
                "an epoch has one leader",
                (other, lead.leader),
            );
        }
        if lead.leader != self.me || lead.incarnation != self.incarnation {
            return Ok(());
        }
        match &self.part {
            Part::Leader(leading) if own => {
                let same = lead.set.rule == leading.committed.rule && lead.replicas == leading.replicas;
                Unfit::unless(same, "replicas and rule stay as they are", (lead.set.rule, lead.replicas.len()))
            }
            // A replica that was appointed in an epoch leads or has left it.
            _ if own && self.led == Some(epoch) => Ok(()),
            part => {
                let promised = own && self.answered && *part == Part::Idle;
                let empty = self.log.last_epoch() < Some(epoch);
                Unfit::unless(
                    promised && empty,
                    "an appointment is to an epoch that was promised",
                    (epoch, self.answered),
                )
            }
        }
    }

    /// A follower states a log that ends at `end`, in the epoch that is promised here.
    fn judge_open(&self, epoch: Epoch, end: Offset, last_epoch: Option<Epoch>) -> Result<(), Unfit> {
        let Some(leading) = self.part.leading() else { return Ok(()) };
        let written = last_epoch < Some(epoch)
            || last_epoch == self.log.last_epoch() && leading.epoch_start < end && end <= self.log.end;
        Unfit::unless(written, "entries of an epoch are its leader's", (end, last_epoch, self.log.end))
    }

    fn judge_cut(&self, to: Offset) -> Result<(), Unfit> {
        let (hw, end) = (self.hw, self.log.end);
        Unfit::unless(to >= hw, "what is committed is not cut", (to, hw))?;
        Unfit::unless(to >= self.log.start && to < end, "logs part where both have entries", (to, self.log.start, end))
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
