//! Other nodes over TCP.
//!
//! Every node dials every other one and sends only on the connections it dialled; what it receives comes on those it accepted. Both ends of a
//! connection introduce themselves first: inside TLS, with proofs, or without a secret by plain hellos. There are no answers at this level and nothing is sent again: the protocol repeats what matters, and a
//! message that finds no connection, or no room, is dropped.
//!
//! The end of a dialled connection is noticed at once, by a thread that waits for it; if dialling anew is then *refused*, the other process is gone and
//! the core hears that too, so that a crashed node is succeeded without waiting for its session to run out.

mod channel;
mod dial;
mod door;
mod form;
mod forward;
mod inbound;
mod introduce;
mod prove;
mod tls;

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater_wire::{Body, Envelope, NodeId};

pub use door::Door;
pub(crate) use form::gather;
pub use forward::ForwardStream;
pub(crate) use forward::dial as dial_to_forward;
pub(crate) use introduce::Introduction;
pub use introduce::{PeerRefused, Proven};
pub(crate) use tls::NodeTls;

use crate::inbox::Inbox;
use crate::peers::Peers;
use dial::Link;
use inbound::Inbound;

/// The connections this node dials.
pub(crate) struct TcpPeers {
    links: BTreeMap<NodeId, Link>,
    inbound: Arc<Inbound>,
}

impl TcpPeers {
    /// Dials these nodes, and goes on doing so until dropped.
    pub(crate) fn dial(
        addresses: &BTreeMap<NodeId, String>,
        introduction: &Arc<Introduction>,
        tls: &NodeTls,
        door: &Door,
        inbox: &Inbox,
    ) -> std::io::Result<TcpPeers> {
        let mut links = BTreeMap::new();
        for (node, address) in addresses.iter().filter(|(node, _)| **node != introduction.node()) {
            links.insert(*node, Link::start(*node, address.clone(), introduction.clone(), tls.clone(), inbox.clone())?);
        }
        Ok(TcpPeers { links, inbound: door.inbound().clone() })
    }
}

impl Peers for TcpPeers {
    fn send(&mut self, to: NodeId, envelope: Envelope) {
        match self.links.get(&to) {
            Some(link) => link.send(envelope),
            None => tracing::debug!(%to, "dropped a message: no address is known for that node"),
        }
    }

    fn refuse(&mut self, node: NodeId, reason: &str) {
        self.inbound.refuse(node, reason);
    }
}

/// What an envelope weighs in a queue: its batches, and an allowance for the rest.
fn weight(envelope: &Envelope) -> usize {
    match &envelope.body {
        Body::Batch { batches, .. } => batches.len() + 128,
        _ => 128,
    }
}
