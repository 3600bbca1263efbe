//! The figures of one run or of several: how long faults were felt, what was lost, and how old reads were.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::history::{Fate, History, Outcomes, name};
use crate::record::{Ack, Freshness};
use crate::spread::Spread;

/// Nanoseconds in a millisecond.
const MS: f64 = 1e6;

/// The figures. Those of several runs can be added up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Each run's command.
    pub runs: Vec<RunFigures>,
    /// What operations came to, by kind.
    pub operations: BTreeMap<String, Outcomes>,
    /// How often each code was answered.
    pub codes: BTreeMap<String, u64>,
    /// Rows acknowledged, by level.
    pub acknowledged: BTreeMap<String, u64>,
    /// Every fault.
    pub faults: Vec<Felt>,
    /// The longest time without an acknowledgement, in milliseconds, from the first one to the last.
    pub pause_ms_max: f64,
    /// How old reads of the rows were, by freshness.
    pub ages: BTreeMap<String, Age>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFigures {
    /// The command line.
    pub command: String,
    /// From the first operation to the last acknowledgement, in seconds.
    pub seconds: f64,
    /// How many replicas' contents were compared with what clients were told.
    pub readings: u64,
    /// How many rows there were in the end.
    pub rows: u64,
}

/// A fault, and how long it was felt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Felt {
    /// The fault's name.
    pub kind: String,
    /// The node.
    pub victim: u32,
    /// Whether that led the database.
    pub led: bool,
    /// Whether that led the metadata.
    pub led_metadata: bool,
    /// More about it.
    pub what: String,
    /// From the fault to the arrival of the first acknowledgement of a write that was sent once it was in force, in milliseconds; `None` if there was none.
    pub next_ms: Option<f64>,
    /// The longest time without any acknowledgement that began between the last one before the fault and the next fault, in milliseconds; `None` if there was no
    /// acknowledgement after it.
    pub pause_ms: Option<f64>,
}

/// How old reads were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Age {
    /// How many missed nothing that had been acknowledged before they began.
    pub fresh: u64,
    /// How long before the read began the oldest row was acknowledged that it does not show, in milliseconds; 0 if nothing is missing.
    pub ms: Spread,
    /// How far behind the greatest acknowledged position the position lay that it shows, in entries of the log.
    pub entries: Spread,
}

impl Figures {
    /// The figures of one run.
    pub fn of(history: &History) -> Figures {
        let mut arrivals: Vec<u64> = history.acknowledgements.iter().map(|(_, at)| *at).collect();
        arrivals.sort_unstable();
        let first = history.rows.first().map_or(0, |row| row.invoke);
        let seconds = arrivals.last().map_or(0.0, |last| last.saturating_sub(first) as f64 / 1e9);
        let mut figures = Figures {
            operations: history.outcomes.clone(),
            codes: history.codes.clone(),
            faults: felt(history, &arrivals),
            pause_ms_max: arrivals.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0) as f64 / MS,
            ages: ages(history),
            ..Figures::default()
        };
        for row in history.rows.iter().filter(|row| matches!(row.fate, Fate::Acknowledged(_))) {
            let level = if row.ack == Ack::Committed { "committed" } else { "leader" };
            *figures.acknowledged.entry(level.into()).or_default() += 1;
        }
        figures.runs.push(RunFigures {
            command: history.run.as_ref().map_or_else(String::new, |run| run.command.clone()),
            seconds,
            readings: history.readings.len() as u64,
            rows: history.contents.first().map_or(0, Vec::len) as u64,
        });
        figures
    }

    /// Adds another run's.
    pub fn merge(&mut self, other: Figures) {
        self.runs.extend(other.runs);
        for (kind, theirs) in other.operations {
            let ours = self.operations.entry(kind).or_default();
            ours.done += theirs.done;
            ours.failed += theirs.failed;
            ours.unknown += theirs.unknown;
        }
        for (code, count) in other.codes {
            *self.codes.entry(code).or_default() += count;
        }
        for (level, count) in other.acknowledged {
            *self.acknowledged.entry(level).or_default() += count;
        }
        self.faults.extend(other.faults);
        self.pause_ms_max = self.pause_ms_max.max(other.pause_ms_max);
        for (freshness, theirs) in other.ages {
            let ours = self.ages.entry(freshness).or_default();
            ours.fresh += theirs.fresh;
            ours.ms.merge(&theirs.ms);
            ours.entries.merge(&theirs.entries);
        }
    }
}

fn felt(history: &History, arrivals: &[u64]) -> Vec<Felt> {
    let mut sent = history.acknowledgements.clone();
    sent.sort_unstable();
    // The first arrival among those sent at that place or later.
    let mut earliest: Vec<u64> = sent.iter().map(|(_, at)| *at).collect();
    for at in (1..earliest.len()).rev() {
        earliest[at - 1] = earliest[at - 1].min(earliest[at]);
    }
    let felt = |(at, fault): (usize, &crate::record::Fault)| {
        let next = earliest.get(sent.partition_point(|(sent, _)| *sent <= fault.in_force));
        let until = history.faults.get(at + 1).map(|next| next.begin);
        Felt {
            kind: fault.kind.clone(),
            victim: fault.victim,
            led: fault.led,
            led_metadata: fault.led_metadata,
            what: fault.what.clone(),
            next_ms: next.map(|next| (next - fault.begin) as f64 / MS),
            pause_ms: longest_pause(arrivals, fault.begin, until).map(|pause| pause as f64 / MS),
        }
    };
    history.faults.iter().enumerate().map(felt).collect()
}

/// The longest time between two of the sorted arrivals that began after the last one not after `from`, or after `from` if there is none, and not after `until`. One that had
/// not ended when the next fault came is the work of both.
fn longest_pause(sorted: &[u64], from: u64, until: Option<u64>) -> Option<u64> {
    let after = sorted.partition_point(|at| *at <= from);
    let mut last = if after == 0 { from } else { sorted[after - 1] };
    let mut longest = None;
    for at in &sorted[after..] {
        if until.is_some_and(|until| last > until) {
            break;
        }
        longest = longest.max(Some(at - last));
        last = *at;
    }
    longest
}

fn ages(history: &History) -> BTreeMap<String, Age> {
    let rows = history.contents.first().map_or(&[][..], |content| &content[..]);
    // When the first was acknowledged of the row at that place and all later ones.
    let mut first_missing = vec![u64::MAX; rows.len() + 1];
    for (at, (_, writer, number, _)) in rows.iter().enumerate().rev() {
        let row = history.row(*writer, *number).filter(|row| row.ack == Ack::Committed);
        let acknowledged = row.and_then(|row| if let Fate::Acknowledged(one) = row.fate { Some(one.at) } else { None });
        first_missing[at] = acknowledged.unwrap_or(u64::MAX).min(first_missing[at + 1]);
    }
    let mut positions: Vec<(u64, u64)> =
        history.moments.iter().filter(|moment| !moment.reads).map(|moment| (moment.at, moment.offset)).collect();
    positions.sort_unstable();
    let (mut next, mut greatest) = (0, 0);
    let mut looks: Vec<_> = history.looks.iter().collect();
    looks.sort_by_key(|look| look.invoke);
    let mut ages: BTreeMap<String, Age> = BTreeMap::new();
    for look in looks {
        while next < positions.len() && positions[next].0 < look.invoke {
            greatest = positions[next].1.max(greatest);
            next += 1;
        }
        if look.freshness == Freshness::Linearizable {
            continue;
        }
        let missing = first_missing.get(look.seen.count as usize).copied().unwrap_or(u64::MAX);
        let age = ages.entry(name(look.freshness).into()).or_default();
        age.fresh += u64::from(missing >= look.invoke);
        age.ms.add(look.invoke.saturating_sub(missing) as f64 / MS);
        age.entries.add(greatest.saturating_sub(look.position.offset) as f64);
    }
    ages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Freshness::Eventual;
    use crate::testing::{Story, failed};

    #[test]
    fn a_pause_begins_with_the_last_acknowledgement_before_the_fault() {
        let arrivals = [10, 20, 90, 100, 500];
        assert_eq!(longest_pause(&arrivals, 25, Some(95)), Some(70));
        assert_eq!(longest_pause(&arrivals, 25, Some(200)), Some(400), "it began before the next fault");
        assert_eq!(longest_pause(&arrivals, 25, None), Some(400));
        assert_eq!(longest_pause(&arrivals, 4, Some(19)), Some(10));
        assert_eq!(longest_pause(&arrivals, 500, None), None);
    }

    #[test]
    fn a_fault_is_felt_until_a_write_that_was_sent_after_it_is_acknowledged() {
        let mut story = Story::new();
        story.row(1, 0);
        story.fault("kill", true);
        story.row_that(1, 1, failed("X"));
        story.row(1, 2);
        story.fault("pause", false);
        let figures = Figures::of(&story.history());
        // Each step takes a millisecond: the row is acknowledged at 2, the fault is at 3, the next row ends at 7.
        assert_eq!((figures.faults[0].next_ms, figures.faults[0].pause_ms), (Some(4.0), Some(5.0)));
        assert_eq!((figures.faults[1].next_ms, figures.faults[1].led_metadata), (None, false));
        assert_eq!((figures.pause_ms_max, figures.acknowledged["committed"]), (5.0, 2));
        let rows = figures.operations["row"];
        assert_eq!((rows.done, rows.failed, rows.unknown, figures.codes["failed: X"]), (2, 1, 0, 1));
    }

    #[test]
    fn a_write_that_was_sent_before_a_fault_was_in_force_says_nothing() {
        let mut story = Story::new();
        story.row(1, 0);
        story.fault("kill-all", true);
        story.row(1, 1);
        story.row(1, 2);
        let mut history = story.history();
        assert_eq!(Figures::of(&history).faults[0].next_ms, Some(2.0));
        history.faults[0].in_force = history.rows[1].invoke;
        assert_eq!(Figures::of(&history).faults[0].next_ms, Some(4.0));
    }

    #[test]
    fn a_read_is_as_old_as_the_oldest_row_that_it_misses() {
        let mut story = Story::new();
        (0..3).for_each(|number| story.row(1, number));
        story.look(1, Eventual, 3);
        story.look(1, Eventual, 1);
        let figures = Figures::of(&story.history());
        let age = &figures.ages["eventual"];
        // The second row is acknowledged at 4, the second read begins at 9 and misses two rows.
        assert_eq!((age.fresh, age.ms.count, age.ms.max, age.entries.max), (1, 2, 5.0, 2.0));
    }

    #[test]
    fn runs_add_up() {
        let mut story = Story::new();
        story.row(1, 0);
        story.fault("kill", true);
        story.row(1, 1);
        story.look(1, Eventual, 1);
        let one = Figures::of(&story.history());
        let mut two = one.clone();
        two.merge(one.clone());
        assert_eq!((two.runs.len(), two.faults.len(), two.acknowledged["committed"]), (2, 2, 4));
        assert_eq!((two.operations["row"].done, two.ages["eventual"].ms.count), (4, 2));
        assert_eq!(two.pause_ms_max, one.pause_ms_max);
    }
}
