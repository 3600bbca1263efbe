//! One thread for each partition that runs its flushes.
//!
//! A job is at most one at a time for each log; whatever is appended while it runs shares the next one. That is the group commit.

use std::sync::mpsc;
use std::thread::JoinHandle;

use highwater_host::Input;
use highwater_wire::PartitionId;

use crate::folder::NodeLog;
use crate::inbox::{Inbox, ToCore};

type Job = <NodeLog as highwater_log::LogStore>::FlushJob;

/// The thread; it ends when this is dropped, after the job it runs.
pub(crate) struct FlushThread {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl FlushThread {
    /// Starts the thread of that partition. Results go to `inbox`.
    pub(crate) fn start(partition: PartitionId, inbox: Inbox) -> std::io::Result<FlushThread> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let thread = std::thread::Builder::new().name(format!("flush-{}", partition.0)).spawn(move || {
            for job in queue {
                let done = job.run();
                if inbox.send(ToCore::Host(Input::FlushDone(partition, done))).is_err() {
                    return;
                }
            }
        })?;
        Ok(FlushThread { jobs: Some(jobs), thread: Some(thread) })
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
