//! `replicas`: every reading found the same, its tally fits its rows, and SQLite finds no fault with the file.

use super::Findings;
use crate::history::History;
use crate::record::chain;

pub(super) fn check(history: &History, findings: &mut Findings) {
    let Some((first, _)) = history.readings.first() else { return };
    for (reading, content) in &history.readings {
        let of = &reading.of;
        if *content != 0 {
            let (ours, theirs) = (&history.contents[*content], &history.contents[0]);
            let at = ours.iter().zip(theirs).position(|(a, b)| a != b).unwrap_or(ours.len().min(theirs.len()));
            findings.add(
                "replicas",
                format!(
                    "{of} holds {} rows and {} holds {}; the first that differs: {:?} and {:?}",
                    ours.len(),
                    first.of,
                    theirs.len(),
                    ours.get(at),
                    theirs.get(at)
                ),
            );
        }
        if reading.registers != first.registers {
            let (ours, theirs) = (&reading.registers, &first.registers);
            findings.add("replicas", format!("{of} holds the registers {ours:?} and {} holds {theirs:?}", first.of));
        }
        let rows = &history.contents[*content];
        let sum = rows.iter().fold(0, |sum, row| chain(sum, row.3));
        if (reading.count, reading.chain) != (rows.len() as u64, sum) {
            findings.add(
                "replicas",
                format!(
                    "{of}: the tally says {} rows and {}; the rows are {} and come to {sum}",
                    reading.count,
                    reading.chain,
                    rows.len()
                ),
            );
        }
        if let Some(said) = reading.integrity.as_ref().filter(|said| *said != "ok") {
            findings.add("replicas", format!("{of}: SQLite says: {said}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Story, findings, findings_of};

    #[test]
    fn a_replica_that_differs_in_anything_is_noticed() {
        let mut story = Story::new();
        story.row(1, 0);
        story.row(1, 1);
        assert!(findings(story.clone()).is_clean());
        let with = |change: fn(&mut crate::history::History)| {
            let mut history = story.clone().history();
            change(&mut history);
            findings_of(&history).count("replicas")
        };
        assert_eq!(with(|history| history.readings[1].0.registers[0] = 9), 1);
        assert_eq!(with(|history| history.readings[1].0.count += 1), 1);
        assert_eq!(with(|history| history.readings[1].0.chain += 1), 1);
        assert_eq!(with(|history| history.readings[1].0.integrity = Some("row 1 missing".into())), 1);
        let swapped = with(|history| {
            let mut rows = history.contents[0].clone();
            rows[0].0 = 2;
            rows[1].0 = 1;
            rows.swap(0, 1);
            history.contents.push(rows);
            history.readings[1].1 = 1;
        });
        assert_eq!(swapped, 2, "other rows, and a tally that does not fit them");
    }
}
