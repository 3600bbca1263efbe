//! The seam to other nodes.
//!
//! The core hands every message for another node to [`Peers::send`], in order, and never waits. Messages may be lost: the protocol repeats what
//! matters. What arrives, and the news that a connection broke or that a process is gone, goes back through the core's inbox.

use highwater_wire::{Envelope, NodeId};

/// Carries messages to other nodes.
pub trait Peers: Send {
    /// Sends, or drops if that node cannot be reached now. Never blocks.
    fn send(&mut self, to: NodeId, envelope: Envelope);

    /// What that node sent is none of what an honest node sends, and has changed nothing: its connection is to be closed, and said why. `reason` is one of
    /// a fixed number of texts, each of which says what was wanted.
    fn refuse(&mut self, node: NodeId, reason: &str) {
        let _ = (node, reason);
    }
}

/// A cluster of one: there is nobody to send to.
#[derive(Debug, Default)]
pub struct NoPeers;

impl Peers for NoPeers {
    fn send(&mut self, to: NodeId, envelope: Envelope) {
        tracing::debug!(%to, partition = envelope.partition.0, "dropped a message: this node has no peers");
    }
}
