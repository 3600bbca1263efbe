//! HTTP/1.1 on one connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tower_service::Service;

use super::table::{Entry, Phase, Place};
use super::watched::Watched;
use super::{ClientAddress, FromNode};
use crate::failure::Failure;

/// The most bytes of a request's head, and of what is read ahead of a connection.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// How long a connection that is to end waits for a request that may be on its way already.
const LAST_REQUEST_WAIT: Duration = Duration::from_secs(1);

/// What all connections are served by.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) router: Router,
    /// Turns true when connections are to end with the request that is under way.
    pub(crate) stopping: watch::Receiver<bool>,
}

/// Who is at the other end.
#[derive(Clone, Copy)]
pub(crate) struct From {
    pub(crate) address: SocketAddr,
    /// Whether it is a node that has proven who it is. `None` where no secret is configured: then nobody can, and everybody is believed.
    pub(crate) node: Option<FromNode>,
}

/// Serves one connection to its end, or until it is `outdated`. Then the request under way is answered. If none is, one that comes within [`LAST_REQUEST_WAIT`] is: it may have
/// been sent before its sender could know. Its answer says that the connection ends, so that nothing is sent behind it.
pub(crate) async fn serve<S>(stream: S, place: Place, from: From, serving: Serving, outdated: impl Future<Output = ()>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Serving { router, mut stopping } = serving;
    let entry = place.entry.clone();
    let last = Arc::new(AtomicBool::new(false));
    let service = service_fn({
        let (entry, last) = (entry.clone(), last.clone());
        move |mut request: hyper::Request<Incoming>| {
            entry.set(Phase::Busy);
            let under_way = UnderWay(entry.clone());
            request.extensions_mut().insert(ClientAddress(from.address.ip()));
            if let Some(node) = from.node {
                request.extensions_mut().insert(node);
            }
            let (mut router, last) = (router.clone(), last.clone());
            async move {
                let request: Request = request.map(Body::new);
                let mut response: Response = match router.call(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                };
                if last.load(Ordering::Acquire) {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response.map(|body| Counted { body, _under_way: under_way }))
            }
        }
    });
    let stream = TokioIo::new(Watched::new(stream, entry.clone()));
    let mut connection =
        std::pin::pin!(http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).serve_connection(stream, service));
    let mut told = false;
    let mut ending = std::pin::pin!(async {
        outdated.await;
        last.store(true, Ordering::Release);
        // sleep: what is on its way gives no sign before it comes; this long it is waited for.
        tokio::time::sleep(LAST_REQUEST_WAIT).await;
    });
    loop {
        tokio::select! {
            outcome = connection.as_mut() => {
                if let Err(error) = outcome {
                    tracing::debug!(from = %from.address, %error, "a client's connection ended early");
                }
                return;
            }
            () = entry.ended() => {
                tracing::debug!(from = %from.address, "a client's connection did nothing and was ended");
                return;
            }
            // An error means that the server is gone.
            _ = stopping.wait_for(|stop| *stop), if !told => {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
            () = ending.as_mut(), if !told => {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Answers every request of a client that speaks without TLS where it has to.
pub(crate) fn tls_required() -> Router {
    Router::new().fallback(|| async {
        let failure = Failure::bad(
            "TLS_REQUIRED",
            "this node speaks TLS with clients, and this request came without it: use https://",
        );
        let mut response = failure.plain().into_response();
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        debug_assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        response
    })
}

/// A request is under way until its answer's body has gone.
struct UnderWay(Arc<Entry>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.set(Phase::Idle);
    }
}

struct Counted {
    body: Body,
    _under_way: UnderWay,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::sync::Notify;

    use super::super::table::{Connections, Waits};
    use super::*;

    const REQUEST: &[u8] = b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n";

    /// Reads one answer, whose body is `done`.
    async fn answer(stream: &mut DuplexStream) -> String {
        let mut text = String::new();
        while !text.ends_with("done") {
            let mut chunk = [0; 256];
            let count = stream.read(&mut chunk).await.expect("a stream in memory");
            assert_ne!(count, 0, "the connection ended after {text:?}");
            text.push_str(std::str::from_utf8(&chunk[..count]).expect("text"));
        }
        text
    }

    #[tokio::test]
    async fn a_connection_that_is_outdated_answers_what_was_sent_before_that_could_be_known() {
        for ends_while_busy in [true, false] {
            let wait = Duration::from_secs(60);
            let table = Connections::new(1, Waits { first: wait, head: wait, idle: wait, stall: wait });
            let place = table.admit(IpAddr::from([127, 0, 0, 1])).expect("room");
            let (outdated, begun, release) =
                (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(Notify::new()));
            let (told, held) = (begun.clone(), release.clone());
            let slow = move || async move {
                told.notify_one();
                held.notified().await;
                "done"
            };
            let (_stop, stopping) = watch::channel(false);
            let serving = Serving { router: Router::new().route("/slow", axum::routing::get(slow)), stopping };
            let from = From { address: SocketAddr::from(([127, 0, 0, 1], 1)), node: None };
            let (mut client, stream) = tokio::io::duplex(1 << 16);
            let ends = outdated.clone();
            let served = tokio::spawn(serve(stream, place, from, serving, async move { ends.notified().await }));
            if ends_while_busy {
                client.write_all(REQUEST).await.expect("it is open");
                begun.notified().await;
                outdated.notify_one();
                // sleep: the connection would have ended by then if it did not wait for its answer.
                tokio::time::sleep(LAST_REQUEST_WAIT * 3 / 2).await;
                release.notify_one();
            } else {
                outdated.notify_one();
                // sleep: as before; so late a request may still be on its way.
                tokio::time::sleep(LAST_REQUEST_WAIT / 2).await;
                client.write_all(REQUEST).await.expect("it is open");
                release.notify_one();
            }
            let text = answer(&mut client).await;
            assert!(text.starts_with("HTTP/1.1 200") && text.contains("connection: close"), "{text}");
            assert_eq!(client.read(&mut [0]).await.expect("a stream in memory"), 0, "it ends with that answer");
            served.await.expect("it does not panic");
        }
    }
}
