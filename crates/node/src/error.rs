//! Why a node does not start, and why it cannot take a request now.

use std::path::PathBuf;

/// Why a node did not start. Each says what was wanted, what was found and what to do; none of them has changed anything in the folder.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another process holds the folder's lock.
    #[error(
        "the data folder {0} is in use by another highwater process; stop that one, or give this one another folder with --data"
    )]
    InUse(PathBuf),
    /// The folder is another node's.
    #[error(
        "the data folder {folder} belongs to node {found}, but this process was started as node {wanted}; start it with --id {found}, or give node {wanted} its own folder with --data"
    )]
    OtherNode {
        /// The folder.
        folder: PathBuf,
        /// Whose it is.
        found: u32,
        /// Who asked for it.
        wanted: u32,
    },
    /// The folder belongs to another cluster.
    #[error(
        "the data folder {folder} belongs to cluster {found:016x}, but this process was started for cluster {wanted:016x}; give it another folder with --data"
    )]
    OtherCluster {
        /// The folder.
        folder: PathBuf,
        /// Whose it is.
        found: u64,
        /// Who asked for it.
        wanted: u64,
    },
    /// A list of peers that cannot be this folder's.
    #[error("{folder} cannot be started with these peers: {reason}")]
    Peers {
        /// The folder.
        folder: PathBuf,
        /// What does not fit, and what to do.
        reason: String,
    },
    /// Another node cannot be of the same cluster.
    #[error("the cluster cannot be formed: {0}")]
    Forming(crate::tcp::PeerRefused),
    /// One of the node's own files does not hold what was written to it.
    #[error(
        "{file} is damaged ({reason}). Nothing was changed. The databases beside it may be whole: keep the folder, and let this node rejoin its cluster with a new folder, or restore a backup into a new folder"
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A folder that holds logs or databases but not the file that says whose they are.
    #[error(
        "{folder} holds {found} but no file `node`, which says whose they are; it was deleted, or this is not a data folder. Put the file back, or give another folder with --data"
    )]
    NodeFileMissing {
        /// The folder.
        folder: PathBuf,
        /// What is there.
        found: String,
    },
    /// A node of a cluster of several whose list of the others is gone.
    #[error(
        "{0} is gone: a node of a cluster of several keeps the list of the others there, and who votes. Nothing was changed. Put the file back; if that cannot be had, keep the folder, and leave this node out: the others go on without it"
    )]
    PeersFileMissing(PathBuf),
    /// The metadata's log could not be opened, or what it says cannot be.
    #[error("the node in {folder} cannot start: {reason}")]
    Host {
        /// The data folder.
        folder: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A start cannot be taken into a folder.
    #[error("no start can be taken into {folder}: {reason}")]
    Adopt {
        /// The folder.
        folder: PathBuf,
        /// What was found, and what to do.
        reason: String,
    },
    /// The folder was started as often as folders can be.
    #[error(
        "{folder} was started {starts} times, and a node of a cluster can be started {most} times; write its databases out with `highwater log replay` and import them into a new cluster"
    )]
    StartsExhausted {
        /// The folder.
        folder: PathBuf,
        /// How often.
        starts: u64,
        /// The bound.
        most: u64,
    },
    /// An address that other nodes would refuse.
    #[error(
        "an address has at most 255 printable bytes, and the one to be told to others has {found}; give a shorter one"
    )]
    Address {
        /// How many bytes it has.
        found: usize,
    },
    /// The operating system refused.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What it answered.
        error: std::io::Error,
    },
}

impl StartError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> StartError {
        let what = what.into();
        move |error| StartError::Io { what, error }
    }
}

/// Why a request gets no answer of a partition's. It had no effect, unless it had already been proposed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// No database bears the name.
    #[error("there is no database {name:?} here; there is {known}")]
    UnknownDatabase {
        /// The name asked for.
        name: String,
        /// Those there are.
        known: String,
    },
    /// The database exists and is not open yet, or has stopped.
    #[error("the database {name:?} is not serving: {reason}")]
    NotServing {
        /// The database.
        name: String,
        /// Why.
        reason: String,
    },
    /// Too much is under way.
    #[error("overloaded: {0}; try again in a moment")]
    Overloaded(String),
    /// No outcome within the time given.
    #[error("no outcome within {waited_ms} ms")]
    TimedOut {
        /// How long it was waited.
        waited_ms: u64,
    },
    /// The node is shutting down.
    #[error("this node is shutting down")]
    ShuttingDown,
}
