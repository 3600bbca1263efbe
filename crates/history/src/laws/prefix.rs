//! `prefix`: every read shows the state after some prefix of the rows, the one that its position names.
//!
//! Rows are only ever added, and the tally's checksum depends on each and on their order; so a read's count and checksum name one state and no other. Beyond being one that
//! was passed through, that state must fit the read's position: two reads at one position show the same, a later position shows no less, and a row is shown
//! exactly if the position it was acknowledged at is not beyond the read's. Nor may a read show a row before somebody asked for it.

use super::Findings;
use crate::history::{Fate, History, Look};
use crate::record::{Ack, TAIL, chain};

/// The states that were passed through, by how many rows they have.
struct States {
    /// The tally's checksum.
    chain: Vec<u64>,
    /// The values added up.
    sum: Vec<u64>,
    /// When the last of its rows was asked for that was asked for last.
    asked: Vec<u64>,
}

impl States {
    fn of(history: &History) -> States {
        let mut states = States { chain: vec![0], sum: vec![0], asked: vec![0] };
        let (mut last, mut sum, mut asked) = (0, 0, 0);
        for (_, writer, number, value) in history.contents.first().into_iter().flatten() {
            last = chain(last, *value);
            sum += u64::from(*value);
            asked = history.row(*writer, *number).map_or(asked, |row| row.invoke.max(asked));
            states.chain.push(last);
            states.sum.push(sum);
            states.asked.push(asked);
        }
        states
    }

    /// What is wrong with a read, its position aside.
    fn against(&self, look: &Look) -> Option<String> {
        let seen = look.seen;
        let rows = seen.count as usize;
        if rows >= self.chain.len() {
            return Some(format!("shows {rows} rows; in the end there are {}", self.chain.len() - 1));
        }
        let tail = seen.count.min(TAIL);
        let sum = self.sum[rows] - self.sum[rows - tail as usize];
        if seen.chain != self.chain[rows] {
            return Some(format!("shows {rows} rows that come to {}; they are {}", seen.chain, self.chain[rows]));
        }
        if (seen.rowid, seen.tail, seen.tail_sum) != (seen.count, tail, sum) {
            return Some(format!(
                "shows a tally of {rows} rows beside other rows: the greatest rowid is {}, the newest {} add up to {} instead of {sum}",
                seen.rowid, seen.tail, seen.tail_sum
            ));
        }
        if self.asked[rows] > look.at {
            return Some(format!("ended at {} ns and shows a row that was asked for at {}", look.at, self.asked[rows]));
        }
        None
    }
}

pub(super) fn check(history: &History, findings: &mut Findings) {
    let states = States::of(history);
    for look in &history.looks {
        if let Some(what) = states.against(look) {
            findings.add("prefix", format!("read {} {what}", look.op));
        }
    }

    let mut by_offset: Vec<&Look> = history.looks.iter().collect();
    by_offset.sort_by_key(|look| (look.position.offset, look.seen.count, look.op));
    for pair in by_offset.windows(2) {
        let [a, b] = [pair[0], pair[1]];
        let same = a.position.offset == b.position.offset;
        if same && (a.position, a.seen) != (b.position, b.seen) || a.seen.count > b.seen.count {
            findings.add(
                "prefix",
                format!(
                    "read {} at {:?} shows {} rows and read {} at {:?} shows {}",
                    a.op, a.position, a.seen.count, b.op, b.position, b.seen.count
                ),
            );
        }
    }

    // Where each row was acknowledged, if it was: the offsets grow with the rowids (`positions`), so one walk beside the reads is enough.
    let mut rows = history.contents.first().into_iter().flatten().filter_map(|(rowid, writer, number, _)| {
        let row = history.row(*writer, *number).filter(|row| row.ack == Ack::Committed)?;
        if let Fate::Acknowledged(one) = row.fate { Some((one.position.offset, *rowid)) } else { None }
    });
    let (mut before, mut after) = (None, rows.next());
    for look in by_offset {
        while let Some((offset, rowid)) = after.filter(|(offset, _)| *offset <= look.position.offset) {
            before = Some((offset, rowid));
            after = rows.next();
        }
        let (at, count) = (look.position.offset, look.seen.count);
        if let Some((offset, rowid)) = before.filter(|(_, rowid)| *rowid > count) {
            let what = format!("read {} at offset {at} shows {count} rows, not the one of rowid {rowid}", look.op);
            findings.add("prefix", format!("{what}, acknowledged at offset {offset}"));
        }
        if let Some((offset, rowid)) = after.filter(|(_, rowid)| *rowid <= count) {
            let what = format!("read {} at offset {at} shows {count} rows, that of rowid {rowid} among them", look.op);
            findings.add("prefix", format!("{what}, acknowledged at offset {offset}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::record::Freshness::Eventual;
    use crate::testing::{Story, findings};

    fn story() -> Story {
        let mut story = Story::new();
        (0..150).for_each(|number| story.row(1, number));
        story
    }

    fn broken(change: impl FnOnce(&mut Story)) -> u64 {
        let mut story = story();
        change(&mut story);
        findings(story).count("prefix")
    }

    #[test]
    fn reads_of_prefixes_are_right_wherever_they_end() {
        let mut story = story();
        for count in [0, 1, 99, 100, 101, 150, 7] {
            story.look(1, Eventual, count);
        }
        let found = findings(story);
        assert!(found.is_clean(), "{found:?}");
    }

    #[test]
    fn a_state_that_never_was_is_noticed() {
        assert_eq!(broken(|story| story.look_with(1, Eventual, 120, |seen, _| seen.chain += 1)), 1);
        assert_eq!(broken(|story| story.look_with(1, Eventual, 120, |seen, _| seen.rowid -= 1)), 1);
        assert_eq!(broken(|story| story.look_with(1, Eventual, 120, |seen, _| seen.tail_sum += 1)), 1);
        assert_eq!(broken(|story| story.look_with(1, Eventual, 120, |seen, _| seen.tail -= 1)), 1);
        assert!(broken(|story| story.look_with(1, Eventual, 150, |seen, _| seen.count += 1)) > 0);
    }

    #[test]
    fn a_state_other_than_the_position_names_is_noticed() {
        assert_eq!(broken(|story| story.look_with(1, Eventual, 120, |_, position| position.offset -= 1)), 1);
        assert_eq!(broken(|story| story.look_with(1, Eventual, 120, |_, position| position.offset += 1)), 1);
        let two = |story: &mut Story| {
            story.look(1, Eventual, 120);
            story.look_with(2, Eventual, 120, |_, position| position.epoch = Some(9));
        };
        assert_eq!(broken(two), 1, "one offset has one epoch");
        let crossed = |story: &mut Story| {
            story.look_with(1, Eventual, 150, |_, position| position.offset = 160);
            story.look_with(2, Eventual, 150, |_, position| position.offset = 170);
        };
        assert_eq!(broken(crossed), 0, "other writes may lie between");
    }

    #[test]
    fn a_row_from_the_future_is_noticed() {
        let mut story = Story::new();
        story.row(1, 0);
        story.look(1, Eventual, 1);
        let mut history = story.history();
        history.rows[0].invoke = history.looks[0].at + 1;
        assert_eq!(crate::testing::findings_of(&history).count("prefix"), 1);
    }
}
