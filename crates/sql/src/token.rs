//! The writer's token: one holder at a time may write, and whoever waits gets it in turn.
//!
//! What only the holder may touch, [`Core`], is handed over with it. An interactive transaction keeps it between two requests, for a bounded time: whoever
//! waits when that has passed takes the transaction away.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::core::Core;

/// How long a waiter sleeps at most before it looks again whether the holder's time is over.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Takes an interactive transaction away if nobody is using it right now.
pub(crate) type Expire = Box<dyn Fn() + Send + Sync>;

pub(crate) struct Token {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    core: Option<Box<Core>>,
    queue: VecDeque<u64>,
    next: u64,
    interactive: Option<(Instant, Arc<Expire>)>,
}

/// Why the token was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The wait ran out.
    TimedOut,
    /// The database is being rewound or closed.
    Stopping,
}

impl Token {
    pub(crate) fn new(core: Core) -> Arc<Token> {
        let state = State { core: Some(Box::new(core)), queue: VecDeque::new(), next: 0, interactive: None };
        Arc::new(Token { state: Mutex::new(state), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing under this lock panics")
    }

    /// Waits for the token until an instant; gives up at once when `stop` is set, if that is given.
    pub(crate) fn acquire(self: &Arc<Token>, until: Instant, stop: Option<&AtomicBool>) -> Result<Held, Denied> {
        let mut state = self.lock();
        let ticket = state.next;
        state.next += 1;
        state.queue.push_back(ticket);
        let outcome = loop {
            if stop.is_some_and(|stop| stop.load(Ordering::Acquire)) {
                break Err(Denied::Stopping);
            }
            if state.queue.front() == Some(&ticket) && state.core.is_some() {
                break Ok(state.core.take());
            }
            let now = Instant::now();
            if now >= until {
                break Err(Denied::TimedOut);
            }
            let mut wake = until;
            if let Some((deadline, expire)) = state.interactive.clone() {
                // Without a stop to heed, this is the machine's own procedure, which waits for no client.
                if now >= deadline || stop.is_none() {
                    drop(state);
                    expire();
                    state = self.lock();
                    if state.core.is_some() {
                        continue;
                    }
                    wake = now + LOOK_AGAIN;
                } else {
                    wake = until.min(deadline);
                }
            }
            (state, _) = self
                .changed
                .wait_timeout(state, wake.saturating_duration_since(now))
                .expect("nothing under this lock panics");
        };
        state.queue.retain(|other| *other != ticket);
        drop(state);
        self.changed.notify_all();
        outcome.map(|core| Held { core, token: self.clone() })
    }

    /// Lets waiters look again: a stop was set.
    pub(crate) fn wake(&self) {
        let _state = self.lock();
        self.changed.notify_all();
    }

    fn give_back(&self, core: Box<Core>) {
        let mut state = self.lock();
        assert!(state.core.is_none(), "the token is given back once");
        state.core = Some(core);
        state.interactive = None;
        self.changed.notify_all();
    }
}

/// The token, held. It is given back when this is dropped.
pub(crate) struct Held {
    core: Option<Box<Core>>,
    token: Arc<Token>,
}

impl Held {
    /// The holder keeps the token between requests until `deadline`; whoever waits afterwards calls `expire`.
    pub(crate) fn interactive(&self, deadline: Instant, expire: Expire) {
        self.token.lock().interactive = Some((deadline, Arc::new(expire)));
        self.token.changed.notify_all();
    }
}

impl Deref for Held {
    type Target = Core;

    fn deref(&self) -> &Core {
        self.core.as_ref().expect("held until dropped")
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Core {
        self.core.as_mut().expect("held until dropped")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(mut core) = self.core.take() {
            if std::thread::panicking() {
                core.failed.get_or_insert_with(|| "a panic while the writer was held".to_string());
            }
            self.token.give_back(core);
        }
    }
}
