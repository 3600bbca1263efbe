//! `registers`: the operations on each register are linearizable, what the replicas hold in the end being a last read.

use super::Findings;
use crate::history::History;
use crate::linear::{self, Did, Op, Verdict};

pub(super) fn check(history: &History, configurations_max: usize, findings: &mut Findings) {
    history.absurdities.iter().for_each(|what| findings.add("registers", what.clone()));
    for (register, ops) in &history.registers {
        let mut ops = ops.clone();
        let after = ops.iter().map(|op| op.end.unwrap_or(op.invoke).max(op.invoke)).max().unwrap_or(0) + 1;
        for (reading, _) in &history.readings {
            if let Some(value) = reading.registers.get(*register as usize) {
                ops.push(Op { id: 0, invoke: after, end: Some(after), did: Did::Read(*value) });
            }
        }
        match linear::check(0, &ops, configurations_max) {
            Verdict::Linearizable => {}
            Verdict::Impossible(why) => findings.add("registers", format!("register {register}: {why}")),
            Verdict::NotDecided(why) => {
                findings.undecided.push(format!("register {register}, {} operations: {why}", ops.len()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Story, changed, findings, findings_of, unknown};

    #[test]
    fn each_register_is_judged_by_itself_and_with_what_replicas_hold() {
        let mut story = Story::new();
        story.set(0, 5);
        story.set(1, 6);
        story.get(0, 5);
        story.get(1, 6);
        story.registers = vec![5, 6];
        assert!(findings(story.clone()).is_clean());
        let mut forgotten = story.clone();
        forgotten.registers = vec![5, 0];
        assert_eq!(findings(forgotten).count("registers"), 1);
        story.get(0, 0);
        assert_eq!(findings(story).count("registers"), 1);
    }

    #[test]
    fn an_answer_that_no_register_gives_is_noticed() {
        let mut story = Story::new();
        story.set_that(0, 5, "k", changed(0));
        assert_eq!(findings(story).count("registers"), 1);
    }

    #[test]
    fn a_write_that_is_asked_for_twice_lasts_until_it_is_answered() {
        let mut story = Story::new();
        story.set_that(0, 5, "k", unknown());
        story.get(0, 0);
        story.get(0, 5);
        story.set_that(0, 5, "k", changed(1));
        story.registers = vec![5, 0];
        assert!(findings(story.clone()).is_clean());
        story.get(0, 0);
        assert_eq!(findings(story).count("registers"), 1);
    }

    #[test]
    fn what_cannot_be_decided_is_said_and_not_clean() {
        let mut story = Story::new();
        (1..15).for_each(|value| story.set(0, value));
        story.registers = vec![14, 0];
        let mut history = story.history();
        let last = history.registers[&0].iter().filter_map(|op| op.end).max();
        for op in history.registers.get_mut(&0).expect("the register") {
            (op.invoke, op.end) = (0, last);
        }
        assert!(findings_of(&history).is_clean());
        let found = crate::Findings::of(&history, 50);
        assert!(!found.is_clean() && found.undecided.len() == 1 && found.violations.is_empty(), "{found:?}");
    }
}
