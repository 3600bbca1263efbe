//! A node's folder is taken away and another one lies in its place; later the true one may be put back, exactly as it was. Nothing that the node says meanwhile
//! may count, so to the observers it goes by another name, under which it is no member of anything.
//!
//! The other folder is empty, or an older copy of the true one.
//!
//! - A peer is (node, log id) (docs/protocol.md section 1), and the empty folder gets a log id of its own. The product refuses such a node even earlier, while
//!   the cluster forms; here it is let in as far as the protocol lets it.
//! - A copy has the true folder's log id, and is told by its starts (section 9). It is put in place where that is promised to be noticed (docs/fault-model.md): the
//!   true folder's present process began after the copy was taken, has registered, and every other voter runs and knows it; and it is not started more often
//!   than the true folder was, before it has met somebody who refuses it.

use highwater_host::NodeState;
use highwater_log::LogStore;
use highwater_wire::{LogId, NodeId, PartitionId};

use super::World;
use super::disk::Disk;
use super::node::Node;
use crate::facts::Place;
use crate::faults::Fault;
use crate::machine::Store;

/// The names of those who go by another one begin here.
pub(crate) const STRANGERS: u32 = 1_000;

/// Everything that lies in a node's folder.
pub(super) struct Folder {
    log: LogId,
    state: NodeState,
    disk: Disk,
    store: Box<dyn Store>,
    /// What the node goes by while this folder is away.
    stranger: NodeId,
}

/// A copy of a folder, but for the state machine's files.
#[derive(Debug)]
pub(super) struct Copied {
    state: NodeState,
    disk: Disk,
}

impl std::fmt::Debug for Folder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Folder").field("log", &self.log).finish_non_exhaustive()
    }
}

impl Node {
    fn away(&self) -> Option<&Folder> {
        self.harm.as_ref()?.away.as_ref()
    }

    /// Whether another folder lies in the place of the true one.
    pub(super) fn is_strange(&self) -> bool {
        self.away().is_some()
    }

    /// Under what name the observers know it.
    pub(super) fn seen_as(&self) -> NodeId {
        self.away().map_or(self.id, |folder| folder.stranger)
    }

    /// Exchanges the folder for another; returns the one that lay there.
    fn exchange(&mut self, new: Folder) -> Folder {
        assert!(self.process.is_none(), "a folder is exchanged while nobody has it");
        Folder {
            log: std::mem::replace(&mut self.log, new.log),
            state: std::mem::replace(&mut self.state, new.state),
            disk: std::mem::replace(&mut self.disk, new.disk),
            store: std::mem::replace(&mut self.store, new.store),
            stranger: new.stranger,
        }
    }
}

impl Node {
    /// Whether an older copy of its folder lies there whose next start would have a greater number than any that the cluster has seen, and nobody has refused it yet.
    pub(super) fn would_outnumber(&self) -> bool {
        let copy = self.away().filter(|_| self.harm.as_ref().is_some_and(|harm| harm.fault == Fault::Older));
        copy.is_some_and(|true_one| !self.state.older_copy && self.state.starts >= true_one.state.starts)
    }
}

impl World {
    /// Somebody copies a node's folder, if there is no copy yet that could be put in its place now; otherwise that is done. False if neither can be.
    pub(super) fn copy_or_put_older(&mut self, id: NodeId) -> bool {
        let node = self.node(id);
        if node.harm.is_some() {
            return false;
        }
        let (taken_at, present) = (node.copy.as_ref().map(|copy| copy.state.starts), node.state.starts);
        match taken_at {
            Some(starts) if starts < present => self.may_harm(id) && self.everybody_knows(id) && self.put_older(id),
            Some(_) => false,
            None if node.state.starts == 0 => false,
            None => {
                self.take_copy(id);
                true
            }
        }
    }

    /// Whether the node's present process has registered, and all others know it.
    fn everybody_knows(&self, id: NodeId) -> bool {
        self.node(id).state.incarnations.len() == 1 && self.others_know(id)
    }

    /// Whether there are others, and all of them run and know the node's present process. A node alone has nobody who could tell its folder from a copy.
    pub(super) fn others_know(&self, id: NodeId) -> bool {
        let (peer, present) = (self.node(id).peer(), self.node(id).state.incarnations.last());
        let mut others = self.nodes.values().filter(|other| other.id != id);
        self.nodes.len() > 1
            && others.all(|other| {
                let metadata = other.process.as_ref().and_then(|process| process.host.metadata_partition());
                metadata.is_some_and(|partition| partition.log().hard_state().seen.get(&peer) == present)
            })
    }

    /// Somebody copies a node's folder as it is at this moment.
    pub(super) fn take_copy(&mut self, id: NodeId) {
        let node = self.node_mut(id);
        node.copy = Some(Copied { state: node.state.clone(), disk: node.disk.copy() });
    }

    /// The copy lies in place of the true folder.
    pub(super) fn put_older(&mut self, id: NodeId) -> bool {
        if self.node(id).process.is_some() {
            self.die(id, false);
        }
        let Some(Copied { state, disk }) = self.node_mut(id).copy.take() else { return false };
        let rng = self.rng.clone().fork(43);
        // Of the state machine's files nothing is copied: they are made anew from the log.
        let store = self.machines.store(id, rng);
        let stranger = NodeId(STRANGERS + self.harms as u32);
        self.harm(id, Fault::Older);
        let node = self.node_mut(id);
        let log = node.log;
        let away = node.exchange(Folder { log, state, disk, store, stranger });
        if let Some(harm) = node.harm.as_mut() {
            harm.away = Some(away);
        }
        true
    }

    /// A replica, as the observers know it.
    pub(super) fn place(&self, id: NodeId, partition: PartitionId) -> Place {
        Place { partition, node: self.node(id).seen_as() }
    }

    /// A node's folder is taken away. False if no more copies may be spared.
    pub(super) fn wipe(&mut self, id: NodeId) -> bool {
        if !self.may_harm(id) {
            return false;
        }
        if self.node(id).process.is_some() {
            let power = self.rng.percent(50);
            self.die(id, power);
        }
        let mut rng = self.rng.fork(37);
        let log = LogId(rng.next());
        let store = self.machines.store(id, rng.fork(1));
        let stranger = NodeId(STRANGERS + self.harms as u32);
        let state = NodeState { cluster: 1, node: id, log, starts: 0, incarnations: Vec::new(), older_copy: false };
        self.harm(id, Fault::Wiped);
        let node = self.node_mut(id);
        let away = node.exchange(Folder { log, state, disk: Disk::default(), store, stranger });
        if let Some(harm) = node.harm.as_mut() {
            harm.away = Some(away);
        }
        true
    }

    /// The true folder is put back.
    pub(super) fn put_back(&mut self, id: NodeId, folder: Folder) {
        let mut rng = self.rng.clone().fork(41);
        let node = self.node_mut(id);
        drop(node.exchange(folder));
        // What was to fail there when it was taken away does not fail unannounced now that it is back.
        node.disk.heal();
        node.store.heal();
        // Both machines' files bear the same path, which leads to those of the one that came last.
        node.store.crash(false, &mut rng);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::clients::Instant;
    use crate::laws::step_laws;
    use crate::machine::State;
    use crate::options::Profile;
    use crate::plan::{Plan, Reduction};

    /// A cluster in which nothing happens of itself.
    fn quiet(seed: u64) -> World {
        let reduction = Reduction { without: Fault::ALL.to_vec(), ..Reduction::default() };
        World::new(&Plan { seed, profile: Profile::Quorum3, reduction, text: false }, step_laws())
    }

    /// A cluster in which folders are exchanged and processes killed, and nothing else happens.
    fn world(seed: u64, exchanged: Fault) -> World {
        let mut world = quiet(seed);
        for fault in [exchanged, Fault::Kill] {
            world.faults.push(fault);
            world.schedule_strike(fault);
        }
        world
    }

    #[test]
    fn an_empty_folder_makes_another_peer_and_the_true_one_comes_back_as_it_was() {
        let (mut world, one) = (world(1, Fault::Wiped), NodeId(1));
        world.start(one);
        assert!(world.broken.is_none());
        let (peer, logs) = (world.node(one).peer(), world.node(one).disk.folders().len());
        assert!(logs > 0, "the metadata's log was made");
        assert!(world.wipe(one));
        let state = world.node(one).away().map(|folder| folder.state.clone());
        assert!(state.as_ref().is_some_and(|state| state.starts == 1));
        assert_ne!(world.node(one).peer(), peer);
        assert!(world.voters.iter().all(|voter| voter.node != world.node(one).seen_as()), "a member of nothing");
        assert!(world.node(one).disk.folders().is_empty());
        assert!(!world.wipe(NodeId(2)), "no more than can be spared");
        world.start(one);
        assert!(world.broken.is_none());
        world.make_whole(one);
        let node = world.node(one);
        assert_eq!((node.peer(), node.disk.folders().len(), node.seen_as()), (peer, logs, one));
        assert_eq!(Some(&node.state), state.as_ref(), "what the other folder's processes did is not in it");
    }

    fn run_until(world: &mut World, when: Instant) {
        while world.now < when {
            world.go_on();
            assert!(world.broken.is_none(), "{:?}", world.broken);
        }
    }

    #[test]
    fn an_older_copy_is_refused_for_ever_and_the_true_folder_comes_back() {
        let mut world = quiet(2);
        world.faults.push(Fault::Kill);
        let (one, first) = (NodeId(1), 5_000_000);
        run_until(&mut world, first);
        assert!(world.copy_or_put_older(one), "it is copied");
        assert!(!world.copy_or_put_older(one), "no later process has begun");
        world.die(one, false);
        run_until(&mut world, 2 * first);
        let starts = world.node(one).state.starts;
        assert!(world.copy_or_put_older(one), "all know of the later process: {:?}", world.node(one).state);
        assert!(world.node(one).state.starts < starts && world.node(one).seen_as() != one);
        while !world.node(one).state.older_copy {
            let soon = world.now + 10_000;
            run_until(&mut world, soon);
            assert!(world.node(one).is_strange(), "it is refused before it is taken away again");
        }
        world.make_whole(one);
        assert_eq!((world.node(one).state.starts, world.node(one).seen_as()), (starts, one));
        world.run();
        assert!(world.broken().is_none(), "{:?}", world.broken());
    }

    #[test]
    fn clusters_bear_wiped_folders_and_older_ones() {
        let mut struck = BTreeMap::new();
        for (fault, seed) in (1..=6).flat_map(|seed| [(Fault::Wiped, seed), (Fault::Older, seed)]) {
            let mut world = world(seed, fault);
            world.run();
            assert!(world.broken().is_none(), "{}, seed {seed}: {:?}", fault.name(), world.broken());
            *struck.entry(fault).or_insert(0) += world.counted().faults.get(&fault).copied().unwrap_or(0);
            let ends: Vec<&State> = world.ends.values().collect();
            assert!(ends.len() >= 2, "those who are not lost answer the last reads");
        }
        assert!(struck.values().all(|times| *times > 3), "somebody lost a folder: {struck:?}");
    }
}
