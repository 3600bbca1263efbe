//! Plots: runs in which one situation is brought about on purpose, where seeds come into it too rarely to prove anything.
//!
//! A plot is a list of acts. After every event it is looked whether the present act's condition holds; if so, the act does what it does to the cluster, and the next one's
//! turn comes. When the last is over everything is healed, and the run goes on as any other: all laws hold all the time, and the cluster must come back. Nothing but
//! the plot goes wrong, clients work as ever, and the seed decides the rest, such as who leads.

mod disks;
mod leaders;
mod registrations;
mod silences;
mod space;

use std::collections::BTreeSet;

use highwater_partition::Partition;
use highwater_replica::Role;
use highwater_wire::{Body, Envelope, NodeId, PartitionId};

use super::World;
use super::folders::SimLog;
use super::liveness::partition_of;
use crate::clients::Instant;
use crate::faults::Fault;
use crate::options::Profile;

/// A plot that has not come to its end by then will not.
const PLOT_MAX_US: Instant = 90_000_000;
/// The cluster is left alone for so long before the first act, and after each attempt to have other nodes lead.
const SETTLES_US: Instant = 1_500_000;

/// A situation that can be brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plot {
    /// A leader is replaced while it is cut off, and no word of that reaches it.
    ReplacedLeader,
    /// A leader's log fails, and its process lives on.
    HaltedLeader,
    /// A leader's state machine stops, and its process lives on.
    StoppedMachine,
    /// Leadership ends while the machine is rewound to the end of a log of which more is cut.
    CutWhileRewinding,
    /// The answer to a registration reaches a later process of the node.
    LateAnswer,
    /// A registration comes to a coordinator that can commit nothing any more.
    UncommittedRegistration,
    /// An older copy of a folder is started as often as the true folder was, which by then has had one process more than the record knows.
    OlderCopy,
    /// A write over a dead frame is lost, behind which the log goes on.
    DeadFrame,
    /// A loss of power takes the padding behind a log's last frame, which is cut later.
    TornPadding,
    /// A cut finds no room while a flush is under way.
    FullAtCut,
    /// A new leader's first entry finds no room.
    FullAtStart,
    /// Followers, or all nodes, stand still for less time than anybody need notice.
    ShortSilences,
}

impl Plot {
    /// All of them.
    pub const ALL: [Plot; 12] = [
        Plot::ReplacedLeader,
        Plot::HaltedLeader,
        Plot::StoppedMachine,
        Plot::CutWhileRewinding,
        Plot::LateAnswer,
        Plot::UncommittedRegistration,
        Plot::OlderCopy,
        Plot::DeadFrame,
        Plot::TornPadding,
        Plot::FullAtCut,
        Plot::FullAtStart,
        Plot::ShortSilences,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Plot::ReplacedLeader => "replaced-leader",
            Plot::HaltedLeader => "halted-leader",
            Plot::StoppedMachine => "stopped-machine",
            Plot::CutWhileRewinding => "cut-while-rewinding",
            Plot::LateAnswer => "late-answer",
            Plot::UncommittedRegistration => "uncommitted-registration",
            Plot::OlderCopy => "older-copy",
            Plot::DeadFrame => "dead-frame",
            Plot::TornPadding => "torn-padding",
            Plot::FullAtCut => "full-at-cut",
            Plot::FullAtStart => "full-at-start",
            Plot::ShortSilences => "short-silences",
        }
    }

    /// The cluster in which it plays. Frames take one another's exact place only where epochs begin without an entry of their own.
    pub fn profile(self) -> Profile {
        if self == Plot::DeadFrame { Profile::Isr3 } else { Profile::Quorum3 }
    }

    /// After how many calls clients begin no more; `None` if they go on. A replaced leader whose clients read is refused, and learns from that.
    pub fn calls(self) -> Option<u64> {
        (self == Plot::ReplacedLeader).then_some(40)
    }
}

impl std::str::FromStr for Plot {
    type Err = String;

    fn from_str(name: &str) -> Result<Plot, String> {
        Plot::ALL.into_iter().find(|plot| plot.name() == name).ok_or_else(|| {
            let names: Vec<_> = Plot::ALL.into_iter().map(Plot::name).collect();
            format!("a plot is one of {}; found {name:?}", names.join(", "))
        })
    }
}

/// Messages that do not arrive at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Withheld {
    Nothing,
    /// Answers to registrations of that node. They are kept.
    Answers(NodeId),
    /// Registrations of that node, and answers to them.
    Registrations(NodeId),
    /// Entries of the metadata that this node sends.
    Entries(NodeId),
    /// Entries of the database that are sent to one node; and, if there is another, what [`Withheld::Registrations`] says of that.
    Copies(NodeId, Option<NodeId>),
}

/// How far a plot has come.
#[derive(Debug)]
pub(super) struct Staging {
    plot: Plot,
    act: u32,
    /// When that act's turn came.
    since: Instant,
    over: bool,
    /// Whom it is about.
    node: NodeId,
    /// Who coordinates as it begins.
    coordinator: NodeId,
    /// The end of that node's log, or its generation, noted by an act.
    end: u64,
    /// A dead frame over which a live one was written: its file, its place and its bytes.
    dead: Option<(String, u64, Vec<u8>)>,
    withheld: Withheld,
    kept: Vec<Envelope>,
    /// Whose state machine gets no turn.
    holds: Option<NodeId>,
    /// Who is lost for ever once everything else is healed.
    lost: BTreeSet<NodeId>,
}

impl World {
    /// Has that plot played, in a cluster in which nothing else goes wrong.
    pub(crate) fn stage(&mut self, plot: Plot) {
        assert!(self.faults.is_empty() && self.now == 0, "a plot is all that goes wrong");
        // Leaders change, which they may not where nothing goes wrong.
        self.faults.push(Fault::Kill);
        self.nodes.values().for_each(|node| node.disk.remember_writes());
        let (node, coordinator) = (NodeId(1), NodeId(1));
        self.staging = Some(Staging {
            plot,
            act: 0,
            since: 0,
            over: false,
            node,
            coordinator,
            end: 0,
            dead: None,
            withheld: Withheld::Nothing,
            kept: Vec::new(),
            holds: None,
            lost: BTreeSet::new(),
        });
    }

    /// Something has happened: perhaps it is the next act's turn.
    pub(super) fn direct(&mut self) {
        let Some(Staging { plot, act, over: false, .. }) = self.staging else { return };
        if self.now > PLOT_MAX_US {
            self.break_law("plots-come-to-their-end", format!("act {act} of {} does not come about", plot.name()));
            return;
        }
        let done = match plot {
            Plot::ReplacedLeader => self.replaced_leader(act),
            Plot::HaltedLeader => self.halted_leader(act),
            Plot::StoppedMachine => self.stopped_machine(act),
            Plot::CutWhileRewinding => self.cut_while_rewinding(act),
            Plot::LateAnswer => self.late_answer(act),
            Plot::UncommittedRegistration => self.uncommitted_registration(act),
            Plot::OlderCopy => self.older_copy(act),
            Plot::DeadFrame => self.dead_frame(act),
            Plot::TornPadding => self.torn_padding(act),
            Plot::FullAtCut => self.full_at_cut(act),
            Plot::FullAtStart => self.full_at_start(act),
            Plot::ShortSilences => self.short_silences(act),
        };
        if done {
            let now = self.now;
            self.trace.note(now, &act, || format!("PLOT {}: act {act} is over", plot.name()));
            let staging = self.staged();
            (staging.act, staging.since) = (staging.act + 1, now);
        }
    }

    fn staged(&mut self) -> &mut Staging {
        match &mut self.staging {
            Some(staging) => staging,
            None => panic!("no plot is being played"),
        }
    }

    /// Whether the plot has come to its end; `None` if none is played.
    pub(super) fn plot_is_over(&self) -> Option<bool> {
        self.staging.as_ref().map(|staging| staging.over)
    }

    /// Who is lost for ever once everything is healed; `None` if no plot is played.
    pub(super) fn lost_in_plot(&self) -> Option<BTreeSet<NodeId>> {
        self.staging.as_ref().map(|staging| staging.lost.clone())
    }

    /// Whether that node's state machine gets no turn at present.
    pub(super) fn holds_machine(&self, id: NodeId) -> bool {
        self.staging.as_ref().is_some_and(|staging| staging.holds == Some(id))
    }

    /// Whether a message does not arrive because of a plot.
    pub(super) fn withholds(&mut self, from: NodeId, to: NodeId, envelope: &Envelope) -> bool {
        let Some(staging) = &mut self.staging else { return false };
        let answer = matches!(envelope.body, Body::Registered { .. });
        let entries = matches!(&envelope.body, Body::Batch { batches, .. } if !batches.is_empty());
        let metadata = envelope.partition == PartitionId::METADATA;
        let of = |node| answer && to == node || from == node && matches!(envelope.body, Body::Register { .. });
        match staging.withheld {
            Withheld::Nothing => false,
            Withheld::Answers(node) if answer && to == node => {
                staging.kept.push(envelope.clone());
                true
            }
            Withheld::Answers(_) => false,
            Withheld::Registrations(node) => of(node),
            Withheld::Entries(node) => from == node && metadata && entries,
            Withheld::Copies(node, other) => to == node && !metadata && entries || other.is_some_and(of),
        }
    }

    /// The plot is over.
    fn end_plot(&mut self) -> bool {
        let staging = self.staged();
        (staging.over, staging.withheld, staging.holds) = (true, Withheld::Nothing, None);
        true
    }

    /// Lets it begin anew, since chance did not bring about what it needs.
    fn begin_anew(&mut self) -> bool {
        let now = self.now;
        self.network.heal();
        let staging = self.staged();
        (staging.act, staging.since) = (0, now);
        false
    }

    /// Whether the present act has waited for so long.
    fn waited(&mut self, us: Instant) -> bool {
        self.now >= self.staged().since + us
    }

    /// Chooses whom the plot is about, once all is well: the database's leader, which must not coordinate as well. Where it does, others are made to lead.
    fn cast_leader(&mut self) -> bool {
        if !self.waited(SETTLES_US) || !self.all_is_well() {
            return false;
        }
        let (Some(leader), Some(coordinator)) = (self.leads_now(), self.coordinator()) else { return false };
        if leader == coordinator {
            self.die(leader, false);
            self.staged().since = self.now;
            return false;
        }
        let staging = self.staged();
        (staging.node, staging.coordinator) = (leader, coordinator);
        true
    }

    /// The same for the node that neither leads nor coordinates.
    fn cast_third(&mut self) -> bool {
        if !self.cast_leader() {
            return false;
        }
        let (leader, coordinator) = (self.staged().node, self.staged().coordinator);
        let third = self.peers(leader).into_iter().find(|peer| *peer != coordinator);
        if let Some(third) = third {
            self.staged().node = third;
        }
        third.is_some()
    }

    /// Whether every node runs and has the database open, led or followed.
    fn all_is_well(&self) -> bool {
        self.nodes.keys().all(|id| self.is_live(*id))
    }

    fn is_live(&self, id: NodeId) -> bool {
        self.replica_of(id).is_some_and(|partition| {
            partition.halted().is_none()
                && (partition.replica().stream_is_live() || matches!(partition.replica().role(), Role::Leader { .. }))
        })
    }

    /// That node's replica of the database.
    fn replica_of(&self, id: NodeId) -> Option<&Partition<SimLog>> {
        partition_of(self.node(id), self.database()?)
    }

    /// Who leads the database, and can.
    fn leads_now(&self) -> Option<NodeId> {
        let leader = self.leader?;
        let partition = self.replica_of(leader)?;
        let leads = matches!(partition.replica().role(), Role::Leader { .. }) && partition.halted().is_none();
        leads.then_some(leader)
    }

    /// Whether somebody else than the node that the plot is about leads the database.
    fn another_leads(&mut self) -> bool {
        let node = self.staged().node;
        self.leads_now().is_some_and(|leader| leader != node)
    }

    /// No message passes between a node and the others any more, and nobody is told.
    fn silence(&mut self, id: NodeId) {
        for peer in self.peers(id) {
            self.network.block(id, peer);
            self.network.block(peer, id);
        }
    }

    /// The same, and the connections break.
    fn cut_off(&mut self, id: NodeId) {
        self.silence(id);
        for peer in self.peers(id) {
            self.disconnect(id, peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::run_plot;

    #[test]
    fn every_plot_comes_to_its_end_and_breaks_no_law() {
        for plot in Plot::ALL {
            assert_eq!(plot.name().parse(), Ok(plot));
            for seed in 1..=2 {
                let violation = run_plot(plot, seed, false).violation;
                assert!(violation.is_none(), "{}, seed {seed}: {violation:?}", plot.name());
            }
        }
    }

    #[test]
    fn a_plot_that_does_not_come_about_is_a_failure() {
        let reduction = crate::Reduction { without: Fault::ALL.to_vec(), ..Default::default() };
        let plan = crate::Plan { seed: 1, profile: Profile::Quorum3, reduction, text: false };
        let mut world = World::new(&plan, crate::laws::step_laws());
        world.stage(Plot::ReplacedLeader);
        world.staged().since = PLOT_MAX_US;
        world.run();
        assert!(world.broken().is_some_and(|broken| broken.law == "plots-come-to-their-end"));
    }
}
