//! The memory that results take from the time SQL reads them until their client has taken them.
//!
//! All results share one room, each party has its share of it, and SQL takes from it row by row. What a result took is given back when it is dropped,
//! which for a streamed answer is when its body is.

use std::sync::{Arc, Mutex};

use highwater_sql::{ResultRoom, SqlError};

use crate::failure::shorten;
use crate::party::Party;
use crate::shares::{Refusal, Share, Shares};

/// The room of all answers.
pub(crate) struct AnswerRoom(Arc<Shares>);

/// What one request's results take of it.
#[derive(Debug)]
struct Taken(Mutex<Share>);

impl AnswerRoom {
    pub(crate) fn new(bytes: usize) -> AnswerRoom {
        AnswerRoom(Shares::new("bytes for answers that were not taken yet", bytes))
    }

    /// A room for one request of that party.
    pub(crate) fn of(&self, party: &Party) -> Arc<dyn ResultRoom> {
        Arc::new(Taken(Mutex::new(self.0.nothing(party))))
    }

    /// Room for what that party's answer has beside rows; none yet.
    pub(crate) fn extra(&self, party: &Party) -> Extra {
        Extra { share: self.0.nothing(party) }
    }

    /// How many bytes are taken.
    pub(crate) fn taken(&self) -> usize {
        self.0.taken()
    }
}

/// What an answer takes of the room beside its results' rows: what is written of each request, errors, descriptions. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Extra {
    share: Share,
}

/// What a request of a pipeline, or a step, takes by being answered at all.
const REQUEST_BYTES: usize = 512;
/// How often a text that is written in one piece is there: itself, and escaped.
const WRITTEN_TIMES: usize = 7;

impl Extra {
    /// Room for the answers of so many more requests or steps.
    pub(crate) fn requests(&mut self, count: usize) -> Result<(), Refusal> {
        self.share.grow(count.saturating_mul(REQUEST_BYTES))
    }

    /// Room for an error; where there is none, its message goes, and its code stays.
    pub(crate) fn error(&mut self, error: &mut SqlError) {
        shorten(&mut error.message);
        // What every request has holds as much as this.
        let small = REQUEST_BYTES / WRITTEN_TIMES;
        if error.message.len() > small && self.share.grow(error.message.len() * WRITTEN_TIMES).is_err() {
            error.message = "there is no room for the message among the answers".to_string();
        }
    }

    /// Room for texts that are written in one piece.
    pub(crate) fn texts(&mut self, count: usize, bytes: usize) -> Result<(), Refusal> {
        self.share.grow(count * REQUEST_BYTES / 4 + bytes * WRITTEN_TIMES)
    }
}

impl ResultRoom for Taken {
    fn take(&self, bytes: usize) -> Result<(), String> {
        self.0.lock().expect("no holder of this lock panics").grow(bytes).map_err(|refusal| refusal.to_string())
    }

    fn give_back(&self, bytes: usize) {
        self.0.lock().expect("no holder of this lock panics").shrink(bytes);
    }
}
