//! `POST /v3/cursor`: one batch, its rows as lines of JSON.
//!
//! The batch runs and is settled before the first line leaves, since nothing may be shown before that.

use std::sync::Arc;

use serde_json::json;

use super::pipeline::{lane, run_batch, take};
use super::types::{CursorRequest, ErrorOut, StepOutcomes};
use crate::access::Access;
use crate::app::App;
use crate::encode::{Form, Items};
use crate::failure::Failure;
use crate::options::RequestOptions;
use crate::party::Party;
use crate::settle::{before_reading, before_writing, settle};
use highwater_node::Database;
use highwater_sql::SqlError;

/// Runs the batch; returns all lines.
pub(crate) async fn run(
    app: &Arc<App>,
    db: &Arc<Database>,
    party: &Party,
    options: &RequestOptions,
    request: CursorRequest,
) -> Result<Items, Failure> {
    if request.batch.steps.len() > app.limits.statements {
        let message = format!("{} steps in one batch; at most {}", request.batch.steps.len(), app.limits.statements);
        return Err(Failure::bad("TOO_MANY_STATEMENTS", message));
    }
    let mut extra = app.answers.extra(party);
    extra.requests(request.batch.steps.len() + 1)?;
    let (taken, stream) = take(app, db, party, request.baton.as_deref())?;
    let writes = party.access == Access::Full;
    if writes && !taken.in_transaction() {
        before_writing(db, options).await?;
    }
    before_reading(db, options, true).await?;
    let lane = lane(party, taken.in_transaction(), writes);
    let (stream, outcomes, hold, in_transaction) = app
        .blocking(party, lane, move |work| {
            let steps = request.batch.resolve(&stream.texts);
            let (outcomes, hold) = match steps {
                Ok(steps) => run_batch(&stream, steps, &mut None, work),
                Err(error) => (Err(error), None),
            };
            let in_transaction = !stream.session.is_autocommit();
            (stream, outcomes, hold, in_transaction)
        })
        .await?;
    let mut outcomes = match hold {
        Some(hold) => match settle(db, hold, options.ack, options.ack_wait()).await {
            Ok(_) => outcomes,
            Err(failure) => Err(failure.into_sql_error()),
        },
        None => outcomes,
    };
    match &mut outcomes {
        Err(error) => extra.error(error),
        Ok(steps) => {
            steps.iter_mut().flatten().filter_map(|step| step.as_mut().err()).for_each(|error| extra.error(error))
        }
    }
    let baton = taken.put_back(stream, in_transaction);
    let mut items = lines(&baton, outcomes);
    items.keep(extra);
    Ok(items)
}

fn lines(baton: &str, outcomes: Result<StepOutcomes, SqlError>) -> Items {
    let mut items = Items::default();
    let line = |items: &mut Items, value: serde_json::Value| {
        items.json(&value);
        items.text("\n");
    };
    line(&mut items, json!({"baton": baton, "base_url": null}));
    match outcomes {
        Err(error) => line(&mut items, json!({"type": "error", "error": ErrorOut(&error)})),
        Ok(steps) => {
            for (index, step) in steps.into_iter().enumerate() {
                match step {
                    None => {}
                    Some(Err(error)) => {
                        line(&mut items, json!({"type": "step_error", "step": index, "error": ErrorOut(&error)}));
                    }
                    Some(Ok(result)) => items.result(result, Form::Lines(index)),
                }
            }
        }
    }
    items
}
