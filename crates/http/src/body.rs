//! Request bodies: bounded, and read to their end even when they are refused.
//!
//! Clients that send all of a body before they read an answer would see a broken connection instead of the refusal if the rest were left unread. So
//! a body over the limit is read on and thrown away, up to a bound of its own.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};

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

/// The whole body, if it is not over the limit.
pub(crate) async fn read(mut body: Body, max_bytes: usize) -> Result<Bytes, Failure> {
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    let mut seen: u64 = 0;
    while let Some(piece) = next_piece(&mut body).await? {
        seen += piece.len() as u64;
        if seen > max_bytes as u64 {
            whole = BytesMut::new();
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
    if seen > max_bytes as u64 {
        return Err(too_large(max_bytes as u64));
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
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

    #[tokio::test]
    async fn a_body_is_whole_or_refused() {
        assert_eq!(read(Body::from("12345"), 5).await.expect("at the limit"), "12345");
        assert_eq!(read(Body::empty(), 5).await.expect("nothing"), "");
        let failure = read(Body::from("123456"), 5).await.expect_err("over the limit");
        assert_eq!((failure.status, failure.code.as_str()), (StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE"));
        assert!(failure.message.contains("5 bytes"));
    }
}
