//! One client: what it asks next, whom, and what it does with an answer.
//!
//! A client has one call under way. A write with an idempotency key is sent again while its outcome is unknown, to any node, under the same key,
//! until an answer is known or patience ends. A write without one is never sent again once its outcome is unknown. Session clients carry the
//! greatest position they have seen, from writes and from reads, and ask for at least that.

use highwater_wire::{NodeId, Position};

use super::history::{Ask, End, Freshness};
use crate::machine::{Entry, OpId, Write, WriteAnswer};
use crate::rng::Rng;

/// Registers and lists there are.
const KEYS: u64 = 5;
/// Lists there are.
const LISTS: u64 = 3;

/// What a client does after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The call is over.
    Done(End),
    /// The same request goes to that node, after so many microseconds.
    Again {
        /// Where.
        node: NodeId,
        /// When.
        after_us: u64,
    },
}

/// A client.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its number.
    pub id: u32,
    rng: Rng,
    nodes: u32,
    /// The node it asks first.
    pub favourite: NodeId,
    session: bool,
    token: Option<Position>,
    /// A register value it saw, to compare with.
    seen: [u64; KEYS as usize],
    attempts: u32,
    unknown: bool,
}

impl Client {
    /// A client of a cluster of `nodes`, numbered from 1.
    pub fn new(id: u32, nodes: u32, mut rng: Rng) -> Client {
        assert!(nodes > 0, "a cluster has nodes");
        let favourite = NodeId(rng.range(1, u64::from(nodes)) as u32);
        let session = rng.percent(60);
        Client {
            id,
            rng,
            nodes,
            favourite,
            session,
            token: None,
            seen: [0; KEYS as usize],
            attempts: 0,
            unknown: false,
        }
    }

    /// What it asks next, as call `op`.
    pub fn ask(&mut self, op: OpId) -> Ask {
        (self.attempts, self.unknown) = (0, false);
        let key = self.rng.below(KEYS) as u8;
        let list = self.rng.below(LISTS) as u8;
        // Values are unique in a run: the call's number is one.
        let value = op.0;
        let write = match self.rng.below(100) {
            0..=19 => Write::Set { key, value },
            20..=34 => Write::Cas { key, expect: self.seen[key as usize], value },
            35..=59 => Write::Append { list, value },
            60..=79 => return Ask::Read { key, list, freshness: Freshness::Linearizable },
            80..=91 => match self.token.filter(|_| self.session) {
                Some(token) => return Ask::Read { key, list, freshness: Freshness::AtLeast(token) },
                None => return Ask::Read { key, list, freshness: Freshness::Eventual },
            },
            _ => return Ask::Read { key, list, freshness: Freshness::Eventual },
        };
        let keyed = self.rng.percent(70);
        Ask::Write { entry: Entry { op, keyed, write }, leader_ack: self.rng.percent(8) }
    }

    /// Which node it asks first.
    pub fn first(&mut self) -> NodeId {
        match self.rng.percent(80) {
            true => self.favourite,
            false => self.anyone(),
        }
    }

    fn anyone(&mut self) -> NodeId {
        NodeId(self.rng.range(1, u64::from(self.nodes)) as u32)
    }

    /// An attempt ended; `leader` is who leads as far as the node that answered knows.
    pub fn answered(&mut self, ask: &Ask, end: End, leader: Option<NodeId>) -> Next {
        self.attempts += 1;
        if let Some(leader) = leader {
            self.favourite = leader;
        }
        match end {
            End::Wrote { answer, at } => {
                if !matches!(ask, Ask::Write { leader_ack: true, .. }) {
                    self.see(at);
                }
                if let (WriteAnswer::Mismatch { found }, Some(key)) = (answer, register(ask)) {
                    self.seen[key as usize] = found;
                    // An earlier attempt may still be under way, and may find the register as it expects.
                    if self.unknown {
                        return Next::Done(End::Unknown);
                    }
                }
                Next::Done(end)
            }
            End::Read(seen) => {
                if let Some(key) = register(ask) {
                    self.seen[key as usize] = seen.register;
                }
                if self.session {
                    self.see(seen.at);
                }
                Next::Done(end)
            }
            End::Truncated => {
                self.token = None;
                Next::Done(end)
            }
            End::Failed | End::Unknown => {
                self.unknown |= end == End::Unknown;
                let may_repeat = match ask {
                    Ask::Write { entry, .. } => entry.keyed || !self.unknown,
                    Ask::Read { .. } => true,
                };
                if !may_repeat || self.attempts >= 4 {
                    let is_write = matches!(ask, Ask::Write { .. });
                    return Next::Done(if self.unknown && is_write { End::Unknown } else { End::Failed });
                }
                let node = match leader {
                    Some(leader) => leader,
                    None => self.anyone(),
                };
                Next::Again { node, after_us: self.rng.range(2_000, 120_000) }
            }
        }
    }

    fn see(&mut self, at: Position) {
        if self.token.is_none_or(|token| token.offset < at.offset) {
            self.token = Some(at);
        }
    }

    /// How long it thinks before the next call, in microseconds, `mean` on average.
    pub fn think_us(&mut self, mean: u64) -> u64 {
        self.rng.below(2 * mean + 1)
    }
}

fn register(ask: &Ask) -> Option<u8> {
    match ask {
        Ask::Read { key, .. } => Some(*key),
        Ask::Write { entry, .. } => match entry.write {
            Write::Set { key, .. } | Write::Cas { key, .. } => Some(key),
            Write::Append { .. } => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unkeyed() -> Ask {
        let entry = Entry { op: OpId(1), keyed: false, write: Write::Set { key: 0, value: 1 } };
        Ask::Write { entry, leader_ack: false }
    }

    #[test]
    fn a_write_without_a_key_is_not_repeated_once_its_outcome_is_unknown() {
        let mut client = Client::new(0, 3, Rng::new(1));
        assert!(matches!(client.answered(&unkeyed(), End::Failed, None), Next::Again { .. }));
        assert_eq!(client.answered(&unkeyed(), End::Unknown, None), Next::Done(End::Unknown));
    }

    #[test]
    fn an_unknown_outcome_is_not_made_a_failure_by_a_later_refusal() {
        let mut client = Client::new(0, 3, Rng::new(1));
        let entry = Entry { op: OpId(1), keyed: true, write: Write::Set { key: 0, value: 1 } };
        let ask = Ask::Write { entry, leader_ack: false };
        assert!(matches!(client.answered(&ask, End::Unknown, None), Next::Again { .. }));
        for _ in 0..2 {
            assert!(matches!(client.answered(&ask, End::Failed, None), Next::Again { .. }));
        }
        assert_eq!(client.answered(&ask, End::Failed, None), Next::Done(End::Unknown));
    }
}
