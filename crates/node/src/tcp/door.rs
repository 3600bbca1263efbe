//! Where other nodes come in.
//!
//! Whoever accepts connections for this process looks at their first bytes. A node's begins with TLS for one of the node protocols or, where no secret is configured, with a
//! plain hello. Until the other end has introduced itself the connection is a task; only then it gets a thread. What comes after that is a proven node's: each message
//! is checked by itself here and against the state in the core, and one that no healthy node sends ends the connection.

use std::io::ErrorKind::{Interrupted, TimedOut, UnexpectedEof, WouldBlock};
use std::net::TcpStream;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use highwater_host::Input;
use highwater_wire::codec::{self, CodecError};
use highwater_wire::{Envelope, PeerId};
use rustls::{ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::server::TlsStream;

use super::channel::{Accepted, HELLO_WAIT, tls_or_io};
use super::inbound::Inbound;
use super::introduce::{Introduction, PeerRefused, Proven};
use super::prove::Handshake;
use super::tls::{FORWARD_PROTOCOL, LINK_PROTOCOL, NodeTls, exported};
use crate::inbox::{Inbox, ToCore};

/// The first byte that a node without a secret sends and no HTTP request begins with.
const FIRST_BYTE: u8 = b'H';
/// The first bytes of a plain hello, long enough to tell it from `HEAD`.
const FIRST_BYTES: &[u8] = b"HWPEER";

/// Takes accepted connections of other nodes. Before the core runs it only introduces this node, which is how a cluster forms.
#[derive(Clone)]
pub struct Door {
    introduction: Arc<Introduction>,
    tls: NodeTls,
    inbox: Arc<OnceLock<Inbox>>,
    inbound: Arc<Inbound>,
}

impl Door {
    /// How many bytes [`Door::is_node`] looks at.
    pub const LOOK_BYTES: usize = FIRST_BYTES.len();
    /// How long the other end may take to introduce itself, TLS included.
    pub const HELLO_WAIT: Duration = HELLO_WAIT;

    pub(crate) fn new(introduction: Arc<Introduction>, tls: NodeTls) -> Door {
        Door { introduction, tls, inbox: Arc::new(OnceLock::new()), inbound: Arc::default() }
    }

    pub(crate) fn open(&self, inbox: Inbox) {
        assert!(self.inbox.set(inbox).is_ok(), "a door is opened once");
    }

    pub(crate) fn inbound(&self) -> &Arc<Inbound> {
        &self.inbound
    }

    /// Whether a connection that begins with these bytes is a node's without TLS; `None` if it takes more bytes to tell.
    pub fn is_node(first: &[u8]) -> Option<bool> {
        let seen = first.len().min(FIRST_BYTES.len());
        if first.first().is_some_and(|byte| *byte != FIRST_BYTE) || first[..seen] != FIRST_BYTES[..seen] {
            Some(false)
        } else {
            (seen == FIRST_BYTES.len()).then_some(true)
        }
    }

    /// Whether a connection for these protocols is another node's, that is, whether [`Door::tls`] is what answers it.
    pub fn is_node_protocol<'a>(mut protocols: impl Iterator<Item = &'a [u8]>) -> bool {
        protocols.any(|protocol| protocol == LINK_PROTOCOL || protocol == FORWARD_PROTOCOL)
    }

    /// How TLS is spoken with nodes; `None` if no secret is configured, so that there is nothing to prove inside it.
    pub fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.introduction.secrets().map(|_| self.tls.accepts())
    }

    /// The exchange inside TLS. Give up on it after [`Door::HELLO_WAIT`]. Returns who the other end is, whether it forwards clients' requests (or else carries messages),
    /// and what was received behind the exchange.
    ///
    /// # Errors
    /// Any [`PeerRefused`]. Nothing was said to an end that has not proven the secret.
    pub async fn prove<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut TlsStream<S>,
    ) -> Result<(Proven, bool, BytesMut), PeerRefused> {
        let forwards = stream.get_ref().1.alpn_protocol() == Some(FORWARD_PROTOCOL);
        let protocol = if forwards { FORWARD_PROTOCOL } else { LINK_PROTOCOL };
        let exported = exported(stream.get_ref().1, protocol)?;
        let mut handshake = Handshake::accepting(&self.introduction, exported);
        let mut received = BytesMut::new();
        loop {
            let mut chunk = [0; 1024];
            match stream.read(&mut chunk).await.map_err(tls_or_io)? {
                0 => return Err(PeerRefused::Unanswered),
                count => received.extend_from_slice(&chunk[..count]),
            }
            let mut out = Vec::new();
            let outcome = handshake.received(&mut received, &mut out);
            if !out.is_empty() {
                stream.write_all(&out).await?;
                stream.flush().await?;
            }
            if let Some(proven) = outcome? {
                return Ok((proven, forwards, received));
            }
        }
    }

    /// The exchange without a secret, on a connection of which `received` has come already. Give up on it after [`Door::HELLO_WAIT`].
    ///
    /// # Errors
    /// Any [`PeerRefused`]; if a secret is configured, at once, and nothing was said.
    pub async fn introduce<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        mut received: BytesMut,
    ) -> Result<(Proven, BytesMut), PeerRefused> {
        if self.introduction.secrets().is_some() {
            return Err(PeerRefused::WrongSecret);
        }
        stream.write_all(&self.introduction.plain_hello()).await?;
        loop {
            if let Some(proven) = self.introduction.plain_received(&mut received)? {
                return Ok((proven, received));
            }
            let mut chunk = [0; 1024];
            match stream.read(&mut chunk).await? {
                0 => return Err(PeerRefused::Unanswered),
                count => received.extend_from_slice(&chunk[..count]),
            }
        }
    }

    /// Whether a forwarding connection that was proven so is still to be served.
    pub fn still_accepts(&self, proven: &Proven) -> bool {
        self.introduction.still_accepts(proven)
    }

    /// Returns once a connection that was proven so is to be served no longer, because the secret was replaced.
    pub async fn forgotten(&self, proven: &Proven) {
        match (self.introduction.secrets(), &proven.secret) {
            (Some(secrets), Some(secret)) => secrets.forgotten(secret).await,
            _ => std::future::pending().await,
        }
    }

    /// Serves the connection of a node that has introduced itself, on a thread of its own. The socket blocks.
    pub fn enter(&self, stream: TcpStream, tls: Option<Box<ServerConnection>>, proven: Proven, received: BytesMut) {
        if self.inbox.get().is_none() || proven.hello.cluster == 0 {
            // It only wanted to know who this is; or nothing is carried yet.
            return;
        }
        let door = self.clone();
        let spawned = std::thread::Builder::new().name("from-node".into()).spawn(move || {
            let node = proven.node();
            match door.serve(Accepted::new(stream, tls), &proven, received) {
                Ok(()) => {}
                Err(PeerRefused::Misbehaved(unfit)) => door.inbound.refuse(node, unfit.wanted),
                Err(error) => {
                    tracing::warn!(node = node.0, reason = %error, "a node's connection was given up");
                }
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread for a node's connection");
        }
    }

    fn serve(&self, mut connection: Accepted, proven: &Proven, mut received: BytesMut) -> Result<(), PeerRefused> {
        let inbox = self.inbox.get().expect("looked at before");
        let hello = &proven.hello;
        tracing::info!(node = hello.node.0, starts = hello.incarnation.starts, "a node came in");
        // Woken now and then even if nothing arrives, to see whether a frame is overdue.
        connection.socket().set_read_timeout(Some(codec::FRAME_WAIT))?;
        let _listed = self.inbound.list(hello.node, connection.socket())?;
        let mut unfinished = Unfinished::default();
        loop {
            while let Some(envelope) = codec::decode(&mut received, proven.version)? {
                check(&envelope, proven)?;
                unfinished = Unfinished::default();
                if inbox.send(ToCore::Host(Input::Message(envelope))).is_err() {
                    return Ok(());
                }
            }
            if unfinished.is_overdue(Instant::now(), received.len()) {
                return Err(CodecError::Overdue { found: received.len() }.into());
            }
            if !self.introduction.still_accepts(proven) {
                return Err(PeerRefused::SecretReplaced);
            }
            match connection.read(&mut received) {
                Ok(0) if received.is_empty() => return Ok(()),
                Ok(0) => return Err(CodecError::Malformed("the connection ended within a frame".into()).into()),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), Interrupted | WouldBlock | TimedOut) => {}
                Err(error)
                    if received.is_empty()
                        && matches!(error.kind(), std::io::ErrorKind::ConnectionReset | UnexpectedEof) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(tls_or_io(error)),
            }
            received = grown(received);
        }
    }
}

/// A message is one that an honest node may send, of the node, the log and the process start that the connection was introduced by.
fn check(envelope: &Envelope, proven: &Proven) -> Result<(), PeerRefused> {
    let hello = &proven.hello;
    let said = PeerId { node: hello.node, log: hello.log };
    if envelope.sender.peer != said || envelope.sender.incarnation != hello.incarnation {
        return Err(PeerRefused::ForeignSender {
            said: format!("{said:?} in {:?}", hello.incarnation),
            found: format!("{:?} in {:?}", envelope.sender.peer, envelope.sender.incarnation),
        });
    }
    highwater_wire::check(envelope).map_err(PeerRefused::Misbehaved)
}

/// Since when the rest of a frame is waited for.
#[derive(Default)]
struct Unfinished {
    since: Option<Instant>,
}

impl Unfinished {
    /// Whether a frame that has begun, with so many bytes, should have been whole by now.
    fn is_overdue(&mut self, now: Instant, bytes: usize) -> bool {
        if bytes == 0 {
            self.since = None;
            return false;
        }
        now.duration_since(*self.since.get_or_insert(now)) >= codec::FRAME_WAIT
    }
}

/// From this capacity on an empty buffer is given back.
const BUFFER_KEPT_BYTES: usize = 2 << 20;

/// Gives back what an exceptionally large frame took.
fn grown(received: BytesMut) -> BytesMut {
    if received.is_empty() && received.capacity() > BUFFER_KEPT_BYTES { BytesMut::new() } else { received }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Door, Unfinished};

    #[test]
    fn a_frame_that_is_never_whole_is_given_up_and_a_silent_connection_is_not() {
        let (begin, mut unfinished) = (Instant::now(), Unfinished::default());
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert!(!unfinished.is_overdue(after(0), 0));
        assert!(!unfinished.is_overdue(after(100), 0));
        assert!(!unfinished.is_overdue(after(100), 40));
        assert!(!unfinished.is_overdue(after(109), 4000));
        assert!(unfinished.is_overdue(after(110), 5000));
    }

    #[test]
    fn nodes_are_told_from_clients_by_their_first_bytes() {
        for method in ["GET / HTTP/1.1", "HEAD / HTTP/1.1", "POST /", "HTTP", "\0\0"] {
            assert_eq!(Door::is_node(method.as_bytes()), Some(false), "{method}");
        }
        assert_eq!(Door::is_node(b"HWPEER\r\n"), Some(true));
        assert_eq!(Door::is_node(b"HWP"), None);
        assert_eq!(Door::is_node(b""), None);
    }
}
