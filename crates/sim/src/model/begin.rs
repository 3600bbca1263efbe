//! What a search begins with: nothing at all, or the disks that an outage left.
//!
//! Epochs cost states. What needs logs that parted in several of them begins with such logs, which the protocol can leave behind:
//!
//! **Parted.** All replicas are empty. Epoch 0: 0 and 2 promise (or vote), 0 leads and appends two entries that reach nobody. Epoch 1: 1 and 2 promise, whose logs
//! are empty, so 1 may lead; it appends an entry that reaches nobody. Epoch 2: 0 and 2 promise, 0 has the greater rank, leads and appends an entry that
//! reaches nobody. Epoch 3: 0 and 2 promise (in the self-electing partition 0 stands, and 2 votes for it), and nobody comes to lead. Then the power fails
//! everywhere, everything under way is lost, and all start again. Nothing was ever committed. Under `isr` the same may happen: any member of the set may be
//! appointed and the set stays as it is, while entries of the leader alone are not committed.

use std::str::FromStr;

use highwater_wire::{CommitRule, Epoch, HardState, Version};

use super::world::{Entry, Record, Reign, peer};
use super::{Config, REPLICAS};

/// Writes before the beginning are numbered from here on: the search's own from 1 on.
const FORMER_WRITES: u8 = 100;

/// What a search begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beginning {
    /// Replicas that have nothing and have promised nothing.
    #[default]
    Empty,
    /// Replicas that have just started after a power failure, with logs that parted at their first entry, by epochs: 0, 0, 2 on the first; 1 on the second; nothing
    /// on the third. The first and the third have promised epoch 3.
    Parted,
}

impl FromStr for Beginning {
    type Err = String;

    fn from_str(text: &str) -> Result<Beginning, String> {
        match text {
            "empty" => Ok(Beginning::Empty),
            "parted" => Ok(Beginning::Parted),
            other => Err(format!("a search begins empty or parted, and not {other:?}")),
        }
    }
}

/// What one replica has at the beginning.
pub(super) struct Left {
    /// Its process.
    pub(super) starts: u64,
    /// Its log, all of it durable.
    pub(super) log: Vec<Entry>,
    pub(super) hard: HardState,
}

/// The epochs of the entries of each replica's log, of parted logs.
const PARTED: [&[u32]; REPLICAS] = [&[0, 0, 2], &[1], &[]];

/// The log of the replica at this place, its first `count` entries.
fn parted_log(place: usize, count: usize, config: &Config) -> Vec<Entry> {
    let controls = !matches!(config.rule, Some(CommitRule::Isr { .. }));
    let epochs = PARTED[place];
    let entry = |(offset, epoch): (usize, &u32)| {
        let begins = offset == 0 || epochs[offset - 1] != *epoch;
        let number = FORMER_WRITES + (REPLICAS * offset + place) as u8;
        Entry { epoch: Epoch(*epoch), id: if controls && begins { 0 } else { number } }
    };
    epochs.iter().enumerate().take(count).map(entry).collect()
}

/// What the replica at this place has; its index is another one in the mirror.
pub(super) fn left(place: usize, index: usize, config: &Config) -> Left {
    match config.beginning {
        Beginning::Empty => Left { starts: 1, log: Vec::new(), hard: HardState::default() },
        Beginning::Parted => {
            let promised = if place == 1 { Epoch(1) } else { Epoch(3) };
            let promised_to = config.rule.is_none().then(|| peer(if place == 1 { index } else { 0 }));
            let hard = HardState { promised: Some(promised), promised_to, ..HardState::default() };
            Left { starts: 2, log: parted_log(place, PARTED[place].len(), config), hard }
        }
    }
}

/// The record at the beginning, and who has led. Versions are counted from here on.
pub(super) fn history(config: &Config) -> (Record, Vec<Reign>) {
    let record = |epoch, leader| Record { epoch, leader, version: Version(0), set: (0..REPLICAS).collect() };
    match config.beginning {
        Beginning::Empty => (record(None, None), Vec::new()),
        Beginning::Parted => {
            let reign =
                |epoch, node, held| Reign { epoch: Epoch(epoch), node, starts: 1, log: parted_log(node, held, config) };
            let reigns = vec![reign(0, 0, 0), reign(1, 1, 0), reign(2, 0, 2)];
            match config.rule {
                Some(_) => (record(Some(Epoch(2)), Some((0, 1))), reigns),
                None => (record(None, None), reigns),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Report, run};
    use super::*;

    fn from_parted_logs(config: Config) -> Report {
        let (beginning, live_every) = (Beginning::Parted, 500);
        let report = run(&Config { beginning, writes: 0, crashes: 0, live_every, ..config });
        assert!(report.is_good() && report.healed > 0, "{report}");
        report
    }

    #[test]
    fn parted_logs_become_one_under_every_rule() {
        for rule in [CommitRule::Quorum { q: 2 }, CommitRule::Isr { min: 1 }, CommitRule::Isr { min: 2 }] {
            let report = from_parted_logs(Config { epochs: 4, versions: 1, streams: 3, ..Config::appointed(rule) });
            assert!(report.depth > 10, "the logs are not reconciled: {report}");
        }
    }

    #[test]
    fn parted_voters_elect_one() {
        let report = from_parted_logs(Config { epochs: 5, streams: 3, stands: 1, ..Config::electing() });
        assert!(report.depth > 10, "nobody is elected: {report}");
    }

    #[test]
    fn old_messages_that_are_kept_make_more_states_and_break_nothing() {
        let quorum = Config::appointed(CommitRule::Quorum { q: 2 });
        let config = Config { epochs: 5, versions: 2, streams: 2, ..quorum };
        let forgetting = from_parted_logs(config.clone());
        let keeping = from_parted_logs(Config { keeps_old: true, ..config });
        assert!(keeping.states > forgetting.states, "{keeping} and {forgetting}");
    }

    #[test]
    fn a_beginning_is_read_by_its_name() {
        assert_eq!(("parted".parse(), "empty".parse()), (Ok(Beginning::Parted), Ok(Beginning::Empty)));
        assert!("torn".parse::<Beginning>().is_err());
    }
}
