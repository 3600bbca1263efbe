//! Who may do what: bearer tokens, and which addresses may be listened on without them.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, RwLock, RwLockReadGuard};

use axum::http::{HeaderMap, StatusCode, header};
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::party::{ClientAddress, Party, PartyId};

/// The tokens of this cluster's clients, which may be replaced while the node runs. A clone is the same ones.
#[derive(Clone, Default)]
pub struct Tokens(Arc<RwLock<Lists>>);

#[derive(Default, PartialEq, Eq)]
struct Lists {
    full: Vec<String>,
    read: Vec<String>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = self.lists();
        write!(f, "Tokens({} full, {} read)", lists.full.len(), lists.read.len())
    }
}

/// What a request may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everything.
    Full,
    /// Reading.
    Read,
}

/// Why an address is not listened on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// Anybody who reaches the address could change everything.
    #[error(
        "{0} can be reached from other machines, and no client token is configured; add --token TOKEN (and --read-token TOKEN for readers), or listen on 127.0.0.1"
    )]
    NoTokens(IpAddr),
    /// Anybody who reaches the address could pose as a node.
    #[error(
        "{0} can be reached from other machines, and no cluster secret is configured; add --cluster-secret SECRET, the same on every node, or listen on 127.0.0.1"
    )]
    NoSecret(IpAddr),
    /// Anybody on the way could read tokens and rows.
    #[error(
        "{0} can be reached from other machines, and clients would speak with it in the clear; add --tls-cert FILE and --tls-key FILE, or say with --allow-plain-http that something else keeps the network safe, or listen on 127.0.0.1"
    )]
    NoTls(IpAddr),
}

/// Whether that address may be listened on. Loopback needs nothing. `tls`: clients speak TLS, or whoever configured this said that they need not.
pub fn may_listen(address: IpAddr, tokens: &Tokens, has_cluster_secret: bool, tls: bool) -> Result<(), ListenError> {
    if address.is_loopback() {
        return Ok(());
    }
    if tokens.lists().full.is_empty() {
        return Err(ListenError::NoTokens(address));
    }
    if !has_cluster_secret {
        return Err(ListenError::NoSecret(address));
    }
    if !tls {
        return Err(ListenError::NoTls(address));
    }
    Ok(())
}

impl Tokens {
    /// Bearers of `full` may do everything, bearers of `read` may read. Without any, everybody may do everything.
    pub fn new(full: Vec<String>, read: Vec<String>) -> Tokens {
        Tokens(Arc::new(RwLock::new(Lists { full, read })))
    }

    /// Takes these in place of the present ones, for every request from now on. Returns whether anything changed.
    pub fn replace(&self, full: Vec<String>, read: Vec<String>) -> bool {
        let mut lists = self.0.write().expect("no holder of this lock panics");
        let new = Lists { full, read };
        let changed = *lists != new;
        *lists = new;
        changed
    }

    fn lists(&self) -> RwLockReadGuard<'_, Lists> {
        self.0.read().expect("no holder of this lock panics")
    }

    /// Whether there is any; without one everybody may do everything.
    pub(crate) fn is_empty(&self) -> bool {
        let lists = self.lists();
        lists.full.is_empty() && lists.read.is_empty()
    }

    /// What the bearer of this request may do, and whose share it uses. Without any token configured everybody may do everything.
    pub(crate) fn party(&self, headers: &HeaderMap, address: ClientAddress) -> Result<Party, Failure> {
        // One look at the lists decides all: they may be replaced at any time.
        let lists = self.lists();
        if lists.full.is_empty() && lists.read.is_empty() {
            return Ok(Party { access: Access::Full, id: PartyId::Address(address.0.to_canonical()) });
        }
        let refused = |message: &str| Failure::new(StatusCode::UNAUTHORIZED, "AUTH_TOKEN_INVALID", message);
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return Err(Failure::token_missing());
        };
        let token = value
            .to_str()
            .ok()
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim())
            .ok_or_else(|| refused("the header `authorization` must have the form `Bearer TOKEN`"))?;
        // Every token is compared in full, whichever matches, so that time tells nothing.
        let id = PartyId::Token(Sha256::digest(token).into());
        let full = lists.full.iter().fold(false, |found, known| found | same(known, token));
        let read = lists.read.iter().fold(false, |found, known| found | same(known, token));
        match (full, read) {
            (true, _) => Ok(Party { access: Access::Full, id }),
            (false, true) => Ok(Party { access: Access::Read, id }),
            (false, false) => Err(refused("the token is not one of this cluster's")),
        }
    }
}

impl Access {
    /// Refuses what only a full token may do.
    pub(crate) fn full(self) -> Result<(), Failure> {
        match self {
            Access::Full => Ok(()),
            Access::Read => Err(Failure::new(
                StatusCode::FORBIDDEN,
                "AUTH_READ_ONLY",
                "this token may only read; use one given with --token",
            )),
        }
    }
}

/// Compares in a time that depends on neither text's content.
fn same(a: &str, b: &str) -> bool {
    let (a, b) = (Sha256::digest(a), Sha256::digest(b));
    let difference = a.iter().zip(b.iter()).fold(0, |acc, (x, y)| acc | (x ^ y));
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(text: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, text.parse().expect("a header"));
        headers
    }

    #[test]
    fn tokens_decide_what_a_request_may_do() {
        let tokens = Tokens::new(vec!["f1".into(), "f2".into()], vec!["r".into()]);
        let here = ClientAddress::default();
        let access = |headers: &HeaderMap| tokens.party(headers, here).ok().map(|party| party.access);
        assert_eq!(access(&bearer("Bearer f2")), Some(Access::Full));
        assert_eq!(access(&bearer("bearer r")), Some(Access::Read));
        for (headers, code) in [
            (HeaderMap::new(), "AUTH_TOKEN_MISSING"),
            (bearer("Bearer x"), "AUTH_TOKEN_INVALID"),
            (bearer("f1"), "AUTH_TOKEN_INVALID"),
            (bearer("Basic f1"), "AUTH_TOKEN_INVALID"),
        ] {
            let failure = tokens.party(&headers, here).expect_err(code);
            assert_eq!((failure.status, failure.code.as_str()), (StatusCode::UNAUTHORIZED, code));
        }
        assert_eq!(
            Tokens::default().party(&HeaderMap::new(), here).expect("no tokens"),
            Party { access: Access::Full, id: PartyId::Address(here.0) }
        );
        assert!(Access::Read.full().is_err());
    }

    #[test]
    fn only_loopback_needs_no_tokens() {
        let local: IpAddr = "127.0.0.1".parse().expect("an address");
        let all: IpAddr = "0.0.0.0".parse().expect("an address");
        let tokens = Tokens::new(vec!["f".into()], vec![]);
        assert_eq!(may_listen(local, &Tokens::default(), false, false), Ok(()));
        assert_eq!(may_listen(all, &Tokens::default(), true, true), Err(ListenError::NoTokens(all)));
        let readers = Tokens::new(vec![], vec!["r".into()]);
        assert_eq!(
            may_listen(all, &readers, true, true),
            Err(ListenError::NoTokens(all)),
            "somebody must be able to write"
        );
        assert_eq!(may_listen(all, &tokens, false, true), Err(ListenError::NoSecret(all)));
        assert_eq!(may_listen(all, &tokens, true, false), Err(ListenError::NoTls(all)));
        assert_eq!(may_listen(all, &tokens, true, true), Ok(()));
    }
}
