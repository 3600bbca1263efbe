//! `lost`, `duplicated` and `phantom`: every row is there as often as was said.

use std::collections::BTreeMap;

use super::Findings;
use crate::history::{Fate, History};
use crate::record::Ack;

pub(super) fn check(history: &History, findings: &mut Findings) {
    for (at, content) in history.contents.iter().enumerate() {
        let of = history.readings.iter().find(|(_, content)| *content == at).map_or("?", |(reading, _)| &reading.of);
        let mut copies: BTreeMap<u32, u32> = BTreeMap::new();
        for (rowid, writer, number, value) in content {
            let name = format!("row {number} of writer {writer}");
            let Some(&row) = history.by_name.get(&(*writer, *number)) else {
                findings.add("phantom", format!("{of}: {name} at rowid {rowid}: nobody wrote it"));
                continue;
            };
            *copies.entry(row).or_default() += 1;
            let wrote = &history.rows[row as usize];
            if wrote.value != *value {
                let what = format!("{of}: {name} at rowid {rowid} holds {value}; written was {}", wrote.value);
                findings.add("phantom", what);
            }
        }
        for (index, row) in history.rows.iter().enumerate() {
            let copies = copies.get(&(index as u32)).copied().unwrap_or(0);
            let name = format!("{of}: row {} of writer {}", row.number, row.writer);
            match &row.fate {
                Fate::Acknowledged(acknowledged) if copies == 0 => match row.ack {
                    Ack::Committed => {
                        let offset = acknowledged.position.offset;
                        findings
                            .add("lost", format!("{name}, acknowledged at {} ns, offset {offset}", acknowledged.at));
                    }
                    Ack::Leader => findings.lost_leader += u64::from(at == 0),
                },
                Fate::Failed(code) if copies > 0 => {
                    findings.add("phantom", format!("{name} was said to have failed ({code}), and is there"));
                }
                Fate::Unknown if at == 0 => {
                    findings.unknown += 1;
                    findings.unknown_there += u64::from(copies > 0);
                }
                _ => {}
            }
            if copies > 1 {
                findings.add("duplicated", format!("{name} is there {copies} times"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Story, failed, findings, unknown};

    #[test]
    fn each_kind_of_damage_is_noticed_and_what_is_right_is_not() {
        let story = || {
            let mut story = Story::new();
            story.row(3, 0);
            story.row_that(3, 1, failed("X"));
            story.row_that(3, 2, unknown());
            story.row_that(3, 3, unknown());
            story
        };
        let mut right = story();
        right.land(3, 2);
        let found = findings(right);
        assert!(found.is_clean(), "{found:?}");
        assert_eq!((found.unknown, found.unknown_there), (2, 1));

        let mut lost = story();
        lost.held.clear();
        assert_eq!(findings(lost).count("lost"), 1);
        let mut twice = story();
        twice.land(3, 0);
        assert_eq!(findings(twice).count("duplicated"), 1);
        let mut undead = story();
        undead.land(3, 1);
        assert_eq!(findings(undead).count("phantom"), 1);
        let mut strange = story();
        strange.land(9, 0);
        assert_eq!(findings(strange).count("phantom"), 1);
        let mut changed = story();
        changed.held[0].3 += 1;
        assert_eq!(findings(changed).count("phantom"), 1);
    }

    #[test]
    fn what_the_leader_alone_acknowledged_may_be_lost_and_is_counted() {
        let mut story = Story::new();
        story.row(1, 0);
        story.leader_row(1, 1);
        story.held.pop();
        let found = findings(story);
        assert!(found.is_clean(), "{found:?}");
        assert_eq!(found.lost_leader, 1);
    }
}
