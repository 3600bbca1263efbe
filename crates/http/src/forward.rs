//! Any node takes any request whose bearer may ask it ([`crate::gate`] has looked): what another node must serve is forwarded to it, whole, and its answer handed back.
//!
//! - A Hrana request with a baton goes to the node that the baton names: the stream lives there.
//! - Other writes, and Hrana requests that open a stream, go to the database's leader. While there is none, they wait for one, a bounded time.
//! - Plain requests that only read stay: this node reads at the freshness asked, asking its leader for a read index where that is needed. What it cannot
//!   prepare, or finds to write after all, goes to the leader.
//!
//! A request is forwarded once: the node that gets it serves it or refuses it. Refusals that say that nothing happened (not the leader any more, not
//! reachable) are tried anew at whoever leads by then. A connection that breaks after the request was sent leaves its outcome unknown, and so it is
//! said, unless the request bears an idempotency key or only reads: then it is tried anew as well.

mod carry;
mod send;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use highwater_node::{Database, Unavailable};
use highwater_wire::NodeId;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::access::Access;
use crate::app::{App, looks_read_only};
use crate::body;
use crate::failure::Failure;
use crate::hrana::baton::Baton;
use crate::hrana::streams::lost;
use crate::options::percent_decoded;
use crate::party::Party;
pub(crate) use carry::Forwarder;
use send::{DECLINED, Tried, refusal, send};
pub(crate) use send::{FORWARDED, ask, is_forwarded};

/// How long a request may wait for a leader that takes it.
const LEADER_WAIT: Duration = Duration::from_secs(5);
/// Between two tries.
const TRY_AGAIN: Duration = Duration::from_millis(5);
/// How long a leader that was superseded may take to say what became of a request, where that makes a difference to the client...
const GRACE: Duration = Duration::from_millis(500);
/// ...and where the request can be repeated anyway.
const GRACE_SAFE: Duration = Duration::from_millis(20);
/// What a path asks for, as far as forwarding minds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sql,
    Hrana,
    Import,
}

/// The kind and the database of a path; `None` for what every node serves by itself.
fn kind_of(method: &Method, path: &str) -> Option<(Kind, String)> {
    if method != Method::POST {
        return None;
    }
    let (name, rest) = match path.strip_prefix("/db/") {
        None => ("main".to_string(), path),
        Some(rest) => {
            let (name, _) = rest.split_once('/')?;
            (percent_decoded(name), &rest[name.len()..])
        }
    };
    let kind = match rest {
        "/sql" => Kind::Sql,
        "/import" => Kind::Import,
        "/v2/pipeline" | "/v3/pipeline" | "/v3/cursor" => Kind::Hrana,
        _ => return None,
    };
    Some((kind, name))
}

/// Who must serve a request.
enum Server {
    Here,
    /// The owner of a stream, with whether it held a transaction.
    Owner(NodeId, bool),
    Leader,
}

/// The layer around all routes.
pub(crate) async fn layer(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    // Nobody without a token is forwarded: whatever such a request is answered, it is answered here.
    let Some(party) = request.extensions().get::<Party>().copied() else {
        return next.run(request).await;
    };
    let alone = !app.node.has_peers();
    let Some((kind, name)) = kind_of(request.method(), request.uri().path()).filter(|_| !alone) else {
        return next.run(request).await;
    };
    let Ok(db) = app.node.database(&name) else {
        return next.run(request).await;
    };
    let result = match kind {
        _ if is_forwarded(request.headers()) => forwarded_here(&app, &db, kind, &party, request, next).await,
        Kind::Import => import(&app, &db, &party, request, next).await,
        Kind::Sql | Kind::Hrana => buffered(&app, &db, kind, &party, request, next).await,
    };
    result.unwrap_or_else(|failure| match kind {
        Kind::Hrana => failure.hrana(),
        Kind::Sql | Kind::Import => failure.plain(),
    })
}

/// The answer to a node that forwarded what is not served here, and why.
fn declined(why: &'static str) -> Response {
    (StatusCode::MISDIRECTED_REQUEST, [(DECLINED, why)]).into_response()
}

/// What another node forwarded is served here or declined. A leader that is about to stop declines whatever would keep it from coming to an end of its writes, and goes on
/// with the streams that live on it.
async fn forwarded_here(
    app: &Arc<App>,
    db: &Database,
    kind: Kind,
    party: &Party,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    let stops = app.node.leaving() && db.leader() == Some(app.node.id());
    let request = match kind {
        Kind::Sql if stops => return Ok(declined("leaving")),
        Kind::Hrana if stops => {
            let (parts, body) = request.into_parts();
            let held = body::read(body, app.limits.body_bytes, &app.bodies, party).await?;
            if matches!(owner(app, &held.bytes), Server::Leader) {
                return Ok(declined("leaving"));
            }
            Request::from_parts(parts, Body::from(held.bytes.clone()))
        }
        _ => request,
    };
    Ok(next.run(request).await)
}

async fn buffered(
    app: &Arc<App>,
    db: &Database,
    kind: Kind,
    party: &Party,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let mut held = body::read(body, app.limits.body_bytes, &app.bodies, party).await?;
    held.room_to_parse()?;
    let bytes = held.bytes.clone();
    let server = match kind {
        Kind::Hrana => owner(app, &bytes),
        _ if leads_here(app, db) || only_reads(&bytes) => Server::Here,
        _ => Server::Leader,
    };
    held.parsed();
    let safe = kind == Kind::Sql && parts.headers.contains_key("idempotency-key");
    let sent = Sent { party: *party, parts, safe, body: bytes };
    match server {
        Server::Here if kind == Kind::Sql && !leads_here(app, db) => {
            drop(held);
            // What merely looks like reading may write (a PRAGMA), or name a table that this node has not heard of yet: only the leader can say.
            match refusal(next.clone().run(sent.clone().request()).await).await {
                Ok(response) => Ok(response),
                Err(_) => to_leader(app, db, &sent, next).await,
            }
        }
        Server::Here => {
            drop(held);
            Ok(next.run(sent.request()).await)
        }
        Server::Owner(node, in_transaction) if node != app.node.id() => {
            to_owner(app, node, in_transaction, &sent).await
        }
        Server::Owner(..) => {
            drop(held);
            Ok(next.run(sent.request()).await)
        }
        Server::Leader => to_leader(app, db, &sent, next).await,
    }
}

/// Whether this node takes writes on itself. One that is about to stop does not, and waits for the leader after it.
fn leads_here(app: &App, db: &Database) -> bool {
    db.leader() == Some(app.node.id()) && !app.node.leaving()
}

/// The node that a Hrana request's stream lives on.
fn owner(app: &App, body: &[u8]) -> Server {
    #[derive(Deserialize)]
    struct Opening<'a> {
        #[serde(borrow, default)]
        baton: Option<std::borrow::Cow<'a, str>>,
    }
    match serde_json::from_slice::<Opening<'_>>(body) {
        Ok(Opening { baton: Some(text) }) => match Baton::open_by_any(&text, &app.node.baton_keys()) {
            Some(baton) => Server::Owner(baton.node, baton.in_transaction),
            None => Server::Here,
        },
        Ok(Opening { baton: None }) => Server::Leader,
        // What is wrong with it is said here as well as anywhere.
        Err(_) => Server::Here,
    }
}

/// Whether a plain request seems to read only. What merely seems to write goes to the leader, which serves it just as well.
fn only_reads(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct One<'a> {
        #[serde(borrow, default)]
        sql: Option<std::borrow::Cow<'a, str>>,
        #[serde(borrow, default)]
        statements: Vec<OneOf<'a>>,
    }
    #[derive(Deserialize)]
    struct OneOf<'a> {
        #[serde(borrow)]
        sql: std::borrow::Cow<'a, str>,
        #[serde(borrow, default, rename = "args")]
        _args: Option<&'a RawValue>,
    }
    match serde_json::from_slice::<One<'_>>(body) {
        Ok(One { sql, statements }) => sql
            .iter()
            .map(|sql| sql.as_ref())
            .chain(statements.iter().map(|statement| statement.sql.as_ref()))
            .all(looks_read_only),
        Err(_) => true,
    }
}

/// A request as it can be sent, several times over if need be.
#[derive(Clone)]
struct Sent {
    /// Who asks.
    party: Party,
    parts: axum::http::request::Parts,
    /// Trying it again after it may have been carried out does no harm.
    safe: bool,
    body: Bytes,
}

impl Sent {
    fn request(self) -> Request {
        Request::from_parts(self.parts, Body::from(self.body))
    }
}

async fn to_owner(app: &App, node: NodeId, in_transaction: bool, sent: &Sent) -> Result<Response, Failure> {
    match send(app, &sent.party, node, &sent.parts, Body::from(sent.body.clone())).await {
        Ok(response) => Ok(response),
        Err(Tried::Full(reason)) => Err(Unavailable::Overloaded(reason).into()),
        Err(Tried::Nothing(reason)) => {
            let message = format!(
                "this stream lived on node {node}, which is gone ({reason}): {}; open a new one",
                lost(in_transaction)
            );
            Err(Failure::bad("STREAM_EXPIRED", message))
        }
        Err(Tried::Broken(reason)) => {
            let message = format!(
                "node {node}, where this stream lived, went away before it answered ({reason}): what this request asked for may have happened or not, and the stream is gone"
            );
            Err(Failure::new(StatusCode::BAD_GATEWAY, "OUTCOME_UNKNOWN", message).unknown_at(None))
        }
    }
}

async fn to_leader(app: &Arc<App>, db: &Database, sent: &Sent, next: Next) -> Result<Response, Failure> {
    let begun = Instant::now();
    let mut last = "no leader is known".to_string();
    loop {
        match db.leader() {
            _ if leads_here(app, db) => {
                return Ok(next.run(Request::from_parts(sent.parts.clone(), Body::from(sent.body.clone()))).await);
            }
            Some(node) if node != app.node.id() => match send_while_it_leads(app, db, node, sent).await {
                Ok(response) => match refusal(response).await {
                    Ok(response) => return Ok(response),
                    Err(reason) => last = format!("node {node} refused: {reason}"),
                },
                Err(Tried::Full(reason)) => return Err(Unavailable::Overloaded(reason).into()),
                Err(Tried::Nothing(reason)) => last = reason,
                Err(Tried::Broken(reason)) if sent.safe => last = reason,
                Err(Tried::Broken(reason)) => {
                    let message = format!(
                        "the leader, node {node}, went away before it answered ({reason}): the request may have been carried out or not; with an Idempotency-Key it could be repeated safely"
                    );
                    return Err(Failure::new(StatusCode::BAD_GATEWAY, "OUTCOME_UNKNOWN", message).unknown_at(None));
                }
            },
            _ => {}
        }
        if begun.elapsed() > LEADER_WAIT {
            let message = format!(
                "the database {:?} had no leader that took the request within {} s ({last}); ask again",
                db.name(),
                LEADER_WAIT.as_secs()
            );
            let failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "NO_LEADER", message);
            return Err(failure);
        }
        // sleep: whoever leads next is learned of a few milliseconds after the election; a bounded pause keeps a refusing leader from being flooded.
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

/// Sends to the leader, and waits no longer than a grace once another leads: a process that stands still keeps its connections, and answers nothing.
async fn send_while_it_leads(app: &App, db: &Database, node: NodeId, sent: &Sent) -> Result<Response, Tried> {
    let grace = if sent.safe { GRACE_SAFE } else { GRACE };
    let superseded = async {
        db.wait_for_leader(|leader| leader.is_some_and(|leader| leader != node)).await;
        // sleep: a leader that merely lost its role still says what became of the request, if it is given a moment.
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        answered = send(app, &sent.party, node, &sent.parts, Body::from(sent.body.clone())) => answered,
        () = superseded => Err(Tried::Broken(format!("node {node} does not lead any more, and said nothing for {} ms", grace.as_millis()))),
    }
}

/// An import is too large to keep, so it is sent on as it comes, once.
async fn import(
    app: &Arc<App>,
    db: &Database,
    party: &Party,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    match db.leader() {
        // Who may not import is told so here: his file goes nowhere.
        Some(node) if node != app.node.id() && party.access == Access::Full => {
            let (parts, body) = request.into_parts();
            send(app, party, node, &parts, body).await.map_err(|tried| match tried {
                Tried::Full(reason) => Unavailable::Overloaded(reason).into(),
                Tried::Nothing(reason) => Failure::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "NO_LEADER",
                    format!("the leader, node {node}, cannot be reached ({reason}); ask again"),
                ),
                Tried::Broken(reason) => Failure::new(
                    StatusCode::BAD_GATEWAY,
                    "OUTCOME_UNKNOWN",
                    format!("the leader, node {node}, went away before it answered ({reason}): look what is there before importing again"),
                )
                .unknown_at(None),
            })
        }
        _ => Ok(next.run(request).await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_apart() {
        let of = |path| kind_of(&Method::POST, path);
        assert_eq!(of("/db/a%20b/sql"), Some((Kind::Sql, "a b".into())));
        assert_eq!(of("/v2/pipeline"), Some((Kind::Hrana, "main".into())));
        assert_eq!(of("/db/x/v3/cursor"), Some((Kind::Hrana, "x".into())));
        assert_eq!(of("/db/x/import"), Some((Kind::Import, "x".into())));
        for local in ["/status", "/db/x", "/db/x/v2", "/db//backup", "/verify"] {
            assert_eq!(of(local), None, "{local}");
        }
        assert_eq!(kind_of(&Method::GET, "/db/x/sql"), None);
    }

    #[test]
    fn plain_requests_that_seem_to_read_stay() {
        assert!(only_reads(br#"{"sql":"SELECT 1","args":[1]}"#));
        assert!(only_reads(br#"{"statements":[{"sql":"select 1"},{"sql":"SELECT 2","args":{"a":1}}]}"#));
        assert!(!only_reads(br#"{"statements":[{"sql":"select 1"},{"sql":"INSERT INTO t VALUES (1)"}]}"#));
        assert!(!only_reads(br#"{"sql":"DELETE FROM t"}"#));
        assert!(only_reads(b"{"), "what is wrong with it is said here as well as anywhere");
    }
}
