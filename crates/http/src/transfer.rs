//! Whole databases over HTTP: `GET /db/NAME/backup` streams a consistent SQLite file out, `POST /db/NAME/import` takes one in.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::Frame;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use crate::app::{App, Lane};
use crate::body::{next_piece, too_large};
use crate::failure::{Failure, respond};
use crate::options::RequestOptions;
use crate::settle::{before_reading, before_writing, position, settle};

/// How much of a file is read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// A file that goes when this does.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may never have been made; one that stays is removed at the next start.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn internal(what: &str, path: &Path, error: std::io::Error) -> Failure {
    let full = matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
    let (status, code) = match full {
        true => (StatusCode::INSUFFICIENT_STORAGE, "DISK_FULL"),
        false => (StatusCode::INTERNAL_SERVER_ERROR, "SCRATCH_FILE"),
    };
    Failure::new(status, code, format!("{what} the scratch file {}: {error}", path.display()))
}

/// A body fed by a thread that reads a file.
struct Pieces(mpsc::Receiver<std::io::Result<Bytes>>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// A copy may take long.
fn far() -> std::time::Instant {
    std::time::Instant::now() + std::time::Duration::from_secs(24 * 3600)
}

/// Streams a consistent copy out, as of the offset in the header `highwater-offset`.
pub(crate) async fn backup(
    app: &Arc<App>,
    name: &str,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<Response, Failure> {
    let db = app.database(name)?;
    let options = RequestOptions::parse(query, headers)?;
    before_reading(&db, &options, true).await?;
    let sql = db.sql()?.clone();
    let scratch = Scratch(app.node.scratch_file());
    let path = scratch.0.clone();
    let offset =
        app.blocking(Lane::Read, move || sql.backup(&path, far())).await?.map_err(|error| Failure::sql(error, None))?;
    let length = std::fs::metadata(&scratch.0).map_err(|error| internal("cannot look at", &scratch.0, error))?.len();
    let mut file = std::fs::File::open(&scratch.0).map_err(|error| internal("cannot open", &scratch.0, error))?;
    let (pieces, body) = mpsc::channel(4);
    tokio::task::spawn_blocking(move || {
        let _scratch = scratch;
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let read = file.read(&mut piece).map(|count| {
                piece.truncate(count);
                Bytes::from(piece)
            });
            let last = !matches!(&read, Ok(piece) if !piece.is_empty());
            let end = matches!(&read, Ok(piece) if piece.is_empty());
            // A client that has left takes no more.
            if end || pieces.blocking_send(read).is_err() || last {
                return;
            }
        }
    });
    let mut response = (StatusCode::OK, Body::new(Pieces(body))).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/vnd.sqlite3"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert("highwater-offset", HeaderValue::from(offset));
    Ok(response)
}

/// Takes a SQLite file into an empty database.
pub(crate) async fn import(
    app: &Arc<App>,
    name: &str,
    query: Option<&str>,
    headers: &HeaderMap,
    mut body: Body,
) -> Result<Response, Failure> {
    let db = app.database(name)?;
    let options = RequestOptions::parse(query, headers)?;
    let sql = db.sql()?.clone();
    before_writing(&db, &options).await?;
    let scratch = Scratch(app.node.scratch_file());
    let failed = |what: &'static str| {
        let path = scratch.0.clone();
        move |error| internal(what, &path, error)
    };
    let mut file = tokio::fs::File::create(&scratch.0).await.map_err(failed("cannot make"))?;
    let mut taken: u64 = 0;
    while let Some(piece) = next_piece(&mut body).await? {
        taken += piece.len() as u64;
        if taken > app.limits.import_bytes {
            return Err(too_large(app.limits.import_bytes));
        }
        file.write_all(&piece).await.map_err(failed("cannot write"))?;
    }
    file.flush().await.map_err(failed("cannot write"))?;
    drop(file);
    let path = scratch.0.clone();
    let answer = app.blocking(Lane::Write, move || sql.import(&path, far())).await?;
    let position = match answer.hold {
        Some(hold) => settle(&db, hold, options.ack, options.ack_wait()).await?,
        None => position(&db, answer.seen),
    };
    answer.result.map_err(|error| {
        let failure = Failure::sql(error, None);
        // These are about the file that was sent, not about ours.
        match failure.code.as_str() {
            "SQLITE_NOTADB" | "SQLITE_CORRUPT" => Failure { status: StatusCode::BAD_REQUEST, ..failure },
            _ => failure,
        }
    })?;
    Ok(respond(StatusCode::OK, &json!({"imported_bytes": taken, "position": position.to_string()})))
}
