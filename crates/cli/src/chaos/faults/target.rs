//! Which files of a node that has ended may be damaged, where, and what must come of it.
//!
//! | Damaged | Must come of it |
//! |---|---|
//! | a log: its control file, a segment's header, a frame that is known to have been flushed | that log is refused, naming the file: by the node, or for the database alone |
//! | `node`, `peers`, `logs` | the node refuses to start, naming the file |
//! | `logs`, when it is gone as a whole | nothing: it only keeps a missing log from being taken for a new one |
//! | SQLite's files and their checksums | the node mends itself |
//!
//! Bytes that say nothing are left alone (space that was only set aside, what fills up a frame), and so is the very last flush, damage to which cannot be told from a
//! write that a crash tore.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use highwater_log::FileIo;
use highwater_log::dump::{Frame, Item, frames, verify};
use highwater_sim::rng::Rng;

/// The bytes of a segment's header that say something.
const SEGMENT_HEADER: Range<u64> = 0..44;

/// What must come of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Must {
    /// The node, or its replica of the database, takes no part and says which file is damaged.
    Refuse,
    /// The node serves: it has mended the damage, or lacks nothing.
    Serve,
}

/// A file, or a log's whole folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Below the data folder.
    pub(super) path: PathBuf,
    /// What it is.
    pub(super) what: &'static str,
    /// Where a flipped byte must have consequences.
    pub(super) bytes: Range<u64>,
    pub(super) flipped: Must,
    /// When it is gone.
    pub(super) removed: Must,
    /// When nothing from some byte of `bytes` on is left.
    pub(super) shortened: Must,
}

impl Target {
    fn new(path: PathBuf, what: &'static str, bytes: Range<u64>, must: Must) -> Target {
        Target { path, what, bytes, flipped: must, removed: must, shortened: must }
    }
}

/// One kind of target after the other is drawn with the same chance, and then one of its kind.
pub(super) fn draw(data: &Path, rng: &mut Rng) -> anyhow::Result<Target> {
    let mut all = files(data)?;
    for log in ["meta", "db/main/log"] {
        all.extend(log_targets(data, log).with_context(|| format!("{log} of a node that runs well"))?);
    }
    let mut kinds: Vec<&str> = all.iter().map(|target| target.what).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let kind = *rng.pick(&kinds);
    all.retain(|target| target.what == kind);
    Ok(rng.pick(&all).clone())
}

/// The files in which every byte says something. Those of SQLite may be absent, or empty.
const FILES: [(&str, &str, Must); 9] = [
    ("node", "the node's file", Must::Refuse),
    ("peers", "the list of peers", Must::Refuse),
    (LOGS, "the list of logs", Must::Refuse),
    ("meta/control", "a log's control file", Must::Refuse),
    ("db/main/log/control", "a log's control file", Must::Refuse),
    ("db/main/sql/database.sqlite", "SQLite's file", Must::Serve),
    ("db/main/sql/database.sqlite-wal", "SQLite's log", Must::Serve),
    ("db/main/sql/sums.a", "SQLite's checksums", Must::Serve),
    ("db/main/sql/sums.b", "SQLite's checksums", Must::Serve),
];

const LOGS: &str = "logs";

fn files(data: &Path) -> anyhow::Result<Vec<Target>> {
    let mut found = Vec::new();
    for (path, what, must) in FILES {
        let length = match fs::metadata(data.join(path)) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error).with_context(|| path.to_string()),
        };
        ensure!(length > 0 || must == Must::Serve, "a node that runs well has a file {path}");
        if length > 0 {
            let target = Target::new(path.into(), what, 0..length, must);
            found.push(if path == LOGS { Target { removed: Must::Serve, ..target } } else { target });
        }
    }
    Ok(found)
}

fn log_targets(data: &Path, log: &str) -> anyhow::Result<Vec<Target>> {
    let io = FileIo::inspect(&data.join(log))?;
    let Some(verified) = verify(&io)? else { bail!("it is empty") };
    let mut live: Vec<Frame> = Vec::new();
    for item in frames(&io)? {
        match item? {
            Item::Frame(frame) if !frame.dead => live.push(frame),
            // Behind the end lies what a cut or a crash left; it is no part of the log.
            Item::Frame(_) | Item::Damage { .. } => {}
        }
    }
    let mut found = Vec::new();
    for name in live.iter().map(|frame| &frame.name).collect::<std::collections::BTreeSet<_>>() {
        let header = Target::new(Path::new(log).join(name), "a segment's header", SEGMENT_HEADER, Must::Refuse);
        found.push(header);
    }
    // The newest frame tells how far the ones before it had been flushed, the control file tells it of all.
    let told = live.last().map_or(0, |last| last.flushed_before);
    let flushed: Vec<&Frame> = live.iter().filter(|frame| frame.offset < told.max(verified.shape.flushed)).collect();
    if let (Some(first), Some(last)) = (flushed.first(), flushed.last()) {
        // Anywhere in the first, the last, or one between them: three is as good as all, since which of them is damaged is drawn anew each time.
        for frame in [first, flushed[flushed.len() / 2], last] {
            found.push(Target::new(Path::new(log).join(&frame.name), "a flushed frame", frame.bytes(), Must::Refuse));
        }
    }
    Ok(found)
}
