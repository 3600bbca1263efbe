//! A simulated cluster, and the loop that lets one thing after another happen to it.
//!
//! Everything random comes from forks of one generator, everything that happens goes through one queue, and no map without an order is iterated:
//! the same seed gives the same run, which the trace's hash shows.

mod clock;
mod disk;
mod elections;
mod event;
mod folders;
mod garble;
mod harm;
mod life;
mod liveness;
mod network;
mod node;
mod perform;
mod plots;
mod replay;
mod serve;
mod spoil;
mod strike;
mod swap;
mod watch;
mod work;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use highwater_host::Input;
use highwater_wire::{Epoch, NodeId, Offset, PartitionId, PeerId, Set};

use crate::clients::{Ask, Client, End, History, Instant};
use crate::faults::{self, Fault};
use crate::laws::Law;
use crate::machine::{self, Machines, OpId, State};
use crate::marks::Mark;
use crate::options::Profile;
use crate::oracle::{Broken, Oracle};
use crate::plan::{CLIENTS, Plan, Reduction, Strike};
use crate::rng::Rng;
use crate::trace::Trace;

use event::{AtNode, Attempt, Event, Queue};
use folders::Notes;
use network::Network;
use node::Node;
pub use plots::Plot;
pub(crate) use swap::STRANGERS;

/// The database's name.
const DATABASE: &str = "main";

/// Client operations of a run, at the least.
pub(crate) const OPERATIONS_MIN: u64 = 500;

/// The least length of the safety phase, microseconds.
const SAFETY_US: Instant = 20_000_000;

/// The longest. Faults are so frequent in some runs that clients get little done; the rest of the operations then run after healing.
const SAFETY_MAX_US: Instant = 90_000_000;

/// A client and what it is about.
struct Seat {
    client: Client,
    /// The call under way, and the attempt that it waits for.
    call: Option<(OpId, Ask)>,
    attempt: u64,
}

/// What a run adds up to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    /// Client calls that ended.
    pub(crate) operations: u64,
    /// Of them, acknowledged writes and answered reads.
    pub(crate) succeeded: u64,
    /// Leaders of the database after the first.
    pub(crate) leader_changes: u64,
    /// Elections of the metadata after the first.
    pub(crate) metadata_elections: u64,
    /// Strikes by kind.
    pub(crate) faults: BTreeMap<Fault, u64>,
    /// The same, one by one, of those classes that strike at a moment.
    pub(crate) strikes: Vec<Strike>,
}

/// The cluster.
pub(crate) struct World {
    machines: &'static dyn Machines,
    rng: Rng,
    now: Instant,
    queue: Queue,
    profile: Profile,
    /// What of the seed's run is left out.
    reduction: Reduction,
    faults: Vec<Fault>,
    nodes: BTreeMap<NodeId, Node>,
    network: Network,
    seats: Vec<Seat>,
    history: History,
    ops: u64,
    attempts: u64,
    oracle: Oracle,
    notes: Notes,
    /// The lowest cut of each log since its last flush began.
    cuts: BTreeMap<crate::facts::Place, Offset>,
    trace: Trace,
    counted: Counted,
    /// Who leads the database, as far as was seen.
    leader: Option<NodeId>,
    /// The greatest epoch that the database was led in.
    leader_epoch: Option<Epoch>,
    /// The first voters, with the logs that they were made with.
    voters: Vec<PeerId>,
    /// How often copies came to harm.
    harms: u64,
    /// How elections misbehave.
    elections: elections::Misbehaviour,
    /// The plot that is played, if one is.
    staging: Option<plots::Staging>,
    /// Once everything was healed.
    healed: Option<liveness::Liveness>,
    /// How the run ended, once it has.
    finish: Option<liveness::Finish>,
    /// What was read at the end, by node.
    ends: BTreeMap<NodeId, State>,
    broken: Option<Broken>,
}

impl World {
    /// A cluster that is about to start, and the laws of a step that it is held to.
    pub(crate) fn new(plan: &Plan, laws: Vec<Box<dyn Law>>) -> World {
        let (seed, reduction) = (plan.seed, plan.reduction.clone());
        let mut rng = Rng::new(seed);
        let profile = plan.profile.drawn(&mut rng.fork(1));
        let mut faults = faults::draw(&mut rng.fork(2));
        if profile == Profile::Elections && !faults.contains(&Fault::Elections) {
            faults.push(Fault::Elections);
        }
        faults.retain(|fault| !reduction.without.contains(fault));
        let count = profile.nodes();
        let mut make = rng.fork(3);
        let machines = machine::for_profile(profile);
        // Not forked from the others' generator, since few machines draw from theirs.
        let mut stores = Rng::new(seed ^ 0x5707_e5ee_d000_0000);
        let nodes: BTreeMap<_, _> = (1..=count)
            .map(NodeId)
            .map(|id| {
                let store = machines.store(id, stores.fork(u64::from(id.0)));
                (id, Node::new(id, &mut make, faults.contains(&Fault::Skew), store))
            })
            .collect();
        if faults.iter().any(|fault| matches!(fault, Fault::LostWrite | Fault::Misdirected)) {
            nodes.values().for_each(|node: &Node| node.disk.remember_writes());
        }
        let voters: Vec<PeerId> = nodes.values().map(Node::peer).collect();
        let rule = highwater_wire::CommitRule::Quorum { q: count / 2 + 1 };
        let mut clients = rng.fork(4);
        let seats = (0..reduction.clients.unwrap_or(CLIENTS).min(CLIENTS))
            .map(|id| Seat { client: Client::new(id, count, clients.fork(u64::from(id))), call: None, attempt: 0 })
            .collect();
        let network = Network::new(rng.fork(5), profile, &faults);
        let mut world = World {
            machines,
            rng,
            now: 0,
            queue: Queue::default(),
            profile,
            reduction,
            network,
            faults,
            nodes,
            seats,
            history: History::default(),
            ops: 0,
            attempts: 0,
            oracle: Oracle::new(Set { rule, members: voters.clone() }, laws),
            notes: Rc::new(RefCell::new(Vec::new())),
            cuts: BTreeMap::new(),
            trace: Trace::new(plan.text),
            counted: Counted::default(),
            leader: None,
            leader_epoch: None,
            voters,
            harms: 0,
            elections: elections::Misbehaviour::default(),
            staging: None,
            healed: None,
            finish: None,
            ends: BTreeMap::new(),
            broken: None,
        };
        world.trace.note(0, &(seed, count), || format!("{} with faults {:?}", profile.name(), world.faults));
        let starts: Vec<_> = world.nodes.keys().copied().collect();
        for node in starts {
            let when = world.rng.below(50_000);
            world.queue.at(when, Event::Start { node });
        }
        for client in 0..world.seats.len() {
            let when = 300_000 + world.rng.below(500_000);
            world.queue.at(when, Event::Call { client });
        }
        for fault in world.faults.clone() {
            world.schedule_strike(fault);
        }
        world
    }

    /// Lets everything happen until the run is over or a law is broken.
    pub(crate) fn run(&mut self) {
        while self.broken.is_none() && self.finish.is_none() {
            self.go_on();
        }
        if self.broken.is_none() {
            self.check_history();
        }
    }

    /// What happens next, happens.
    fn go_on(&mut self) {
        let Some((when, event)) = self.queue.pop() else {
            panic!("a run ends by what it finds, not for want of events")
        };
        assert!(when >= self.now, "time does not go back");
        self.now = when;
        self.happen(event);
        if self.healed.is_none() && self.broken.is_none() {
            self.direct();
        }
        if self.healed.is_none() && self.safety_is_over() {
            self.heal();
        }
    }

    fn safety_is_over(&self) -> bool {
        if let Some(over) = self.plot_is_over() {
            return over;
        }
        let enough = self.counted.operations >= self.operations_min();
        if self.reduction.until_ms.is_some_and(|until_ms| self.now >= until_ms * 1_000) {
            return true;
        }
        let pace = self.profile.pace();
        self.now >= SAFETY_US * pace && (enough || self.now >= SAFETY_MAX_US * pace)
    }

    /// So many calls must have ended before the run may.
    fn operations_min(&self) -> u64 {
        self.reduction.calls.unwrap_or(OPERATIONS_MIN).min(OPERATIONS_MIN)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Node { node, life, what } => self.at_node(node, life, what),
            Event::Deliver { from, to, connection, envelope } => self.deliver(from, to, connection, envelope),
            Event::Garbled { from, to, connection, envelope } => self.garbled(from, to, connection, envelope),
            Event::Request { node, attempt, ask } => self.request(node, attempt, ask),
            Event::Reply { attempt, end, leader, node } => self.reply(attempt, end, leader, node),
            Event::GiveUp { attempt, node } => self.reply(attempt, End::Unknown, None, node),
            Event::Send { client, node } => self.send_attempt(client, node),
            Event::Call { client } => self.begin_call(client),
            Event::Start { node } => self.start(node),
            Event::Strike { fault } => self.strike(fault),
            Event::Restore(restore) => self.restore(restore),
            Event::Look => self.look(),
        }
    }

    /// Puts something that happens to a node's present process into the queue.
    fn later(&mut self, node: NodeId, when: Instant, what: AtNode) {
        let life = self.node(node).life;
        self.queue.at(when, Event::Node { node, life, what });
    }

    fn node(&self, id: NodeId) -> &Node {
        match self.nodes.get(&id) {
            Some(node) => node,
            None => panic!("there is no node {id} in this cluster"),
        }
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        match self.nodes.get_mut(&id) {
            Some(node) => node,
            None => panic!("there is no node {id} in this cluster"),
        }
    }

    fn at_node(&mut self, id: NodeId, life: event::Life, what: AtNode) {
        let (now, node) = (self.now, self.node(id));
        if node.life != life || node.process.is_none() {
            return;
        }
        // A stopped process takes everything in when it goes on, in the order in which it came.
        if node.paused_until > now && !matches!(what, AtNode::Die { .. }) {
            let when = node.paused_until;
            self.queue.at(when, Event::Node { node: id, life, what });
            return;
        }
        match what {
            AtNode::Tick => {
                let next = self.rng.range(8_000, 12_000) * self.profile.pace();
                self.later(id, now + next, AtNode::Tick);
                self.step(id, Input::Tick);
            }
            AtNode::Broken { peer, gone } => {
                self.trace
                    .note(now, &(id, peer, gone), || format!("node {id}: connection to {peer} broke, gone: {gone}"));
                self.step(id, if gone { Input::Gone(peer) } else { Input::Disconnected(peer) });
            }
            AtNode::Flush { partition, job } => self.flush(id, partition, job),
            AtNode::Flushed { partition, done } => self.step(id, Input::FlushDone(partition, done)),
            AtNode::MachineTurn => self.machine_turn(id),
            AtNode::Tell { input } => self.step(id, input),
            AtNode::Expire { ticket } => self.expire(id, ticket),
            AtNode::Die { power } => self.die(id, power),
        }
    }

    /// Ends the run: this law does not hold.
    fn break_law(&mut self, law: &'static str, what: String) {
        self.break_with(Broken { law, what });
    }

    fn break_with(&mut self, broken: Broken) {
        self.trace.note(self.now, &broken.what, || format!("BROKEN {}: {}", broken.law, broken.what));
        self.broken.get_or_insert(broken);
    }

    /// The database's partition, once any node has it open.
    fn database(&self) -> Option<PartitionId> {
        self.oracle.metadata().partition_named(DATABASE).map(|record| record.id)
    }

    /// The next attempt's number.
    fn next_attempt(&mut self, client: usize) -> Attempt {
        self.attempts += 1;
        Attempt { client, number: self.attempts }
    }

    /// The law that does not hold, if one does not.
    pub(crate) fn broken(&self) -> Option<&Broken> {
        self.broken.as_ref()
    }

    /// What the run adds up to so far.
    pub(crate) fn counted(&self) -> Counted {
        let mut counted = self.counted.clone();
        for (fault, count) in &self.network.counted {
            *counted.faults.entry(*fault).or_default() += count;
        }
        counted
    }

    /// Simulated microseconds that have passed.
    pub(crate) fn elapsed_us(&self) -> Instant {
        self.now
    }

    /// The classes of faults that were drawn, less those that were left out.
    pub(crate) fn classes(&self) -> &[Fault] {
        &self.faults
    }

    /// The situations that the run has come into.
    pub(crate) fn marks(&self) -> &BTreeSet<Mark> {
        self.oracle.marks().reached()
    }

    /// The profile that was drawn.
    pub(crate) fn profile(&self) -> Profile {
        self.profile
    }

    /// The trace.
    pub(crate) fn into_trace(self) -> Trace {
        self.trace
    }
}
