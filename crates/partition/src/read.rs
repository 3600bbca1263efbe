//! Reads that wait: for their leader's confirmation, then for their index to be published here; or for a position that they asked for.

use std::collections::{BTreeMap, BTreeSet};

use highwater_log::{LogError, LogStore};
use highwater_replica::{self as replica, ReadError};
use highwater_wire::{Epoch, Millis, Offset};

use crate::effect::{Effect, Outcome};
use crate::input::Ticket;
use crate::partition::Partition;

/// Waiting reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Reads {
    /// Asked of the replica, not answered yet.
    confirming: BTreeSet<Ticket>,
    /// Have an index, which is not published yet.
    indexed: BTreeMap<(Offset, Ticket), ()>,
    /// Want a position.
    at_least: BTreeMap<Ticket, (Option<Epoch>, Offset)>,
}

impl Reads {
    pub(crate) fn at_least(&mut self, ticket: Ticket, epoch: Option<Epoch>, until: Offset) {
        self.at_least.insert(ticket, (epoch, until));
    }

    pub(crate) fn forget(&mut self, ticket: Ticket) {
        self.confirming.remove(&ticket);
        self.indexed.retain(|(_, waiting), ()| *waiting != ticket);
        self.at_least.remove(&ticket);
    }

    pub(crate) fn drain_tickets(&mut self) -> Vec<Ticket> {
        let mut tickets: Vec<Ticket> = std::mem::take(&mut self.confirming).into_iter().collect();
        tickets.extend(std::mem::take(&mut self.indexed).into_keys().map(|(_, ticket)| ticket));
        tickets.extend(std::mem::take(&mut self.at_least).into_keys());
        tickets
    }
}

impl<L: LogStore> Partition<L> {
    pub(crate) fn read(
        &mut self,
        now: Millis,
        ticket: Ticket,
        out: &mut Vec<Effect<L::FlushJob>>,
    ) -> Result<(), LogError> {
        self.reads.confirming.insert(ticket);
        self.drive(now, replica::Input::Read(ticket.0), out)
    }

    /// The replica has an index, or none can be had. Whoever waits no more was forgotten.
    pub(crate) fn read_confirmed(
        &mut self,
        ticket: Ticket,
        result: Result<Offset, ReadError>,
        out: &mut Vec<Effect<L::FlushJob>>,
    ) {
        // A held answer that only looked asks the same question.
        let held = match &result {
            Ok(_) => self.holds.confirmed(ticket),
            Err(error) if self.holds.unconfirmed(ticket) => {
                out.push(Effect::Answer(ticket, Outcome::Lost(error.clone())));
                true
            }
            Err(_) => false,
        };
        if held || !self.reads.confirming.remove(&ticket) {
            return;
        }
        match result {
            Ok(index) => {
                self.reads.indexed.insert((index, ticket), ());
            }
            Err(error) => out.push(Effect::Answer(ticket, Outcome::Lost(error))),
        }
    }

    /// Answers the reads whose index or position is published, and those whose position will never be.
    pub(crate) fn release_reads(&mut self, out: &mut Vec<Effect<L::FlushJob>>) {
        if let Some(published) = self.driver.published() {
            while let Some(entry) = self.reads.indexed.first_entry()
                && entry.key().0 <= published
            {
                let ((_, ticket), ()) = entry.remove_entry();
                out.push(Effect::Answer(ticket, Outcome::Done(self.position(published))));
            }
        }
        let decided: Vec<(Ticket, Outcome)> = self
            .reads
            .at_least
            .iter()
            .filter_map(|(ticket, (epoch, until))| Some((*ticket, self.reaches(*epoch, *until)?)))
            .collect();
        for (ticket, outcome) in decided {
            self.reads.at_least.remove(&ticket);
            out.push(Effect::Answer(ticket, outcome));
        }
    }

    /// Whether the position is published (*done*), can never be (*truncated*: something committed contradicts it), or is not there yet (`None`).
    ///
    /// A position (e, x) says that the entry before x is of epoch e. It is contradicted if the committed log has another epoch there, or if
    /// it does not reach x and its last committed entry is already of a later epoch than e, since epochs never fall along a log.
    fn reaches(&self, epoch: Option<Epoch>, until: Offset) -> Option<Outcome> {
        let (shape, hw) = (self.log.shape(), self.replica.hw());
        let found = shape.epoch_before(until.clamp(shape.start, hw.max(shape.start)));
        if until <= hw {
            // Before `start` only the offset is known any more, and everything there is committed.
            if until >= shape.start && found != epoch {
                return Some(Outcome::Truncated { found });
            }
            let published = self.driver.published().filter(|published| until <= *published)?;
            return Some(Outcome::Done(self.position(published)));
        }
        (found > epoch).then_some(Outcome::Truncated { found })
    }
}
