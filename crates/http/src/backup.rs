//! `GET /db/NAME/backup`: a consistent SQLite file, streamed out.
//!
//! The copy is made first, in a scratch file, and leaves from there: to read the database itself while a client takes it would hold a snapshot, and with it the
//! checkpoints, for as long as the client likes. The file has no name any more by the time its first byte leaves. Nobody waits on a thread for a slow client:
//! each block is read when the client has taken the one before. The backup keeps its place until the last byte has left.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use highwater_sql::{Statement, Transaction, Value};
use http_body::{Frame, SizeHint};
use tokio::task::JoinHandle;

use crate::app::App;
use crate::failure::Failure;
use crate::options::RequestOptions;
use crate::party::Party;
use crate::scratch::{Scratch, failed};
use crate::settle::before_reading;
use crate::shares::Share;
use crate::work::Lane;

/// How much of the file is read at a time.
const BLOCK_BYTES: usize = 256 << 10;

/// Streams a consistent copy out, as of the offset in the header `highwater-offset`.
pub(crate) async fn backup(
    app: &Arc<App>,
    name: &str,
    party: &Party,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<Response, Failure> {
    let place = app.backups.take(party, 1)?;
    let db = app.database(name)?;
    let options = RequestOptions::parse(query, headers)?;
    before_reading(&db, &options, true).await?;
    let sql = db.sql()?.clone();
    let (told, time) = (sql.clone(), app.limits.transfer);
    let size = app.blocking(party, Lane::Read, move |work| size_of(&told, work.allow(1))).await?;
    // While it is tidied up, the copy is there twice.
    let mut scratch = Scratch::new(app, party, size.map_err(|error| Failure::sql(error, None))?.saturating_mul(2))?;
    let copied = app
        .blocking(party, Lane::Read, move |work| {
            let offset = sql.backup(&scratch.path, work.allow_until(Instant::now() + time));
            let offset = offset.map_err(|error| Failure::sql(error, None))?;
            let opened = File::open(&scratch.path).and_then(|file| Ok((file.metadata()?.len(), file)));
            let (length, file) = opened.map_err(|error| failed("cannot open", &scratch.path, error))?;
            scratch.unlink();
            scratch.shrink_to(length);
            Ok::<_, Failure>((offset, length, Arc::new(file), scratch))
        })
        .await?;
    let (offset, length, file, scratch) = copied?;
    let body = Blocks { file, length, at: 0, reading: None, _scratch: scratch, _place: place };
    let mut response = (StatusCode::OK, Body::new(body)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/vnd.sqlite3"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert("highwater-offset", HeaderValue::from(offset));
    Ok(response)
}

/// How many bytes the database has.
fn size_of(sql: &highwater_sql::Database, allowance: highwater_sql::Allowance) -> Result<u64, highwater_sql::SqlError> {
    let pragma = |name: &str| Statement { sql: format!("PRAGMA {name}"), want_rows: true, ..Statement::default() };
    let asked = Transaction { statements: vec![pragma("page_count"), pragma("page_size")], key: None };
    let results = sql.transaction(&asked, allowance).result?;
    let figure = |at: usize| match results.get(at).and_then(|result| result.rows.first()?.first()) {
        Some(Value::Integer(figure)) => u64::try_from(*figure).unwrap_or(0),
        _ => 0,
    };
    Ok(figure(0).saturating_mul(figure(1)))
}

/// A body that reads a file, a block whenever one is wanted.
struct Blocks {
    file: Arc<File>,
    length: u64,
    /// How much has been read.
    at: u64,
    reading: Option<JoinHandle<std::io::Result<Vec<u8>>>>,
    _scratch: Scratch,
    _place: Share,
}

impl HttpBody for Blocks {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if self.at == self.length {
            return Poll::Ready(None);
        }
        let (at, length) = (self.at, self.length);
        let file = self.file.clone();
        let reading = self.reading.get_or_insert_with(|| {
            tokio::task::spawn_blocking(move || {
                let mut block = vec![0; BLOCK_BYTES.min(usize::try_from(length - at).unwrap_or(BLOCK_BYTES))];
                file.read_exact_at(&mut block, at)?;
                Ok(block)
            })
        });
        let read = ready!(Pin::new(reading).poll(context));
        self.reading = None;
        Poll::Ready(Some(match read {
            Ok(Ok(block)) => {
                self.at += block.len() as u64;
                Ok(Frame::data(block.into()))
            }
            Ok(Err(error)) => Err(error),
            Err(error) => Err(std::io::Error::other(error)),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.at == self.length
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length - self.at)
    }
}
