//! What can happen, and the queue of what is going to.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use highwater_host::Input;
use highwater_log::FlushDone;
use highwater_partition::Ticket;
use highwater_wire::{Envelope, NodeId, PartitionId};

use super::folders::SimJob;
use crate::clients::{Ask, End, Instant};
use crate::faults::Fault;

/// A process of a node: the number counts its starts in this run. What was meant for an earlier one is dropped.
pub(super) type Life = u64;

/// One attempt of a client's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Attempt {
    /// The client, by index.
    pub(super) client: usize,
    /// Unique in a run.
    pub(super) number: u64,
}

/// Something that happens at a node, unless its process is no longer the one it was meant for.
#[derive(Debug)]
pub(super) enum AtNode {
    /// Its timer runs out.
    Tick,
    /// The connection to a peer broke; `gone` if connecting anew was refused.
    Broken { peer: NodeId, gone: bool },
    /// A flush begins to run.
    Flush { partition: PartitionId, job: SimJob },
    /// A flush has run.
    Flushed { partition: PartitionId, done: FlushDone },
    /// The state machine takes up the next thing it was told.
    MachineTurn,
    /// The state machine tells the host something.
    Tell { input: Input },
    /// A request has waited long enough.
    Expire { ticket: Ticket },
    /// The process is killed, as it was going to be.
    Die { power: bool },
}

/// Something that happens.
#[derive(Debug)]
pub(super) enum Event {
    /// At a process.
    Node { node: NodeId, life: Life, what: AtNode },
    /// A message arrives at a node, over the connection of that number, or over none: a copy that strayed.
    Deliver { from: NodeId, to: NodeId, connection: Option<u64>, envelope: Envelope },
    /// What arrives of a message that was changed on its way.
    Garbled { from: NodeId, to: NodeId, connection: Option<u64>, envelope: Envelope },
    /// A request arrives at a node.
    Request { node: NodeId, attempt: Attempt, ask: Ask },
    /// An answer arrives at a client.
    Reply { attempt: Attempt, end: End, leader: Option<NodeId>, node: NodeId },
    /// A client stops waiting for an attempt.
    GiveUp { attempt: Attempt, node: NodeId },
    /// A client sends an attempt.
    Send { client: usize, node: NodeId },
    /// A client begins a call.
    Call { client: usize },
    /// A node's process starts.
    Start { node: NodeId },
    /// A fault of that class strikes, if its time is not over.
    Strike { fault: Fault },
    /// Something that a fault took away comes back.
    Restore(Restore),
    /// The liveness phase looks at how far it has come.
    Look,
}

/// What comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restore {
    /// A link, one way.
    Link { from: NodeId, to: NodeId, number: u64 },
    /// Room on a disk.
    Room { node: NodeId },
    /// What was wrong with a node's copies is put right; the number tells it from what befalls them later.
    Whole { node: NodeId, number: u64 },
}

/// Everything that is going to happen, soonest first; of two at one time the one that was put in first.
#[derive(Debug, Default)]
pub(super) struct Queue {
    order: BinaryHeap<Reverse<(Instant, u64)>>,
    events: BTreeMap<u64, Event>,
    next: u64,
}

impl Queue {
    /// Puts an event in.
    pub(super) fn at(&mut self, when: Instant, event: Event) {
        self.order.push(Reverse((when, self.next)));
        let before = self.events.insert(self.next, event);
        assert!(before.is_none(), "events are numbered");
        self.next += 1;
    }

    /// Takes the next one out.
    pub(super) fn pop(&mut self) -> Option<(Instant, Event)> {
        let Reverse((when, number)) = self.order.pop()?;
        let event = self.events.remove(&number);
        assert!(event.is_some(), "what is in the order is among the events");
        Some((when, event?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soonest_comes_first_and_equals_in_the_order_they_were_put_in() {
        let mut queue = Queue::default();
        for (when, client) in [(5, 1), (3, 2), (5, 3)] {
            queue.at(when, Event::Call { client });
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop())
            .map(|(when, event)| match event {
                Event::Call { client } => (when, client),
                other => panic!("only calls were put in, not {other:?}"),
            })
            .collect();
        assert_eq!(order, vec![(3, 2), (5, 1), (5, 3)]);
    }
}
