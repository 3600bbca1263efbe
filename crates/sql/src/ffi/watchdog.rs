//! One thread per process that interrupts whatever runs past its deadline, or for somebody who has left.
//!
//! A connection's progress handler does the same where SQLite calls it: not in short statements, nor in the statements that a virtual table runs, nor
//! while a statement is prepared. The watchdog calls `sqlite3_interrupt` from outside. It sleeps until the earliest deadline; a cancellation wakes it.
//! SQLite forgets an interrupt when the next statement begins and none is running, so what is overdue is interrupted again until its watch has ended.
//!
//! A handle is interrupted under the lock under which its watch ends, and a connection ends its watch before it closes: so no closed handle is touched.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use rusqlite::ffi;

use crate::allowance::Cancel;

/// How long until something overdue is interrupted again.
const AGAIN: Duration = Duration::from_millis(20);

/// What is done when the time has come.
enum Action {
    Interrupt(*mut ffi::sqlite3),
    Wake(Arc<dyn Fn() + Send + Sync>),
}

// SAFETY: the handle is only passed to `sqlite3_interrupt`, which may be called from any thread while the handle is open; see the top of the file.
unsafe impl Send for Action {}

struct Watched {
    deadline: Instant,
    cancel: Cancel,
    action: Action,
}

#[derive(Default)]
struct State {
    watched: BTreeMap<u64, Watched>,
    /// When the thread looks next; `None`: when it is woken.
    wakes: Option<Instant>,
    /// Somebody has left.
    look: bool,
    next: u64,
    running: bool,
}

#[derive(Default)]
struct Watchdog {
    state: Mutex<State>,
    bell: Condvar,
}

fn watchdog() -> &'static Watchdog {
    static WATCHDOG: OnceLock<Watchdog> = OnceLock::new();
    WATCHDOG.get_or_init(Watchdog::default)
}

impl Watchdog {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing under this lock panics")
    }

    fn add(&'static self, deadline: Instant, cancel: &Cancel, action: Action) -> Watch {
        cancel.watched();
        let mut state = self.lock();
        if !state.running {
            // Without a thread to spare the progress handlers still look at deadlines; the next watch tries again.
            let spawned = std::thread::Builder::new().name("sql-watchdog".to_string()).spawn(|| self.run());
            state.running = spawned.is_ok();
        }
        let number = state.next;
        state.next += 1;
        state.watched.insert(number, Watched { deadline, cancel: cancel.clone(), action });
        if cancel.is_cancelled() || state.wakes.is_none_or(|wakes| deadline < wakes) {
            state.look = true;
            self.bell.notify_one();
        }
        Watch(number)
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let (mut earliest, mut wake) = (None::<Instant>, Vec::new());
            for watched in state.watched.values() {
                let due = if watched.deadline <= now || watched.cancel.is_cancelled() {
                    match &watched.action {
                        // SAFETY: the handle is open: its watch ends before it is closed, and under the lock that is held here.
                        Action::Interrupt(db) => unsafe { ffi::sqlite3_interrupt(*db) },
                        Action::Wake(run) => wake.push(run.clone()),
                    }
                    now + AGAIN
                } else {
                    watched.deadline
                };
                earliest = Some(earliest.map_or(due, |earliest| earliest.min(due)));
            }
            state.wakes = earliest;
            if !wake.is_empty() {
                // Whoever is woken may hold his own lock while he ends his watch.
                drop(state);
                wake.iter().for_each(|run| run());
                state = self.lock();
            }
            while !state.look {
                let left = earliest.map(|earliest| earliest.saturating_duration_since(Instant::now()));
                state = match left {
                    Some(Duration::ZERO) => break,
                    Some(left) => self.bell.wait_timeout(state, left).expect("nothing under this lock panics").0,
                    None => self.bell.wait(state).expect("nothing under this lock panics"),
                };
            }
            state.look = false;
        }
    }
}

/// Lets the watchdog look at once: somebody has left.
pub(crate) fn look() {
    let watchdog = watchdog();
    watchdog.lock().look = true;
    watchdog.bell.notify_one();
}

/// Something that is watched, until this is dropped.
pub(crate) struct Watch(u64);

impl Watch {
    /// Interrupts a connection.
    ///
    /// # Safety
    /// The handle stays open until the watch is dropped.
    pub(super) unsafe fn interrupt(db: *mut ffi::sqlite3, deadline: Instant, cancel: &Cancel) -> Watch {
        watchdog().add(deadline, cancel, Action::Interrupt(db))
    }

    /// Runs something that wakes somebody.
    pub(crate) fn wake(deadline: Instant, cancel: &Cancel, run: Arc<dyn Fn() + Send + Sync>) -> Watch {
        watchdog().add(deadline, cancel, Action::Wake(run))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let ended = watchdog().lock().watched.remove(&self.0);
        if let Some(watched) = ended {
            watched.cancel.unwatched();
        }
    }
}
