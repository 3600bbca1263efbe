//! `positions`: rows lie in the order of the positions, and at the rowids, with which they were acknowledged.
//!
//! Rows are only ever added, so rowids count the committed rows in the order of the log. A row that was answered with another rowid than it has, or with a position
//! that does not lie between those of its neighbours, was shown from a state that never came to be.

use super::Findings;
use crate::history::{Fate, History};
use crate::record::Ack;

pub(super) fn check(history: &History, findings: &mut Findings) {
    let Some(content) = history.contents.first() else { return };
    let mut last: Option<(u64, u64)> = None;
    for (rowid, writer, number, _) in content {
        let Some(row) = history.row(*writer, *number) else { continue };
        let Fate::Acknowledged(acknowledged) = row.fate else { continue };
        let name = format!("row {number} of writer {writer}");
        if let Some(answered) = acknowledged.rowid.filter(|answered| answered != rowid) {
            findings.add("positions", format!("{name} was answered with rowid {answered} and is at {rowid}"));
        }
        if row.ack != Ack::Committed {
            continue;
        }
        let offset = acknowledged.position.offset;
        if let Some((before, at)) = last.filter(|(before, _)| *before >= offset) {
            findings.add(
                "positions",
                format!("{name} at rowid {rowid} was acknowledged at offset {offset}, and rowid {at} at {before}"),
            );
        }
        last = Some((offset, *rowid));
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Story, done_row, findings};

    #[test]
    fn another_rowid_or_another_order_than_was_answered_is_noticed() {
        let mut story = Story::new();
        story.row(1, 0);
        story.row(2, 0);
        assert!(findings(story.clone()).is_clean());
        let mut moved = story.clone();
        moved.row_that(1, 1, done_row(4, 3));
        moved.land(1, 1);
        assert_eq!(findings(moved).count("positions"), 1);
        story.row_that(1, 1, done_row(3, 2));
        story.land(1, 1);
        assert_eq!(findings(story).count("positions"), 1, "two rows do not end at one offset");
    }
}
