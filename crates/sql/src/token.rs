//! The writer's token: one holder at a time may write, and whoever waits gets it in turn.
//!
//! What only the holder may touch, [`Core`], is handed over with it. An interactive transaction keeps it between two requests, for a bounded time: whoever
//! waits when that has passed takes the transaction away.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::allowance::Allowance;
use crate::core::Core;
use crate::ffi::watchdog::Watch;

/// How long a waiter sleeps at most before it looks again whether the holder's time is over.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Longer than anything waits.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

/// Takes an interactive transaction away if nobody is using it right now.
pub(crate) type Expire = Box<dyn Fn() + Send + Sync>;

pub(crate) struct Token {
    state: Mutex<State>,
    /// Why the database stopped, for those who do not hold the token.
    failed: OnceLock<String>,
}

struct State {
    core: Option<Box<Core>>,
    /// Who waits, in turn, each with a bell of its own: the token is for the first alone, and waking all of many waiters costs more than a write.
    queue: VecDeque<(u64, Arc<Condvar>)>,
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
    /// Whoever asked has left.
    Cancelled,
}

impl State {
    /// Tells the one whose turn it is.
    fn ring_first(&self) {
        if let Some((_, bell)) = self.queue.front() {
            bell.notify_one();
        }
    }

    /// Tells everybody.
    fn ring_all(&self) {
        self.queue.iter().for_each(|(_, bell)| bell.notify_one());
    }
}

impl Token {
    pub(crate) fn new(core: Core) -> Arc<Token> {
        let state = State { core: Some(Box::new(core)), queue: VecDeque::new(), next: 0, interactive: None };
        Arc::new(Token { state: Mutex::new(state), failed: OnceLock::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing under this lock panics")
    }

    /// Waits for the token as long as the allowance says; gives up at once when `stop` is set, if that is given.
    pub(crate) fn acquire(self: &Arc<Token>, allowance: &Allowance, stop: Option<&AtomicBool>) -> Result<Held, Denied> {
        if let Some(held) = self.acquire_at_once(stop) {
            return held;
        }
        let token = Arc::downgrade(self);
        let look_again = move || {
            if let Some(token) = Weak::upgrade(&token) {
                token.wake();
            }
        };
        // Its own clock ends the wait; the watchdog tells it of a cancellation.
        let forever = Instant::now() + FOREVER;
        let _watch = Watch::wake(forever.max(allowance.deadline), &allowance.cancel, Arc::new(look_again));
        self.wait(allowance, stop)
    }

    /// Takes the token if it is free and nobody waits for it.
    fn acquire_at_once(self: &Arc<Token>, stop: Option<&AtomicBool>) -> Option<Result<Held, Denied>> {
        if stop.is_some_and(|stop| stop.load(Ordering::Acquire)) {
            return Some(Err(Denied::Stopping));
        }
        let mut state = self.lock();
        if !state.queue.is_empty() {
            return None;
        }
        let core = state.core.take()?;
        Some(Ok(Held { core: Some(core), token: self.clone() }))
    }

    fn wait(self: &Arc<Token>, allowance: &Allowance, stop: Option<&AtomicBool>) -> Result<Held, Denied> {
        let until = allowance.deadline;
        let mut state = self.lock();
        let ticket = state.next;
        state.next += 1;
        let bell = Arc::new(Condvar::new());
        state.queue.push_back((ticket, bell.clone()));
        let outcome = loop {
            if stop.is_some_and(|stop| stop.load(Ordering::Acquire)) {
                break Err(Denied::Stopping);
            }
            if allowance.cancel.is_cancelled() {
                break Err(Denied::Cancelled);
            }
            if state.queue.front().is_some_and(|(first, _)| *first == ticket) && state.core.is_some() {
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
            (state, _) =
                bell.wait_timeout(state, wake.saturating_duration_since(now)).expect("nothing under this lock panics");
        };
        state.queue.retain(|(other, _)| *other != ticket);
        if outcome.is_err() {
            // It may have been the one who was told.
            state.ring_first();
        }
        drop(state);
        outcome.map(|core| Held { core, token: self.clone() })
    }

    /// Lets waiters look again: a stop was set.
    pub(crate) fn wake(&self) {
        self.lock().ring_all();
    }

    /// Why the database stopped, if it has.
    pub(crate) fn failed(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    fn give_back(&self, core: Box<Core>) {
        if let Some(reason) = &core.failed {
            // The first reason is kept, as it is there.
            let _ = self.failed.set(reason.clone());
        }
        let mut state = self.lock();
        assert!(state.core.is_none(), "the token is given back once");
        state.core = Some(core);
        state.interactive = None;
        state.ring_first();
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
        let mut state = self.token.lock();
        state.interactive = Some((deadline, Arc::new(expire)));
        // Each now has a deadline to look at.
        state.ring_all();
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
