//! The laws: one file each, each with a name that a failure bears, each with a test that shows that it can fail.
//!
//! *Laws of a step* look at every observation, with everything known from outside before and after it. *Laws of the history* look once, at the
//! end, at what clients asked and were told, and at nothing that a server kept. *Laws of the end* look once at what the run came to.
//!
//! | Law | File |
//! |---|---|
//! | **Of a step** | |
//! | 1: one leader for each epoch, ever | `one_leader` |
//! | 2: equal epoch at an equal offset is an equal log up to it | `logs_match` |
//! | 3: what was committed never changes, and every later leader holds it when it starts | `leader_complete` |
//! | 4: what is committed is durable on what the rule names, from then on; under `isr` that is everyone who may lead next | `committed_durable` |
//! | under `quorum`, commits go through an entry of the leader's own epoch | `own_epoch` |
//! | 5: HW covers only what is committed and durable, and never goes back in a process | `high_watermark` |
//! | 5: no cut below an HW once known | `no_cut_below_hw` |
//! | 6: what a leader counts covers the recorded set and all that may yet be recorded | `maximal_set` |
//! | 7: reconciliation descends, and ends at a common prefix | `reconciliation` |
//! | 8: a linearizable read sees everything acknowledged before it arrived | `read_sees_acknowledged` |
//! | promises and acknowledgements are durable before they are sent | `durable_before_sent` |
//! | a message of an epoch below the one promised changes no log | `stale_is_inert` |
//! | promises, and what readers see, never go back; readers see nothing above HW | `positions` |
//! | readers see what replaying the committed log gives, on every replica | `published_committed` |
//! | no answer leaves before what it depends on is committed, or as durable as was asked | `answers_held` |
//! | each ticket is answered once | `one_answer` |
//! | a read is served from what is published | `served_reads` |
//! | recovery finds what was durable, and finds it always | `recovery` |
//! | a partition halts only when its disk fails | `halts` |
//! | a state machine is driven in order, and stops only when its disk fails | `machines_go_on` |
//! | committed metadata is readable | `metadata_reads` |
//! | what is observed is possible at all | `possible_observations` |
//! | no assertion fails inside a node (`assertions-hold`) | `run.rs`, which catches the panic |
//! | **Of the history** | |
//! | no acknowledged write is missing | `acked_writes_survive` |
//! | nothing is there that nobody wrote, or that was told to have failed | `no_phantom` |
//! | a key has one effect | `one_effect` |
//! | one write at one offset for all time | `one_write_per_offset` |
//! | answers are those of the order of the log | `answers_match` |
//! | every read, on every node, saw a whole prefix, and no shorter one than it asked for | `reads_are_prefixes` |
//! | effects are in real-time order | `real_time_order` |
//! | registers are linearizable, by what clients saw alone | `linearizable_registers` |
//! | a session never goes back | `sessions` |
//! | **Of the end** | |
//! | 10: healed, the cluster comes back step by step; when it may be stuck | `live_once_healed` |
//! | replicas at one HW show one state | `replicas_agree` |
//! | replaying a replica's log gives what it shows | `replica_is_its_log` |
//! | without a fault nobody is elected anew | `calm_clusters` |
//!
//! Law 9 (nothing acknowledged is missing after a lossless failover of the rule `leader`) waits for that rule. Fencing tokens and snapshots have laws
//! when they exist. A message of an *earlier process* needs no law of its own beside its epoch: appointments are bound to processes, so that what a leader's
//! earlier process sent is of an epoch that is over, and what a follower's earlier process acknowledged is durable still.

mod acked_writes_survive;
mod answers_held;
mod answers_match;
pub(crate) mod calm_clusters;
mod committed_durable;
mod durable_before_sent;
mod halts;
mod high_watermark;
mod honest_nodes;
mod leader_complete;
mod linearizable_registers;
pub(crate) mod live_once_healed;
mod logs_match;
mod machines_go_on;
mod maximal_set;
pub(crate) mod metadata_reads;
mod no_cut_below_hw;
mod no_phantom;
mod one_answer;
mod one_effect;
mod one_leader;
mod one_write_per_offset;
mod own_epoch;
mod positions;
pub(crate) mod possible_observations;
mod published_committed;
mod read_sees_acknowledged;
mod reads_are_prefixes;
mod real_time_order;
mod reconciliation;
mod recovery;
pub(crate) mod replica_is_its_log;
pub(crate) mod replicas_agree;
mod served_reads;
mod sessions;
mod stale_is_inert;

#[cfg(test)]
pub(crate) mod testing;

use crate::clients::{Final, History};
use crate::facts::{Facts, Observation};

/// A law that is checked at every step.
pub trait Law {
    /// What a failure is called.
    fn name(&self) -> &'static str;

    /// Looks at an observation with the facts as they were before it.
    fn before(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        let _ = (facts, seen);
        Ok(())
    }

    /// Looks at an observation with the facts as they are after it.
    fn after(&mut self, facts: &Facts, seen: &Observation) -> Result<(), String> {
        let _ = (facts, seen);
        Ok(())
    }
}

/// A law over what clients asked and were told.
pub struct HistoryLaw {
    /// What a failure is called.
    pub name: &'static str,
    /// Says what is wrong.
    pub check: fn(&History, &Final) -> Result<(), String>,
}

/// The laws of a step, fresh for a run.
pub fn step_laws() -> Vec<Box<dyn Law>> {
    vec![
        Box::<one_leader::OneLeader>::default(),
        Box::<logs_match::LogsMatch>::default(),
        Box::new(leader_complete::LeaderComplete),
        Box::new(own_epoch::OwnEpoch),
        Box::new(committed_durable::CommittedDurable),
        Box::new(high_watermark::HighWatermark),
        Box::new(no_cut_below_hw::NoCutBelowHw),
        Box::<maximal_set::MaximalSet>::default(),
        Box::<reconciliation::Reconciliation>::default(),
        Box::<read_sees_acknowledged::ReadSeesAcknowledged>::default(),
        Box::new(durable_before_sent::DurableBeforeSent),
        Box::<stale_is_inert::StaleIsInert>::default(),
        Box::<positions::Positions>::default(),
        Box::new(published_committed::PublishedCommitted),
        Box::new(answers_held::AnswersHeld),
        Box::new(recovery::Recovery),
        Box::new(halts::Halts),
        Box::new(machines_go_on::MachinesGoOn),
        Box::<honest_nodes::HonestNodes>::default(),
        Box::<one_answer::OneAnswer>::default(),
        Box::<served_reads::ServedReads>::default(),
    ]
}

/// The laws of the history.
pub const HISTORY_LAWS: &[HistoryLaw] = &[
    HistoryLaw { name: "acked-write-missing", check: acked_writes_survive::check },
    HistoryLaw { name: "no-phantom", check: no_phantom::check },
    HistoryLaw { name: "one-effect-per-key", check: one_effect::check },
    HistoryLaw { name: "one-write-per-offset", check: one_write_per_offset::check },
    HistoryLaw { name: "answers-match-the-order", check: answers_match::check },
    HistoryLaw { name: "reads-are-prefixes", check: reads_are_prefixes::check },
    HistoryLaw { name: "real-time-order", check: real_time_order::check },
    HistoryLaw { name: "registers-linearizable", check: linearizable_registers::check },
    HistoryLaw { name: "sessions-never-go-back", check: sessions::check },
];
