//! `real time`: a linearizable read shows whatever was answered before it began: acknowledged writes of all kinds, and what other linearizable reads saw.

use super::Findings;
use crate::history::{Fate, History};
use crate::record::{Ack, Freshness};

/// Something that takes time, and how far the log, or the rows, had come in its answer.
struct Span {
    op: u64,
    invoke: u64,
    at: u64,
    shows: u64,
    reads: bool,
}

pub(super) fn check(history: &History, findings: &mut Findings) {
    let positions = history.moments.iter().map(|moment| {
        let (op, invoke, at) = (moment.op, moment.invoke, moment.at);
        Span { op, invoke, at, shows: moment.offset, reads: moment.reads }
    });
    sweep(positions.collect(), "offset", findings);

    // The same for rows, so that a wrong position cannot hide a stale answer.
    let reads = history.looks.iter().filter(|look| look.freshness == Freshness::Linearizable).map(|look| {
        let (op, invoke, at) = (look.op, look.invoke, look.at);
        Span { op, invoke, at, shows: look.seen.count, reads: true }
    });
    let rows = history.contents.first().into_iter().flatten().filter_map(|(rowid, writer, number, _)| {
        let row = history.row(*writer, *number).filter(|row| row.ack == Ack::Committed)?;
        let Fate::Acknowledged(acknowledged) = row.fate else { return None };
        Some(Span { op: 0, invoke: row.invoke, at: acknowledged.at, shows: *rowid, reads: false })
    });
    sweep(reads.chain(rows).collect(), "row", findings);
}

/// Walks through the reads as they begin, beside everything as it ends.
fn sweep(mut ends: Vec<Span>, what: &str, findings: &mut Findings) {
    ends.sort_by_key(|span| span.at);
    let mut begins: Vec<usize> = (0..ends.len()).filter(|at| ends[*at].reads).collect();
    begins.sort_by_key(|at| ends[*at].invoke);
    let (mut next, mut floor) = (0, 0);
    for at in begins {
        let read = &ends[at];
        while next < ends.len() && ends[next].at < read.invoke {
            floor = ends[next].shows.max(floor);
            next += 1;
        }
        if read.shows < floor {
            findings.add(
                "real time",
                format!("read {} began after {what} {floor} had been answered and ends at {}", read.op, read.shows),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::record::Freshness::{Eventual, Linearizable};
    use crate::testing::{Story, findings};

    #[test]
    fn a_stale_linearizable_read_is_noticed_and_an_eventual_one_is_not() {
        let mut story = Story::new();
        (0..9).for_each(|number| story.row(1, number));
        story.look(1, Linearizable, 9);
        story.look(1, Eventual, 8);
        assert!(findings(story.clone()).is_clean());
        let mut lying = story.clone();
        lying.look_with(1, Linearizable, 9, |_, position| position.offset -= 1);
        assert!(findings(lying).count("real time") > 0);
        story.look(1, Linearizable, 8);
        assert_eq!(findings(story).count("real time"), 2, "by its position and by its rows");
    }

    #[test]
    fn what_another_read_saw_is_seen_by_the_next() {
        let mut story = Story::new();
        story.row(1, 0);
        story.row_that(1, 1, crate::testing::unknown());
        story.land(1, 1);
        story.look(1, Linearizable, 1);
        story.look(1, Linearizable, 2);
        assert!(findings(story.clone()).is_clean());
        story.look(2, Linearizable, 1);
        assert_eq!(findings(story).count("real time"), 2);
    }
}
