//! One thread for each partition that runs its flushes.
//!
//! A job is at most one at a time for each log; whatever is appended while it runs shares the next one. That is the group commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use highwater_host::Input;
use highwater_wire::PartitionId;

use crate::folder::NodeLog;
use crate::inbox::{Inbox, ToCore};
use crate::on_panic::{BROKEN, OnPanic};

type Job = <NodeLog as highwater_log::LogStore>::FlushJob;

/// The thread; it ends when this is dropped, after the job it runs.
pub(crate) struct FlushThread {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    done: Arc<AtomicU64>,
}

impl FlushThread {
    /// Starts the thread of that partition. Results go to `inbox`.
    pub(crate) fn start(partition: PartitionId, inbox: Inbox) -> std::io::Result<FlushThread> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let done_jobs = Arc::new(AtomicU64::new(0));
        let counter = done_jobs.clone();
        let thread = std::thread::Builder::new().name(format!("flush-{}", partition.0)).spawn(move || {
            let to_core = inbox.clone();
            let _noticed = OnPanic(move || {
                // An error means that the core has ended, and with it everything.
                let _ = to_core.send(ToCore::Broken(BROKEN.to_string()));
            });
            for job in queue {
                let done = job.run();
                counter.fetch_add(1, Ordering::Relaxed);
                if inbox.send(ToCore::Host(Input::FlushDone(partition, done))).is_err() {
                    return;
                }
            }
        })?;
        Ok(FlushThread { jobs: Some(jobs), thread: Some(thread), done: done_jobs })
    }

    /// How many jobs have ended since it was started; each is one `fdatasync` of the log.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Queues a job.
    pub(crate) fn run(&self, job: Job) {
        let jobs = self.jobs.as_ref().expect("the queue is open until the thread is dropped");
        jobs.send(job).expect("the flush thread ends only after its queue");
    }
}

impl Drop for FlushThread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
