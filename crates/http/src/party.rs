//! Who a request comes from: the party whose share of everything it uses, and the node that forwarded it, if one did.

use std::net::{IpAddr, Ipv4Addr};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::Response;

use crate::access::Access;
use crate::failure::{Failure, is_hrana};
pub(crate) use crate::net::{ClientAddress, FromNode};

/// Without the connection's word the client counts as one on this machine.
impl Default for ClientAddress {
    fn default() -> ClientAddress {
        ClientAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }
}

/// Whose share is used: all bearers of one token are one party; without tokens, all clients of one address are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PartyId {
    /// The SHA-256 of the token.
    Token([u8; 32]),
    /// The address, where no tokens are configured.
    Address(IpAddr),
}

impl PartyId {
    /// Whether a stream that `self` opened belongs to `other`. Without tokens a client's address may change, and the baton alone decides.
    pub(crate) fn owns_with(&self, other: &PartyId) -> bool {
        match (self, other) {
            (PartyId::Token(ours), PartyId::Token(theirs)) => ours == theirs,
            (PartyId::Address(_), PartyId::Address(_)) => true,
            _ => false,
        }
    }
}

/// Whoever asks, after the token was looked at. A request extension; a stranger's request has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Party {
    /// What it may do.
    pub(crate) access: Access,
    /// Whose share it uses.
    pub(crate) id: PartyId,
}

impl<S: Send + Sync> FromRequestParts<S> for Party {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Party, Response> {
        // The gate lets nobody without a token through to what needs one; this is the second lock on the same door.
        parts.extensions.get::<Party>().copied().ok_or_else(|| {
            let failure = Failure::token_missing();
            if is_hrana(parts.uri.path()) { failure.hrana() } else { failure.plain() }
        })
    }
}
