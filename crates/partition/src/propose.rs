//! Appending what the machine has executed.
//!
//! The machine is the only proposer of its reign, so a proposal either fits exactly behind the log's end or is void. After a refusal the
//! machine holds something that will never be in the log: it is rewound to where the refused proposal began, brought up to the log's end
//! again, and told to lead in a new reign. Whatever it proposed in between falls with the reign.

use highwater_log::{LogError, LogStore};
use highwater_replica::ProposeError;
use highwater_wire::Millis;

use crate::driver::Refusal;
use crate::effect::Effect;
use crate::input::Proposal;
use crate::partition::Partition;

impl<L: LogStore> Partition<L> {
    pub(crate) fn propose(
        &mut self,
        now: Millis,
        proposal: Proposal,
        out: &mut Vec<Effect<L::FlushJob>>,
    ) -> Result<(), LogError> {
        let Proposal { reign, base, batches } = proposal;
        if !self.driver.reigns(reign) {
            let error = ProposeError::NotLeader { asked: reign.epoch, leader: self.replica.leader() };
            self.driver.refuse(reign, base, Refusal::Replica(error));
            return Ok(());
        }
        let room = match self.starved() {
            Some(reason) => Err(LogError::Full(reason.to_owned())),
            None => self.log.reserve(batches.len()),
        };
        let refusal = match room {
            Err(LogError::Full(reason)) => Refusal::Full(reason),
            Err(error) => return Err(error),
            Ok(()) => {
                let mut effects = Vec::new();
                match self.replica.propose(now, reign.epoch, base, batches, &mut effects) {
                    Ok(_) => return self.perform(effects, out),
                    Err(error) => Refusal::Replica(error),
                }
            }
        };
        self.driver.refuse(reign, base, refusal);
        self.driver.rewind(base, out);
        Ok(())
    }
}
