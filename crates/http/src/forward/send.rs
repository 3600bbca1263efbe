//! Carrying a request to another node, and reading what comes back.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use highwater_wire::NodeId;
use http_body_util::BodyExt;
use serde::Deserialize;

use super::carry::Refused;
use crate::app::App;
use crate::party::Party;

/// Names the node that forwarded a request.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("highwater-forwarded");
/// Marks an answer that says that nothing was done: whoever leads by then is to be asked.
pub(super) const DECLINED: HeaderName = HeaderName::from_static("highwater-declined");
/// What is kept of a refusal in order to read it.
const REFUSAL_BYTES: usize = 64 << 10;

/// Why a try brought no answer.
pub(super) enum Tried {
    /// Too many are under way; nothing happened there.
    Full(String),
    /// Nothing happened there.
    Nothing(String),
    /// It was sent, and no answer came back.
    Broken(String),
}

/// Sends a request as this node's forwarding.
pub(super) async fn send(
    app: &App,
    party: &Party,
    node: NodeId,
    parts: &axum::http::request::Parts,
    body: Body,
) -> Result<Response, Tried> {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let uri: Uri =
        format!("http://{node}{path}").parse().map_err(|error| Tried::Nothing(format!("the path {path}: {error}")))?;
    let mut request = Request::new(body);
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = parts.headers.clone();
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::EXPECT] {
        request.headers_mut().remove(name);
    }
    request.headers_mut().insert(header::HOST, HeaderValue::from_static("localhost"));
    request.headers_mut().insert(FORWARDED, HeaderValue::from(app.node.id().0));
    app.forwarder.request(party, node, request).await.map_err(|refused| match refused {
        Refused::Full(reason) => Tried::Full(reason),
        Refused::Unsent(reason) => Tried::Nothing(reason),
        Refused::Broken(reason) => Tried::Broken(reason),
    })
}

/// Whether another node of the cluster asks, who wants to know what is here and nothing else.
pub(crate) fn is_forwarded(headers: &axum::http::HeaderMap) -> bool {
    headers.contains_key(FORWARDED)
}

/// Another node's own answer to a GET, with the asking client's token; an error says why there is none within `wait`.
pub(crate) async fn ask(
    app: &App,
    party: &Party,
    node: NodeId,
    path: &str,
    headers: &axum::http::HeaderMap,
    wait: Duration,
) -> Result<serde_json::Value, String> {
    let mut parts = Request::new(()).into_parts().0;
    parts.uri = path.parse().map_err(|error| format!("{path}: {error}"))?;
    if let Some(token) = headers.get(header::AUTHORIZATION) {
        parts.headers.insert(header::AUTHORIZATION, token.clone());
    }
    let answered = async {
        let response = send(app, party, node, &parts, Body::empty()).await.map_err(|tried| match tried {
            Tried::Full(reason) | Tried::Nothing(reason) | Tried::Broken(reason) => reason,
        })?;
        let status = response.status();
        let bytes = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        let document: serde_json::Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        match status.is_success() {
            true => Ok(document),
            false => Err(document["error"]["message"].as_str().unwrap_or("it refused").to_string()),
        }
    };
    tokio::time::timeout(wait, answered)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {} ms", wait.as_millis())))
}

/// Hands an answer on, unless it says that the node does not lead (any more) and that nothing happened.
pub(super) async fn refusal(response: Response) -> Result<Response, String> {
    if response.headers().contains_key(DECLINED) {
        return Err("it is about to stop".to_string());
    }
    if response.status() != StatusCode::SERVICE_UNAVAILABLE {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let Ok(collected) = http_body_util::Limited::new(body, REFUSAL_BYTES).collect().await else {
        return Ok((StatusCode::BAD_GATEWAY, "the leader's answer broke off").into_response());
    };
    let bytes = collected.to_bytes();
    #[derive(Deserialize)]
    struct Refusal {
        error: Inner,
    }
    #[derive(Deserialize)]
    struct Inner {
        code: String,
        outcome: String,
    }
    if let Ok(Refusal { error }) = serde_json::from_slice::<Refusal>(&bytes)
        && error.outcome == "failed"
        && ["NOT_LEADER", "LEADERSHIP_LOST", "NO_LEADER", "SHUTTING_DOWN"].contains(&error.code.as_str())
    {
        return Err(error.code);
    }
    Ok(Response::from_parts(parts, Body::from(bytes)))
}
