//! A database as those who serve clients see it.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use highwater_partition::{AckPolicy, Input, Outcome};
use highwater_replica::ProposeError;
use highwater_sql::Hold;
use highwater_wire::{NodeId, PartitionId, Position};
use tokio::sync::watch;

use crate::ahead::Ahead;
use crate::error::Unavailable;
use crate::inbox::{Inbox, ToCore};
use crate::measure::CommitLatency;
use crate::waiting::Waiting;

/// A database on this node: its SQL, and the waits that its partition answers.
///
/// The order of a request: [`Database::admit`] for a write, [`Database::read_index`] for a linearizable read, then SQL on a thread that may block, then
/// [`Database::hold`] with the hold of the answer. Nothing that carries a hold may be shown before that says [`Outcome::Done`].
pub struct Database {
    name: String,
    partition: PartitionId,
    inbox: Inbox,
    pub(crate) ahead: Arc<Ahead>,
    pub(crate) latency: CommitLatency,
    machine: OnceLock<Arc<highwater_sql::Database>>,
    stopped: OnceLock<String>,
    leads: watch::Sender<bool>,
    leader: watch::Sender<Option<NodeId>>,
    shortage: watch::Sender<Option<ProposeError>>,
}

impl Database {
    pub(crate) fn new(name: String, partition: PartitionId, inbox: Inbox, ahead: Arc<Ahead>) -> Database {
        Database {
            name,
            partition,
            inbox,
            ahead,
            latency: CommitLatency::new(),
            machine: OnceLock::new(),
            stopped: OnceLock::new(),
            leads: watch::Sender::new(false),
            leader: watch::Sender::new(None),
            shortage: watch::Sender::new(None),
        }
    }

    pub(crate) fn opened(&self, machine: Arc<highwater_sql::Database>) {
        assert!(self.machine.set(machine).is_ok(), "a database is opened once");
    }

    pub(crate) fn stop(&self, reason: String) {
        // The first reason is kept.
        let _ = self.stopped.set(reason);
    }

    pub(crate) fn set_leader(&self, leader: Option<NodeId>) {
        self.leader.send_replace(leader);
    }

    /// The node that leads this database, as far as its replica here knows; `None` while it knows of none.
    pub fn leader(&self) -> Option<NodeId> {
        *self.leader.borrow()
    }

    pub(crate) fn set_shortage(&self, shortage: Option<ProposeError>) {
        // Those who wait are woken by news alone: this is called every few milliseconds.
        self.shortage.send_if_modified(|known| {
            let changed = *known != shortage;
            *known = shortage;
            changed
        });
    }

    /// Waits until no write would be refused for want of replicas, no longer than `wait`. Returns why one still would: better known before it is executed
    /// than after. Looked at every few milliseconds; what slips through is refused when it is proposed.
    pub async fn wait_out_shortage(&self, wait: Duration) -> Option<ProposeError> {
        let mut shortage = self.shortage.subscribe();
        match tokio::time::timeout(wait, shortage.wait_for(Option::is_none)).await {
            Ok(_) => None,
            Err(_) => self.shortage.borrow().clone(),
        }
    }

    /// Waits until the leader, as far as the replica here knows, is as wanted.
    pub async fn wait_for_leader(&self, wanted: impl Fn(Option<NodeId>) -> bool) {
        // An error would mean that the sender is gone, which is part of `self`.
        let _ = self.leader.subscribe().wait_for(|leader| wanted(*leader)).await;
    }

    pub(crate) fn set_leads(&self, leads: bool) {
        self.leads.send_replace(leads);
    }

    /// Whether writes are executed here.
    pub fn leads(&self) -> bool {
        *self.leads.borrow()
    }

    /// Waits until writes are executed here: an elected leader first applies what it holds. Returns whether they are.
    pub async fn wait_to_lead(&self, wait: Duration) -> bool {
        let mut leads = self.leads.subscribe();
        // An error would mean that the sender is gone, which is part of `self`.
        tokio::time::timeout(wait, leads.wait_for(|leads| *leads)).await.is_ok_and(|found| found.is_ok())
    }

    /// Its name, which is its partition's too.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its partition.
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// Its SQL, if it is open and has not stopped.
    pub fn sql(&self) -> Result<&Arc<highwater_sql::Database>, Unavailable> {
        let not_serving =
            |reason: &str| Unavailable::NotServing { name: self.name.clone(), reason: reason.to_string() };
        if let Some(reason) = self.stopped.get() {
            return Err(not_serving(reason));
        }
        self.machine.get().ok_or_else(|| not_serving("it is not open yet"))
    }

    /// Why it has stopped, if it has.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// Whether a write may be executed: refused while too much is executed and not committed.
    pub fn admit(&self) -> Result<(), Unavailable> {
        if self.ahead.has_room() {
            return Ok(());
        }
        Err(Unavailable::Overloaded(format!(
            "{} of at most {} bytes of the database {:?} are executed and not committed yet",
            self.ahead.bytes(),
            self.ahead.max_bytes(),
            self.name
        )))
    }

    /// Waits until an answer may leave, or until it is known what became of it.
    pub async fn hold(&self, hold: Hold, ack: AckPolicy, wait: Duration) -> Result<Outcome, Unavailable> {
        let began = Instant::now();
        let waiting = Waiting::ask(&self.inbox, self.partition, |ticket| Input::Hold {
            ticket,
            reign: hold.reign,
            until: hold.until,
            wrote: hold.wrote,
            ack,
        })?;
        let outcome = waiting.outcome(wait).await?;
        if hold.wrote && matches!(outcome, Outcome::Done(_)) {
            self.latency.record(began.elapsed());
        }
        Ok(outcome)
    }

    /// Waits until everything that was committed when this was called is published here, leadership confirmed.
    pub async fn read_index(&self, wait: Duration) -> Result<Outcome, Unavailable> {
        Waiting::ask(&self.inbox, self.partition, |ticket| Input::Read { ticket })?.outcome(wait).await
    }

    /// Its replica here, as it is now; `None` if the node does not answer.
    pub async fn view(&self) -> Option<highwater_partition::Status> {
        let (reply, view) = tokio::sync::oneshot::channel();
        self.inbox.send(ToCore::View(reply)).ok()?;
        view.await.ok()?.partition(self.partition).cloned()
    }

    /// How long acknowledgements took lately.
    pub fn commit_latency(&self) -> &CommitLatency {
        &self.latency
    }

    /// Bytes executed and not committed yet.
    pub fn bytes_ahead(&self) -> u64 {
        self.ahead.bytes()
    }

    /// Waits until that position is published here.
    pub async fn at_least(&self, position: Position, wait: Duration) -> Result<Outcome, Unavailable> {
        assert_eq!(position.partition, self.partition, "a position of another partition says nothing of this one");
        let input = |ticket| Input::AtLeast { ticket, epoch: position.epoch, until: position.offset };
        Waiting::ask(&self.inbox, self.partition, input)?.outcome(wait).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_shortage_is_waited_out_and_one_that_stays_is_told() {
        let ahead = Arc::new(Ahead::new(1));
        let database = Database::new("main".into(), PartitionId(1), Inbox::new().0, ahead);
        assert_eq!(database.wait_out_shortage(Duration::ZERO).await, None, "nothing is short");
        let short = ProposeError::TooFewInReach { needed: 2, in_reach: 1 };
        database.set_shortage(Some(short.clone()));
        assert_eq!(database.wait_out_shortage(Duration::ZERO).await, Some(short.clone()));
        let (waited, ()) =
            tokio::join!(database.wait_out_shortage(Duration::MAX), async { database.set_shortage(None) });
        assert_eq!(waited, None, "it passed meanwhile");
    }
}
