//! The memory that results take from the time SQL reads them until their client has taken them.
//!
//! All results share one room, each party has its share of it, and SQL takes from it row by row. What a result took is given back when it is dropped,
//! which for a streamed answer is when its body is.

use std::sync::{Arc, Mutex};

use highwater_sql::ResultRoom;

use crate::party::Party;
use crate::shares::{Share, Shares};

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

    /// How many bytes are taken.
    pub(crate) fn taken(&self) -> usize {
        self.0.taken()
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
