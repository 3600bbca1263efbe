//! The simulated network between nodes: every pair has a connection in each direction, which delays, loses, repeats, reorders, clogs and breaks.

use std::collections::BTreeMap;

use highwater_wire::NodeId;

use crate::clients::Instant;
use crate::faults::Fault;
use crate::options::Profile;
use crate::rng::Rng;

#[derive(Clone, Debug, Default)]
struct Link {
    /// Raised when the connection breaks: what was sent over an earlier one never arrives.
    connection: u64,
    /// Nothing passes while it is blocked. The number tells which block a restoration ends.
    blocked: Option<u64>,
    /// Nothing arrives before this.
    clogged_until: Instant,
    /// When the last message arrives; the next one does not overtake it, unless messages are reordered.
    last: Instant,
}

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// When it arrives.
    pub(super) when: Instant,
    /// Over which connection; `None` for a copy that strays and arrives whatever became of the connection.
    pub(super) connection: Option<u64>,
    /// A byte of it was changed on its way.
    pub(super) garbled: bool,
}

/// The network.
#[derive(Debug)]
pub(super) struct Network {
    rng: Rng,
    profile: Profile,
    links: BTreeMap<(NodeId, NodeId), Link>,
    loss_permille: u64,
    duplicate_permille: u64,
    garbled_permille: u64,
    reorders: bool,
    blocks: u64,
    /// What was lost, repeated and reordered so far.
    pub(super) counted: BTreeMap<Fault, u64>,
}

impl Network {
    /// A profile's network with those classes of faults.
    pub(super) fn new(mut rng: Rng, profile: Profile, faults: &[Fault]) -> Network {
        let rate = |fault, rng: &mut Rng, most| if faults.contains(&fault) { rng.range(5, most) } else { 0 };
        Network {
            loss_permille: rate(Fault::Loss, &mut rng, 80),
            duplicate_permille: rate(Fault::Duplicate, &mut rng, 100),
            garbled_permille: rate(Fault::Garbled, &mut rng, 8),
            reorders: faults.contains(&Fault::Reorder),
            rng,
            profile,
            links: BTreeMap::new(),
            blocks: 0,
            counted: BTreeMap::new(),
        }
    }

    fn link(&mut self, from: NodeId, to: NodeId) -> &mut Link {
        self.links.entry((from, to)).or_default()
    }

    fn count(&mut self, fault: Fault) {
        *self.counted.entry(fault).or_default() += 1;
    }

    /// When, and how often, a message that leaves now arrives.
    pub(super) fn send(&mut self, now: Instant, from: NodeId, to: NodeId) -> Vec<Arrival> {
        assert_ne!(from, to, "a node does not send to itself over the network");
        if self.link(from, to).blocked.is_some() {
            return Vec::new();
        }
        if self.rng.permille(self.loss_permille) {
            self.count(Fault::Loss);
            return Vec::new();
        }
        let (nearest, farthest) = self.profile.distance_us(from, to);
        let mut delay = self.rng.range(150 + nearest, 900 + farthest);
        if self.rng.permille(10) {
            delay += self.rng.range(1_000, 15_000);
        }
        let overtakes = self.reorders && self.rng.percent(15);
        if overtakes {
            self.count(Fault::Reorder);
            delay += self.rng.range(500, 20_000);
        }
        let link = self.link(from, to);
        let mut when = (now + delay).max(link.clogged_until);
        if !overtakes {
            when = when.max(link.last);
            link.last = when;
        }
        let connection = Some(link.connection);
        let garbled = self.rng.permille(self.garbled_permille);
        if garbled {
            self.count(Fault::Garbled);
        }
        let mut arrivals = vec![Arrival { when, connection, garbled }];
        if self.rng.permille(self.duplicate_permille) {
            self.count(Fault::Duplicate);
            let late = if self.rng.percent(30) { self.rng.range(10_000, 3_000_000) } else { self.rng.range(10, 5_000) };
            arrivals.push(Arrival { when: when + late, connection: None, garbled: false });
        }
        arrivals
    }

    /// Whether a message over that connection still arrives.
    pub(super) fn arrives(&self, from: NodeId, to: NodeId, connection: Option<u64>) -> bool {
        let now = self.links.get(&(from, to)).map_or(0, |link| link.connection);
        connection.is_none_or(|connection| connection == now)
    }

    /// Breaks the connections between two nodes, both ways.
    pub(super) fn disconnect(&mut self, one: NodeId, other: NodeId) {
        self.link(one, other).connection += 1;
        self.link(other, one).connection += 1;
    }

    /// Lets nothing pass one way; returns what [`Network::unblock`] wants.
    pub(super) fn block(&mut self, from: NodeId, to: NodeId) -> u64 {
        self.blocks += 1;
        let number = self.blocks;
        self.link(from, to).blocked = Some(number);
        number
    }

    /// Ends a block, unless a later one has taken its place.
    pub(super) fn unblock(&mut self, from: NodeId, to: NodeId, number: u64) {
        let link = self.link(from, to);
        link.blocked.take_if(|blocked| *blocked == number);
    }

    /// Holds back whatever is sent one way until then.
    pub(super) fn clog(&mut self, from: NodeId, to: NodeId, until: Instant) {
        let link = self.link(from, to);
        link.clogged_until = link.clogged_until.max(until);
    }

    /// Nothing is lost, repeated, held back or blocked from now on.
    pub(super) fn heal(&mut self) {
        (self.loss_permille, self.duplicate_permille, self.garbled_permille, self.reorders) = (0, 0, 0, false);
        for link in self.links.values_mut() {
            (link.blocked, link.clogged_until) = (None, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NodeId = NodeId(1);
    const TWO: NodeId = NodeId(2);

    #[test]
    fn without_faults_every_message_arrives_once_and_in_order() {
        let mut network = Network::new(Rng::new(1), Profile::Quorum3, &[]);
        let arrivals: Vec<_> = (0..500).map(|now| network.send(now, ONE, TWO)).collect();
        assert!(arrivals.iter().all(|a| a.len() == 1));
        assert!(arrivals.windows(2).all(|pair| pair[0][0].when <= pair[1][0].when));
        assert!(network.counted.is_empty());
    }

    #[test]
    fn with_faults_some_are_lost_repeated_and_overtaken() {
        let mut network = Network::new(Rng::new(1), Profile::Quorum3, &[Fault::Loss, Fault::Duplicate, Fault::Reorder]);
        let arrivals: Vec<_> = (0..2000).map(|now| network.send(now, ONE, TWO)).collect();
        assert!(arrivals.iter().any(Vec::is_empty));
        assert!(arrivals.iter().any(|a| a.len() == 2));
        let first: Vec<_> = arrivals.iter().filter_map(|a| a.first()).collect();
        assert!(first.windows(2).any(|pair| pair[0].when > pair[1].when));
        network.heal();
        assert!((0..500).all(|now| network.send(now, ONE, TWO).len() == 1));
    }

    #[test]
    fn a_block_is_one_way_and_a_broken_connection_delivers_nothing_more() {
        let mut network = Network::new(Rng::new(1), Profile::Quorum3, &[]);
        let number = network.block(ONE, TWO);
        assert!(network.send(0, ONE, TWO).is_empty());
        let arrival = network.send(0, TWO, ONE)[0];
        assert!(network.arrives(TWO, ONE, arrival.connection));
        network.disconnect(ONE, TWO);
        assert!(!network.arrives(TWO, ONE, arrival.connection));
        network.unblock(ONE, TWO, number);
        assert_eq!(network.send(0, ONE, TWO).len(), 1);
    }
}
