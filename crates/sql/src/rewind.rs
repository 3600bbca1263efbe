//! Rewinding: everything that was executed and not committed is undone by cutting SQLite's log where the last committed transaction ends.
//!
//! In this order: requests are interrupted and turned away, connections are closed (interactive transactions are lost, and their streams say so), the log is
//! cut, the writing side is opened again, requests are let in.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use highwater_wire::Offset;

use crate::core::Core;
use crate::database::{Database, open_core};
use crate::error::MachineError;
use crate::gate::Alone;
use crate::machine::MACHINE_WAIT;
use crate::stream::{Stream, try_lock};

/// How long those inside are waited for after they were interrupted, before they are given up.
const PATIENCE: Duration = Duration::from_secs(5);

impl Database {
    /// See [`highwater_partition::Command::Rewind`].
    pub(crate) fn rewind_to(&self, to: Offset) -> Result<Offset, MachineError> {
        let alone = self.stop_all();
        let outcome = self.rewind_alone(&alone, to);
        self.stop.store(false, Ordering::Release);
        drop(alone);
        outcome
    }

    /// Interrupts whatever runs and turns away whoever waits, until nobody is inside the gate, or for as long as is waited for that.
    fn stop_all(&self) -> Alone<'_> {
        self.stop.store(true, Ordering::Release);
        self.snapshots.hide();
        self.token.wake();
        self.gate.alone(PATIENCE)
    }

    pub(crate) fn live_streams(&self) -> Vec<Arc<Mutex<Stream>>> {
        let mut streams = self.streams.lock().expect("nothing under this lock panics");
        streams.retain(|stream| stream.strong_count() > 0);
        streams.iter().filter_map(std::sync::Weak::upgrade).collect()
    }

    fn rewind_alone(&self, alone: &Alone<'_>, to: Offset) -> Result<Offset, MachineError> {
        // Open transactions end here: their streams give the token back.
        let streams = self.live_streams();
        for mut stream in streams.iter().filter_map(|stream| try_lock(stream)) {
            stream.lose_transaction(
                "STREAM_EXPIRED",
                "this node no longer leads the database, and the stream's transaction is lost: it had no effect; begin it again",
            );
        }
        let mut held = self.acquire_machine(Instant::now() + MACHINE_WAIT)?;
        let core = &mut *held;
        core.reign = None;
        if core.end <= to {
            core.unfinished.reset(core.end);
            return Ok(core.end);
        }
        let Some(kept) = core.frames.iter().rposition(|frame| frame.end <= to) else {
            let oldest = core.frames.first().map_or(core.end, |frame| frame.end);
            return Err(MachineError::Forgotten { to, oldest });
        };
        let frame = core.frames[kept];
        // Whoever holds the writer has been waited for, so that those left only read.
        let given_up = alone.give_up_rest();
        for mut stream in streams.iter().filter_map(|stream| try_lock(stream)) {
            stream.close_connection();
        }
        self.close_connections(core)?;
        if given_up > 0 {
            self.files.renew().map_err(|error| {
                MachineError::Failed(format!("the database file could not be taken from readers given up: {error}"))
            })?;
        }
        self.files
            .cut(frame.frames)
            .map_err(|error| MachineError::Failed(format!("SQLite's log could not be cut: {error}")))?;
        let earlier = core.frames[..kept].to_vec();
        let committed = core.committed.min(frame.end);
        let mut reopened = open_core(&self.files, &self.snapshots)?;
        assert_eq!(reopened.end, frame.end, "the cut ends where the transaction did");
        assert_eq!(reopened.epoch, frame.epoch, "the cut ends in the epoch it did");
        // States before the cut stay in SQLite's log, so that a later rewind may go further back.
        reopened.frames.splice(0..0, earlier);
        reopened.committed = committed;
        *core = reopened;
        self.applied.store(core.end, Ordering::Release);
        core.check();
        assert!(core.end <= to, "a rewind goes back far enough");
        Ok(core.end)
    }

    /// Closes every connection but the streams' own. Nobody may be inside the gate.
    fn close_connections(&self, core: &mut Core) -> Result<(), MachineError> {
        let readers = std::mem::take(&mut *self.readers.lock().expect("nothing under this lock panics"));
        for reader in readers {
            reader.close()?;
        }
        if let Some(writer) = core.writer.take() {
            writer.close()?;
        }
        if let Some(applier) = core.applier.take() {
            applier.close()?;
        }
        Ok(())
    }

    /// Closes the database: open transactions are lost, and every later call is answered `CLOSED`. If everything executed is committed, SQLite's log is
    /// written back first, so that the next start has nothing to apply again.
    ///
    /// # Errors
    /// If SQLite could not write or close; what is on the disk is consistent all the same.
    pub fn close(&self) -> Result<(), MachineError> {
        let published = self.snapshots.published();
        let alone = self.stop_all();
        if alone.close() {
            return Ok(());
        }
        for mut stream in self.live_streams().iter().filter_map(|stream| try_lock(stream)) {
            stream.lose_transaction(
                "STREAM_EXPIRED",
                "the database was closed, and the stream's transaction is lost: it had no effect",
            );
            stream.close_connection();
        }
        let mut held = self.acquire_machine(Instant::now() + MACHINE_WAIT)?;
        let core = &mut *held;
        core.reign = None;
        // Readers' connections are closed below; those idle here hold no snapshot.
        core.committed = core.committed.max(published.unwrap_or(0).min(core.end));
        if core.committed >= core.end {
            self.checkpoint(core)?;
        }
        let given_up = alone.give_up_rest();
        self.close_connections(core)?;
        core.failed = Some("it was closed".to_string());
        if given_up > 0 {
            // What is opened here again, in this process, must not meet those that never end.
            self.files.renew().map_err(|error| {
                MachineError::Failed(format!("the database file could not be taken from readers given up: {error}"))
            })?;
        }
        Ok(())
    }
}
