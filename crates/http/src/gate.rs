//! The layer around all routes: who asks, before anything of a body is read, kept or forwarded.
//!
//! 1. `highwater-forwarded` counts only on a connection whose other end proved to be a node; elsewhere it is taken off.
//! 2. A browser may be made to ask by any page it shows. Where no token keeps such a page out, only requests to a loopback name are taken (a name of the
//!    page's own could be made to point here), and only from origins that are this node's own or listed. See [`crate::origins`].
//! 3. The token decides what the request may do and whose share it uses; the result is a [`Party`] in the request's extensions. Without a token a few
//!    paths are answered that tell nothing but that this is Highwater.
//! 4. A place among the requests under way, kept until the last byte of the answer.
//!
//! What is left of a body that nobody read is thrown away up to a small bound, for clients that send all of it before they read an answer; if there is more, the
//! connection ends with the answer.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::answer_body::Placed;
use crate::app::App;
use crate::failure::{Failure, is_hrana};
use crate::forward::FORWARDED;
use crate::leftover::lend;
use crate::origins::{Origin, host_is_loopback};
use crate::party::{ClientAddress, FromNode};

/// The layer.
pub(crate) async fn layer(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    if let Some(FromNode(None)) = request.extensions().get::<FromNode>() {
        request.headers_mut().remove(FORWARDED);
    }
    let origin = Origin::of(request.headers(), &app.origins);
    if let Err(failure) = check_browser(&app, &request, &origin) {
        return refuse(request, failure).await;
    }
    if let (Origin::Listed(listed), &Method::OPTIONS) = (&origin, request.method()) {
        return listed.preflight(request.headers());
    }
    // What is behind needs no origin, and a node that this is forwarded to would take it for a foreign one.
    request.headers_mut().remove(header::ORIGIN);
    let address = request.extensions().get::<ClientAddress>().copied().unwrap_or_default();
    let open = is_open(request.uri().path());
    let party = match app.tokens.party(request.headers(), address) {
        Ok(party) => Some(party),
        Err(_) if open => None,
        Err(failure) => return origin.mark(refuse(request, failure).await),
    };
    if let Some(party) = party {
        request.extensions_mut().insert(party);
    }
    let placed = match party.filter(|_| takes_a_place(request.uri().path())) {
        None => None,
        Some(party) => match app.requests.take(&party, 1) {
            Ok(place) => Some(place),
            Err(refusal) => {
                app.metrics.overloaded.inc();
                return origin.mark(refuse(request, refusal.into()).await);
            }
        },
    };
    let (parts, body) = request.into_parts();
    let expected = parts.headers.contains_key(header::EXPECT);
    let (lent, leftover) = lend(body);
    let mut response = next.run(Request::from_parts(parts, Body::new(lent))).await;
    leftover.throw_away(&mut response, expected).await;
    let response = match placed {
        Some(place) => response.map(|body| Body::new(Placed { body, _place: place })),
        None => response,
    };
    origin.mark(response)
}

/// What is answered without a token: that there is a node, and whether it serves. Stock clients of libSQL probe without their token.
fn is_open(path: &str) -> bool {
    let probe = |path: &str| matches!(path, "/v2" | "/v3");
    let named = |path: &str| path.strip_prefix("/db/").and_then(|rest| rest.find('/').map(|at| probe(&rest[at..])));
    matches!(path, "/" | "/health" | "/ready") || probe(path) || named(path) == Some(true)
}

/// What people look at when there are too many requests is answered beside them.
fn takes_a_place(path: &str) -> bool {
    !is_open(path) && !matches!(path, "/status" | "/metrics")
}

fn check_browser(app: &App, request: &Request, origin: &Origin) -> Result<(), Failure> {
    let refused = |code: &str, message: String| Err(Failure::new(StatusCode::FORBIDDEN, code, message));
    let unguarded = app.tokens.is_empty();
    let host = request.headers().get(header::HOST).map(HeaderValue::as_bytes);
    let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str().as_bytes()));
    if unguarded && host.is_some_and(|host| !host_is_loopback(host)) {
        let found = String::from_utf8_lossy(host.unwrap_or_default()).chars().take(100).collect::<String>();
        return refused(
            "HOST_REFUSED",
            format!(
                "without a token only requests to this machine's own names are taken (localhost, 127.0.0.1, [::1]); the header `host` says {found:?}. Use one of these names, or configure a token"
            ),
        );
    }
    let preflight =
        request.method() == Method::OPTIONS && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    match origin {
        Origin::Foreign(found) if unguarded || preflight => refused(
            "ORIGIN_REFUSED",
            format!("pages of {found:?} may not ask this node; add the origin to the configured list if they should"),
        ),
        _ => Ok(()),
    }
}

/// Answers with a refusal.
async fn refuse(request: Request, failure: Failure) -> Response {
    let (parts, body) = request.into_parts();
    let mut response = if is_hrana(parts.uri.path()) { failure.hrana() } else { failure.plain() };
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let (_, leftover) = lend(body);
    leftover.throw_away(&mut response, parts.headers.contains_key(header::EXPECT)).await;
    response.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_is_told_nothing_but_that_there_is_a_node() {
        for open in ["/", "/health", "/ready", "/v2", "/v3", "/db/x/v2", "/db/a%20b/v3"] {
            assert!(is_open(open) && !takes_a_place(open), "{open}");
        }
        for closed in
            ["/status", "/metrics", "/verify", "/db/x/sql", "/v2/pipeline", "/db/x/v2/v3", "/nowhere", "/db/v2"]
        {
            assert!(!is_open(closed), "{closed}");
        }
        assert!(takes_a_place("/db/x/sql") && takes_a_place("/verify") && !takes_a_place("/metrics"));
    }
}
