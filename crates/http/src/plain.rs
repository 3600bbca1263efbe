//! `POST /db/NAME/sql`: one transaction as plain JSON, for curl and everything else that speaks HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::response::Response;
use highwater_node::AckPolicy;
use highwater_sql::{Key, ResultSet, Statement, Transaction};
use highwater_wire::Position;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::access::Access;
use crate::answer_body::answer;
use crate::app::{App, first_word, looks_read_only};
use crate::body::Held;
use crate::encode::{Form, Items};
use crate::failure::Failure;
use crate::json::{Integers, value_from_json};
use crate::options::RequestOptions;
use crate::party::Party;
use crate::settle::{before_reading, before_writing, position, settle};
use crate::work::Lane;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    #[serde(default)]
    sql: Option<String>,
    #[serde(default)]
    args: Option<Box<RawValue>>,
    #[serde(default)]
    statements: Option<Vec<One>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    sql: String,
    #[serde(default)]
    args: Option<Box<RawValue>>,
}

/// Reads a request's statements, or says what is wrong with it.
pub(crate) fn statements(body: &[u8], max: usize) -> Result<Vec<Statement>, Failure> {
    let request: Request = serde_json::from_slice(body).map_err(|error| {
        Failure::bad(
            "REQUEST_INVALID",
            format!("the body must be JSON, {{\"sql\": \"...\", \"args\": [...]}} or {{\"statements\": [{{\"sql\", \"args\"}}, ...]}}: {error}"),
        )
    })?;
    let all = match (request.sql, request.statements) {
        (Some(sql), None) => vec![One { sql, args: request.args }],
        (None, Some(all)) if request.args.is_none() => all,
        (None, None) => {
            return Err(Failure::bad("REQUEST_INVALID", "the body needs \"sql\" or \"statements\"; found neither"));
        }
        _ => {
            return Err(Failure::bad(
                "REQUEST_INVALID",
                "the body has either \"sql\" with \"args\", or \"statements\" that each have their own; found both",
            ));
        }
    };
    if all.is_empty() {
        return Err(Failure::bad("SQL_NO_STATEMENT", "\"statements\" is empty; a transaction has at least one"));
    }
    if all.len() > max {
        return Err(Failure::bad(
            "TOO_MANY_STATEMENTS",
            format!("{} statements in one request; at most {max}", all.len()),
        ));
    }
    all.into_iter().enumerate().map(|(index, one)| statement(one, index)).collect()
}

fn statement(one: One, index: usize) -> Result<Statement, Failure> {
    let invalid = |message: String| Failure { statement: Some(index), ..Failure::bad("ARGS_INVALID", message) };
    let mut statement = Statement { sql: one.sql, want_rows: true, ..Statement::default() };
    let args = one.args.as_ref().map_or("null", |args| args.get());
    let unread = |error: serde_json::Error| invalid(format!("\"args\" do not read: {error}"));
    match args.as_bytes()[0] {
        b'n' => {}
        b'[' => {
            let args: Vec<&RawValue> = serde_json::from_str(args).map_err(unread)?;
            for (at, arg) in args.into_iter().enumerate() {
                let value = value_from_json(arg).map_err(|reason| invalid(format!("argument {}: {reason}", at + 1)))?;
                statement.args.push(value);
            }
        }
        b'{' => {
            let args: BTreeMap<String, &RawValue> = serde_json::from_str(args).map_err(unread)?;
            for (name, arg) in args {
                let value = value_from_json(arg).map_err(|reason| invalid(format!("argument {name:?}: {reason}")))?;
                statement.named.push((name, value));
            }
        }
        _ => {
            return Err(invalid(format!(
                "\"args\" must be a list, or an object of names and values; found {args:.40}"
            )));
        }
    }
    Ok(statement)
}

/// The header's key with a hash of what is asked, so that the same key with another request is noticed.
fn idempotency_key(headers: &HeaderMap, body: &[u8]) -> Result<Option<Key>, Failure> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let key = value.to_str().ok().filter(|key| (1..=255).contains(&key.len())).ok_or_else(|| {
        Failure::bad(
            "IDEMPOTENCY_KEY_INVALID",
            "the header Idempotency-Key must be 1 to 255 printable ASCII characters",
        )
    })?;
    Ok(Some(Key { key: key.to_string(), request_hash: Sha256::digest(body).into() }))
}

/// `{"results": [...], "position", "ack"?}`.
fn success(results: Vec<ResultSet>, position: Position, ack: AckPolicy, integers: Integers) -> Response {
    let mut items = Items::default();
    items.text("{\"results\":[");
    for (index, result) in results.into_iter().enumerate() {
        if index > 0 {
            items.text(",");
        }
        items.result(result, Form::Plain(integers));
    }
    items.text("],\"position\":");
    items.json(&position.to_string());
    if ack == AckPolicy::Leader {
        // Durable on the leader alone: a failover may lose it.
        items.text(",\"ack\":\"leader\"");
    }
    items.text("}");
    answer(items, "application/json")
}

/// Runs one request.
pub(crate) async fn run(
    app: &Arc<App>,
    name: &str,
    party: &Party,
    query: Option<&str>,
    headers: &HeaderMap,
    body: &mut Held,
) -> Result<Response, Failure> {
    let db = app.database(name)?;
    let sql = db.sql()?.clone();
    let options = RequestOptions::parse(query, headers)?;
    let statements = Arc::new(statements(&body.bytes, app.limits.statements)?);
    let key = idempotency_key(headers, &body.bytes)?;
    body.forget_text();

    let reads = only_reads(app, &sql, party, &statements, key.is_some()).await?;
    if !reads {
        party.access.full()?;
        before_writing(&db, &options).await?;
    }
    before_reading(&db, &options, reads).await?;

    // A request that only reads writes nothing, no entry for its key either, and is answered anew each time.
    let key = key.filter(|_| !reads);
    let transaction = Transaction { statements: Arc::unwrap_or_clone(statements), key };
    let lane = if reads { Lane::Read } else { Lane::Write };
    let answer = app.blocking(party, lane, move |work| sql.transaction(&transaction, work.allow(1))).await?;
    let position = match answer.hold {
        Some(hold) => settle(&db, hold, options.ack, options.ack_wait()).await?,
        None => position(&db, answer.seen),
    };
    let results = answer.result.map_err(|error| Failure::sql(error, None))?;
    let wrote = answer.hold.is_some_and(|hold| hold.wrote);
    let ack = if wrote { options.ack } else { AckPolicy::Committed };
    Ok(success(results, position, ack, options.integers))
}

/// Whether a request only reads: by its text where that is sure enough, or else by what the database says. The look at the text errs on one side only: a
/// statement that writes may begin with PRAGMA or EXPLAIN, and one that reads with WITH.
async fn only_reads(
    app: &App,
    sql: &Arc<highwater_sql::Database>,
    party: &Party,
    statements: &Arc<Vec<Statement>>,
    has_key: bool,
) -> Result<bool, Failure> {
    let looks = statements.iter().all(|statement| looks_read_only(&statement.sql));
    let may_read = |sql: &str| looks_read_only(sql) || first_word(sql).eq_ignore_ascii_case("WITH");
    let unsure = match looks {
        // With a key, what merely looks like reading would write an entry.
        true => has_key,
        false => statements.iter().all(|statement| may_read(&statement.sql)),
    };
    if party.access == Access::Full && !unsure {
        return Ok(looks);
    }
    let (sql, statements) = (sql.clone(), statements.clone());
    match app.blocking(party, Lane::Read, move |work| sql.read_only(&statements, work.allow(1))).await? {
        Ok(reads) => Ok(reads),
        // Whoever may write may name what is executed here and not published yet.
        Err(_) if party.access == Access::Full => Ok(false),
        Err(error) => Err(Failure::sql(error, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;
    use highwater_sql::Value;

    #[test]
    fn both_forms_of_a_request_are_read() {
        let one = statements(br#"{"sql":"SELECT ?","args":[1]}"#, 9).expect("one");
        assert_eq!((one.len(), &one[0].args[..]), (1, &[Value::Integer(1)][..]));
        let two = statements(br#"{"statements":[{"sql":"a","args":{":x":"y"}},{"sql":"b"}]}"#, 9).expect("two");
        assert_eq!(two[0].named, [(":x".to_string(), Value::Text("y".into()))]);
        assert_eq!(two[1].sql, "b");
    }

    #[test]
    fn wrong_requests_say_what_is_wanted() {
        for (body, code) in [
            ("", "REQUEST_INVALID"),
            ("{", "REQUEST_INVALID"),
            ("[]", "REQUEST_INVALID"),
            ("{}", "REQUEST_INVALID"),
            (r#"{"sql":7}"#, "REQUEST_INVALID"),
            (r#"{"sql":"a","statements":[]}"#, "REQUEST_INVALID"),
            (r#"{"args":[],"statements":[{"sql":"a"}]}"#, "REQUEST_INVALID"),
            (r#"{"sql":"a","arguments":[]}"#, "REQUEST_INVALID"),
            (r#"{"statements":[]}"#, "SQL_NO_STATEMENT"),
            (r#"{"statements":[{"sql":"a"},{"sql":"b"},{"sql":"c"}]}"#, "TOO_MANY_STATEMENTS"),
            (r#"{"sql":"a","args":7}"#, "ARGS_INVALID"),
            (r#"{"sql":"a","args":[[1]]}"#, "ARGS_INVALID"),
            (r#"{"sql":"a","args":[18446744073709551615]}"#, "ARGS_INVALID"),
            (r#"{"sql":"a","args":[99999999999999999999]}"#, "ARGS_INVALID"),
            (r#"{"sql":"a","args":true}"#, "ARGS_INVALID"),
        ] {
            let failure = statements(body.as_bytes(), 2).expect_err(body);
            assert_eq!((failure.code.as_str(), failure.status), (code, StatusCode::BAD_REQUEST), "{body}");
            assert!(!failure.unknown);
        }
    }
}
