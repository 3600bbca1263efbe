//! Where other nodes come in.

use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::io::Read;
use std::net::TcpStream;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::BytesMut;
use highwater_host::Input;
use highwater_wire::codec::{self, CodecError};

use super::introduce::{Introduction, PeerRefused};
use crate::inbox::{Inbox, ToCore};

/// The first byte that a node sends and no HTTP request begins with: clients and nodes share one port, and whoever accepts connections looks at it.
const FIRST_BYTE: u8 = b'H';
/// The first bytes of a node's hello, long enough to tell it from `HEAD`.
const FIRST_BYTES: &[u8] = b"HWPEER";
/// Bytes read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Takes accepted connections of other nodes. Before the core runs it only introduces this node, which is how a cluster forms.
#[derive(Clone)]
pub struct Door {
    introduction: Arc<Introduction>,
    inbox: Arc<OnceLock<Inbox>>,
}

impl Door {
    pub(crate) fn new(introduction: Arc<Introduction>) -> Door {
        Door { introduction, inbox: Arc::new(OnceLock::new()) }
    }

    pub(crate) fn open(&self, inbox: Inbox) {
        assert!(self.inbox.set(inbox).is_ok(), "a door is opened once");
    }

    /// How many bytes [`Door::is_node`] looks at.
    pub const PEEK_BYTES: usize = FIRST_BYTES.len();

    /// Whether a connection that begins with these bytes is a node's; `None` if it takes more bytes to tell.
    pub fn is_node(first: &[u8]) -> Option<bool> {
        let seen = first.len().min(FIRST_BYTES.len());
        if first.first().is_some_and(|byte| *byte != FIRST_BYTE) || first[..seen] != FIRST_BYTES[..seen] {
            Some(false)
        } else {
            (seen == FIRST_BYTES.len()).then_some(true)
        }
    }

    /// Serves an accepted, blocking connection on a thread of its own.
    pub fn enter(&self, stream: TcpStream) {
        let door = self.clone();
        let spawned = std::thread::Builder::new().name("from-node".into()).spawn(move || {
            let from = stream.peer_addr().map_or_else(|_| "?".to_string(), |address| address.to_string());
            if let Err(error) = door.serve(stream) {
                tracing::warn!(%from, reason = %error, "a node's connection was given up");
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread for a node's connection");
        }
    }

    fn serve(&self, mut stream: TcpStream) -> Result<(), PeerRefused> {
        let (hello, version, mut received) = self.introduction.exchange(&mut stream)?;
        let Some(inbox) = self.inbox.get() else {
            return Ok(());
        };
        if hello.cluster == 0 {
            // It only wanted to know who this is.
            return Ok(());
        }
        tracing::info!(node = hello.node.0, starts = hello.incarnation.starts, "a node came in");
        // Woken now and then even if nothing arrives, to see whether a frame is overdue.
        stream.set_read_timeout(Some(codec::FRAME_WAIT))?;
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut unfinished = Unfinished::default();
        loop {
            while let Some(envelope) = codec::decode(&mut received, version)? {
                if envelope.sender.peer.node != hello.node {
                    return Err(PeerRefused::ForeignSender(hello.node, envelope.sender.peer.node));
                }
                unfinished = Unfinished::default();
                if inbox.send(ToCore::Host(Input::Message(envelope))).is_err() {
                    return Ok(());
                }
            }
            if unfinished.is_overdue(Instant::now(), received.len()) {
                return Err(CodecError::Overdue { found: received.len() }.into());
            }
            match stream.read(&mut chunk) {
                Ok(0) if received.is_empty() => return Ok(()),
                Ok(0) => return Err(CodecError::Malformed("the connection ended within a frame".into()).into()),
                Ok(n) => received.extend_from_slice(&chunk[..n]),
                Err(error) if matches!(error.kind(), Interrupted | WouldBlock | TimedOut) => {}
                Err(error) if received.is_empty() && error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
            received = grown(received);
        }
    }
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

/// Gives back what an exceptionally large frame took.
fn grown(received: BytesMut) -> BytesMut {
    if received.is_empty() && received.capacity() > 8 * CHUNK_BYTES { BytesMut::new() } else { received }
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
