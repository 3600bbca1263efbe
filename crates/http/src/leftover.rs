//! What nobody has read of a request's body once its answer is there.
//!
//! A client that sends all of a body before it reads would see a broken connection in place of an answer that was given without reading the body. So the gate
//! lends the body to whoever answers, and then reads a little more of it and throws that away; if there is still more, the connection ends with the answer, which says so.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Error;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// How much of a body that nobody wants is read and thrown away...
const DRAIN_MAX_BYTES: usize = 1 << 20;
/// ...and how long that may take.
const DRAIN_MAX: Duration = Duration::from_secs(2);

struct Shared {
    body: Body,
    ended: bool,
}

/// A body that was lent.
pub(crate) struct Lent(Arc<Mutex<Shared>>);

/// What the gate keeps of it.
pub(crate) struct Leftover(Arc<Mutex<Shared>>);

/// Lends a body.
pub(crate) fn lend(body: Body) -> (Lent, Leftover) {
    let ended = body.is_end_stream();
    let shared = Arc::new(Mutex::new(Shared { body, ended }));
    (Lent(shared.clone()), Leftover(shared))
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().expect("no holder of this lock panics")
}

impl Shared {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        self.ended = matches!(polled, Poll::Ready(None | Some(Err(_)))) || self.body.is_end_stream();
        polled
    }
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        lock(&self.0).poll(context)
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.0).ended
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.0).body.size_hint()
    }
}

impl Leftover {
    /// Throws away what is left, up to a bound; marks the answer if there is more. `expected`: the client waits to be told to send it, and is told the answer instead.
    pub(crate) async fn throw_away(self, response: &mut Response, expected: bool) {
        if lock(&self.0).ended {
            return;
        }
        if !expected {
            let _ = tokio::time::timeout(DRAIN_MAX, self.drain()).await;
        }
        if !lock(&self.0).ended {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }

    async fn drain(&self) {
        let mut seen = 0;
        while seen <= DRAIN_MAX_BYTES {
            match poll_fn(|context| lock(&self.0).poll(context)).await {
                Some(Ok(frame)) => seen += frame.data_ref().map_or(0, Bytes::len),
                Some(Err(_)) | None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn what_is_left_is_thrown_away_up_to_a_bound() {
        for (bytes, read, closes) in [(10, true, false), (10, false, false), (3 << 20, false, true)] {
            let pieces =
                (0..bytes / 10).map(|_| Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from_static(&[7; 10]))));
            let stream = Pieces(pieces.collect());
            let (lent, leftover) = lend(Body::new(stream));
            if read {
                assert_eq!(Body::new(lent).collect().await.expect("a body").to_bytes().len(), bytes);
            }
            let mut response = Response::new(Body::empty());
            leftover.throw_away(&mut response, false).await;
            assert_eq!(response.headers().contains_key(header::CONNECTION), closes, "{bytes}");
        }
    }

    struct Pieces(std::collections::VecDeque<Result<Frame<Bytes>, std::convert::Infallible>>);

    impl HttpBody for Pieces {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
            Poll::Ready(self.0.pop_front())
        }
    }
}
