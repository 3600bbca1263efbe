//! Committing what a transaction did: the applied position goes into the same SQLite transaction as the rows, the records go to the proposer, and the
//! state is kept for readers.
//!
//! In this order: the position is written, the batches are built, SQLite commits, the state is captured, the batches are proposed. A failure up to SQLite's
//! commit leaves the transaction open and unproposed. A failure after it stops the database, since what it holds is not what the log will hold.

use std::sync::atomic::Ordering;

use bytes::BytesMut;
use highwater_wire::{Epoch, Offset};

use crate::api::{Hold, SqlError};
use crate::client::Client;
use crate::core::{Core, Frame};
use crate::database::Database;
use crate::error::{error, from_failure};
use crate::ffi::{Conn, Failure, Snapshot, ValueRef};
use crate::snapshots::State;

/// Writes how far this database has applied, within the open transaction.
pub(crate) fn write_position(conn: &Conn, end: Offset, epoch: Epoch, log_time_ms: i64) -> Result<(), Failure> {
    conn.run("UPDATE main.sqlite_highwater_state SET applied = ?1, epoch = ?2, log_time_ms = ?3", |stmt| {
        stmt.bind(1, ValueRef::Integer(end as i64))?;
        stmt.bind(2, ValueRef::Integer(i64::from(epoch.0)))?;
        stmt.bind(3, ValueRef::Integer(log_time_ms))
    })
}

impl Database {
    /// The hold on anything computed in a transaction that began at the present end.
    pub(crate) fn hold(&self, core: &Core) -> Hold {
        let reign = core.reign.expect("only a leader executes");
        Hold { reign, until: core.end, wrote: false }
    }

    /// Checks that a transaction may be committed: that everything it did was taken down.
    pub(crate) fn check_captured(&self, client: &Client, schema_at_begin: i64) -> Result<(), SqlError> {
        let capture = client.hooks().capture.borrow();
        if let Some(reason) = capture.failure() {
            return Err(error("TRANSACTION_TOO_LARGE", reason));
        }
        if capture.statements() == 0 {
            let version = client.hooks().internally(|| client.query_integer("PRAGMA main.schema_version"));
            if version.map_err(from_failure)? != Some(schema_at_begin) {
                return Err(error(
                    "SQLITE_ERROR",
                    "the transaction changed the schema by something that is not a schema statement, which cannot be replicated",
                ));
            }
        }
        Ok(())
    }

    /// Commits the open transaction of a leader's connection and proposes what it did. Returns whether it did anything.
    pub(crate) fn commit(&self, core: &mut Core, client: &Client) -> Result<bool, Failure> {
        let reign = core.reign.expect("only a leader executes");
        let hooks = client.hooks();
        // What is left to do is bounded, and must not be torn by a deadline.
        hooks.end_allowance();
        client.flush()?;
        let count = hooks.capture.borrow().len() as u64;
        if count == 0 {
            // It is not rolled back, since temporary tables keep what was written to them.
            hooks.internally(|| client.run("COMMIT", |_| Ok(())))?;
            self.committed_nothing(core, client)?;
            return Ok(false);
        }
        let log_time_ms = core.log_time_ms.max((self.options.clock)());
        let end = core.end + count;
        hooks.internally(|| write_position(client, end, reign.epoch, log_time_ms))?;
        let batches = hooks.capture.borrow_mut().build(log_time_ms, self.options.batch_bytes);
        hooks.internally(|| client.run("COMMIT", |_| Ok(())))?;
        if hooks.capture.borrow().len() as u64 != count {
            core.failed = Some("SQLite changed rows while it committed, which were not shipped".to_string());
        }
        hooks.capture.borrow_mut().clear();
        self.committed_here(core, client, end, reign.epoch, log_time_ms)?;
        self.propose(core, end - count, batches);
        Ok(true)
    }

    /// Hands batches over that begin at `base`.
    pub(crate) fn propose(&self, core: &Core, base: Offset, batches: BytesMut) {
        let reign = core.reign.expect("only a leader proposes");
        assert!(!batches.is_empty() && base < core.end, "a proposal has entries");
        self.proposer.propose(reign, base, batches);
    }

    /// Notes a transaction that SQLite has committed: its state is kept for readers, its frame for a rewind.
    pub(crate) fn committed_here(
        &self,
        core: &mut Core,
        conn: &Conn,
        end: Offset,
        epoch: Epoch,
        log_time_ms: i64,
    ) -> Result<(), Failure> {
        assert!(core.end <= end, "positions never go back");
        assert!(core.log_time_ms <= log_time_ms, "log time never goes back");
        let snapshot = newest(core, conn)?;
        core.end = end;
        self.applied.store(end, Ordering::Release);
        core.epoch = Some(epoch);
        core.log_time_ms = log_time_ms;
        self.keep_state(core, snapshot);
        Ok(())
    }

    /// Notes that SQLite has committed a transaction of which nothing is left, such as one whose statements failed or were rolled back to a savepoint.
    /// SQLite may have written pages all the same, and lets nobody write who reads what was before them: so the present end gets the newer state.
    fn committed_nothing(&self, core: &mut Core, conn: &Conn) -> Result<(), Failure> {
        let snapshot = newest(core, conn)?;
        if snapshot.frames() != core.frames_now() {
            self.keep_state(core, snapshot);
        }
        Ok(())
    }

    fn keep_state(&self, core: &mut Core, snapshot: Snapshot) {
        let (end, epoch) = (core.end, core.epoch);
        let frame = Frame { end, epoch, frames: snapshot.frames() };
        match core.frames.last_mut() {
            Some(last) if last.end == end => *last = frame,
            _ => core.frames.push(frame),
        }
        self.snapshots.push(State { end, epoch, snapshot });
        core.check();
    }
}

/// The state right after a commit. If there is none to be had, what this database shows is not what it holds.
fn newest(core: &mut Core, conn: &Conn) -> Result<Snapshot, Failure> {
    let snapshot = match Snapshot::newest(conn) {
        Ok(snapshot) => snapshot,
        Err(failure) => {
            core.failed = Some(format!("the state after a commit could not be captured: {failure}"));
            return Err(failure);
        }
    };
    if snapshot.salts() != core.salts {
        core.failed = Some("SQLite began its log anew outside a checkpoint".to_string());
    }
    Ok(snapshot)
}
