//! Request bodies: bounded each and together, and read to their end even when they are refused.
//!
//! Clients that send all of a body before they read an answer would see a broken connection instead of the refusal if the rest were left unread. So
//! a body over the limit is read on and thrown away, up to a bound of its own.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::failure::Failure;

/// How much of a refused body is read and thrown away before the connection is given up.
const DISCARD_MAX_BYTES: u64 = 1 << 30;

/// A client that sends nothing of a body for this long has left.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The next piece of a body; `None` at its end.
pub(crate) async fn next_piece(body: &mut Body) -> Result<Option<Bytes>, Failure> {
    loop {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
        let frame = tokio::time::timeout(SILENCE_MAX, frame).await.map_err(|_| {
            Failure::new(
                StatusCode::REQUEST_TIMEOUT,
                "BODY_TIMEOUT",
                format!("the request's body stopped for {} s before its end", SILENCE_MAX.as_secs()),
            )
        })?;
        match frame {
            None => return Ok(None),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => return Ok(Some(bytes)),
                // Trailers carry nothing that is wanted here.
                Err(_) => continue,
            },
            Some(Err(error)) => {
                return Err(Failure::bad(
                    "BODY_INCOMPLETE",
                    format!("the request's body ended before its length: {error}"),
                ));
            }
        }
    }
}

/// The memory that bodies under way may take together.
pub(crate) struct BodyRoom {
    pages: Semaphore,
    bytes: usize,
}

/// Room is given out in pages of this size.
const PAGE_BYTES: usize = 16 << 10;

/// A body, and the room it takes until its request has been answered.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    pub(crate) bytes: Bytes,
    _room: Option<SemaphorePermit<'a>>,
}

impl BodyRoom {
    pub(crate) fn new(bytes: usize) -> BodyRoom {
        BodyRoom { pages: Semaphore::new(bytes / PAGE_BYTES), bytes }
    }

    /// Room for that many more bytes than the `taken` before.
    fn take<'a>(&'a self, held: &mut Option<SemaphorePermit<'a>>, taken: usize, more: usize) -> Result<(), Failure> {
        let pages = (taken + more).div_ceil(PAGE_BYTES) - taken.div_ceil(PAGE_BYTES);
        let permit = self.pages.try_acquire_many(pages as u32).map_err(|_| {
            let reason =
                format!("the bodies of requests under way take the {} bytes that there are for them", self.bytes);
            Failure::from(highwater_node::Unavailable::Overloaded(reason))
        })?;
        match held {
            Some(held) => held.merge(permit),
            None => *held = Some(permit),
        }
        Ok(())
    }
}

/// The whole body, if it is not over the limit and there is room for it.
pub(crate) async fn read(mut body: Body, max_bytes: usize, room: &BodyRoom) -> Result<Held<'_>, Failure> {
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    let mut seen: u64 = 0;
    let mut held = None;
    let mut refused = None;
    while let Some(piece) = next_piece(&mut body).await? {
        let before = seen as usize;
        seen += piece.len() as u64;
        if refused.is_none() && seen > max_bytes as u64 {
            refused = Some(too_large(max_bytes as u64));
        }
        if refused.is_none() {
            refused = room.take(&mut held, before, piece.len()).err();
        }
        if refused.is_some() {
            (first, whole, held) = (Bytes::new(), BytesMut::new(), None);
            if seen > DISCARD_MAX_BYTES {
                break;
            }
        } else if first.is_empty() {
            // Most bodies come in one piece, which needs no copy.
            first = piece;
        } else {
            if whole.is_empty() {
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&piece);
        }
    }
    match refused {
        Some(failure) => Err(failure),
        None => Ok(Held { bytes: if whole.is_empty() { first } else { whole.freeze() }, _room: held }),
    }
}

/// 413, with the limit.
pub(crate) fn too_large(max_bytes: u64) -> Failure {
    Failure::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "BODY_TOO_LARGE",
        format!("the request's body is over the limit of {max_bytes} bytes; send it in several requests"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn body(text: &'static str, room: &BodyRoom) -> Result<Bytes, Failure> {
        read(Body::from(text), 5, room).await.map(|held| held.bytes)
    }

    #[tokio::test]
    async fn a_body_is_whole_or_refused() {
        let room = BodyRoom::new(1 << 20);
        assert_eq!(body("12345", &room).await.expect("at the limit"), "12345");
        assert_eq!(body("", &room).await.expect("nothing"), "");
        let failure = body("123456", &room).await.expect_err("over the limit");
        assert_eq!((failure.status, failure.code.as_str()), (StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE"));
        assert!(failure.message.contains("5 bytes"));
    }

    #[tokio::test]
    async fn bodies_share_their_room_and_give_it_back() {
        let room = BodyRoom::new(PAGE_BYTES);
        let first = read(Body::from("1"), 5, &room).await.expect("there is room");
        assert_eq!(body("2", &room).await.expect_err("there is none").code, "OVERLOADED");
        assert_eq!(body("", &room).await.expect("nothing needs none"), "");
        drop(first);
        assert_eq!(body("3", &room).await.expect("there is again"), "3");
    }
}
