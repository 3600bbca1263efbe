//! The connections that are open: how many there may be, what each of them does, and which one gives way when there is no room.
//!
//! | A connection | ends by itself after | gives way to a newcomer |
//! |---|---|---|
//! | has sent nothing yet, TLS included | `first` | the oldest first |
//! | has sent a part of a request's head | `head` | the oldest first |
//! | waits for its next request | `idle` | the longest idle, after those above |
//! | has a request under way | never, unless its client takes nothing of the answer for `stall` | never |
//!
//! Among those that may give way it is one of the address that has the most. An address has at most three quarters of all, so that one client machine
//! never shuts out the others.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// How long connections may do nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    pub(crate) first: Duration,
    pub(crate) head: Duration,
    pub(crate) idle: Duration,
    pub(crate) stall: Duration,
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Nothing has come yet that means anything.
    Fresh = 0,
    /// A request's head has begun.
    Head = 1,
    /// It waits for its next request.
    Idle = 2,
    /// A request is under way.
    Busy = 3,
}

/// One connection, as its task and the table see it.
pub(crate) struct Entry {
    from: IpAddr,
    begun: Instant,
    phase: AtomicU8,
    /// Since when it is in that phase, in milliseconds after `begun`.
    since_ms: AtomicU64,
    /// Since when its client takes nothing, in milliseconds after `begun` and plus one; 0 while it takes what comes.
    stalled_ms: AtomicU64,
    ended: Notify,
}

impl Entry {
    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Fresh,
            1 => Phase::Head,
            2 => Phase::Idle,
            _ => Phase::Busy,
        }
    }

    pub(crate) fn set(&self, phase: Phase) {
        self.since_ms.store(self.now_ms(), Ordering::Release);
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Bytes have come: if they are the first of a request, its time runs from now on.
    pub(crate) fn received(&self) {
        if matches!(self.phase(), Phase::Fresh | Phase::Idle) {
            self.set(Phase::Head);
        }
    }

    /// The client takes no more for now.
    pub(crate) fn stalls(&self) {
        let _ = self.stalled_ms.compare_exchange(0, self.now_ms() + 1, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The client has taken what there was.
    pub(crate) fn takes(&self) {
        self.stalled_ms.store(0, Ordering::Release);
    }

    /// Returns once the connection is to end at once.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }

    fn end(&self) {
        self.ended.notify_one();
    }

    fn is_overdue(&self, waits: &Waits) -> bool {
        let stalled = self.stalled_ms.load(Ordering::Acquire);
        if stalled != 0 && self.now_ms().saturating_sub(stalled - 1) >= waits.stall.as_millis() as u64 {
            return true;
        }
        let wait = match self.phase() {
            Phase::Fresh => waits.first,
            Phase::Head => waits.head,
            Phase::Idle => waits.idle,
            Phase::Busy => return false,
        };
        self.now_ms().saturating_sub(self.since_ms.load(Ordering::Acquire)) >= wait.as_millis() as u64
    }
}

/// All connections of one kind.
pub(crate) struct Connections {
    max: usize,
    waits: Waits,
    table: Mutex<Table>,
    /// Told whenever one has gone.
    gone: Notify,
}

#[derive(Default)]
struct Table {
    next: u64,
    entries: BTreeMap<u64, Arc<Entry>>,
    /// How many are open of each address, those that were told to end not counted.
    by_address: BTreeMap<IpAddr, usize>,
    evicted: u64,
    refused: u64,
}

/// What is counted of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) open: usize,
    /// Gave way to newcomers, or did nothing for too long.
    pub(crate) ended: u64,
    /// Turned away.
    pub(crate) refused: u64,
}

/// A connection's place; it is free again when this is dropped.
pub(crate) struct Place {
    connections: Arc<Connections>,
    id: u64,
    pub(crate) entry: Arc<Entry>,
}

impl Connections {
    pub(crate) fn new(max: usize, waits: Waits) -> Arc<Connections> {
        assert!(max > 0, "somebody is let in");
        Arc::new(Connections { max, waits, table: Mutex::default(), gone: Notify::new() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no holder of this lock panics")
    }

    /// The most that one address has.
    fn share(&self) -> usize {
        (self.max * 3 / 4).max(1)
    }

    /// A place for a new connection. If there is none, another one that does nothing gives way; `None` if none does.
    pub(crate) fn admit(self: &Arc<Self>, from: IpAddr) -> Option<Place> {
        let mut table = self.table();
        let own = table.by_address.get(&from).copied().unwrap_or_default();
        let counted: usize = table.by_address.values().sum();
        let made_way = if own >= self.share() {
            table.evict(|address, _| *address == from)
        } else if counted >= self.max {
            let most = table.by_address.values().copied().max().unwrap_or_default();
            table.evict(|_, count| count == most) || table.evict(|_, _| true)
        } else {
            true
        };
        if !made_way {
            table.refused += 1;
            return None;
        }
        let id = table.next;
        table.next += 1;
        let entry = Arc::new(Entry {
            from,
            begun: Instant::now(),
            phase: AtomicU8::new(Phase::Fresh as u8),
            since_ms: AtomicU64::new(0),
            stalled_ms: AtomicU64::new(0),
            ended: Notify::new(),
        });
        table.entries.insert(id, entry.clone());
        *table.by_address.entry(from).or_default() += 1;
        Some(Place { connections: self.clone(), id, entry })
    }

    /// Ends those that have done nothing for too long.
    pub(crate) fn sweep(&self) {
        let mut table = self.table();
        let overdue: Vec<u64> =
            table.entries.iter().filter(|(_, entry)| entry.is_overdue(&self.waits)).map(|(id, _)| *id).collect();
        for id in overdue {
            table.end(id);
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let table = self.table();
        let open = table.by_address.values().sum();
        Counts { open, ended: table.evicted, refused: table.refused }
    }

    /// Returns once none is open.
    pub(crate) async fn all_gone(&self) {
        loop {
            let gone = self.gone.notified();
            if self.counts().open == 0 {
                return;
            }
            gone.await;
        }
    }
}

impl Table {
    /// Ends the connection that gives way first among those of which `may` says so, by address and how many that has.
    fn evict(&mut self, may: impl Fn(&IpAddr, usize) -> bool) -> bool {
        let count = |address: &IpAddr| self.by_address.get(address).copied().unwrap_or_default();
        let idle_ms = |entry: &Entry| entry.now_ms().saturating_sub(entry.since_ms.load(Ordering::Acquire));
        let first = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.phase() != Phase::Busy && may(&entry.from, count(&entry.from)))
            .min_by_key(|(_, entry)| (entry.phase() == Phase::Idle, std::cmp::Reverse(idle_ms(entry))))
            .map(|(id, _)| *id);
        match first {
            Some(id) => {
                self.end(id);
                true
            }
            None => false,
        }
    }

    fn end(&mut self, id: u64) {
        if let Some(entry) = self.entries.remove(&id) {
            entry.end();
            self.forget(entry.from);
            self.evicted += 1;
        }
    }

    fn forget(&mut self, from: IpAddr) {
        let count = self.by_address.get_mut(&from).expect("an open connection is counted");
        *count -= 1;
        if *count == 0 {
            self.by_address.remove(&from);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.connections.table();
        if let Some(entry) = table.entries.remove(&self.id) {
            table.forget(entry.from);
        }
        drop(table);
        self.connections.gone.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);
    const WAITS: Waits = Waits { first: LONG, head: LONG, idle: LONG, stall: LONG };

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// Whether that place's connection was told to end.
    fn has_ended(place: &Place) -> bool {
        !place.connections.table().entries.contains_key(&place.id)
    }

    #[test]
    fn whoever_does_nothing_gives_way_and_whoever_works_does_not() {
        let connections = Connections::new(4, WAITS);
        let places: Vec<Place> = (1..=4).map(|from| connections.admit(address(from)).expect("room")).collect();
        places[0].entry.set(Phase::Busy);
        places[1].entry.set(Phase::Idle);
        let fifth = connections.admit(address(5)).expect("a silent one gives way");
        assert!(has_ended(&places[2]) && !has_ended(&places[3]), "the oldest of the silent ones");
        let sixth = connections.admit(address(6)).expect("the other silent one");
        assert!(has_ended(&places[3]));
        for place in [&fifth, &sixth] {
            place.entry.set(Phase::Busy);
        }
        let seventh = connections.admit(address(7)).expect("the idle one, in the end");
        assert!(has_ended(&places[1]) && !has_ended(&places[0]));
        seventh.entry.set(Phase::Busy);
        assert!(connections.admit(address(8)).is_none(), "all work");
        drop(seventh);
        assert!(connections.admit(address(8)).is_some());
        assert_eq!(connections.counts(), Counts { open: 3, ended: 3, refused: 1 });
    }

    #[test]
    fn one_address_has_three_quarters_at_most() {
        let connections = Connections::new(8, WAITS);
        let busy = |from: u8| {
            let place = connections.admit(address(from))?;
            place.entry.set(Phase::Busy);
            Some(place)
        };
        let own: Vec<Place> = (0..6).filter_map(|_| busy(1)).collect();
        assert_eq!(own.len(), 6);
        assert!(busy(1).is_none(), "none of its own gives way");
        assert!(busy(2).is_some() && busy(3).is_some());
        own[0].entry.set(Phase::Idle);
        let again = connections.admit(address(1)).expect("its own idle one gives way");
        assert!(has_ended(&own[0]));
        drop(again);
    }

    #[tokio::test]
    async fn what_does_nothing_for_too_long_is_ended() {
        let short = Waits { first: Duration::ZERO, head: LONG, idle: LONG, stall: Duration::ZERO };
        let connections = Connections::new(4, short);
        let silent = connections.admit(address(1)).expect("room");
        let begun = connections.admit(address(1)).expect("room");
        begun.entry.received();
        let stalled = connections.admit(address(1)).expect("room");
        stalled.entry.set(Phase::Busy);
        stalled.entry.stalls();
        connections.sweep();
        silent.entry.ended().await;
        stalled.entry.ended().await;
        assert!(!has_ended(&begun));
        drop((silent, stalled, begun));
        connections.all_gone().await;
    }
}
