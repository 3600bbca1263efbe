//! How an answer leaves: a small one whole, with its length; a large one piece by piece, encoded as the client takes it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::encode::{Encoder, Items};
use crate::shares::Share;

/// 200 with these items as the body.
pub(crate) fn answer(items: Items, content_type: &'static str) -> Response {
    let mut encoder = Encoder::new(items);
    let first = encoder.piece().unwrap_or_default();
    let body = match encoder.is_done() {
        true => Body::from(first),
        false => Body::new(Pieces { first: Some(first.into()), encoder }),
    };
    let mut response = (StatusCode::OK, body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A large answer. What its results take of the room for answers is given back when it is dropped.
struct Pieces {
    first: Option<Bytes>,
    encoder: Encoder,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.first.take().or_else(|| self.encoder.piece().map(Bytes::from));
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.encoder.is_done()
    }
}

/// A body that keeps its request's place among those under way until it is dropped.
pub(crate) struct Placed {
    pub(crate) body: Body,
    pub(crate) _place: Share,
}

impl HttpBody for Placed {
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
