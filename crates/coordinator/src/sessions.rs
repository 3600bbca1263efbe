//! Who is alive, as far as this coordinator can tell.
//!
//! A node's session lives for `session_ms` after each heartbeat of its registered incarnation. A new coordinator gives every registered node a
//! whole session, since it knows nothing of their last heartbeats. A node whose process is known to be gone loses its session at once. When this
//! process itself stood still, the silence was its own, and all living sessions begin anew. Nothing here is needed for safety: a wrong
//! verdict costs a needless ballot.

use std::collections::{BTreeMap, BTreeSet};

use highwater_wire::{Millis, NodeId};

/// The session clocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sessions {
    session_ms: Millis,
    /// When each living or lapsed node was last heard of; those known to be gone are missing.
    heard: BTreeMap<NodeId, Millis>,
    /// Who said that it is about to stop in good order.
    leaving: BTreeSet<NodeId>,
    /// The time of the last step.
    last_step: Millis,
}

impl Sessions {
    /// Gives these nodes a session each.
    ///
    /// # Panics
    /// If `session_ms` is 0.
    pub(crate) fn new(session_ms: Millis, nodes: impl Iterator<Item = NodeId>, now: Millis) -> Self {
        assert!(session_ms > 0, "a session lasts a while");
        let heard = nodes.map(|node| (node, now)).collect();
        Sessions { session_ms, heard, leaving: BTreeSet::new(), last_step: now }
    }

    /// Notes that time has passed. A gap of half a session between two steps is this process's own silence.
    ///
    /// # Panics
    /// If the clock goes back.
    pub(crate) fn advance(&mut self, now: Millis) {
        assert!(now >= self.last_step, "the node's clock is monotonic");
        let gap = now - self.last_step;
        if gap >= self.session_ms / 2 {
            let (last_step, session_ms) = (self.last_step, self.session_ms);
            for heard in self.heard.values_mut().filter(|heard| last_step - **heard < session_ms) {
                *heard = now;
            }
        }
        self.last_step = now;
    }

    /// A heartbeat or registration of that node arrived.
    pub(crate) fn heard(&mut self, node: NodeId, now: Millis) {
        assert!(now >= self.last_step, "the node's clock is monotonic");
        self.heard.insert(node, now);
    }

    /// That node is about to stop. Returns whether that is news.
    pub(crate) fn leaves(&mut self, node: NodeId) -> bool {
        self.leaving.insert(node)
    }

    /// A new process of that node registered.
    pub(crate) fn returns(&mut self, node: NodeId, now: Millis) {
        self.leaving.remove(&node);
        self.heard(node, now);
    }

    /// Whether that node lives and means to stay, so that it may be made a leader.
    pub(crate) fn stays(&self, node: NodeId) -> bool {
        self.alive(node) && !self.leaving.contains(&node)
    }

    /// That node's process is gone.
    pub(crate) fn gone(&mut self, node: NodeId) {
        self.heard.remove(&node);
        assert!(!self.alive(node), "a node that is gone has no session");
    }

    /// Whether the node's session lives.
    pub(crate) fn alive(&self, node: NodeId) -> bool {
        self.heard.get(&node).is_some_and(|heard| self.last_step - heard < self.session_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    #[test]
    fn a_session_lapses_without_heartbeats_and_ends_at_once_when_the_process_is_gone() {
        let mut sessions = Sessions::new(600, [A, B].into_iter(), 1000);
        for now in (1100..1600).step_by(100) {
            sessions.advance(now);
            sessions.heard(A, now);
            assert!(sessions.alive(A) && sessions.alive(B), "at {now}");
        }
        sessions.advance(1600);
        assert!(sessions.alive(A) && !sessions.alive(B));
        sessions.gone(A);
        assert!(!sessions.alive(A));
        sessions.heard(A, 1600);
        assert!(sessions.alive(A), "a heartbeat after all");
    }

    #[test]
    fn ones_own_silence_is_not_held_against_others() {
        let mut sessions = Sessions::new(600, [A, B].into_iter(), 0);
        for now in (100..=600).step_by(100) {
            sessions.advance(now);
            sessions.heard(A, now);
        }
        assert!(!sessions.alive(B));
        sessions.advance(60_000);
        assert!(sessions.alive(A), "it was this process that stood still");
        assert!(!sessions.alive(B), "what had lapsed before stays lapsed");
    }
}
