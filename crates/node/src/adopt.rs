//! Taking a start into a node's folder that was registered in its name by somebody else.
//!
//! The cluster tells an older copy of a folder by its starts: whoever does not know the start that registered last is one, and is shut out for good. A node
//! that lies can register a start which the true folder never had, and the true one is shut out instead. Nothing on the wire can tell the two cases
//! apart; the operator can, who knows whether the folder was ever copied. With the false start among its own, the folder is believed again at its next start:
//! its registration names the start on record, and its counter is above the one that the voters have seen.

use std::path::Path;

use highwater_wire::Incarnation;
use highwater_wire::check::{STARTS_JUMP_MAX, STARTS_MAX};

use crate::error::StartError;
use crate::folder::DataFolder;

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Whose folder it is.
    pub node: u32,
    /// The start counter before.
    pub starts_before: u64,
    /// The start counter now.
    pub starts: u64,
    /// The start was among the folder's own already.
    pub known: bool,
    /// The folder was marked as an older copy, and is not any more.
    pub was_shut_out: bool,
}

/// Takes that start into the folder of a node that does not run. Durable when this returns.
///
/// # Errors
/// [`StartError::InUse`] while the node runs; [`StartError::Adopt`] if there is no such folder or no such start; what else a folder may answer.
pub fn adopt(folder: &Path, start: Incarnation) -> Result<Adopted, StartError> {
    let refuse = |reason: String| StartError::Adopt { folder: folder.to_owned(), reason };
    if !folder.join("node").is_file() {
        return Err(refuse("it holds no file `node`; give the data folder of a node that was started before".into()));
    }
    let most = STARTS_MAX - STARTS_JUMP_MAX;
    if !(1..=most).contains(&start.starts) {
        return Err(refuse(format!(
            "a start has a number from 1 to {most}, and {} was given; give what the others show for this node under `starts`. If they show a greater one, this \
             folder has no room for starts above it: write its databases out with `highwater log replay`, and import them into a new cluster",
            start.starts
        )));
    }
    let (held, mut state) = DataFolder::of_stopped_node(folder)?;
    let done = Adopted {
        node: state.node.0,
        starts_before: state.starts,
        starts: state.starts.max(start.starts),
        known: state.incarnations.contains(&start),
        was_shut_out: state.older_copy,
    };
    if !done.known {
        let at = state.incarnations.partition_point(|own| own.starts <= start.starts);
        state.incarnations.insert(at, start);
    }
    state.starts = done.starts;
    state.older_copy = false;
    held.persist(&state)?;
    Ok(done)
}
