//! One dialled connection: kept up, written to, watched.
//!
//! Once this node proves itself by another secret, a connection that the old one proved is replaced while it still works, since the other end may accept that secret no longer next: a new one
//! is dialled, the old one is written to its end, and only when the other end has taken all of it does the new one carry anything. Nothing is lost, nothing overtakes,
//! and nobody takes it for the loss of a node.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use highwater_host::Input;
use highwater_wire::{Envelope, NodeId, codec};

use super::channel::{Dialled, dial};
use super::introduce::{Introduction, PeerRefused, Proven};
use super::tls::NodeTls;
use super::weight;
use crate::inbox::{Inbox, ToCore};

/// Bytes that may wait for one node; what comes beyond is dropped, and the protocol opens its stream anew.
const QUEUED_BYTES_MAX: usize = 64 << 20;
/// Envelopes are gathered into one write up to this many bytes.
const WRITE_BYTES: usize = 256 << 10;
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// After a connection could not be replaced by one that the present secret proves.
const RENEW_AGAIN: Duration = Duration::from_secs(1);

enum ToLink {
    Envelope(Envelope),
    /// The connection with this number has ended.
    Ended(u64),
    /// The node stops.
    Stop,
}

/// The sending end of a link.
pub(super) struct Link {
    queue: Sender<ToLink>,
    queued_bytes: Arc<AtomicUsize>,
}

impl Link {
    pub(super) fn start(
        node: NodeId,
        address: String,
        introduction: Arc<Introduction>,
        tls: NodeTls,
        inbox: Inbox,
    ) -> io::Result<Link> {
        let (queue, receiver) = mpsc::channel();
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        let dialler = Dialler {
            node,
            address,
            introduction,
            tls,
            inbox,
            queued_bytes: queued_bytes.clone(),
            own: queue.clone(),
            connections: 0,
            version: codec::VERSION_MIN,
            last_complaint: None,
        };
        std::thread::Builder::new().name(format!("to-{node}")).spawn(move || dialler.run(&receiver))?;
        Ok(Link { queue, queued_bytes })
    }

    pub(super) fn send(&self, envelope: Envelope) {
        let weight = weight(&envelope);
        if self.queued_bytes.load(Ordering::Relaxed) + weight > QUEUED_BYTES_MAX {
            tracing::debug!("dropped a message: the queue to its node is full");
            return;
        }
        self.queued_bytes.fetch_add(weight, Ordering::Relaxed);
        if self.queue.send(ToLink::Envelope(envelope)).is_err() {
            tracing::debug!("dropped a message: its link has ended");
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // An error means that the link has ended already.
        let _ = self.queue.send(ToLink::Stop);
    }
}

/// The thread behind a link.
struct Dialler {
    node: NodeId,
    address: String,
    introduction: Arc<Introduction>,
    tls: NodeTls,
    inbox: Inbox,
    queued_bytes: Arc<AtomicUsize>,
    own: Sender<ToLink>,
    connections: u64,
    /// The protocol's version on the present connection.
    version: u16,
    last_complaint: Option<String>,
}

/// Why a connection is written to no more.
enum Pumped {
    Broken,
    Stopped,
}

impl Dialler {
    fn run(mut self, queue: &Receiver<ToLink>) {
        let mut pause = PAUSE_MIN;
        let mut was_connected = false;
        loop {
            match dial(&self.address, self.node, &self.introduction, &self.tls) {
                Ok((connection, proven)) => {
                    self.version = proven.version;
                    tracing::info!(node = self.node.0, address = %self.address, "connected");
                    (pause, was_connected, self.last_complaint) = (PAUSE_MIN, true, None);
                    let begun = Instant::now();
                    match self.pump(connection, proven, queue) {
                        Pumped::Stopped => return,
                        Pumped::Broken => {
                            tracing::info!(node = self.node.0, "the connection broke");
                            self.tell(Input::Disconnected(self.node));
                            // Dialling again at once tells a broken connection from a process that is gone. A node that is only starting says who it is and hangs up:
                            // without a pause it would be dialled a thousand times a second until it has recovered.
                            if begun.elapsed() > PAUSE_MAX {
                                continue;
                            }
                        }
                    }
                }
                Err(error) => {
                    let refused = matches!(&error, PeerRefused::Io(e) if e.kind() == io::ErrorKind::ConnectionRefused);
                    if refused && was_connected {
                        self.tell(Input::Gone(self.node));
                    }
                    was_connected &= !refused;
                    self.complain(&error);
                }
            }
            if self.drop_for(pause, queue) {
                return;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Writes what is queued until the connection ends. Several envelopes share a write if they are there together.
    fn pump(&mut self, mut connection: Dialled, mut proven: Proven, queue: &Receiver<ToLink>) -> Pumped {
        let Some(mut number) = self.watched(&connection) else { return Pumped::Broken };
        let mut renew_at = Instant::now();
        let mut out = BytesMut::new();
        let outcome = loop {
            let Ok(first) = queue.recv() else { break Pumped::Stopped };
            let mut next = Some(first);
            let mut end = None;
            while let Some(message) = next.take() {
                match message {
                    ToLink::Envelope(envelope) => self.encode(&envelope, &mut out),
                    ToLink::Ended(ended) if ended == number => end = Some(Pumped::Broken),
                    ToLink::Ended(_) => {}
                    ToLink::Stop => end = Some(Pumped::Stopped),
                }
                if end.is_none() && out.len() < WRITE_BYTES {
                    next = queue.try_recv().ok();
                }
            }
            if let Some(end) = end {
                break end;
            }
            if !self.introduction.still_accepts(&proven) {
                tracing::info!(node = self.node.0, "the cluster secret was replaced: the connection is made anew");
                break Pumped::Broken;
            }
            if connection.write_all(&out).is_err() {
                break Pumped::Broken;
            }
            out.clear();
            if self.introduction.proves_otherwise(&proven) && Instant::now() >= renew_at {
                match dial(&self.address, self.node, &self.introduction, &self.tls) {
                    Ok((new, by)) => {
                        connection.finish();
                        self.version = by.version;
                        (connection, proven) = (new, by);
                        match self.watched(&connection) {
                            Some(new) => number = new,
                            None => break Pumped::Broken,
                        }
                        tracing::info!(node = self.node.0, "connected anew by the present cluster secret");
                    }
                    Err(error) => {
                        self.complain(&error);
                        renew_at = Instant::now() + RENEW_AGAIN;
                    }
                }
            }
        };
        // The thread that watches it ends with it.
        connection.end();
        outcome
    }

    fn encode(&self, envelope: &Envelope, out: &mut BytesMut) {
        self.queued_bytes.fetch_sub(weight(envelope), Ordering::Relaxed);
        if envelope.body.since_version() > self.version {
            return; // The other end is of an older build, to which it would be no message.
        }
        if let Err(error) = codec::encode(envelope, self.version, out) {
            tracing::error!(node = self.node.0, %error, "a message cannot travel");
        }
    }

    /// Gives a connection the next number, under which its end is told; nothing if that cannot be.
    fn watched(&mut self, connection: &Dialled) -> Option<u64> {
        self.connections += 1;
        let watched = self.watch(connection, self.connections);
        watched
            .inspect_err(|error| tracing::warn!(node = self.node.0, %error, "a connection cannot be watched"))
            .ok()
            .map(|()| self.connections)
    }

    /// Starts a thread that notices the end of the connection: nothing is received on it that would mean anything.
    fn watch(&self, connection: &Dialled, number: u64) -> io::Result<()> {
        let (mut watched, own) = (connection.socket()?, self.own.clone());
        std::thread::Builder::new().name(format!("watch-{}", self.node)).spawn(move || {
            let mut byte = [0; 1];
            while matches!(watched.read(&mut byte), Ok(1)) {}
            let _ = own.send(ToLink::Ended(number));
        })?;
        Ok(())
    }

    /// Drops what is queued for a while: there is no connection. Returns whether the node stops.
    fn drop_for(&self, pause: Duration, queue: &Receiver<ToLink>) -> bool {
        let until = Instant::now() + pause;
        loop {
            match queue.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(ToLink::Envelope(envelope)) => {
                    self.queued_bytes.fetch_sub(weight(&envelope), Ordering::Relaxed);
                }
                Ok(ToLink::Ended(_)) => {}
                Ok(ToLink::Stop) | Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }

    fn tell(&self, input: Input) {
        if self.inbox.send(ToCore::Host(input)).is_err() {
            tracing::debug!("the core has ended");
        }
    }

    /// Says once why a node cannot be reached, and again only if the reason changes.
    fn complain(&mut self, error: &PeerRefused) {
        let text = error.to_string();
        if self.last_complaint.as_ref() != Some(&text) {
            tracing::warn!(node = self.node.0, address = %self.address, reason = %text, "no connection");
            self.last_complaint = Some(text);
        }
    }
}
