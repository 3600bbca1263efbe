//! Request bodies: bounded each and together, and read to their end even when they are refused.
//!
//! Clients that send all of a body before they read an answer would see a broken connection instead of the refusal if the rest were left unread. So
//! a body over the limit is read on and thrown away, up to a bound of its own.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};

use crate::failure::Failure;
use crate::party::Party;
use crate::shares::{Refusal, Share, Shares};

/// How much of a refused body is read and thrown away before the connection is given up.
const DISCARD_MAX_BYTES: u64 = 1 << 30;

/// A client that sends nothing of a body for this long has left.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// A body has this long to begin with...
const SLOW_AFTER: Duration = Duration::from_secs(60);
/// ...and a second more for so many bytes of it that have come: a body that trickles does not keep its place for ever.
const SLOWEST_BYTES_PER_S: u64 = 16 << 10;

/// A body on its way in.
pub(crate) struct Incoming {
    body: Body,
    begun: Instant,
    seen: u64,
}

impl Incoming {
    pub(crate) fn new(body: Body) -> Incoming {
        Incoming { body, begun: Instant::now(), seen: 0 }
    }

    /// Reads what is left and throws it away, up to the bound for that: the request was refused.
    pub(crate) async fn discard(&mut self) {
        while self.seen <= DISCARD_MAX_BYTES && matches!(self.next().await, Ok(Some(_))) {}
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let in_time = self.begun + SLOW_AFTER + Duration::from_secs(self.seen / SLOWEST_BYTES_PER_S);
            let left = in_time.saturating_duration_since(Instant::now());
            let frame = poll_fn(|context| Pin::new(&mut self.body).poll_frame(context));
            let frame = tokio::time::timeout(left.min(SILENCE_MAX), frame).await.map_err(|_| {
                let message = match left < SILENCE_MAX {
                    true => format!(
                        "the request's body came too slowly: after {} s it must have come at {SLOWEST_BYTES_PER_S} bytes per second",
                        SLOW_AFTER.as_secs()
                    ),
                    false => format!("the request's body stopped for {} s before its end", SILENCE_MAX.as_secs()),
                };
                Failure::new(StatusCode::REQUEST_TIMEOUT, "BODY_TIMEOUT", message)
            })?;
            match frame {
                None => return Ok(None),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => {
                        self.seen += bytes.len() as u64;
                        return Ok(Some(bytes));
                    }
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
}

/// What a part of a JSON document takes at most once it is read: the largest of the values that are made of two bytes, `1,`.
const PARSED_BYTES: usize = 48;

/// A body, and the room it takes until its request has been answered.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    room: Share,
}

impl Held {
    /// Takes room for what reading the body as JSON makes of it, which may be many times as large as its text.
    pub(crate) fn room_to_parse(&mut self) -> Result<(), Refusal> {
        self.room.set(self.bytes.len() + parts_of_json(&self.bytes) * PARSED_BYTES)
    }

    /// The text goes, and its room is for what was made of it.
    pub(crate) fn forget_text(&mut self) {
        self.bytes = Bytes::new();
    }

    /// Gives that room back: what was made of the body is gone, or small.
    pub(crate) fn parsed(&mut self) {
        self.room.shrink(self.room.amount() - self.bytes.len());
    }
}

/// How many values a JSON text has at most: one for each comma and each opening bracket outside of strings.
fn parts_of_json(text: &[u8]) -> usize {
    let mut parts = 0;
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'"' => {
                at += 1;
                while let Some(found) = text.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
                    at += found;
                    if text[at] == b'"' {
                        break;
                    }
                    at += 2;
                }
                // A string without an end is the end.
                if text.get(at) != Some(&b'"') {
                    return parts;
                }
            }
            b',' | b'[' | b'{' => parts += 1,
            _ => {}
        }
        at += 1;
    }
    parts
}

/// The whole body, if it is not over the limit and there is room for it.
pub(crate) async fn read(body: Body, max_bytes: usize, room: &Arc<Shares>, party: &Party) -> Result<Held, Failure> {
    let mut incoming = Incoming::new(body);
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    let mut held = room.nothing(party);
    let mut refused = None;
    while let Some(piece) = incoming.next().await? {
        if refused.is_none() && incoming.seen > max_bytes as u64 {
            refused = Some(too_large(max_bytes as u64));
        }
        if refused.is_none() {
            refused = held.grow(piece.len()).map_err(Failure::from).err();
        }
        if refused.is_some() {
            (first, whole) = (Bytes::new(), BytesMut::new());
            held.shrink(usize::MAX);
            if incoming.seen > DISCARD_MAX_BYTES {
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
        None => Ok(Held { bytes: if whole.is_empty() { first } else { whole.freeze() }, room: held }),
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
    use crate::access::Access;
    use crate::party::{ClientAddress, PartyId};

    fn party() -> Party {
        Party { access: Access::Full, id: PartyId::Address(ClientAddress::default().0) }
    }

    fn room(bytes: usize) -> Arc<Shares> {
        Shares::with("bytes for bodies", bytes, bytes)
    }

    async fn body(text: &'static str, room: &Arc<Shares>) -> Result<Bytes, Failure> {
        read(Body::from(text), 5, room, &party()).await.map(|held| held.bytes)
    }

    #[tokio::test]
    async fn a_body_is_whole_or_refused() {
        let room = room(1 << 20);
        assert_eq!(body("12345", &room).await.expect("at the limit"), "12345");
        assert_eq!(body("", &room).await.expect("nothing"), "");
        let failure = body("123456", &room).await.expect_err("over the limit");
        assert_eq!((failure.status, failure.code.as_str()), (StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE"));
        assert!(failure.message.contains("5 bytes"));
    }

    #[tokio::test]
    async fn bodies_share_their_room_and_give_it_back() {
        let room = room(5);
        let first = read(Body::from("12345"), 5, &room, &party()).await.expect("there is room");
        assert_eq!(body("2", &room).await.expect_err("there is none").code, "OVERLOADED");
        assert_eq!(body("", &room).await.expect("nothing needs none"), "");
        drop(first);
        assert_eq!(body("3", &room).await.expect("there is again"), "3");
    }

    #[tokio::test]
    async fn what_is_made_of_a_body_takes_room_too() {
        let room = room(1000);
        let mut held = read(Body::from("[1,1,1,1,1,1,1,1,1,1]"), 100, &room, &party()).await.expect("there is room");
        held.room_to_parse().expect("for ten values");
        assert!(room.taken() > 10 * PARSED_BYTES);
        let many = format!("[{}1]", "1,".repeat(30));
        let mut held = read(Body::from(many), 100, &room, &party()).await.expect("there is room for its text");
        assert!(held.room_to_parse().is_err(), "and none for its values");
        assert_eq!(parts_of_json(br#"{"a,[\",{": ["b", "\\"], "c": 1}"#), 4, "strings do not count");
        assert_eq!(parts_of_json(b"\"abc\\"), 0);
    }
}
