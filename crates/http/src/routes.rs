//! Which path is answered by what.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, FromRequestParts, Path, RawQuery, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use highwater_node::{Node, Registered, Role, Unavailable};
use serde_json::json;

use crate::answer_body::answer;
use crate::app::App;
use crate::failure::{Failure, respond};
use crate::hrana::types::{CursorRequest, PipelineRequest};
use crate::hrana::{cursor, pipeline};
use crate::options::{RequestOptions, percent_decoded};
use crate::party::Party;
use crate::{backup, body, forward, gate, import, metrics, plain, status, verify};

/// The database that Hrana's paths at the root speak of.
const DEFAULT_DATABASE: &str = "main";

type Shared = State<Arc<App>>;

/// The name of a database in a path. One that is not text is refused like everything else that is wrong.
struct Name(String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Name, Response> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Name(name)),
            Err(error) => {
                let failure = Failure::bad("PATH_INVALID", format!("the path does not name a database: {error}"));
                Err(if parts.uri.path().ends_with("/sql") { failure.plain() } else { failure.hrana() })
            }
        }
    }
}

/// Everything that is served.
pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = Router::new()
        .route("/", get(root))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/status", get(serve_status))
        .route("/metrics", get(serve_metrics))
        .route("/verify", get(serve_verify))
        .route("/db/{name}/sql", post(serve_sql))
        .route("/db/{name}/backup", get(serve_backup))
        .route("/db/{name}/import", post(serve_import))
        .route("/v3/cursor", post(root_cursor))
        .route("/db/{name}/v3/cursor", post(named_cursor));
    for version in ["v2", "v3"] {
        router = router
            .route(&format!("/{version}"), get(probe))
            .route(&format!("/db/{{name}}/{version}"), get(named_probe))
            .route(&format!("/{version}/pipeline"), post(root_pipeline))
            .route(&format!("/db/{{name}}/{version}/pipeline"), post(named_pipeline));
    }
    router
        .fallback(no_such_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(axum::middleware::from_fn_with_state(app.clone(), forward::layer))
        .layer(axum::middleware::from_fn_with_state(app.clone(), gate::layer))
        .with_state(app)
}

async fn no_such_path(method: Method, uri: Uri) -> Response {
    let message =
        format!("there is no {method} {}; SQL goes to POST /db/NAME/sql, the rest is in the README", uri.path());
    Failure::new(StatusCode::NOT_FOUND, "PATH_UNKNOWN", message).plain()
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let message = format!("{} is not asked with {method}", uri.path());
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", message).plain()
}

async fn root() -> Response {
    respond(StatusCode::OK, &json!({"name": "highwater", "version": env!("CARGO_PKG_VERSION")}))
}

/// The process runs and answers. Whether it serves, `/ready` says.
async fn health(State(app): Shared, party: Option<Extension<Party>>) -> Response {
    match app.node.failed() {
        None => respond(StatusCode::OK, &json!({"status": "ok"})),
        Some(reason) => unavailable("NODE_STOPPED", &party, format!("this node stopped: {reason}")),
    }
}

/// Every database here is open, and its leader is known.
async fn ready(State(app): Shared, party: Option<Extension<Party>>) -> Response {
    match not_ready(&app.node).await {
        Ok(None) => respond(StatusCode::OK, &json!({"status": "ready"})),
        Ok(Some(reason)) => unavailable("NOT_READY", &party, reason),
        Err(reason) => unavailable("NOT_READY", &party, reason.to_string()),
    }
}

/// 503. The reason, which may name databases, is told to those who bear a token.
fn unavailable(code: &str, party: &Option<Extension<Party>>, reason: String) -> Response {
    let message = match party {
        Some(_) => reason,
        None => "this node does not serve now; the reason is told to requests that bear a token".to_string(),
    };
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, code, message).plain()
}

/// What a node still waits for before it serves all its databases; `None` once it does.
pub async fn not_ready(node: &Node) -> Result<Option<String>, Unavailable> {
    let view = node.view().await?;
    if view.host.registered == Registered::Refused
        && let Some(reason) = node.halted()
    {
        return Ok(Some(reason.to_string()));
    }
    if view.host.records.is_empty() {
        return Ok(Some("the metadata has no database yet".into()));
    }
    for record in &view.host.records {
        if !record.replicas.iter().any(|peer| peer.node == node.id()) {
            continue;
        }
        let db = match node.database(&record.name) {
            Ok(db) => db,
            Err(_) => return Ok(Some(format!("the database {:?} is not open yet", record.name))),
        };
        if let Err(reason) = db.sql() {
            return Ok(Some(reason.to_string()));
        }
        let status = view.partition(record.id);
        let led = status.is_some_and(|status| status.leader.is_some() && status.published > 0);
        let leads_here = status.is_some_and(|status| matches!(status.role, Role::Leader { .. }));
        if !led || leads_here && !db.leads() {
            return Ok(Some(format!("the database {:?} has no leader yet", record.name)));
        }
    }
    Ok(None)
}

async fn serve_status(State(app): Shared, party: Party, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let result = async {
        let alone = match query.as_deref().unwrap_or_default() {
            "" => forward::is_forwarded(&headers),
            "scope=node" => true,
            _ => return Err(Failure::bad("OPTION_UNKNOWN", "/status takes one parameter, scope=node")),
        };
        match alone {
            true => status::own_document(&app).await,
            false => status::document(&app, &party, &headers).await,
        }
    };
    result.await.map_or_else(Failure::plain, |document| respond(StatusCode::OK, &document))
}

async fn serve_verify(State(app): Shared, party: Party, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let result = async {
        let query = query.unwrap_or_default();
        let name = match query.split_once('=') {
            None if query.is_empty() => DEFAULT_DATABASE.to_string(),
            Some(("db", name)) => percent_decoded(name),
            _ => return Err(Failure::bad("OPTION_UNKNOWN", "/verify takes one parameter, db=NAME")),
        };
        match forward::is_forwarded(&headers) {
            true => verify::own_document(&app, &name, &party).await,
            false => verify::document(&app, &name, &party, &headers).await,
        }
    };
    result.await.map_or_else(Failure::plain, |document| respond(StatusCode::OK, &document))
}

async fn serve_metrics(State(app): Shared, _: Party) -> Response {
    match metrics::text(&app).await {
        Ok(text) => {
            let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(failure) => failure.plain(),
    }
}

async fn serve_sql(
    State(app): Shared,
    Name(name): Name,
    party: Party,
    RawQuery(query): RawQuery,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let result = async {
        let mut body = body::read(body, app.limits.body_bytes, &app.bodies, &party).await?;
        body.room_to_parse()?;
        plain::run(&app, &name, &party, query.as_deref(), &parts.headers, &mut body).await
    };
    let result = result.await;
    app.metrics.count("sql", result.is_err());
    result.unwrap_or_else(Failure::plain)
}

async fn serve_backup(
    State(app): Shared,
    Name(name): Name,
    party: Party,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let result = backup::backup(&app, &name, &party, query.as_deref(), &headers).await;
    app.metrics.count("backup", result.is_err());
    result.unwrap_or_else(Failure::plain)
}

async fn serve_import(
    State(app): Shared,
    Name(name): Name,
    party: Party,
    RawQuery(query): RawQuery,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let mut incoming = body::Incoming::new(body);
    let result = import::import(&app, &name, &party, query.as_deref(), &parts.headers, &mut incoming).await;
    if result.is_err() {
        // A client that sends all of it before it reads would never see the refusal.
        incoming.discard().await;
    }
    app.metrics.count("import", result.is_err());
    result.unwrap_or_else(Failure::plain)
}

async fn probe() -> StatusCode {
    StatusCode::OK
}

/// Whether there is such a database, for those who may know; a stranger is told the same of every name.
async fn named_probe(State(app): Shared, Name(name): Name, party: Option<Extension<Party>>) -> Response {
    match app.database(&name) {
        Err(failure) if party.is_some() => failure.hrana(),
        _ => StatusCode::OK.into_response(),
    }
}

async fn root_pipeline(State(app): Shared, party: Party, RawQuery(query): RawQuery, request: Request) -> Response {
    serve_pipeline(app, DEFAULT_DATABASE.to_string(), party, query, request).await
}

async fn named_pipeline(
    State(app): Shared,
    Name(name): Name,
    party: Party,
    RawQuery(query): RawQuery,
    request: Request,
) -> Response {
    serve_pipeline(app, name, party, query, request).await
}

async fn root_cursor(State(app): Shared, party: Party, RawQuery(query): RawQuery, request: Request) -> Response {
    serve_cursor(app, DEFAULT_DATABASE.to_string(), party, query, request).await
}

async fn named_cursor(
    State(app): Shared,
    Name(name): Name,
    party: Party,
    RawQuery(query): RawQuery,
    request: Request,
) -> Response {
    serve_cursor(app, name, party, query, request).await
}

/// What every Hrana request begins with: with which options, and what. The body takes its room as long as the request is under way.
async fn hrana_request<T: serde::de::DeserializeOwned>(
    app: &App,
    party: &Party,
    query: Option<&str>,
    request: Request,
) -> Result<(RequestOptions, T, body::Held), Failure> {
    let (parts, body) = request.into_parts();
    let options = RequestOptions::parse(query, &parts.headers)?;
    let mut body = body::read(body, app.limits.body_bytes, &app.bodies, party).await?;
    body.room_to_parse()?;
    let parsed = serde_json::from_slice(&body.bytes)
        .map_err(|error| Failure::bad("HRANA_PROTO_ERROR", format!("the body is not a Hrana request: {error}")))?;
    body.forget_text();
    Ok((options, parsed, body))
}

async fn serve_pipeline(
    app: Arc<App>,
    name: String,
    party: Party,
    query: Option<String>,
    request: Request,
) -> Response {
    let result = async {
        let (options, parsed, _body) =
            hrana_request::<PipelineRequest>(&app, &party, query.as_deref(), request).await?;
        let db = app.database(&name)?;
        pipeline::run(&app, &db, &party, &options, parsed).await
    };
    let result = result.await;
    app.metrics.count("pipeline", result.is_err());
    match result {
        Ok(answered) => {
            let mut items = answered.response.into_items();
            items.keep(answered.extra);
            let mut response = answer(items, "application/json");
            if let Some(position) = answered.position {
                let value = HeaderValue::from_str(&position.to_string()).expect("a position is ASCII");
                response.headers_mut().insert("highwater-position", value);
            }
            response
        }
        Err(failure) => failure.hrana(),
    }
}

async fn serve_cursor(app: Arc<App>, name: String, party: Party, query: Option<String>, request: Request) -> Response {
    let result = async {
        let (options, parsed, _body) = hrana_request::<CursorRequest>(&app, &party, query.as_deref(), request).await?;
        let db = app.database(&name)?;
        cursor::run(&app, &db, &party, &options, parsed).await
    };
    let result = result.await;
    app.metrics.count("cursor", result.is_err());
    result.map_or_else(Failure::hrana, |lines| answer(lines, "application/x-ndjson"))
}
