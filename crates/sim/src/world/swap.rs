//! A node's folder is taken away and an empty one lies in its place; later the true one may be put back, exactly as it was.
//!
//! A peer is (node, log id) (docs/protocol.md section 1), and the empty folder gets a log id of its own: so nothing that the node says meanwhile may count.
//! To the observers it goes by another name, under which it is no member of anything. The product refuses such a node even earlier, while the cluster
//! forms; here it is let in as far as the protocol lets it.

use highwater_host::NodeState;
use highwater_wire::{LogId, NodeId, PartitionId};

use super::World;
use super::disk::Disk;
use super::node::Node;
use crate::facts::Place;
use crate::faults::Fault;
use crate::machine::Store;

/// The names of those who go by another one begin here.
const STRANGERS: u32 = 1_000;

/// Everything that lies in a node's folder.
pub(super) struct Folder {
    log: LogId,
    state: NodeState,
    disk: Disk,
    store: Box<dyn Store>,
    /// What the node goes by while this folder is away.
    stranger: NodeId,
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

impl World {
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
    use super::*;
    use crate::laws::step_laws;
    use crate::machine::State;
    use crate::options::Profile;
    use crate::plan::{Plan, Reduction};

    /// A cluster in which folders are wiped and processes killed, and nothing else happens.
    fn world(seed: u64) -> World {
        let reduction = Reduction { without: Fault::ALL.to_vec(), ..Reduction::default() };
        let mut world = World::new(&Plan { seed, profile: Profile::Quorum3, reduction, text: false }, step_laws());
        for fault in [Fault::Wiped, Fault::Kill] {
            world.faults.push(fault);
            world.schedule_strike(fault);
        }
        world
    }

    #[test]
    fn an_empty_folder_makes_another_peer_and_the_true_one_comes_back_as_it_was() {
        let (mut world, one) = (world(1), NodeId(1));
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

    #[test]
    fn clusters_bear_wiped_folders() {
        let mut wiped = 0;
        for seed in 1..=6 {
            let mut world = world(seed);
            world.run();
            assert!(world.broken().is_none(), "seed {seed}: {:?}", world.broken());
            wiped += world.counted().faults.get(&Fault::Wiped).copied().unwrap_or(0);
            let ends: Vec<&State> = world.ends.values().collect();
            assert!(ends.len() >= 2, "those who are not lost answer the last reads");
        }
        assert!(wiped > 0, "somebody lost a folder");
    }
}
