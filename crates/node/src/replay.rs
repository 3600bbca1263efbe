//! Writing the database that a log adds up to into an ordinary SQLite file, without a cluster.
//!
//! It is the way out where no leader can be had any more: the data is in the log of every replica. The log is read, never written; the node that owns it must
//! not run, which the lock of the log's folder shows. The file is made whole beside its place and moved there at the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use highwater_log::FileIo;
use highwater_log::dump::{Item, frames, verify};
use highwater_partition::{Reign, StateMachine};
use highwater_sql::{Database, Options, Proposer};
use highwater_wire::{Epoch, Offset};

/// How long the copy of the replayed database may take: nobody waits for it but whoever runs the command.
const COPY_MAX: Duration = Duration::from_secs(24 * 3600);

/// Bytes of batches applied at once.
const APPLY_BYTES: usize = 1 << 20;

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Everything below this offset is in the file.
    pub offset: Offset,
    /// The epoch of the entry before it.
    pub epoch: Option<Epoch>,
    /// The end of the log.
    pub end: Offset,
    /// Everything below this is known to be committed. What lies between may have been acknowledged or not.
    pub committed: Offset,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// There is no log, or it cannot be had now.
    #[error("{folder} cannot be replayed: {reason}")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What was found, and what to do.
        reason: String,
    },
    /// The file cannot be made.
    #[error("{file} cannot be written: {reason}")]
    File {
        /// The file.
        file: PathBuf,
        /// What was found, and what to do.
        reason: String,
    },
}

/// Replays the log in `folder` (`DATA/db/NAME/log`) into a new file, up to its end or to an offset at which a transaction ends.
///
/// # Errors
/// [`ReplayError`]; no file was made then.
pub fn replay(folder: &Path, to: &Path, upto: Option<Offset>) -> Result<Replayed, ReplayError> {
    let refuse = |reason: String| ReplayError::Folder { folder: folder.to_owned(), reason };
    let file = |reason: String| ReplayError::File { file: to.to_owned(), reason };
    if to.exists() {
        return Err(file("it exists already; name a new file".into()));
    }
    if !folder.is_dir() {
        return Err(refuse("there is no such folder; give that of one database's log: DATA/db/NAME/log".into()));
    }
    // Held to the end: the lock says that no node is using the log.
    let io = FileIo::open(folder).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => refuse("a node is using it; stop that node first".into()),
        _ => refuse(error.to_string()),
    })?;
    let found = match verify(&io) {
        Ok(Some(found)) => found,
        Ok(None) => return Err(refuse("it holds no log; give that of one database: DATA/db/NAME/log".into())),
        Err(error) => return Err(refuse(format!("{error}. Take the log of another replica"))),
    };
    let end = found.shape.end;
    let offset = upto.unwrap_or(end);
    if offset > end {
        return Err(refuse(format!("it ends at offset {end}, and {offset} was asked for")));
    }
    let work = beside(to, "replaying").map_err(&file)?;
    let result = (|| {
        let machine =
            Database::open(&work, Options::default(), Arc::new(Nobody)).map_err(|error| file(error.to_string()))?;
        let applied = apply(&io, &machine, offset).map_err(&refuse);
        let written = applied.and_then(|()| {
            machine.publish(offset);
            let whole = work.join("whole.sqlite");
            machine.backup(&whole, Instant::now() + COPY_MAX).map_err(|error| file(error.to_string()))?;
            let moved = std::fs::File::open(&whole)
                .and_then(|whole| whole.sync_all())
                .and_then(|()| std::fs::rename(&whole, to));
            moved.map_err(|error| file(error.to_string()))
        });
        machine.close().map_err(|error| file(error.to_string()))?;
        written
    })();
    // What was needed on the way is of no use to anybody; that it cannot be removed harms nothing.
    let _ = std::fs::remove_dir_all(&work);
    result?;
    let committed = found.hard.hw_hint.0.min(end);
    Ok(Replayed { offset, epoch: found.shape.epoch_before(offset), end, committed })
}

/// A new folder beside the file.
fn beside(to: &Path, what: &str) -> Result<PathBuf, String> {
    let name = to.file_name().ok_or("it has no name; name a file")?;
    let work = to.with_file_name(format!("{}.{what}", name.to_string_lossy()));
    std::fs::create_dir(&work).map_err(|error| format!("{} cannot be made: {error}", work.display()))?;
    Ok(work)
}

/// Applies the live frames below `upto`.
fn apply(io: &FileIo, machine: &Database, upto: Offset) -> Result<(), String> {
    let (mut from, mut next, mut batches) = (0, 0, BytesMut::new());
    let give = |from: Offset, to: Offset, batches: Bytes| {
        let applied = machine.apply(from, to, &batches, true);
        applied.map_err(|error| format!("entries {from} to {to} do not apply: {error}"))
    };
    for item in frames(io).map_err(|error| error.to_string())? {
        let frame = match item.map_err(|error| error.to_string())? {
            Item::Frame(frame) if frame.dead => continue,
            Item::Frame(frame) => frame,
            // Behind the end of the log anything may lie; before it, the log would not have been taken for whole.
            Item::Damage { .. } => continue,
        };
        if frame.offset >= upto {
            break;
        }
        if frame.offset != next {
            return Err(format!("entries from offset {next} on are missing: the next are at {}", frame.offset));
        }
        next += u64::from(frame.count);
        if next > upto {
            return Err(format!(
                "offset {upto} lies within the transaction from {} to {next}; give one of the two",
                frame.offset
            ));
        }
        batches.extend_from_slice(&frame.batch);
        if batches.len() >= APPLY_BYTES {
            give(from, next, batches.split().freeze())?;
            from = next;
        }
    }
    if next > from {
        give(from, next, batches.freeze())?;
    }
    if next == upto { Ok(()) } else { Err(format!("it reads back up to offset {next} of {upto}")) }
}

/// Nothing leads here, so nothing is proposed.
struct Nobody;

impl Proposer for Nobody {
    fn propose(&self, reign: Reign, base: Offset, _: BytesMut) {
        unreachable!("a database that only applies was made to lead in {reign:?} at {base}");
    }
}
