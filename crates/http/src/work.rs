//! SQL on threads that may block: how many there are of each kind, and what becomes of work that does not end.
//!
//! - Work holds its place among the threads until it has really ended, whatever became of the request: the place goes with the work.
//! - When the client leaves, its work is cancelled: a statement that runs is interrupted, and nothing after it begins.
//! - Work that still runs one second after its deadline is *cut off*: the request is answered without it, and it is counted. Its thread stays taken until the
//!   work ends. So that the threads of a kind do not run dry, the first few that were cut off give their places to others.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use highwater_sql::{Allowance, Cancel, ResultRoom};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use crate::app::{App, Limits};
use crate::failure::Failure;
use crate::party::Party;
use crate::shares::{Share, Shares};

/// How long work may take to notice that its time is over.
pub(crate) const CUT_OFF_AFTER: Duration = Duration::from_secs(1);
/// No request runs longer than this, however many statements it has.
pub(crate) const REQUEST_MAX: Duration = Duration::from_secs(600);

/// Which threads a piece of SQL runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// It only reads.
    Read,
    /// It may write, or the cheap look at its text could not tell.
    Write,
    /// It continues a transaction that others may be waiting for.
    Transaction,
}

/// The places for threads.
pub(crate) struct Lanes {
    readers: Arc<Shares>,
    writers: Arc<Shares>,
    transactions: Arc<Shares>,
    pub(crate) cut_off: CutOff,
}

/// Work that was cut off.
#[derive(Clone)]
pub(crate) struct CutOff {
    /// What runs still.
    pub(crate) now: Gauge,
    /// All there ever was.
    pub(crate) total: Counter,
    /// Places that the first of them have instead of their own.
    spare: Arc<Semaphore>,
}

impl Lanes {
    pub(crate) fn new(limits: &Limits) -> Lanes {
        Lanes {
            readers: Shares::new("threads for reading", limits.threads),
            writers: Shares::new("threads for writing", limits.threads),
            transactions: Shares::new("threads for open transactions", limits.transaction_threads),
            cut_off: CutOff {
                now: Gauge::default(),
                total: Counter::default(),
                spare: Arc::new(Semaphore::new(limits.cut_off_threads)),
            },
        }
    }

    fn of(&self, lane: Lane) -> &Arc<Shares> {
        match lane {
            Lane::Read => &self.readers,
            Lane::Write => &self.writers,
            Lane::Transaction => &self.transactions,
        }
    }
}

/// What work and whoever waits for it both know.
struct Job(Mutex<State>);

struct State {
    /// When what runs now must have ended.
    until: Instant,
    ended: bool,
    cut_off: bool,
    place: Option<Share>,
    spare: Option<OwnedSemaphorePermit>,
}

impl Job {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no holder of this lock panics")
    }

    /// Counts work that goes on past its time, and gives its place to others as long as there are spare ones. Returns whether it goes on.
    fn cut_off(&self, counted: &CutOff) -> bool {
        let mut state = self.state();
        if state.ended || state.cut_off {
            return !state.ended;
        }
        state.cut_off = true;
        counted.now.inc();
        counted.total.inc();
        if let Ok(spare) = counted.spare.clone().try_acquire_owned() {
            state.spare = Some(spare);
            state.place = None;
        }
        tracing::warn!("a request's work goes on past its deadline and was cut off; its thread is lost until it ends");
        true
    }
}

/// Gives back the place when the work has ended, by a panic too.
struct Ending(Arc<Job>, CutOff);

impl Drop for Ending {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.ended = true;
        (state.place, state.spare) = (None, None);
        if state.cut_off {
            self.1.now.dec();
        }
    }
}

/// Cancels work whose request is no longer waited for.
struct Waiting<T: Send + 'static> {
    handle: Option<JoinHandle<T>>,
    cancel: Cancel,
    job: Arc<Job>,
    cut_off: CutOff,
}

impl<T: Send + 'static> Drop for Waiting<T> {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        self.cancel.cancel();
        // What has not begun does not begin.
        handle.abort();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (job, cut_off) = (self.job.clone(), self.cut_off.clone());
            runtime.spawn(async move {
                if tokio::time::timeout(CUT_OFF_AFTER, handle).await.is_err() {
                    job.cut_off(&cut_off);
                }
            });
        }
    }
}

/// What a piece of work is given: the means to say what SQL may use.
pub(crate) struct Work {
    job: Arc<Job>,
    cancel: Cancel,
    room: Arc<dyn ResultRoom>,
    statement: Duration,
}

impl Work {
    /// What so many statements may use from now on.
    pub(crate) fn allow(&self, statements: usize) -> Allowance {
        let time = self.statement.saturating_mul(u32::try_from(statements).unwrap_or(u32::MAX)).min(REQUEST_MAX);
        self.allow_until(Instant::now() + time)
    }

    /// What may be used until then.
    pub(crate) fn allow_until(&self, deadline: Instant) -> Allowance {
        self.job.state().until = deadline;
        Allowance { deadline, cancel: self.cancel.clone(), room: Some(self.room.clone()) }
    }

    /// Whether the client has left.
    pub(crate) fn cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }
}

impl App {
    /// Runs something that blocks, for that party, on a thread of that kind.
    ///
    /// # Errors
    /// `TRANSACTION_TIMEOUT` if it does not end one second after its deadline; *unknown* unless it only reads. `INTERNAL` if it panics.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        party: &Party,
        lane: Lane,
        work: impl FnOnce(&Work) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.lanes.run(party, lane, (self.answers.of(party), self.limits.statement), work).await
    }
}

impl Lanes {
    /// As [`App::blocking`]; results take room from `room`, and a statement has the time `statement`.
    async fn run<T: Send + 'static>(
        &self,
        party: &Party,
        lane: Lane,
        (room, statement): (Arc<dyn ResultRoom>, Duration),
        work: impl FnOnce(&Work) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let place = Some(self.of(lane).wait_for_one(party).await);
        let until = Instant::now() + statement;
        let job = Arc::new(Job(Mutex::new(State { until, ended: false, cut_off: false, place, spare: None })));
        let cancel = Cancel::default();
        let context = Work { job: job.clone(), cancel: cancel.clone(), room, statement };
        let ending = Ending(job.clone(), self.cut_off.clone());
        let handle = tokio::task::spawn_blocking(move || {
            let _ending = ending;
            highwater_sql::bounded(context.room.clone(), || work(&context))
        });
        let mut waiting = Waiting { handle: Some(handle), cancel, job, cut_off: self.cut_off.clone() };
        loop {
            let until = waiting.job.state().until;
            let handle = waiting.handle.as_mut().expect("it is taken only when this ends");
            match tokio::time::timeout_at((until + CUT_OFF_AFTER).into(), handle).await {
                Ok(ended) => {
                    waiting.handle = None;
                    return ended.map_err(|error| panicked(&error));
                }
                // The next statement began meanwhile, with a time of its own.
                Err(_) if waiting.job.state().until > until => {}
                Err(_) => {
                    if waiting.job.cut_off(&self.cut_off) {
                        return Err(cut_off(lane));
                    }
                    // It ended just now.
                    let handle = waiting.handle.take().expect("it is taken only when this ends");
                    return handle.await.map_err(|error| panicked(&error));
                }
            }
        }
    }
}

fn cut_off(lane: Lane) -> Failure {
    let message = match lane {
        Lane::Read => "the request did not end when its time was over, and was cut off; it has no effect",
        Lane::Write | Lane::Transaction => {
            "the request did not end when its time was over, and was cut off: what it asked for may still happen, or not"
        }
    };
    let failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "TRANSACTION_TIMEOUT", message);
    if lane == Lane::Read { failure } else { failure.unknown_at(None) }
}

fn panicked(error: &tokio::task::JoinError) -> Failure {
    // The panic has been reported where it happened; the transaction it was in was rolled back as its session was dropped.
    tracing::error!(%error, "a request's thread panicked");
    let message = "this request met a bug of the server's, which is in its log";
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", message).unknown_at(None)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::access::Access;
    use crate::answers::AnswerRoom;
    use crate::party::PartyId;

    const PARTY: Party =
        Party { access: Access::Full, id: PartyId::Address(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)) };

    fn lanes(cut_off_threads: usize) -> Lanes {
        Lanes::new(&Limits { threads: 1, cut_off_threads, ..Limits::default() })
    }

    fn limits(statement: Duration) -> (Arc<dyn ResultRoom>, Duration) {
        (AnswerRoom::new(1).of(&PARTY), statement)
    }

    /// Waits for something that another thread does.
    async fn until(done: impl Fn() -> bool) {
        while !done() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn work_that_outlives_its_deadline_is_cut_off_and_its_place_given_to_others() {
        let lanes = lanes(1);
        let (end, ended) = mpsc::channel::<()>();
        let stuck = lanes.run(&PARTY, Lane::Read, limits(Duration::ZERO), move |_| ended.recv());
        let failure = stuck.await.expect_err("it does not end");
        assert_eq!((failure.code.as_str(), failure.unknown), ("TRANSACTION_TIMEOUT", false));
        assert_eq!((lanes.cut_off.now.get(), lanes.cut_off.total.get()), (1, 1));
        let next = lanes.run(&PARTY, Lane::Read, limits(Duration::from_secs(60)), |_| 7).await;
        assert_eq!(next.expect("the place of the one that was cut off"), 7);
        drop(end);
        until(|| lanes.cut_off.now.get() == 0).await;
        assert_eq!(lanes.cut_off.total.get(), 1);
        assert!(lanes.cut_off.spare.available_permits() == 1 && lanes.readers.taken() == 0);
    }

    #[tokio::test]
    async fn a_write_that_is_cut_off_is_unknown_and_keeps_its_place_where_none_is_spare() {
        let lanes = lanes(0);
        let (end, ended) = mpsc::channel::<()>();
        let stuck = lanes.run(&PARTY, Lane::Write, limits(Duration::ZERO), move |_| ended.recv());
        assert!(stuck.await.expect_err("it does not end").unknown);
        assert_eq!(lanes.writers.taken(), 1, "its place goes with the work");
        drop(end);
        until(|| lanes.writers.taken() == 0).await;
    }

    #[tokio::test]
    async fn work_whose_client_left_is_cancelled_and_keeps_its_place_until_it_ends() {
        let lanes = lanes(1);
        let (begun, begins) = tokio::sync::oneshot::channel();
        let work = lanes.run(&PARTY, Lane::Read, limits(Duration::from_secs(60)), move |work| {
            let _ = begun.send(());
            while !work.cancelled() {
                std::thread::yield_now();
            }
        });
        tokio::select! {
            _ = work => panic!("it ends only when it is cancelled"),
            _ = begins => {}
        }
        until(|| lanes.readers.taken() == 0).await;
        assert_eq!(lanes.cut_off.total.get(), 0);
    }

    #[tokio::test]
    async fn each_statement_has_a_time_of_its_own() {
        let lanes = lanes(1);
        let long = lanes.run(&PARTY, Lane::Read, limits(Duration::ZERO), |work| {
            let _ = work.allow_until(Instant::now() + Duration::from_secs(60));
            // sleep: what is shown is that this lasts longer than the first deadline and the second after it.
            std::thread::sleep(CUT_OFF_AFTER + Duration::from_millis(300));
        });
        long.await.expect("it ended in time");
    }
}
