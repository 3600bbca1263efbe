//! The gate: whoever uses connections is inside, and whoever closes or replaces them is alone.
//!
//! Who wants to be alone interrupts everybody first and then waits, for a bounded time: SQLite looks at no interrupt within one step of its machine, such as a
//! sort of very large values. Whoever is inside after that is given up. Nobody waits for him any more; his connection stays on files that are not the
//! database's any longer (see [`crate::wal::Files::renew`]), and what he finds is told to nobody.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Who is inside.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    alone: bool,
    /// Changes when those inside are given up.
    generation: u64,
    /// Those of the present generation.
    inside: usize,
    given_up: u64,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing under this lock panics")
    }

    /// Enters; waits while somebody is alone, which is bounded. `None`: the database was closed.
    pub(crate) fn enter(self: &Arc<Gate>) -> Option<Entered> {
        let mut state = self.lock();
        while state.alone && !state.closed {
            state = self.changed.wait(state).expect("nothing under this lock panics");
        }
        if state.closed {
            return None;
        }
        state.inside += 1;
        Some(Entered { gate: self.clone(), generation: state.generation })
    }

    /// Lets nobody in, and waits until nobody is inside, at most for so long.
    pub(crate) fn alone(&self, patience: Duration) -> Alone<'_> {
        let mut state = self.lock();
        while state.alone {
            state = self.changed.wait(state).expect("nothing under this lock panics");
        }
        state.alone = true;
        let until = Instant::now() + patience;
        while state.inside > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).expect("nothing under this lock panics").0;
        }
        Alone(self)
    }

    /// How many were given up.
    pub(crate) fn given_up(&self) -> u64 {
        self.lock().given_up
    }
}

/// Somebody inside, until this is dropped.
pub(crate) struct Entered {
    gate: Arc<Gate>,
    generation: u64,
}

impl Entered {
    /// Runs something unless he has been given up, and meanwhile nobody is.
    pub(crate) fn unless_given_up(&self, run: impl FnOnce()) {
        let state = self.gate.lock();
        if state.generation == self.generation {
            run();
        }
    }

    /// Whether he has been given up: what he holds is of no use to anybody.
    pub(crate) fn is_given_up(&self) -> bool {
        self.gate.lock().generation != self.generation
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        if state.generation == self.generation {
            state.inside -= 1;
            if state.inside == 0 {
                self.gate.changed.notify_all();
            }
        }
    }
}

/// Somebody alone, but for those that did not leave in time.
pub(crate) struct Alone<'a>(&'a Gate);

impl Alone<'_> {
    /// Gives up whoever is still inside; how many they are.
    pub(crate) fn give_up_rest(&self) -> usize {
        let mut state = self.0.lock();
        let rest = std::mem::take(&mut state.inside);
        if rest > 0 {
            state.generation += 1;
            state.given_up += rest as u64;
            tracing::error!(
                rest,
                "statements that neither end nor can be interrupted are given up, with their threads"
            );
        }
        rest
    }

    /// Nobody enters any more. Whether that was so before.
    pub(crate) fn close(&self) -> bool {
        std::mem::replace(&mut self.0.lock().closed, true)
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.lock().alone = false;
        self.0.changed.notify_all();
    }
}
