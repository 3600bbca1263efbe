//! What is explored, and how far.

use std::fmt;

use highwater_wire::CommitRule;

use super::{Beginning, REPLICAS};

/// What is explored, and how far. Its `Display` says all bounds in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The commit rule of an appointed partition; none for the self-electing one.
    pub rule: Option<CommitRule>,
    /// How many epochs there may be.
    pub epochs: u32,
    /// How many entries clients write, in whatever epochs. Under `quorum` and in the self-electing partition each epoch has a control entry besides.
    pub writes: u8,
    /// How often a replica crashes, all together.
    pub crashes: u8,
    /// How many streams one incarnation may open.
    pub streams: u64,
    /// How often a live stream is given up as silent, all together.
    pub silences: u8,
    /// The greatest version of the record: appointments and changes of the ISR raise it, each by one.
    pub versions: u64,
    /// How often somebody stands for election, all together.
    pub stands: u8,
    /// Explore the ballot of the first epoch too, in all its orders. Without, it is over when the search begins: all have promised, replica 0 is appointed
    /// and nobody has heard of that. There are no entries yet, so that ballot differs from the next one by losing nothing.
    pub first_ballot: bool,
    /// How many linearizable reads arrive, at any replica that leads or follows.
    pub reads: u8,
    /// How many answers that only looked are held, at replicas whose machine executes ahead of the log.
    pub looks: u8,
    /// The state machine carries out at any later time what it is told, one thing after the other, and an answer comes to be held at any time after its
    /// proposal. Otherwise both happen at once.
    pub late_machine: bool,
    /// What the search begins with.
    pub beginning: Beginning,
    /// Messages stay under way though their receiver has promised a later epoch, and can only refuse them.
    pub keeps_old: bool,
    /// The cluster is healed, and must come back to service, from each state whose number is a multiple of this; 0 for never.
    pub live_every: usize,
    /// Stop, incomplete, after this many states.
    pub states_max: usize,
}

impl Config {
    /// One write, two epochs, one crash under this rule. Under `quorum` a process opens two streams only: a follower of both epochs is not followed
    /// through a divergence, a former leader is. Under `isr` the ISR changes once beside the two appointments.
    pub fn appointed(rule: CommitRule) -> Config {
        Config {
            rule: Some(rule),
            epochs: 2,
            writes: 1,
            crashes: 1,
            streams: if matches!(rule, CommitRule::Quorum { .. }) { 2 } else { 3 },
            silences: 0,
            versions: 3,
            stands: 0,
            first_ballot: false,
            reads: 0,
            looks: 0,
            late_machine: false,
            beginning: Beginning::Empty,
            keeps_old: false,
            live_every: 0,
            states_max: 20_000_000,
        }
    }

    /// Two epochs and one crash in the self-electing partition, where twice somebody stands. The leaders' control entries are all that is written.
    pub fn electing() -> Config {
        Config { rule: None, writes: 0, versions: 0, stands: 2, ..Config::appointed(CommitRule::Quorum { q: 2 }) }
    }

    /// The rule by which HW is counted.
    pub(super) fn commit_rule(&self) -> CommitRule {
        self.rule.unwrap_or(CommitRule::Quorum { q: REPLICAS as u32 / 2 + 1 })
    }

    /// The rule as it is written elsewhere, or `self-electing`.
    pub fn rule_name(&self) -> String {
        match self.rule {
            Some(CommitRule::Quorum { q }) => format!("quorum:{q}"),
            Some(CommitRule::Isr { min }) => format!("isr:{min}"),
            None => "self-electing".to_owned(),
        }
    }
}

/// A number with its noun.
fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config {
            rule,
            epochs,
            writes,
            crashes,
            streams,
            silences,
            versions,
            stands,
            first_ballot,
            reads,
            looks,
            ..
        } = self;
        let isr = matches!(rule, Some(CommitRule::Isr { .. }));
        let control = if isr { 0 } else { *epochs };
        write!(f, "{}: {} replicas, {}, up to ", self.rule_name(), REPLICAS, counted((*epochs).into(), "epoch"))?;
        write!(
            f,
            "{} in a log ",
            counted(u64::from(control) + u64::from(*writes), "entry").replace("entrys", "entries")
        )?;
        write!(
            f,
            "({} and {}), ",
            counted(control.into(), "control entry").replace("entrys", "entries"),
            counted((*writes).into(), "write")
        )?;
        write!(
            f,
            "{}, {} for each process",
            counted((*crashes).into(), "crash").replace("crashs", "crashes"),
            counted(*streams, "stream")
        )?;
        for (number, noun) in [(silences, "silent stream"), (reads, "read"), (looks, "look")] {
            if *number > 0 {
                write!(f, ", {}", counted((*number).into(), noun))?;
            }
        }
        match rule {
            None => write!(f, ", standing {}", counted((*stands).into(), "time"))?,
            Some(_) if isr => {
                write!(f, ", {} of the record (appointments and ISR changes)", counted(*versions, "version"))?
            }
            Some(_) => write!(f, ", {}", counted(*versions, "appointment"))?,
        }
        write!(f, "{}", if rule.is_some() && *first_ballot { ", the first ballot too" } else { "" })?;
        write!(f, "{}", if self.late_machine { ", machines that are late" } else { "" })?;
        write!(
            f,
            "{}",
            if self.beginning == Beginning::Parted { ", after logs have parted in epochs 0 to 2" } else { "" }
        )?;
        write!(f, "{}", if self.keeps_old { ", old messages too" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_said_in_words() {
        let quorum = Config { crashes: 2, reads: 1, ..Config::appointed(CommitRule::Quorum { q: 2 }) };
        assert_eq!(
            quorum.to_string(),
            "quorum:2: 3 replicas, 2 epochs, up to 3 entries in a log (2 control entries and 1 write), 2 crashes, 2 streams for each process, \
             1 read, 3 appointments"
        );
        assert!(
            Config::appointed(CommitRule::Isr { min: 1 })
                .to_string()
                .contains("up to 1 entry in a log (0 control entries and 1 write)")
        );
        assert!(Config::electing().to_string().ends_with("standing 2 times"));
    }
}
