//! The database as its partition drives it: applying, leading, publishing.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use highwater_partition::{Reign, StateMachine};
use highwater_wire::record::Kind;
use highwater_wire::{Epoch, Offset};

use crate::apply::ApplyError;
use crate::commit::write_position;
use crate::core::Core;
use crate::database::Database;
use crate::error::MachineError;
use crate::rowlog::{OUTSIDE_TRANSACTION, Reader};
use crate::unfinished::Whole;

/// How long a procedure of the machine's own waits for the writer. Whoever has it is interrupted or is a transaction of bounded length.
pub(crate) const MACHINE_WAIT: Duration = Duration::from_secs(30);
/// How often something that found SQLite's lock taken is tried again at once.
const BUSY_TRIES: u32 = 30;
/// Committed transactions are put into one transaction of SQLite's up to about so many bytes of records.
const GROUP_BYTES: usize = 8 << 20;

impl StateMachine for Database {
    type Error = MachineError;

    fn applied(&self) -> Offset {
        self.applied.load(Ordering::Acquire)
    }

    fn apply(&self, from: Offset, to: Offset, batches: &Bytes, committed: bool) -> Result<(), MachineError> {
        assert!(from <= to, "a range has a beginning and an end");
        let mut core = self.acquire_machine(Instant::now() + MACHINE_WAIT)?;
        let core = &mut *core;
        assert!(core.reign.is_none(), "a leader executes and does not apply");
        let whole = core.unfinished.take(to, batches)?;
        let applied = self.apply_all(core, &whole, committed);
        if let Err(error) = &applied {
            core.failed.get_or_insert(error.to_string());
            tracing::error!(%error, from, to, "applying failed");
        }
        if committed {
            core.committed = core.committed.max(core.end);
        }
        applied?;
        self.checkpoint_if_large(core)
    }

    fn lead(&self, reign: Reign, end: Offset) -> Result<(), MachineError> {
        let mut core = self.acquire_machine(Instant::now() + MACHINE_WAIT)?;
        let core = &mut *core;
        assert!(core.reign.is_none(), "a reign ends before the next begins");
        assert!(core.end <= end, "{} is applied and the log ends at {end}", core.end);
        if core.end < end {
            // The log ends with entries of a transaction that its leader did not finish. Nobody will: their place is passed over.
            let epoch = core.unfinished.taken().1.or(core.epoch).unwrap_or(reign.epoch);
            let log_time_ms = core.log_time_ms;
            self.while_full(|| self.in_applier(core, end, epoch, log_time_ms, |_| Ok(())))?;
        }
        core.unfinished.reset(end);
        core.reign = Some(reign);
        Ok(())
    }

    fn publish(&self, hw: Offset) {
        self.snapshots.publish(hw);
    }

    fn rewind(&self, to: Offset) -> Result<Offset, MachineError> {
        self.rewind_to(to)
    }
}

impl Database {
    fn apply_all(&self, core: &mut Core, whole: &[Whole], committed: bool) -> Result<(), MachineError> {
        let mut rest = whole;
        while let Some(first) = rest.first() {
            if let Some((flags, sql)) = outside_transaction(first)? {
                self.while_full(|| self.apply_outside(core, first, flags, sql))?;
                rest = &rest[1..];
                continue;
            }
            let mut bytes = 0;
            let mut count = 0;
            for transaction in rest {
                if count > 0 && (!committed || bytes > GROUP_BYTES || outside_transaction(transaction)?.is_some()) {
                    break;
                }
                bytes += transaction.records.iter().map(|(_, payload)| payload.len()).sum::<usize>();
                count += 1;
            }
            self.while_full(|| self.apply_group(core, &rest[..count]))?;
            rest = &rest[count..];
        }
        Ok(())
    }

    /// Tries again while the disk is full or somebody holds SQLite's lock: what is committed has to be applied, and nothing is wrong with this replica. A lock is
    /// waited for within SQLite; beyond [`BUSY_TRIES`] it is as for a full disk.
    pub(crate) fn while_full(&self, mut run: impl FnMut() -> Result<(), MachineError>) -> Result<(), MachineError> {
        let mut busy = 0;
        loop {
            match (run(), self.options.full_wait) {
                (Err(MachineError::Busy(reason)), _) if busy < BUSY_TRIES && !self.stop.load(Ordering::Acquire) => {
                    busy += 1;
                    tracing::warn!(%reason, "applying waits for a lock");
                }
                (Err(MachineError::Busy(reason)), Some(wait)) if !self.stop.load(Ordering::Acquire) => {
                    tracing::error!(%reason, "applying waits for a lock that is not given back");
                    // sleep: SQLite has waited for the lock already, and gives no sign when it is free.
                    std::thread::sleep(wait);
                }
                (Err(MachineError::Full(reason)), Some(wait)) if !self.stop.load(Ordering::Acquire) => {
                    tracing::warn!(%reason, "applying waits for room on the disk");
                    // sleep: a disk gives no sign when there is room again.
                    std::thread::sleep(wait);
                }
                (outcome, _) => return outcome,
            }
        }
    }

    fn apply_group(&self, core: &mut Core, group: &[Whole]) -> Result<(), MachineError> {
        let last = group.last().expect("a group has a transaction");
        let log_time_ms = group.iter().map(|t| t.timestamp_ms).fold(core.log_time_ms, i64::max);
        self.in_applier(core, last.end, last.epoch, log_time_ms, |applier| {
            for transaction in group {
                for (kind, payload) in &transaction.records {
                    applier.record(*kind, payload).map_err(|failed| told(failed, transaction.end))?;
                }
            }
            Ok(())
        })
    }

    /// Runs something on the applying connection as one transaction that ends at `end`.
    pub(crate) fn in_applier(
        &self,
        core: &mut Core,
        end: Offset,
        epoch: Epoch,
        log_time_ms: i64,
        run: impl FnOnce(&mut crate::apply::Applier) -> Result<(), MachineError>,
    ) -> Result<(), MachineError> {
        let mut applier = core.applier.take().expect("the applying connection is open");
        let outcome = (|| {
            applier.conn.run("BEGIN IMMEDIATE", |_| Ok(()))?;
            if let Err(error) = run(&mut applier) {
                // What failed may have ended the transaction already.
                if !applier.conn.autocommit() {
                    applier.conn.run("ROLLBACK", |_| Ok(()))?;
                }
                return Err(error);
            }
            write_position(&applier.conn, end, epoch, log_time_ms)?;
            applier.conn.run("COMMIT", |_| Ok(()))?;
            self.committed_here(core, &applier.conn, end, epoch, log_time_ms)?;
            Ok(())
        })();
        core.applier = Some(applier);
        outcome
    }

    /// Applies a statement that runs outside a transaction, and then notes that it did. If the process ends in between, it is run again, which such a
    /// statement must bear.
    fn apply_outside(&self, core: &mut Core, transaction: &Whole, flags: u8, sql: &str) -> Result<(), MachineError> {
        let applier = core.applier.as_mut().expect("the applying connection is open");
        applier.statement(flags, sql).map_err(|failed| told(failed, transaction.end))?;
        let log_time_ms = core.log_time_ms.max(transaction.timestamp_ms);
        self.in_applier(core, transaction.end, transaction.epoch, log_time_ms, |_| Ok(()))
    }
}

fn told(failed: ApplyError, offset: Offset) -> MachineError {
    match failed {
        ApplyError::Differs(reason) => MachineError::Diverged { offset, reason },
        ApplyError::Failed(failure) => failure.into(),
    }
}

/// The flags and text of a transaction that is one statement outside a transaction.
fn outside_transaction(transaction: &Whole) -> Result<Option<(u8, &str)>, MachineError> {
    let [(Kind::Statement, payload)] = transaction.records.as_slice() else { return Ok(None) };
    let (flags, sql) = Reader(payload)
        .statement()
        .map_err(|error| MachineError::Unreadable { offset: transaction.end, reason: error.to_string() })?;
    Ok((flags & OUTSIDE_TRANSACTION != 0).then_some((flags, sql)))
}
