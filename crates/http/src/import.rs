//! `POST /db/NAME/import`: takes a SQLite file into an empty database.

use std::sync::Arc;
use std::time::Instant;

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::app::App;
use crate::body::{Incoming, too_large};
use crate::failure::{Failure, respond};
use crate::options::RequestOptions;
use crate::party::Party;
use crate::scratch::{Scratch, failed};
use crate::settle::{before_writing, position, settle};
use crate::work::Lane;

/// Room for a file on its way in is taken in steps of so many bytes.
const STEP_BYTES: u64 = 16 << 20;

/// Takes the file in the body. After a refusal what is left of the body is still to be read: see [`Incoming::discard`].
pub(crate) async fn import(
    app: &Arc<App>,
    name: &str,
    party: &Party,
    query: Option<&str>,
    headers: &HeaderMap,
    incoming: &mut Incoming,
) -> Result<Response, Failure> {
    party.access.full()?;
    let _place = app.imports.take(party, 1)?;
    let db = app.database(name)?;
    let options = RequestOptions::parse(query, headers)?;
    let sql = db.sql()?.clone();
    before_writing(&db, &options).await?;
    let mut scratch = Scratch::new(app, party, 0)?;
    let said = |what: &'static str| {
        let path = scratch.path.clone();
        move |error| failed(what, &path, error)
    };
    let (made, written) = (said("cannot make"), said("cannot write"));
    let mut file = tokio::fs::File::create(&scratch.path).await.map_err(made)?;
    let mut taken: u64 = 0;
    while let Some(piece) = incoming.next().await? {
        taken += piece.len() as u64;
        if taken > app.limits.import_bytes {
            return Err(too_large(app.limits.import_bytes));
        }
        scratch.grow_to(taken.next_multiple_of(STEP_BYTES))?;
        file.write_all(&piece).await.map_err(&written)?;
    }
    file.flush().await.map_err(&written)?;
    drop(file);
    let time = app.limits.transfer;
    // The file goes with the work: it may outlive this request.
    let answer = app
        .blocking(party, Lane::Write, move |work| {
            let answer = sql.import(&scratch.path, work.allow_until(Instant::now() + time));
            drop(scratch);
            answer
        })
        .await?;
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
