//! One port for clients and for other nodes.
//!
//! The first bytes of a connection say what it is:
//!
//! | It begins with | and is | |
//! |---|---|---|
//! | TLS that names a protocol of nodes | another node | the secret is proven inside it, then it gets a thread (messages) or is served like a client (forwarded requests) |
//! | TLS otherwise | a client | served if there is a certificate, else refused by an alert |
//! | `HWPEER` | a node without a secret | on loopback alone |
//! | anything else | a client without TLS | served where that is allowed, else told `TLS_REQUIRED` |
//!
//! Until it is known which, a connection counts among the clients', where those that do nothing give way. Nodes that have not proven themselves have a table of their own,
//! small and with one deadline: neither kind of stranger keeps out the other. Clients are served once the node runs; until then they wait.

mod begun;
mod serve;
mod table;
mod watched;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use highwater_node::tcp::{Door, PeerRefused, Proven};
use highwater_wire::NodeId;
use rustls::ServerConfig;
use rustls::server::Acceptor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};

use begun::Begun;
use serve::{From, serve, tls_required};
use table::{Connections, Counts, Place, Waits};

pub(crate) use serve::Serving;

/// The address that a request came from, among its extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientAddress(pub(crate) IpAddr);

/// The node that forwards a request, if it has proven who it is, among the request's extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromNode(pub(crate) Option<NodeId>);

/// The first byte of TLS: a record of its handshake.
const TLS_FIRST_BYTE: u8 = 0x16;
/// TLS's fatal alert `no_application_protocol`, as a whole record.
const NO_TLS_HERE: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 120];
/// After accepting failed, which happens when there are too many open files.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// How often connections that do nothing are looked for.
const SWEEP: Duration = Duration::from_millis(500);
/// Nodes that have not proven themselves yet, at one time.
const UNPROVEN_MAX: usize = 64;
/// How often the same kind of refusal is logged...
const SAY_AGAIN: Duration = Duration::from_secs(60);
/// ...where a kind is how the reason begins, numbers left out...
const REASON_KIND_CHARS: usize = 24;
/// ...and there are no more kinds than this in a minute.
const REASON_KINDS_MAX: usize = 32;

/// How long clients' connections may do nothing.
const CLIENT_WAITS: Waits = Waits {
    first: Duration::from_secs(10),
    head: Duration::from_secs(10),
    idle: Duration::from_secs(75),
    stall: Duration::from_secs(30),
};
/// The same of nodes before they have proven themselves...
const UNPROVEN_WAITS: Waits =
    Waits { first: Door::HELLO_WAIT, head: Door::HELLO_WAIT, idle: Door::HELLO_WAIT, stall: Door::HELLO_WAIT };
/// ...and of those that forward requests: the forwarding end closes what it does not use.
const FORWARDER_WAITS: Waits = Waits { first: Duration::from_secs(75), ..CLIENT_WAITS };

/// What a port is opened with.
pub(crate) struct PortConfig {
    pub(crate) door: Door,
    /// How TLS is spoken with clients.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Whether clients may speak without TLS.
    pub(crate) plain: bool,
    /// The most connections of clients.
    pub(crate) connections: usize,
    /// The most connections on which other nodes forward requests.
    pub(crate) forwarders: usize,
}

/// What is counted of each kind of connection, by name, whenever it is asked.
pub(crate) type Counted = Box<dyn Fn() -> [(&'static str, Counts); 3] + Send + Sync>;

/// A port that accepts connections.
pub(crate) struct Port {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

struct Shared {
    config: PortConfig,
    clients: Arc<Connections>,
    unproven: Arc<Connections>,
    forwarders: Arc<Connections>,
    serving: watch::Sender<Option<Serving>>,
    /// By how a reason begins, when it was last logged and how often it came since.
    said: Mutex<BTreeMap<String, (Instant, u64)>>,
}

impl Port {
    /// Begins to accept.
    pub(crate) fn open(listener: TcpListener, config: PortConfig) -> Port {
        let shared = Arc::new(Shared {
            clients: Connections::new(config.connections, CLIENT_WAITS),
            unproven: Connections::new(UNPROVEN_MAX, UNPROVEN_WAITS),
            forwarders: Connections::new(config.forwarders, FORWARDER_WAITS),
            serving: watch::Sender::new(None),
            said: Mutex::default(),
            config,
        });
        let tasks = vec![tokio::spawn(accept(listener, shared.clone())), tokio::spawn(sweep(shared.clone()))];
        Port { shared, tasks }
    }

    /// Serves clients from now on.
    pub(crate) fn serve(&self, serving: Serving) {
        self.shared.serving.send_replace(Some(serving));
    }

    /// Accepts no more.
    pub(crate) fn close(&self) {
        self.tasks[0].abort();
    }

    /// Returns once nobody is served any more.
    pub(crate) async fn all_gone(&self) {
        self.shared.clients.all_gone().await;
        self.shared.forwarders.all_gone().await;
    }

    /// Counts of clients' connections, of forwarding nodes', and of those that have not proven themselves.
    pub(crate) fn counts(&self) -> Counted {
        let shared = self.shared.clone();
        Box::new(move || {
            let kinds =
                [("client", &shared.clients), ("forwarder", &shared.forwarders), ("unproven", &shared.unproven)];
            kinds.map(|(name, connections)| (name, connections.counts()))
        })
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn sweep(shared: Arc<Shared>) {
    loop {
        // sleep: connections are ended by time; how often that is looked for.
        tokio::time::sleep(SWEEP).await;
        shared.unproven.sweep();
        shared.forwarders.sweep();
        if shared.serving.borrow().is_some() {
            shared.clients.sweep();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let Some(place) = shared.clients.admit(address.ip()) else {
                    tracing::debug!(from = %address, "a connection was turned away: all there may be have a request under way");
                    continue;
                };
                let shared = shared.clone();
                tokio::spawn(async move { shared.sort(stream, address, place).await });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                // sleep: most likely no file descriptor is left, and only time brings one back.
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// What a connection is, by its first bytes.
enum Kind {
    Tls,
    PlainNode,
    Client,
}

impl Shared {
    async fn sort(&self, mut stream: TcpStream, address: SocketAddr, place: Place) {
        // Answers are small and waited for.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its delay");
        }
        let mut first = BytesMut::new();
        let kind = tokio::select! {
            kind = first_bytes(&mut stream, &mut first) => kind,
            () = place.entry.ended() => return,
        };
        let from = From { address, node: self.config.door.tls().map(|_| FromNode(None)) };
        match kind {
            Err(error) => tracing::debug!(from = %address, %error, "a connection ended before it said anything"),
            Ok(Kind::Tls) => self.tls(Begun::new(first, stream), from, place).await,
            Ok(Kind::PlainNode) => {
                let Some(place) = self.as_unproven(address.ip(), place) else { return };
                let outcome = tokio::select! {
                    outcome = self.config.door.introduce(&mut stream, first) => outcome,
                    () = place.entry.ended() => Err(late()),
                };
                match outcome {
                    Ok((proven, received)) => self.enter(stream, None, proven, received, address),
                    Err(error) => self.refused(address, &error),
                }
            }
            Ok(Kind::Client) => {
                let speaks_plain = self.config.tls.is_none() || self.config.plain;
                self.serve(Begun::new(first, stream), place, from, !speaks_plain).await;
            }
        }
    }

    /// A place among those that have not proven themselves, in exchange for the one among the clients.
    fn as_unproven(&self, from: IpAddr, place: Place) -> Option<Place> {
        drop(place);
        self.unproven.admit(from)
    }

    async fn tls(&self, stream: Begun<TcpStream>, from: From, place: Place) {
        let hello = tokio::select! {
            hello = LazyConfigAcceptor::new(Acceptor::default(), stream) => hello,
            () = place.entry.ended() => return,
        };
        let hello = match hello {
            Ok(hello) => hello,
            Err(error) => {
                tracing::debug!(from = %from.address, %error, "a connection that begins like TLS is none");
                return;
            }
        };
        let is_node = hello.client_hello().alpn().is_some_and(Door::is_node_protocol);
        if is_node && let Some(config) = self.config.door.tls() {
            let Some(place) = self.as_unproven(from.address.ip(), place) else { return };
            self.node(hello, config, from, place).await;
        } else if let Some(config) = self.config.tls.clone().filter(|_| !is_node) {
            let stream = tokio::select! {
                stream = hello.into_stream(config) => stream,
                () = place.entry.ended() => return,
            };
            match stream {
                Ok(stream) => self.serve(stream, place, from, false).await,
                Err(error) => tracing::debug!(from = %from.address, %error, "TLS was not agreed on with a client"),
            }
        } else {
            let mut stream = hello.io;
            // Whether the refusal arrives is its reader's business.
            let _ = stream.write_all(&NO_TLS_HERE).await;
            let _ = stream.shutdown().await;
            match is_node {
                true => self.refused(from.address, &PeerRefused::WrongSecret),
                false => {
                    tracing::warn!(from = %from.address, "a client speaks TLS, and this node has no certificate for clients: use http://, or start it with --tls-cert and --tls-key")
                }
            }
        }
    }

    /// A connection for one of the protocols of nodes.
    async fn node(&self, hello: StartHandshake<Begun<TcpStream>>, config: Arc<ServerConfig>, from: From, place: Place) {
        let door = &self.config.door;
        let proving = async {
            let mut stream = hello.into_stream(config).await?;
            let (proven, forwards, received) = door.prove(&mut stream).await?;
            Ok::<_, PeerRefused>((stream, proven, forwards, received))
        };
        let outcome = tokio::select! {
            outcome = proving => outcome,
            () = place.entry.ended() => Err(late()),
        };
        drop(place);
        let (stream, proven, forwards, received) = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return self.refused(from.address, &error),
        };
        if !forwards {
            let (stream, tls) = stream.into_inner();
            let (stream, _) = stream.into_parts();
            return self.enter(stream, Some(Box::new(tls)), proven, received, from.address);
        }
        let Some(place) = self.forwarders.admit(from.address.ip()) else {
            tracing::warn!(node = proven.node().0, "a node's forwarding connection was turned away: all are in use");
            return;
        };
        let from = From { node: Some(FromNode(Some(proven.node()))), ..from };
        self.serve_until(Begun::new(received, stream), place, from, false, door.forgotten(&proven)).await;
    }

    fn enter(
        &self,
        stream: TcpStream,
        tls: Option<Box<rustls::ServerConnection>>,
        proven: Proven,
        received: BytesMut,
        from: SocketAddr,
    ) {
        let blocking = stream.into_std().and_then(|stream| stream.set_nonblocking(false).map(|()| stream));
        match blocking {
            Ok(stream) => self.config.door.enter(stream, tls, proven, received),
            Err(error) => tracing::warn!(%from, %error, "a node's connection could not be taken"),
        }
    }

    async fn serve<S>(&self, stream: S, place: Place, from: From, tls_is_missing: bool)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        self.serve_until(stream, place, from, tls_is_missing, std::future::pending()).await;
    }

    /// Serves a connection to its end, or until it is outdated and has answered what was sent before.
    async fn serve_until<S>(
        &self,
        stream: S,
        place: Place,
        from: From,
        tls_is_missing: bool,
        outdated: impl Future<Output = ()>,
    ) where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let mut running = self.serving.subscribe();
        let serving = tokio::select! {
            serving = running.wait_for(Option::is_some) => serving.ok().and_then(|serving| serving.clone()),
            () = place.entry.ended() => None,
        };
        // Without one the server has ended before it served anybody.
        let Some(mut serving) = serving else { return };
        if tls_is_missing {
            serving.router = tls_required();
        }
        serve(stream, place, from, serving, outdated).await;
    }

    /// Logs that somebody was not let in among the nodes: once a minute for each kind of reason, with how often it came.
    fn refused(&self, from: SocketAddr, reason: &PeerRefused) {
        let now = Instant::now();
        let text = reason.to_string();
        let kind: String = text.chars().filter(|c| !c.is_ascii_digit()).take(REASON_KIND_CHARS).collect();
        let mut said = self.said.lock().expect("no holder of this lock panics");
        if !said.contains_key(&kind) && said.len() >= REASON_KINDS_MAX {
            said.retain(|_, (at, _)| now.duration_since(*at) < SAY_AGAIN);
            if said.len() >= REASON_KINDS_MAX {
                return;
            }
        }
        let (at, times) = said.entry(kind).or_insert((now, 0));
        *times += 1;
        if *times == 1 || now.duration_since(*at) >= SAY_AGAIN {
            tracing::warn!(%from, reason = %text, times = *times, "a connection was not let in among the nodes");
            (*at, *times) = (now, 1);
        }
    }
}

fn late() -> PeerRefused {
    PeerRefused::Io(io::ErrorKind::TimedOut.into())
}

/// Reads until it is known what a connection is.
async fn first_bytes(stream: &mut TcpStream, first: &mut BytesMut) -> io::Result<Kind> {
    let mut chunk = [0; Door::LOOK_BYTES];
    loop {
        let wanted = Door::LOOK_BYTES - first.len();
        let count = stream.read(&mut chunk[..wanted]).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        first.extend_from_slice(&chunk[..count]);
        if first[0] == TLS_FIRST_BYTE {
            return Ok(Kind::Tls);
        }
        match Door::is_node(first) {
            Some(true) => return Ok(Kind::PlainNode),
            Some(false) => return Ok(Kind::Client),
            None => {}
        }
    }
}
