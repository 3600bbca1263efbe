//! Answers that wait: for HW to pass what they depend on, or for the leader's own flush.
//!
//! A held answer ends in exactly one way. *Done*: HW has passed it while its epoch was led here, or it is found committed under that very epoch
//! afterwards. *Refused*: its proposal is not in the log. *Unknown*: its proposal was appended, and leadership ended first. *Lost*: it only
//! looked at what may be cut now. An answer that only looked is computed like a linearizable read from the newest state, so it needs what such a read
//! needs: a leader that was deposed without knowing it would show a state that others have already written over. Its leadership is confirmed
//! by a round asked for after the hold came. Nothing is ever answered *done* on the strength of an offset alone: an offset may be filled again by
//! a later epoch, or by a later reign of the same one.

use std::collections::BTreeMap;

use highwater_log::{LogError, LogStore};
use highwater_replica::{self as replica, ReadError, Role};
use highwater_wire::{Epoch, Millis, Offset, Position};

use crate::driver::Refusal;
use crate::effect::{Effect, Outcome};
use crate::input::{AckPolicy, Ticket};
use crate::machine::Reign;
use crate::partition::Partition;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Hold {
    reign: Reign,
    wrote: bool,
}

/// Held answers, by the offset they wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Holds {
    for_hw: BTreeMap<(Offset, Ticket), Hold>,
    for_flush: BTreeMap<(Offset, Ticket), Hold>,
    /// Answers that only looked, before leadership is confirmed.
    confirming: BTreeMap<Ticket, (Offset, Hold)>,
}

impl Holds {
    pub(crate) fn forget(&mut self, ticket: Ticket) {
        self.for_hw.retain(|(_, waiting), _| *waiting != ticket);
        self.for_flush.retain(|(_, waiting), _| *waiting != ticket);
        self.confirming.remove(&ticket);
    }

    /// Leadership was confirmed for an answer that only looked: it waits for HW now. False if no such answer waits.
    pub(crate) fn confirmed(&mut self, ticket: Ticket) -> bool {
        let Some((until, hold)) = self.confirming.remove(&ticket) else { return false };
        let before = self.for_hw.insert((until, ticket), hold);
        assert!(before.is_none(), "a ticket waits once");
        true
    }

    /// Leadership was not confirmed for it. False if no such answer waits.
    pub(crate) fn unconfirmed(&mut self, ticket: Ticket) -> bool {
        self.confirming.remove(&ticket).is_some()
    }

    pub(crate) fn drain_tickets(&mut self) -> Vec<Ticket> {
        let (for_hw, for_flush) = (std::mem::take(&mut self.for_hw), std::mem::take(&mut self.for_flush));
        let confirming = std::mem::take(&mut self.confirming).into_keys();
        for_hw.into_keys().chain(for_flush.into_keys()).map(|(_, ticket)| ticket).chain(confirming).collect()
    }
}

impl<L: LogStore> Partition<L> {
    pub(crate) fn hold(
        &mut self,
        now: Millis,
        ticket: Ticket,
        (reign, until): (Reign, Offset),
        (wrote, ack): (bool, AckPolicy),
        out: &mut Vec<Effect<L::FlushJob>>,
    ) -> Result<(), LogError> {
        if let Some(refusal) = self.driver.refusal(reign, until) {
            let outcome = match refusal {
                _ if !wrote => Outcome::Lost(ReadError::LeadershipLost),
                Refusal::Replica(error) => Outcome::Refused(error.clone()),
                Refusal::Full(reason) => Outcome::Full(reason.clone()),
            };
            out.push(Effect::Answer(ticket, outcome));
        } else if self.leads(reign.epoch) && until <= self.log.shape().end && !wrote {
            self.holds.confirming.insert(ticket, (until, Hold { reign, wrote }));
            return self.drive(now, replica::Input::Read(ticket.0), out);
        } else if self.leads(reign.epoch) && until <= self.log.shape().end {
            let waiting = match ack {
                AckPolicy::Leader => &mut self.holds.for_flush,
                AckPolicy::Committed => &mut self.holds.for_hw,
            };
            waiting.insert((until, ticket), Hold { reign, wrote });
        } else {
            let outcome = self.outcome_without_leadership(Hold { reign, wrote }, until);
            out.push(Effect::Answer(ticket, outcome));
        }
        Ok(())
    }

    /// Releases what HW or the flush has passed.
    pub(crate) fn release_holds(&mut self, out: &mut Vec<Effect<L::FlushJob>>) {
        let (hw, flushed) = (self.replica.hw(), self.log.shape().flushed);
        while let Some(entry) = self.holds.for_hw.first_entry()
            && entry.key().0 <= hw
        {
            let ((until, ticket), hold) = entry.remove_entry();
            assert!(self.leads(hold.reign.epoch), "holds of an epoch end with its leadership");
            out.push(Effect::Answer(ticket, Outcome::Done(self.position(until))));
        }
        while let Some(entry) = self.holds.for_flush.first_entry()
            && entry.key().0 <= flushed
        {
            let ((until, ticket), _) = entry.remove_entry();
            out.push(Effect::Answer(ticket, Outcome::Done(self.position(until))));
        }
    }

    /// Leadership changed: answers everybody who waited under an epoch that is not `leads`.
    pub(crate) fn lose_holds(&mut self, leads: Option<Epoch>, out: &mut Vec<Effect<L::FlushJob>>) {
        for (ticket, (until, hold)) in std::mem::take(&mut self.holds.confirming) {
            out.push(Effect::Answer(ticket, self.outcome_without_leadership(hold, until)));
        }
        for waiting in [std::mem::take(&mut self.holds.for_hw), std::mem::take(&mut self.holds.for_flush)] {
            for ((until, ticket), hold) in waiting {
                assert_ne!(leads, Some(hold.reign.epoch), "an epoch is led once");
                let outcome = self.outcome_without_leadership(hold, until);
                out.push(Effect::Answer(ticket, outcome));
            }
        }
    }

    /// What is left to say of an answer whose epoch is not led here any more.
    fn outcome_without_leadership(&self, hold: Hold, until: Offset) -> Outcome {
        let position = Position { partition: self.id, epoch: Some(hold.reign.epoch), offset: until };
        let shape = self.log.shape();
        if !hold.wrote {
            Outcome::Lost(ReadError::LeadershipLost)
        } else if until >= shape.start && until <= self.replica.hw() && shape.epoch_before(until) == position.epoch {
            Outcome::Done(position)
        } else {
            Outcome::Unknown(position)
        }
    }

    fn leads(&self, wanted: Epoch) -> bool {
        matches!(self.replica.role(), Role::Leader { epoch, .. } if epoch == wanted)
    }
}
