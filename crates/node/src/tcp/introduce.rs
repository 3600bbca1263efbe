//! Who is at the other end.
//!
//! A hello names cluster, node, log id and incarnation. It proves knowledge of the cluster's secret, where one is configured, by an HMAC over what it says: that
//! keeps strangers out, and does not protect against whoever can read the network, who could replay it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use highwater_wire::codec::{CodecError, Hello, VERSION_MAX, VERSION_MIN};
use highwater_wire::{Incarnation, NodeId, PeerId};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

/// How long either end may take to introduce itself.
const HELLO_WAIT: Duration = Duration::from_secs(5);

/// What this node says of itself. The cluster is 0 until it is formed.
pub(crate) struct Introduction {
    cluster: AtomicU64,
    me: PeerId,
    incarnation: Incarnation,
    secret: Option<crate::secret::Secret>,
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
    /// The other end does not know the secret.
    #[error("node {0} does not prove that it knows this cluster's secret: give all nodes the same --cluster-secret")]
    WrongSecret(NodeId),
    /// A message in another node's name.
    #[error("node {0} sent a message in the name of node {1}")]
    ForeignSender(NodeId, NodeId),
}

impl Introduction {
    pub(crate) fn new(
        cluster: u64,
        me: PeerId,
        incarnation: Incarnation,
        secret: Option<crate::secret::Secret>,
    ) -> Self {
        Introduction { cluster: AtomicU64::new(cluster), me, incarnation, secret }
    }

    pub(crate) fn me(&self) -> PeerId {
        self.me
    }

    /// A key that all nodes of the cluster arrive at.
    pub(crate) fn shared_key(&self) -> [u8; 32] {
        assert_ne!(self.cluster(), 0, "the key is the formed cluster's");
        let mut hash = Sha256::new();
        hash.update(b"highwater batons");
        hash.update(self.cluster().to_be_bytes());
        if let Some(secret) = &self.secret {
            hash.update(secret.key("batons", b""));
        }
        hash.finalize().into()
    }

    pub(crate) fn node(&self) -> NodeId {
        self.me.node
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

    /// Sends this node's hello and reads the other's. Returns it with the protocol version that both speak, and whatever was received behind it.
    pub(crate) fn exchange(&self, stream: &mut TcpStream) -> Result<(Hello, u16, BytesMut), PeerRefused> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HELLO_WAIT))?;
        stream.set_write_timeout(Some(HELLO_WAIT))?;
        let ours = self.hello();
        stream.write_all(&ours.encode())?;
        let mut received = BytesMut::new();
        let theirs = loop {
            if let Some(hello) = Hello::decode(&mut received)? {
                break hello;
            }
            let mut chunk = [0; 1024];
            match stream.read(&mut chunk)? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                n => received.extend_from_slice(&chunk[..n]),
            }
        };
        let version = ours.agree(&theirs)?;
        self.accept(&theirs)?;
        stream.set_read_timeout(None)?;
        Ok((theirs, version, received))
    }

    fn accept(&self, theirs: &Hello) -> Result<(), PeerRefused> {
        if theirs.node == self.me.node {
            return Err(PeerRefused::SameId(theirs.node));
        }
        let cluster = self.cluster();
        if cluster != 0 && theirs.cluster != 0 && cluster != theirs.cluster {
            return Err(PeerRefused::OtherCluster { node: theirs.node, wanted: cluster, found: theirs.cluster });
        }
        let proven = match &self.secret {
            None => theirs.proof.is_empty(),
            Some(secret) => self.proof_of(secret, theirs).verify_slice(&theirs.proof).is_ok(),
        };
        if proven { Ok(()) } else { Err(PeerRefused::WrongSecret(theirs.node)) }
    }

    fn hello(&self) -> Hello {
        let mut hello = Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            cluster: self.cluster(),
            node: self.me.node,
            log: self.me.log,
            incarnation: self.incarnation,
            proof: Vec::new(),
        };
        if let Some(secret) = &self.secret {
            hello.proof = self.proof_of(secret, &hello).finalize().into_bytes().to_vec();
        }
        hello
    }

    fn proof_of(&self, secret: &crate::secret::Secret, hello: &Hello) -> Hmac<Sha256> {
        let said = Hello { proof: Vec::new(), ..hello.clone() };
        let mut mac = secret.mac();
        mac.update(&said.encode());
        mac
    }
}
