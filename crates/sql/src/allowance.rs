//! What a request may use: time, memory for its results, and the patience of whoever asked.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crate::api::SqlError;
use crate::error::{cancelled, error};
use crate::ffi::watchdog;

/// What a request may use. Whatever runs for it is interrupted when one of these has ended.
#[derive(Clone, Debug)]
pub struct Allowance {
    /// When it must have ended: `TRANSACTION_TIMEOUT`.
    pub deadline: Instant,
    /// Whether whoever asked has left: `CANCELLED`.
    pub cancel: Cancel,
    /// What the memory of its results is taken from; `None`: from nothing, only the limits of one result hold.
    pub room: Option<Arc<dyn ResultRoom>>,
}

impl From<Instant> for Allowance {
    /// Time until then, nobody who could leave, and no room that is counted.
    fn from(deadline: Instant) -> Allowance {
        Allowance { deadline, cancel: Cancel::default(), room: None }
    }
}

impl Allowance {
    /// Whether it has ended.
    pub(crate) fn check(&self) -> Result<(), SqlError> {
        if self.cancel.is_cancelled() {
            return Err(cancelled());
        }
        if Instant::now() >= self.deadline {
            return Err(error("TRANSACTION_TIMEOUT", "the request took longer than it may and was ended"));
        }
        Ok(())
    }

    /// The same with a deadline that is no later than that.
    pub(crate) fn until(&self, deadline: Instant) -> Allowance {
        Allowance { deadline: self.deadline.min(deadline), ..self.clone() }
    }
}

/// Says that whoever asked has left. Clones say the same.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<State>);

#[derive(Debug, Default)]
struct State {
    cancelled: AtomicBool,
    /// How many wait or run that would have to be told.
    watched: AtomicUsize,
}

impl Cancel {
    /// Whoever asked has left: what runs is interrupted, what waits gives up.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
        if self.0.watched.load(Ordering::SeqCst) > 0 {
            watchdog::look();
        }
    }

    /// Whether that was said.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    /// Somebody is to be told from now on. What was said before, the caller asks for afterwards.
    pub(crate) fn watched(&self) {
        self.0.watched.fetch_add(1, Ordering::SeqCst);
    }

    /// He is not any more.
    pub(crate) fn unwatched(&self) {
        self.0.watched.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Memory that results take while they exist, shared by all that are computed or on their way out.
pub trait ResultRoom: Send + Sync + Debug {
    /// Takes so many bytes.
    ///
    /// # Errors
    /// If there are not so many: the text of the refusal, which the client is told as `OVERLOADED`. Nothing is taken then.
    fn take(&self, bytes: usize) -> Result<(), String>;

    /// Gives back what was taken.
    fn give_back(&self, bytes: usize);
}
