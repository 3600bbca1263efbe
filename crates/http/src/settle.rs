//! Waiting until an answer may leave.
//!
//! Everything that was computed on the writer's side of HW carries a hold: rows, affected counts, errors. Nothing of it is shown before its partition
//! says that HW has passed the hold. A wait that runs out is *unknown*, with the position, and never turns into a weaker acknowledgement.

use std::time::{Duration, Instant};

use highwater_node::{AckPolicy, Database, Outcome, Role, Unavailable};
use highwater_sql::Hold;
use highwater_wire::{Epoch, Offset, Position};

use crate::failure::{Failure, of_outcome};
use crate::options::{Freshness, POSITION_WAIT_DEFAULT, RequestOptions};

/// How long a write waits for enough replicas to be in reach before it is refused: processes that stood still for a moment are heard of again within a
/// heartbeat or two. It is shorter than clients usually wait for an answer, so that they still get the refusal, which says that nothing happened.
const SHORTAGE_WAIT: Duration = Duration::from_millis(500);

/// Waits for one hold; returns the position of the state that the answer shows.
pub(crate) async fn settle(db: &Database, hold: Hold, ack: AckPolicy, wait: Duration) -> Result<Position, Failure> {
    // An answer that only looked has nothing to acknowledge early.
    let ack = if hold.wrote { ack } else { AckPolicy::Committed };
    let position = position(db, (Some(hold.reign.epoch), hold.until));
    match db.hold(hold, ack, wait).await {
        Ok(Outcome::Done(position)) => Ok(position),
        Ok(outcome) => {
            let mut failure = of_outcome(outcome, hold.wrote);
            if failure.unknown && failure.position.is_none() {
                failure.position = Some(position);
            }
            Err(failure)
        }
        Err(reason) => {
            let timed_out = matches!(reason, Unavailable::TimedOut { .. });
            let mut failure = Failure::from(reason);
            if hold.wrote {
                if timed_out {
                    failure.message = format!(
                        "the write is in the log and was not acknowledged within {} ms: it may be committed later. Read with min_position={position} to learn what became of it",
                        wait.as_millis()
                    );
                }
                failure = failure.unknown_at(Some(position));
            } else if timed_out {
                failure.message = format!(
                    "the answer depends on writes that were not committed within {} ms, so it cannot be shown; nothing happened, ask again",
                    wait.as_millis()
                );
            }
            Err(failure)
        }
    }
}

/// The position of a state of that database.
pub(crate) fn position(db: &Database, (epoch, offset): (Option<Epoch>, Offset)) -> Position {
    Position { partition: db.partition(), epoch, offset }
}

/// What must be waited for before SQL reads: the requested position, and a confirmation of leadership if `reads` and the read is linearizable.
pub(crate) async fn before_reading(db: &Database, options: &RequestOptions, reads: bool) -> Result<(), Failure> {
    if let Some(wanted) = options.min_position {
        at_least(db, wanted, options.wait.unwrap_or(POSITION_WAIT_DEFAULT)).await?;
    }
    if reads && options.freshness == Freshness::Linearizable {
        let wait = options.ack_wait();
        match db.read_index(wait).await {
            Ok(Outcome::Done(_)) => {}
            Ok(outcome) => return Err(of_outcome(outcome, false)),
            Err(reason) => {
                let timed_out = matches!(reason, Unavailable::TimedOut { .. });
                let mut failure = Failure::from(reason);
                if timed_out {
                    failure.message = format!(
                        "a linearizable read could not confirm the leadership within {} ms; ask again, or read with freshness=eventual",
                        wait.as_millis()
                    );
                }
                return Err(failure);
            }
        }
    }
    Ok(())
}

/// What must be waited for before SQL writes: room, enough replicas in reach, and that a leader which was just elected has taken up its lead.
pub(crate) async fn before_writing(db: &Database, options: &RequestOptions) -> Result<(), Failure> {
    db.admit()?;
    if let Some(shortage) = db.wait_out_shortage(options.ack_wait().min(SHORTAGE_WAIT)).await {
        return Err(of_outcome(Outcome::Refused(shortage), true));
    }
    if !db.leads() {
        let role = db.view().await.map(|status| status.role);
        if matches!(role, Some(Role::Leader { .. })) {
            // Whether it does or not, SQL says so itself.
            db.wait_to_lead(options.ack_wait()).await;
        }
    }
    Ok(())
}

/// Waits for a position. *Truncated*, *not there yet* and *timed out* are three different answers.
async fn at_least(db: &Database, wanted: Position, wait: Duration) -> Result<(), Failure> {
    use axum::http::StatusCode;
    if wanted.partition != db.partition() {
        return Err(Failure::bad(
            "POSITION_OF_ANOTHER_DATABASE",
            format!(
                "min_position {wanted} is of partition {}, but the database {:?} is partition {}",
                wanted.partition.0,
                db.name(),
                db.partition().0
            ),
        ));
    }
    let began = Instant::now();
    match db.at_least(wanted, wait).await {
        Ok(Outcome::Done(_)) => Ok(()),
        Ok(outcome) => Err(of_outcome(outcome, false)),
        Err(Unavailable::TimedOut { .. }) => {
            let waited = began.elapsed().as_millis();
            let (code, found) = match db.view().await {
                Some(view) if view.end < wanted.offset => {
                    ("POSITION_NOT_YET", format!("this node's log ends at {} so far", view.end))
                }
                Some(view) => ("POSITION_TIMED_OUT", format!("this node shows everything below {}", view.published)),
                None => ("POSITION_TIMED_OUT", "this node does not say how far it is".to_string()),
            };
            Err(Failure::new(
                StatusCode::GATEWAY_TIMEOUT,
                code,
                format!(
                    "{wanted} was not readable within {waited} ms: {found}; wait longer with wait_ms, or ask the leader"
                ),
            ))
        }
        Err(reason) => Err(reason.into()),
    }
}
