//! `POST .../pipeline`: a stream's requests, in order. All run, even after one failed.
//!
//! The requests run one after the other without waiting for their commits; before the response leaves, all holds of the answers in it are settled.
//! Since HW only rises, waiting for the last hold of a reign settles those before it, so a pipeline of a hundred writes waits once.

use std::sync::Arc;
use std::time::Instant;

use highwater_node::{AckPolicy, Database};
use highwater_sql::{Answer, Hold, SqlError, Statement};
use highwater_wire::Position;

use super::streams::{Stream, Taken};
use super::types::{
    PipelineRequest, PipelineResponse, StepOutcomes, StreamRequest, StreamResponse, protocol_error, resolve_sql,
};
use crate::access::Access;
use crate::answers::Extra;
use crate::app::{App, first_word, looks_read_only};
use crate::failure::Failure;
use crate::options::RequestOptions;
use crate::party::Party;
use crate::settle::{before_reading, before_writing, position, settle};
use crate::work::{Lane, Work};

/// What one request gave, and what it waits for.
type Ran = (Result<StreamResponse, SqlError>, Option<Hold>);

/// A pipeline's response with the position of the state it shows.
pub(crate) struct Answered {
    pub(crate) response: PipelineResponse,
    pub(crate) position: Option<Position>,
    /// The room that it takes beside rows.
    pub(crate) extra: Extra,
}

/// What running all requests gave.
struct Finished {
    stream: Option<Box<Stream>>,
    in_transaction: bool,
    ran: Vec<Ran>,
    seen: Option<Position>,
    extra: Extra,
}

/// Runs a pipeline on the stream that its baton names, or on a new one of that database.
pub(crate) async fn run(
    app: &Arc<App>,
    db: &Arc<Database>,
    party: &Party,
    options: &RequestOptions,
    request: PipelineRequest,
) -> Result<Answered, Failure> {
    let PipelineRequest { baton, requests } = request;
    // Before anything is run: what has been carried out can be answered.
    let mut extra = app.answers.extra(party);
    extra.requests(check_size(app, &requests)?)?;
    let (taken, stream) = take(app, db, party, baton.as_deref())?;
    let look = Look::at(&requests, &stream);
    let writes = look.writes && party.access == Access::Full;
    if writes && !taken.in_transaction() {
        before_writing(db, options).await?;
    }
    before_reading(db, options, look.reads).await?;

    let lane = lane(party, taken.in_transaction(), writes);
    let finished = app.blocking(party, lane, move |work| run_all(stream, requests, extra, work)).await?;

    let (results, settled) = settle_all(db, finished.ran, options).await;
    let baton = match finished.stream {
        Some(stream) => Some(taken.put_back(stream, finished.in_transaction)),
        None => {
            taken.closed();
            None
        }
    };
    let position = settled.or(finished.seen);
    Ok(Answered { response: PipelineResponse { baton, results }, position, extra: finished.extra })
}

/// The threads for a stream's requests. Nobody waits for a transaction of a bearer who may only read, since it never has the writer.
pub(super) fn lane(party: &Party, in_transaction: bool, writes: bool) -> Lane {
    match (party.access, in_transaction, writes) {
        (Access::Read, ..) | (Access::Full, false, false) => Lane::Read,
        (Access::Full, true, _) => Lane::Transaction,
        (Access::Full, false, true) => Lane::Write,
    }
}

/// The stream that a baton names, or a new one.
pub(super) fn take<'a>(
    app: &'a App,
    db: &Arc<Database>,
    party: &Party,
    baton: Option<&str>,
) -> Result<(Taken<'a>, Box<Stream>), Failure> {
    match baton {
        Some(baton) => app.streams.take(baton, db, party),
        None => app.streams.open(db, party),
    }
}

/// How many requests and steps a pipeline has.
fn check_size(app: &App, requests: &[StreamRequest]) -> Result<usize, Failure> {
    let steps = |request: &StreamRequest| match request {
        StreamRequest::Batch { batch } => batch.steps.len(),
        _ => 1,
    };
    let count: usize = requests.iter().map(steps).sum();
    if count > app.limits.statements {
        let message = format!("{count} requests and steps in one pipeline; at most {}", app.limits.statements);
        return Err(Failure::bad("TOO_MANY_STATEMENTS", message));
    }
    Ok(count + requests.len())
}

/// What a pipeline seems to do, by the first words of its statements. It errs towards both: a confirmation of leadership too many costs little.
struct Look {
    reads: bool,
    writes: bool,
}

impl Look {
    fn at(requests: &[StreamRequest], stream: &Stream) -> Look {
        let mut look = Look { reads: false, writes: false };
        for request in requests {
            match request {
                StreamRequest::Execute { stmt } => look.sql(&stmt.sql, stmt.sql_id, stream),
                StreamRequest::Batch { batch } => {
                    for step in &batch.steps {
                        look.sql(&step.stmt.sql, step.stmt.sql_id, stream);
                    }
                }
                StreamRequest::Sequence { .. } => {
                    look.reads = true;
                    look.writes = true;
                }
                _ => {}
            }
        }
        look
    }

    /// A stored text may be stored by the same pipeline, and is then not known here.
    fn sql(&mut self, sql: &Option<String>, id: Option<i32>, stream: &Stream) {
        let text = sql.as_deref().or_else(|| id.and_then(|id| stream.texts.get(id)));
        match text {
            None => {
                self.reads = true;
                self.writes = true;
            }
            Some(text) if looks_read_only(text) => self.reads = true,
            Some(text) => match first_word(text).to_ascii_uppercase().as_str() {
                // The snapshot of a deferred transaction is taken at its first read.
                "BEGIN" | "WITH" => {
                    self.reads = true;
                    self.writes = true;
                }
                "COMMIT" | "END" | "ROLLBACK" => {}
                _ => self.writes = true,
            },
        }
    }
}

/// Runs the requests in order, on a thread that may block.
fn run_all(mut stream: Box<Stream>, requests: Vec<StreamRequest>, mut extra: Extra, work: &Work) -> Finished {
    let mut ran = Vec::with_capacity(requests.len());
    let mut seen = None;
    let mut requests = requests.into_iter();
    for request in requests.by_ref() {
        if matches!(request, StreamRequest::Close) {
            // Dropping it rolls back what is open on it.
            drop(stream);
            ran.push((Ok(StreamResponse::Close), None));
            let closed =
                || (Err(protocol_error("this stream was closed by an earlier request of the pipeline".into())), None);
            ran.extend(requests.map(|_| closed()));
            return Finished { stream: None, in_transaction: false, ran, seen, extra };
        }
        if work.cancelled() {
            // Nobody waits for the rest; the stream ends, and what is open on it is rolled back.
            break;
        }
        let (result, hold) = run_one(&mut stream, request, &mut seen, work);
        ran.push((with_room(result, &mut extra), hold));
    }
    let in_transaction = !stream.session.is_autocommit();
    Finished { stream: Some(stream), in_transaction, ran, seen, extra }
}

/// A result for which there is room, its rows aside, which have it.
fn with_room(result: Result<StreamResponse, SqlError>, extra: &mut Extra) -> Result<StreamResponse, SqlError> {
    match result {
        Err(mut error) => {
            extra.error(&mut error);
            Err(error)
        }
        Ok(StreamResponse::Batch(mut outcomes)) => {
            outcomes
                .iter_mut()
                .flatten()
                .filter_map(|outcome| outcome.as_mut().err())
                .for_each(|error| extra.error(error));
            Ok(StreamResponse::Batch(outcomes))
        }
        Ok(StreamResponse::Describe(description)) => {
            let names = description.params.iter().flatten().map(String::len);
            let columns = description.columns.iter();
            let columns = columns.map(|column| column.name.len() + column.decl_type.as_ref().map_or(0, String::len));
            let count = description.params.len() + description.columns.len();
            let room = extra.texts(count, names.chain(columns).sum());
            room.map_err(|refusal| Failure::from(refusal).into_sql_error())?;
            Ok(StreamResponse::Describe(description))
        }
        Ok(response) => Ok(response),
    }
}

/// Notes how far an answer looked, and unpacks it.
fn unpack<T>(db: &Database, answer: Answer<T>, seen: &mut Option<Position>) -> (T, Option<Hold>) {
    let at = position(db, answer.seen);
    if seen.is_none_or(|before| before.offset <= at.offset) {
        *seen = Some(at);
    }
    (answer.result, answer.hold)
}

fn run_one(stream: &mut Stream, request: StreamRequest, seen: &mut Option<Position>, work: &Work) -> Ran {
    match request {
        StreamRequest::StoreSql { sql_id, sql } => {
            (stream.texts.store(sql_id, sql).map(|()| StreamResponse::StoreSql), None)
        }
        StreamRequest::CloseSql { sql_id } => {
            stream.texts.close(sql_id);
            (Ok(StreamResponse::CloseSql), None)
        }
        StreamRequest::GetAutocommit => (Ok(StreamResponse::GetAutocommit(stream.session.is_autocommit())), None),
        request => run_sql(stream, request, seen, work).unwrap_or_else(|error| (Err(error), None)),
    }
}

/// Runs a request that has SQL. An error is one that kept it from being run at all.
fn run_sql(stream: &Stream, request: StreamRequest, seen: &mut Option<Position>, work: &Work) -> Result<Ran, SqlError> {
    Ok(match request {
        StreamRequest::Execute { stmt } => {
            let statement = stmt.resolve(&stream.texts)?;
            may_run(stream, std::slice::from_ref(&statement), work)?;
            stream.session.allow(work.allow(1));
            let (result, hold) = unpack(&stream.db, stream.session.execute(&statement), seen);
            (result.map(StreamResponse::Execute), hold)
        }
        StreamRequest::Batch { batch } => {
            let (outcomes, hold) = run_batch(stream, batch.resolve(&stream.texts)?, seen, work);
            (outcomes.map(StreamResponse::Batch), hold)
        }
        StreamRequest::Sequence { sql, sql_id } => {
            let sql = resolve_sql(sql, sql_id, &stream.texts)?;
            may_write(stream, "a sequence")?;
            // How many statements it has shows while it runs.
            stream.session.allow(work.allow(usize::MAX));
            let (result, hold) = unpack(&stream.db, stream.session.sequence(&sql), seen);
            (result.map(|()| StreamResponse::Sequence), hold)
        }
        StreamRequest::Describe { sql, sql_id } => {
            let sql = resolve_sql(sql, sql_id, &stream.texts)?;
            stream.session.allow(work.allow(1));
            (stream.session.describe(&sql).map(StreamResponse::Describe), None)
        }
        StreamRequest::StoreSql { .. }
        | StreamRequest::CloseSql { .. }
        | StreamRequest::GetAutocommit
        | StreamRequest::Close => unreachable!("requests without SQL were handled by the callers"),
    })
}

/// Runs a batch, which may be one of a pipeline or of a cursor.
pub(super) fn run_batch(
    stream: &Stream,
    steps: Vec<highwater_sql::BatchStep>,
    seen: &mut Option<Position>,
    work: &Work,
) -> (Result<StepOutcomes, SqlError>, Option<Hold>) {
    for step in &steps {
        if let Err(error) = may_run(stream, std::slice::from_ref(&step.statement), work) {
            return (Err(error), None);
        }
    }
    stream.session.allow(work.allow(steps.len()));
    let (outcomes, hold) = unpack(&stream.db, stream.session.batch(&steps), seen);
    (Ok(outcomes), hold)
}

/// A bearer who may only read runs what only reads, and the words of transactions.
fn may_run(stream: &Stream, statements: &[Statement], work: &Work) -> Result<(), SqlError> {
    if stream.party.access == Access::Full {
        return Ok(());
    }
    for statement in statements {
        let word = first_word(&statement.sql).to_ascii_uppercase();
        let bracket = matches!(word.as_str(), "BEGIN" | "COMMIT" | "END" | "ROLLBACK" | "SAVEPOINT" | "RELEASE");
        let upper = statement.sql.to_ascii_uppercase();
        let takes_writer = upper.contains("IMMEDIATE") || upper.contains("EXCLUSIVE");
        let sql = stream.db.sql().map_err(|reason| Failure::from(reason).into_sql_error())?;
        let reads = bracket && !takes_writer || sql.read_only(std::slice::from_ref(statement), work.allow(1))?;
        if !reads {
            return may_write(stream, "this statement");
        }
    }
    Ok(())
}

fn may_write(stream: &Stream, what: &str) -> Result<(), SqlError> {
    stream.party.access.full().map_err(|failure| SqlError {
        message: format!("{what} may write: {}", failure.message),
        ..failure.into_sql_error()
    })
}

/// Settles all holds. Answers whose hold fails are replaced by the error that says what became of them.
async fn settle_all(
    db: &Database,
    ran: Vec<Ran>,
    options: &RequestOptions,
) -> (Vec<Result<StreamResponse, SqlError>>, Option<Position>) {
    let until = Instant::now() + options.ack_wait();
    let left = || until.saturating_duration_since(Instant::now());
    let last = ran.iter().rev().find_map(|(_, hold)| *hold);
    let mut results = Vec::with_capacity(ran.len());
    let Some(last) = last else {
        results.extend(ran.into_iter().map(|(result, _)| result));
        return (results, None);
    };
    // An acknowledgement by the leader alone says nothing of what other answers have seen, so then each is settled on its own.
    let mut settled = match options.ack {
        AckPolicy::Committed => settle(db, last, options.ack, left()).await.ok(),
        AckPolicy::Leader => None,
    };
    let covered = settled.is_some();
    for (result, hold) in ran {
        let result = match hold {
            Some(hold) if !(covered && hold.reign == last.reign) => match settle(db, hold, options.ack, left()).await {
                Ok(position) => {
                    settled = Some(position);
                    result
                }
                Err(failure) => Err(failure.into_sql_error()),
            },
            _ => result,
        };
        results.push(result);
    }
    (results, settled)
}
