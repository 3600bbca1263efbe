//! What this node says of itself to others, and what it makes of what they say.
//!
//! Where a cluster secret is configured, nodes speak inside TLS and prove the secret before they say anything of themselves (`prove.rs`). Without one,
//! which is for loopback alone, both ends of a connection send their hello at once, and believe each other.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use highwater_wire::codec::{CodecError, Hello, VERSION_MAX, VERSION_MIN};
use highwater_wire::{Incarnation, NodeId, PeerId, Unfit};
use sha2::{Digest, Sha256};

use crate::secret::{Secret, Secrets};

/// What this node says of itself. The cluster is 0 until it is formed.
pub(crate) struct Introduction {
    cluster: AtomicU64,
    me: PeerId,
    incarnation: Incarnation,
    secrets: Option<Secrets>,
}

/// Who is at the other end, as it said and, where there is a secret, proved.
#[derive(Clone, Debug)]
pub struct Proven {
    pub(crate) hello: Hello,
    /// The version of the protocol that both ends speak.
    pub(crate) version: u16,
    /// The secret it was proven by; `None` where none is configured.
    pub(crate) secret: Option<Secret>,
}

impl Proven {
    /// The node at the other end.
    pub fn node(&self) -> NodeId {
        self.hello.node
    }
}

/// Why a connection to or from another node was given up.
#[derive(Debug, thiserror::Error)]
pub enum PeerRefused {
    /// The connection broke, or nothing came in time.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// What came is not what a node sends, or is of a version not known here.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// TLS was not agreed on.
    #[error(
        "the other end does not speak TLS as nodes do ({0}): every node of a cluster needs the same cluster secret, and a build that knows it"
    )]
    Tls(rustls::Error),
    /// The other end ended the connection before it proved anything.
    #[error(
        "the other end ended the connection and proved nothing: give all nodes the same cluster secret (or none of them any)"
    )]
    Unanswered,
    /// The other end does not know the secret.
    #[error("the other end does not prove that it knows this cluster's secret: give all nodes the same one")]
    WrongSecret,
    /// The other end sent more than an introduction has.
    #[error("the other end sent {0} bytes in place of an introduction")]
    TooMuch(usize),
    /// The other end knows the secret, and refuses this node.
    #[error("the other end refuses this node: {0}")]
    TurnedAway(String),
    /// The other end is this node, or another process under the same id.
    #[error(
        "the other end calls itself node {0} too: two nodes may not share an id; start one of them with another --id and its own --data"
    )]
    SameId(NodeId),
    /// The other end is not who was dialled.
    #[error("the other end is node {found}, where node {wanted} was expected: correct --peers")]
    OtherNode {
        /// Who was dialled.
        wanted: NodeId,
        /// Who answered.
        found: NodeId,
    },
    /// The other end belongs to another cluster.
    #[error(
        "node {node} belongs to cluster {found:016x}, this one to {wanted:016x}: its data folder is another cluster's"
    )]
    OtherCluster {
        /// The other end.
        node: NodeId,
        /// This node's cluster.
        wanted: u64,
        /// Its cluster.
        found: u64,
    },
    /// The other end belongs to a cluster already, and this node's folder, which belongs to none, is not one of its members'.
    #[error(
        "node {node} belongs to cluster {found:016x} already, and this node's data folder is none of its members': it is new, or was emptied. \
         Put the node's own data folder back; a new one does not take its place"
    )]
    Formed {
        /// The other end.
        node: NodeId,
        /// Its cluster.
        found: u64,
    },
    /// A message that is not of the node, log and process start that the connection was introduced by.
    #[error("{said} sent a message in the name of {found}")]
    ForeignSender {
        /// Who the hello named.
        said: String,
        /// Whom the message names.
        found: String,
    },
    /// A message that no honest node sends.
    #[error("no honest node sends that: {0}")]
    Misbehaved(Unfit),
    /// The secret by which the connection was proven is accepted no longer.
    #[error("the cluster secret that proved this connection was replaced")]
    SecretReplaced,
}

impl Introduction {
    pub(crate) fn new(cluster: u64, me: PeerId, incarnation: Incarnation, secrets: Option<Secrets>) -> Self {
        Introduction { cluster: AtomicU64::new(cluster), me, incarnation, secrets }
    }

    pub(crate) fn me(&self) -> PeerId {
        self.me
    }

    pub(crate) fn node(&self) -> NodeId {
        self.me.node
    }

    pub(crate) fn secrets(&self) -> Option<&Secrets> {
        self.secrets.as_ref()
    }

    /// Whether the secret by which a connection was proven is accepted still.
    pub(crate) fn still_accepts(&self, proven: &Proven) -> bool {
        match (&proven.secret, &self.secrets) {
            (Some(secret), Some(secrets)) => secrets.accepts(secret),
            (None, None) => true,
            _ => false,
        }
    }

    /// Whether this node proves itself by another secret now than the one by which it proved a connection that it dialled.
    pub(crate) fn proves_otherwise(&self, proven: &Proven) -> bool {
        match (&proven.secret, &self.secrets) {
            (Some(secret), Some(secrets)) => *secret != secrets.present(),
            _ => false,
        }
    }

    /// Keys for batons that all nodes of the cluster arrive at: the first is for new ones, all are accepted.
    pub(crate) fn shared_keys(&self) -> Vec<[u8; 32]> {
        assert_ne!(self.cluster(), 0, "the keys are the formed cluster's");
        let cluster = self.cluster().to_be_bytes();
        match &self.secrets {
            Some(secrets) => secrets.accepted().iter().map(|secret| secret.key("highwater batons", &cluster)).collect(),
            None => {
                let mut hash = Sha256::new();
                hash.update(b"highwater batons");
                hash.update(cluster);
                vec![hash.finalize().into()]
            }
        }
    }

    /// The cluster, 0 if it is not formed yet.
    pub(crate) fn cluster(&self) -> u64 {
        self.cluster.load(Ordering::Acquire)
    }

    /// The cluster was formed.
    pub(crate) fn formed(&self, cluster: u64) {
        assert_ne!(cluster, 0, "a formed cluster has a number");
        self.cluster.store(cluster, Ordering::Release);
    }

    /// What this node says, without a proof.
    pub(crate) fn hello(&self) -> Hello {
        Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            cluster: self.cluster(),
            node: self.me.node,
            log: self.me.log,
            incarnation: self.incarnation,
            proof: Vec::new(),
        }
    }

    /// What to make of what the other end says; the version that both speak. Whether it is true, a proof has shown, or nobody can.
    pub(crate) fn accept(&self, theirs: &Hello) -> Result<u16, PeerRefused> {
        let version = self.hello().agree(theirs)?;
        if theirs.node == self.me.node {
            return Err(PeerRefused::SameId(theirs.node));
        }
        let cluster = self.cluster();
        if cluster != 0 && theirs.cluster != 0 && cluster != theirs.cluster {
            return Err(PeerRefused::OtherCluster { node: theirs.node, wanted: cluster, found: theirs.cluster });
        }
        Ok(version)
    }

    /// The exchange without a secret: what to send first, which is all of it.
    pub(crate) fn plain_hello(&self) -> Vec<u8> {
        assert!(self.secrets.is_none(), "a node with a secret proves it");
        self.hello().encode()
    }

    /// The exchange without a secret: takes the other's hello off what was received; `None` if more bytes are needed.
    pub(crate) fn plain_received(&self, received: &mut BytesMut) -> Result<Option<Proven>, PeerRefused> {
        let Some(hello) = Hello::decode(received)? else {
            return Ok(None);
        };
        if !hello.proof.is_empty() {
            // A node of an earlier build proves a secret like that; this one has none.
            return Err(PeerRefused::WrongSecret);
        }
        let version = self.accept(&hello)?;
        Ok(Some(Proven { hello, version, secret: None }))
    }
}
