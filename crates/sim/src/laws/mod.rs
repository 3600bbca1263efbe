//! The laws: one file each, each with a name that a failure bears, each with a test that shows that it can fail.
//!
//! *Laws of a step* look at every observation, with everything known from outside before and after it. *Laws of the history* look once, at the
//! end, at what clients asked and were told, and at nothing that a server kept.

mod acked_writes_survive;
mod answers_held;
mod answers_match;
mod committed_durable;
mod durable_before_sent;
mod halts;
mod high_watermark;
mod leader_complete;
mod linearizable_registers;
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
