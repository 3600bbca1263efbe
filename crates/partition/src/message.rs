//! Messages: what only the log's bytes show is judged here, before the replica decides.
//!
//! A replica knows its log by its outline, and so not where one batch ends and the next begins. A transaction is one batch: HW within it would show
//! half of it, and a cut would leave half of it. So an acknowledgement that raises HW and a cut that a leader asks for must lie between batches; others
//! are rejected like what the replica rejects.

use highwater_log::{LogError, LogStore};
use highwater_replica as replica;
use highwater_wire::{Body, Envelope, Epoch, Millis, Offset, Unfit, batch};

use crate::effect::Effect;
use crate::partition::Partition;

impl<L: LogStore> Partition<L> {
    /// The committed record names this epoch.
    pub fn recorded(&mut self, epoch: Epoch) {
        self.replica.recorded(epoch);
    }

    /// A batch that finds no room is treated as lost: the stream falls silent, is opened anew, and goes on once there is space.
    pub(crate) fn message(
        &mut self,
        now: Millis,
        envelope: Envelope,
        out: &mut Vec<Effect<L::FlushJob>>,
    ) -> Result<(), LogError> {
        if let Body::Batch { batches, .. } = &envelope.body
            && self.replica.takes_batch(&envelope)
        {
            match self.log.reserve(batches.len()) {
                Err(LogError::Full(_)) => return Ok(()),
                other => other?,
            }
        }
        if let Err(unfit) = self.judge(&envelope)? {
            let mut effects = Vec::new();
            self.replica.reject_message(&envelope, unfit, &mut effects);
            return self.perform(effects, out);
        }
        self.drive(now, replica::Input::Message(envelope), out)
    }

    fn judge(&self, envelope: &Envelope) -> Result<Result<(), Unfit>, LogError> {
        match &envelope.body {
            Body::Ack { leo, .. } if *leo > self.replica.hw() && self.replica.ack_counts(envelope) => {
                let between = self.lies_between_batches(*leo)?;
                Ok(Unfit::unless(between, "an acknowledgement ends with a batch", leo))
            }
            Body::Diverge { .. } => match self.replica.cut_asked(envelope) {
                Some(to) => {
                    let between = self.lies_between_batches(to)?;
                    Ok(Unfit::unless(between, "logs part between batches", to))
                }
                None => Ok(Ok(())),
            },
            _ => Ok(Ok(())),
        }
    }

    /// Whether a batch begins at that offset, or the log begins or ends there. What lies outside the log is for the replica to judge.
    fn lies_between_batches(&self, offset: Offset) -> Result<bool, LogError> {
        let shape = self.log.shape();
        if offset <= shape.start || offset >= shape.end {
            return Ok(true);
        }
        let header = batch::header(&self.log.read(offset, 1)?)
            .map_err(|error| LogError::Poisoned(format!("a batch read back is damaged: {error}")))?;
        Ok(header.base == offset)
    }
}
