//! `POST /v3/cursor`: one batch, its rows as lines of JSON.
//!
//! The batch runs and is settled before the first line leaves, since nothing may be shown before that.

use std::sync::Arc;

use serde_json::json;

use super::pipeline::{run_batch, take};
use super::types::{Columns, CursorRequest, ErrorOut, Row, StepOutcomes};
use crate::access::Access;
use crate::app::{App, Lane};
use crate::failure::Failure;
use crate::options::RequestOptions;
use crate::settle::{before_reading, before_writing, settle};
use highwater_node::Database;
use highwater_sql::SqlError;

/// Runs the batch; returns all lines.
pub(crate) async fn run(
    app: &Arc<App>,
    db: &Arc<Database>,
    access: Access,
    options: &RequestOptions,
    request: CursorRequest,
) -> Result<Vec<u8>, Failure> {
    if request.batch.steps.len() > app.limits.statements {
        let message = format!("{} steps in one batch; at most {}", request.batch.steps.len(), app.limits.statements);
        return Err(Failure::bad("TOO_MANY_STATEMENTS", message));
    }
    let (taken, mut stream) = take(app, db, access, request.baton.as_deref()).await?;
    let lane = if taken.in_transaction() { Lane::Transaction } else { Lane::Write };
    if lane == Lane::Write && access == Access::Full {
        before_writing(db, options).await?;
    }
    before_reading(db, options, true).await?;
    let (stream, outcomes, hold, in_transaction) = app
        .blocking(lane, move || {
            let texts = stream.texts.clone();
            let steps = request.batch.resolve(&|id| texts.get(&id).cloned());
            let (outcomes, hold) = match steps {
                Ok(steps) => run_batch(&mut stream, steps, &mut None),
                Err(error) => (Err(error), None),
            };
            let in_transaction = !stream.session.is_autocommit();
            (stream, outcomes, hold, in_transaction)
        })
        .await?;
    let outcomes = match hold {
        Some(hold) => match settle(db, hold, options.ack, options.ack_wait()).await {
            Ok(_) => outcomes,
            Err(failure) => Err(failure.into_sql_error()),
        },
        None => outcomes,
    };
    let baton = taken.put_back(stream, in_transaction);
    Ok(lines(&baton, &outcomes))
}

fn lines(baton: &str, outcomes: &Result<StepOutcomes, SqlError>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut line = |value: serde_json::Value| {
        serde_json::to_writer(&mut out, &value).expect("a line is made of strings, numbers and lists");
        out.push(b'\n');
    };
    line(json!({"baton": baton, "base_url": null}));
    let steps = match outcomes {
        Ok(steps) => steps,
        Err(error) => {
            line(json!({"type": "error", "error": ErrorOut(error)}));
            return out;
        }
    };
    for (index, step) in steps.iter().enumerate() {
        match step {
            None => {}
            Some(Err(error)) => line(json!({"type": "step_error", "step": index, "error": ErrorOut(error)})),
            Some(Ok(result)) => {
                line(json!({"type": "step_begin", "step": index, "cols": Columns(&result.columns)}));
                for row in &result.rows {
                    line(json!({"type": "row", "row": Row(row)}));
                }
                line(json!({
                    "type": "step_end",
                    "affected_row_count": result.affected,
                    "last_insert_rowid": result.last_insert_rowid.to_string(),
                }));
            }
        }
    }
    out
}
