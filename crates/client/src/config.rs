//! What a client may be told when it is made.

use std::time::Duration;

/// How a [`Client`](crate::Client) behaves. The defaults are for a cluster in one place.
#[derive(Clone, Debug)]
pub struct Config {
    /// The nodes to begin with, as `http://HOST:PORT`, or all as `https://HOST:PORT`. One that answers is enough. Nodes that are learned from them are spoken to
    /// in the same way.
    pub urls: Vec<String>,
    /// A token, if the cluster wants one.
    pub token: Option<String>,
    /// The certificates, as PEM text, that a node's must lead to; `None` for those that the system trusts. Nothing under `http`.
    pub ca: Option<Vec<u8>>,
    /// How long one call may take, all attempts together.
    pub deadline: Duration,
    /// How long one attempt waits for its answer before another node is asked. Doubled after each attempt that ran out, so that a transaction that takes
    /// long is answered in the end.
    pub attempt: Duration,
    /// How long a connection may take to open, the handshake of TLS included.
    pub connect: Duration,
    /// Whether to learn the cluster's other nodes and its leader from those given. Without it, requests go only to the nodes given, the first one first.
    pub discover: bool,
}

impl Config {
    /// The defaults for these nodes: a deadline of 30 s, attempts of 1 s, connections within 500 ms, the rest of the cluster discovered.
    pub fn new<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Config {
        Config {
            urls: urls.into_iter().map(Into::into).collect(),
            token: None,
            ca: None,
            deadline: Duration::from_secs(30),
            attempt: Duration::from_secs(1),
            connect: Duration::from_millis(500),
            discover: true,
        }
    }
}
