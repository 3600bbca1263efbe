//! Connections to other nodes, kept and used again: each proven before a request goes over it, and a bounded number of them to each node.
//!
//! Once this node proves itself by another secret, those that were proven before are used for no new request: whoever accepted them may forget the old secret next, and ends them
//! then, with the request that is under way.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::Uri;
use axum::response::Response;
use bytes::Bytes;
use highwater_node::tcp::ForwardStream;
use highwater_node::{Node, Secret};
use highwater_wire::NodeId;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service;

use crate::party::Party;
use crate::shares::{Share, Shares};

/// How long a connection is kept that nothing goes over.
const IDLE: Duration = Duration::from_secs(10);
/// The most that is read of an answer before it is handed on.
const READ_AHEAD_BYTES: usize = 64 << 10;
/// How long a request waits for one of the connections to a node.
const PLACE_WAIT: Duration = Duration::from_secs(5);

/// Forwards requests.
pub(crate) struct Forwarder {
    node: Arc<Node>,
    client: Mutex<Kept>,
    places: BTreeMap<NodeId, Arc<Shares>>,
}

/// The connections that are kept, by what they were proven.
struct Kept {
    secret: Option<Secret>,
    client: Client<Dial, Body>,
}

impl Kept {
    fn new(node: &Arc<Node>, secret: Option<Secret>) -> Kept {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            // A request of which nothing was written, because the kept connection that it was given to had just ended, goes over another one. What was sent is never sent again.
            .retry_canceled_requests(true)
            // What is read ahead of an answer whose client takes its time.
            .http1_max_buf_size(READ_AHEAD_BYTES)
            .build(Dial(node.clone()));
        Kept { secret, client }
    }
}

/// Why a request brought no answer.
pub(super) enum Refused {
    /// So many are under way already, for everybody or for that party.
    Full(String),
    /// Not a byte of it left.
    Unsent(String),
    /// It was sent.
    Broken(String),
}

impl Forwarder {
    /// At most `each` requests are under way to each of the other nodes, shared.
    pub(crate) fn new(node: Arc<Node>, each: usize) -> Forwarder {
        let places =
            node.others().into_iter().map(|other| (other, Shares::new("requests forwarded to one node", each)));
        let client = Mutex::new(Kept::new(&node, node.proves_by()));
        Forwarder { places: places.collect(), node, client }
    }

    /// The client whose connections are proven by the present secret. One that is replaced keeps those that have a request under way until it is answered, and no other.
    fn client(&self) -> Client<Dial, Body> {
        let present = self.node.proves_by();
        let mut kept = self.client.lock().expect("no holder of this lock panics");
        if kept.secret != present {
            *kept = Kept::new(&self.node, present);
        }
        kept.client.clone()
    }

    /// Sends a request of that party to that node; its place is taken until the answer's body has gone.
    pub(super) async fn request(&self, party: &Party, node: NodeId, request: Request) -> Result<Response, Refused> {
        let places =
            self.places.get(&node).ok_or_else(|| Refused::Unsent(format!("no address is known for node {node}")))?;
        let place = match tokio::time::timeout(PLACE_WAIT, places.wait_for_one(party)).await {
            Ok(place) => place,
            // The limit that is met says which it is.
            Err(_) => places.take(party, 1).map_err(|refusal| Refused::Full(refusal.to_string()))?,
        };
        match self.client().request(request).await {
            Ok(response) => Ok(response.map(|body| Body::new(Placed { body, _place: place }))),
            Err(error) if error.is_connect() => {
                let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                Err(Refused::Unsent(format!("node {node} cannot be reached: {reason}")))
            }
            Err(error) => Err(Refused::Broken(error.to_string())),
        }
    }
}

/// Dials the node that a URI's host is the number of.
#[derive(Clone)]
struct Dial(Arc<Node>);

type Dialling = Pin<Box<dyn Future<Output = std::io::Result<TokioIo<Carried>>> + Send>>;

impl Service<Uri> for Dial {
    type Response = TokioIo<Carried>;
    type Error = std::io::Error;
    type Future = Dialling;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Dialling {
        let node = self.0.clone();
        Box::pin(async move {
            let wanted = uri.host().and_then(|host| host.parse().ok()).map(NodeId);
            let wanted = wanted.ok_or_else(|| std::io::Error::other(format!("{uri} names no node")))?;
            let stream = node.dial_to_forward(wanted).await.map_err(std::io::Error::other)?;
            Ok(TokioIo::new(Carried(stream)))
        })
    }
}

/// A connection as the client keeps it.
struct Carried(ForwardStream);

impl Connection for Carried {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Carried {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Carried {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// An answer's body with the place that its request takes.
struct Placed {
    body: Incoming,
    _place: Share,
}

impl HttpBody for Placed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
