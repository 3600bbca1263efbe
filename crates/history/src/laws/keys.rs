//! `keys`: what was asked twice with one idempotency key was answered alike. (That it was not done twice is `duplicated`.)

use super::Findings;
use crate::history::History;

pub(super) fn check(history: &History, findings: &mut Findings) {
    history.contradictions.iter().for_each(|what| findings.add("keys", what.clone()));
}

#[cfg(test)]
mod tests {
    use crate::testing::{Story, changed, done_row, findings};

    #[test]
    fn the_same_key_has_the_same_answer() {
        let mut story = Story::new();
        story.row(1, 0);
        story.again(1, 0, done_row(1, 1));
        assert!(findings(story.clone()).is_clean());
        story.again(1, 0, done_row(2, 1));
        assert_eq!(findings(story).count("keys"), 1);
    }

    #[test]
    fn the_same_key_on_a_register_has_the_same_answer() {
        let mut story = Story::new();
        story.registers = vec![5, 0];
        story.swap_that(0, 0, 5, "k", changed(1));
        story.swap_that(0, 0, 5, "k", changed(1));
        assert!(findings(story.clone()).is_clean());
        story.swap_that(0, 0, 5, "k", changed(0));
        assert_eq!(findings(story).count("keys"), 1);
    }
}
