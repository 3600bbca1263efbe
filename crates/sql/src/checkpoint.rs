//! The checkpoint barrier: SQLite's log is written back into the database file only when everything in it is committed.
//!
//! In this order: the writer's token is held, everything executed is committed, SQLite's log and the checksums that the database file will have are made durable
//! (`sums.rs`), then the marker is; SQLite writes back and empties its log, older states are forgotten. A reader at an older state makes SQLite write back a part and say so; the next attempt does the rest.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::api::SqlError;
use crate::core::{Core, Frame};
use crate::database::Database;
use crate::error::{MachineError, error};
use crate::ffi::{Snapshot, WrittenBack};
use crate::snapshots::State;
use crate::wal::{Marker, wal_bytes};

impl Database {
    /// Makes a checkpoint if SQLite's log is large and everything in it is committed. To be called now and then; writers and appliers do so themselves.
    ///
    /// # Errors
    /// If SQLite or the file system failed.
    pub fn checkpoint_if_due(&self) -> Result<(), MachineError> {
        let Ok(_gate) = self.enter() else { return Ok(()) };
        let Ok(mut core) = self.token.acquire(&(Instant::now() + Duration::from_millis(100)).into(), Some(&self.stop))
        else {
            return Ok(());
        };
        if core.failed.is_some() {
            return Ok(());
        }
        // Whatever put the last one off may be over.
        core.put_off = 0;
        self.checkpoint_if_large(&mut core)
    }

    /// Before a write: makes room in SQLite's log if it is due, waiting for HW if it is pressing.
    pub(crate) fn make_room(&self, core: &mut Core) -> Result<(), SqlError> {
        let size = wal_bytes(core.frames_now());
        if size < self.options.wal_bytes_checkpoint || self.put_off(core) {
            return Ok(());
        }
        let until = Instant::now() + self.options.checkpoint_wait;
        let stop = || self.stop.load(Ordering::Acquire);
        if self.snapshots.wait_published(core.end, until, &stop) {
            core.committed = core.committed.max(core.end);
            self.checkpoint(core).map_err(|failed| error("SQLITE_IOERR", failed.to_string()))?;
        } else {
            // HW stands still: the next writers do not wait as long again.
            core.put_off = core.frames_now();
        }
        if wal_bytes(core.frames_now()) >= self.options.wal_bytes_max {
            return Err(error(
                "OVERLOADED",
                format!(
                    "{size} bytes of SQLite's log wait for a checkpoint, which waits for what was executed to be committed or for a reader to end: try again"
                ),
            ));
        }
        Ok(())
    }

    /// Whether a reader kept a checkpoint from ending and too little was written since to try again.
    fn put_off(&self, core: &Core) -> bool {
        let now = wal_bytes(core.frames_now());
        core.put_off > 0
            && now < wal_bytes(core.put_off) + self.options.wal_bytes_checkpoint / 4
            && now < self.options.wal_bytes_max
    }

    /// Ends interactive transactions whose time is over: their states keep checkpoints from ending.
    fn expire_streams(&self) {
        for stream in self.live_streams() {
            if let Ok(mut stream) = stream.try_lock() {
                stream.lose_if_overdue();
            }
        }
    }

    /// Makes a checkpoint if the log is large and everything in it is committed.
    pub(crate) fn checkpoint_if_large(&self, core: &mut Core) -> Result<(), MachineError> {
        let size = wal_bytes(core.frames_now());
        if size < self.options.wal_bytes_checkpoint || self.put_off(core) {
            return Ok(());
        }
        let published = self.snapshots.published().unwrap_or(0);
        // A replica that catches up publishes behind what it applies. Readers then wait for the next publication, but not for a checkpoint put off.
        let far_behind = size >= self.options.wal_bytes_checkpoint.saturating_mul(4) && core.committed >= core.end;
        if published >= core.end || far_behind {
            core.committed = core.committed.max(core.end.min(published));
            self.checkpoint(core)?;
        }
        Ok(())
    }

    /// A checkpoint for which the disk has no room is put off; the log goes on growing as long as it can.
    fn no_room(&self, core: &mut Core, reason: String) -> Result<(), MachineError> {
        tracing::warn!(%reason, "a checkpoint waits for room on the disk");
        core.put_off = core.frames_now().max(1);
        if let Some(last) = core.frames.last().copied() {
            core.frames = vec![last];
        }
        Ok(())
    }

    /// The checkpoint. Everything executed must be committed.
    pub(crate) fn checkpoint(&self, core: &mut Core) -> Result<(), MachineError> {
        let committed = core.committed.max(self.snapshots.published().unwrap_or(0));
        assert!(committed >= core.end, "{} is executed and {committed} committed", core.end);
        self.expire_streams();
        let applier = core.applier.as_ref().expect("the applying connection is open");
        let before = Snapshot::newest(&applier.conn)?;
        let marker = Marker { salts: before.salts(), frames: before.frames(), applied: core.end };
        let mut sums = self.sums.lock().expect("nothing under this lock panics");
        let next = match sums.prepare(&self.files, &marker) {
            Ok(next) => next,
            Err(error) => {
                let reason = format!("the checksums after a checkpoint could not be written: {error}");
                return match error.kind() {
                    std::io::ErrorKind::StorageFull => self.no_room(core, reason),
                    _ => Err(MachineError::Failed(reason)),
                };
            }
        };
        if let Err(error) = self.files.write_marker(&marker) {
            if self.files.read_marker().is_ok_and(|found| found == Some(marker)) {
                sums.adopt(next);
            }
            let reason = format!("the checkpoint's marker could not be written: {error}");
            return match error.kind() {
                // Whichever marker is there now is right, and nothing was written back.
                std::io::ErrorKind::StorageFull => self.no_room(core, reason),
                _ => Err(MachineError::Failed(reason)),
            };
        }
        sums.adopt(next);
        let written = match applier.conn.checkpoint_truncate() {
            Ok(written) => written,
            // SQLite's log stays as it was; what was written back is in it too.
            Err(failure) if failure.primary() == rusqlite::ffi::SQLITE_FULL => {
                return self.no_room(core, failure.to_string());
            }
            Err(failure) => return Err(failure.into()),
        };
        // One more transaction. SQLite gives a snapshot only of a log that is not empty. And if a reader kept the log from being emptied after all
        // of it was written back, the next transaction may begin the log anew, which makes every older snapshot useless: it shall be this one. If only a part was
        // written back, neither can happen, and the log does not grow by what was refused for its size.
        let restarts = written != WrittenBack::Part;
        self.while_full(|| match restarts {
            false => Ok(()),
            true => Ok(applier.conn.run("UPDATE main.sqlite_highwater_state SET opened = opened + 1", |_| Ok(()))?),
        })?;
        let snapshot = Snapshot::newest(&applier.conn)?;
        let ended = written == WrittenBack::Emptied || snapshot.salts() != marker.salts;
        core.put_off = if ended { 0 } else { snapshot.frames() };
        if ended {
            sums.settle();
        }
        drop(sums);
        if core.put_off > 0 {
            tracing::debug!(frames = core.put_off, "a reader kept a checkpoint from ending");
        }
        // What was written back cannot be rewound, whether the log was emptied or not.
        core.salts = snapshot.salts();
        core.frames = vec![Frame { end: core.end, epoch: core.epoch, frames: snapshot.frames() }];
        self.snapshots.reset(State { end: core.end, epoch: core.epoch, snapshot });
        core.check();
        Ok(())
    }
}
