//! `sessions`: a session never goes back, a read is no older than the position it asked for, and no position at which something committed was shown is ever cut.

use std::collections::BTreeMap;

use super::Findings;
use crate::history::History;
use crate::record::Freshness;

pub(super) fn check(history: &History, findings: &mut Findings) {
    for op in &history.truncated {
        findings.add(
            "sessions",
            format!("read {op} was told that a position is cut at which something committed was shown"),
        );
    }
    let mut last: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut looks: Vec<_> = history.looks.iter().collect();
    looks.sort_by_key(|look| look.op);
    for look in looks {
        let (offset, count) = (look.position.offset, look.seen.count);
        if let Some(least) = look.least.filter(|least| least.offset > offset) {
            let what = format!("read {} asked for offset {} or later and shows {offset}", look.op, least.offset);
            findings.add("sessions", what);
        }
        if look.freshness == Freshness::Session {
            let before = last.entry(look.client).or_default();
            if offset < before.0 || count < before.1 {
                findings.add(
                    "sessions",
                    format!(
                        "client {} saw {} rows at offset {}, and then, in read {}, {count} at {offset}",
                        look.client, before.1, before.0, look.op
                    ),
                );
            }
            *before = (offset, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::record::Freshness::{AtLeast, Eventual, Session};
    use crate::testing::{Story, failed, findings};

    #[test]
    fn going_back_is_noticed_in_a_session_and_fine_outside() {
        let mut story = Story::new();
        (0..9).for_each(|number| story.row(1, number));
        story.look(1, Session, 5);
        story.look(2, Session, 3);
        story.look(1, Eventual, 2);
        story.look(1, Session, 5);
        assert!(findings(story.clone()).is_clean());
        story.look(1, Session, 4);
        assert_eq!(findings(story).count("sessions"), 1);
    }

    #[test]
    fn a_position_that_is_said_to_be_cut_is_noticed() {
        let mut story = Story::new();
        story.row(1, 0);
        story.look_that(1, AtLeast, failed("POSITION_NOT_YET"));
        assert!(findings(story.clone()).is_clean());
        story.look_that(1, AtLeast, failed("POSITION_TRUNCATED"));
        assert_eq!(findings(story).count("sessions"), 1);
    }

    #[test]
    fn less_than_was_asked_for_is_noticed() {
        let mut story = Story::new();
        (0..9).for_each(|number| story.row(1, number));
        story.look_at_least(1, AtLeast, 5, 5);
        story.look_at_least(1, AtLeast, 6, 5);
        assert!(findings(story.clone()).is_clean());
        story.look_at_least(1, AtLeast, 4, 5);
        assert_eq!(findings(story).count("sessions"), 1);
    }
}
