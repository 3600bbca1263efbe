//! Requests that pages in a browser make: from which origins they are taken, and what the browser is told of it (CORS).

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// How long a browser may remember a preflight's answer, in seconds.
const REMEMBER: &str = "600";
/// Headers of answers that pages may read.
const EXPOSED: &str = "highwater-position, highwater-offset, retry-after";

/// Where a request comes from, as a browser says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From no page, or from one that this node served itself.
    Own,
    /// From a page of an origin in the configured list.
    Listed(Listed),
    /// From any other page.
    Foreign(String),
}

/// An origin of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed(HeaderValue);

impl Origin {
    /// Reads the header `origin`, if there is one.
    pub(crate) fn of(headers: &HeaderMap, listed: &[String]) -> Origin {
        let mut all = headers.get_all(header::ORIGIN).iter();
        let Some(value) = all.next() else { return Origin::Own };
        let foreign = || Origin::Foreign(String::from_utf8_lossy(value.as_bytes()).chars().take(100).collect());
        let (Ok(text), None) = (value.to_str(), all.next()) else { return foreign() };
        if listed.iter().any(|one| one.trim_end_matches('/').eq_ignore_ascii_case(text)) {
            return Origin::Listed(Listed(value.clone()));
        }
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let of_page = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        match (of_page, host) {
            (Some(of_page), Some(host)) if of_page.eq_ignore_ascii_case(host) => Origin::Own,
            _ => foreign(),
        }
    }

    /// Lets a page of a listed origin read the answer.
    pub(crate) fn mark(&self, mut response: Response) -> Response {
        if let Origin::Listed(listed) = self {
            listed.mark(response.headers_mut());
        }
        response
    }
}

impl Listed {
    fn mark(&self, headers: &mut HeaderMap) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, self.0.clone());
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }

    /// The answer to a browser that asks whether it may ask.
    pub(crate) fn preflight(&self, asked: &HeaderMap) -> Response {
        const METHODS: HeaderName = header::ACCESS_CONTROL_ALLOW_METHODS;
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        self.mark(headers);
        headers.insert(METHODS, HeaderValue::from_static("GET, POST"));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(REMEMBER));
        // An origin of the list may send whatever headers it likes.
        if let Some(wanted) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
        }
        response
    }
}

/// Whether a `host` header names this machine by a name that nobody else can give away.
pub(crate) fn host_is_loopback(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let host = host.trim();
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').is_some_and(|(address, port)| {
            is_port(port) && address.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback())
        });
    }
    let (name, port) = match host.find(':') {
        Some(at) => host.split_at(at),
        None => (host, ""),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_local = name.eq_ignore_ascii_case("localhost");
    is_port(port) && (is_local || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback()))
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        for own in ["localhost", "LOCALHOST:8080", "localhost.", "127.0.0.1:1", "127.9.9.9", "[::1]", "[::1]:8080"] {
            assert!(host_is_loopback(own.as_bytes()), "{own}");
        }
        for other in [
            "",
            "example.com",
            "localhost.example.com",
            "127.0.0.1.example.com",
            "10.0.0.1",
            "[::2]",
            "::1",
            "[::1",
            "localhost:x",
            "0.0.0.0",
            "127.1",
        ] {
            assert!(!host_is_loopback(other.as_bytes()), "{other}");
        }
        assert!(!host_is_loopback(&[0xff]));
    }

    #[test]
    fn an_origin_is_own_listed_or_foreign() {
        let headers = |origin: &str, host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ORIGIN, origin.parse().expect("a header"));
            headers.insert(header::HOST, host.parse().expect("a header"));
            headers
        };
        let listed = ["https://app.example".to_string()];
        let of = |origin: &str, host: &str| Origin::of(&headers(origin, host), &listed);
        assert_eq!(Origin::of(&HeaderMap::new(), &listed), Origin::Own);
        assert_eq!(of("http://localhost:1", "localhost:1"), Origin::Own);
        assert!(matches!(of("https://app.example", "localhost:1"), Origin::Listed(_)));
        for foreign in ["null", "http://localhost:2", "https://app.example.org", "localhost:1"] {
            assert_eq!(of(foreign, "localhost:1"), Origin::Foreign(foreign.into()));
        }
        let mut twice = headers("https://app.example", "x");
        twice.append(header::ORIGIN, HeaderValue::from_static("https://app.example"));
        assert!(matches!(Origin::of(&twice, &listed), Origin::Foreign(_)));
    }
}
