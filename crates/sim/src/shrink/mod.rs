//! Makes a failing seed small: leaves out whatever can be left out while the same law still breaks.
//!
//! In order, cheapest first for whoever reads the result: whole classes of faults; single strikes, by halves, quarters and so on; clients; calls; the time
//! after which faults end. Each attempt is a whole run of the seed with more left out ([`Reduction`]); what is left out shifts everything after it, so an
//! attempt may fail for no reason that a person would see, and the order is gone through again while it still gains something. The number of runs is
//! bounded. The result repeats exactly.

mod story;

use crate::faults::Fault;
use crate::laws::{Law, step_laws};
use crate::plan::{CLIENTS, Plan, Reduction};
use crate::report::{SeedReport, Violation};
use crate::run::run_seed_under;

/// So many runs at the most.
pub const RUNS_MAX: u32 = 250;

/// So many lines of the story are told.
const LINES: usize = 60;

/// A failing seed, made small.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The law that breaks, what is seen then, and the command that shows it.
    pub violation: Violation,
    /// What is left out.
    pub reduction: Reduction,
    /// The classes of faults that are left.
    pub classes: Vec<Fault>,
    /// The strikes that are left.
    pub strikes: usize,
    /// How many runs it took.
    pub runs: u32,
    /// The last lines that matter of what happens.
    pub story: String,
}

/// Makes the failure of a seed small; `None` if it does not fail.
pub fn shrink(plan: &Plan) -> Option<Shrunk> {
    shrink_under(plan, &step_laws)
}

/// The same under other laws of a step.
pub(crate) fn shrink_under(plan: &Plan, laws: &dyn Fn() -> Vec<Box<dyn Law>>) -> Option<Shrunk> {
    let run = |reduction: &Reduction, text| {
        run_seed_under(&Plan { reduction: reduction.clone(), text, ..plan.clone() }, laws())
    };
    let whole = run(&plan.reduction, false);
    let law = whole.violation.as_ref()?.law.clone();
    let mut search = Search {
        run: &|reduction| run(reduction, false),
        law,
        best: whole,
        reduction: plan.reduction.clone(),
        runs: 1,
    };
    search.go();
    let (reduction, runs) = (search.reduction, search.runs + 1);
    let told = run(&reduction, true);
    let violation = told.violation.clone()?;
    Some(Shrunk {
        story: story::matters(&told.trace, &violation.what, LINES),
        classes: told.classes,
        strikes: told.strikes.iter().filter(|strike| !reduction.skip_strikes.contains(&strike.number)).count(),
        violation,
        reduction,
        runs,
    })
}

struct Search<'a> {
    run: &'a dyn Fn(&Reduction) -> SeedReport,
    law: String,
    /// The smallest run so far that breaks the law, and what it leaves out.
    best: SeedReport,
    reduction: Reduction,
    runs: u32,
}

impl Search<'_> {
    fn go(&mut self) {
        loop {
            let before = self.reduction.clone();
            self.classes();
            self.strikes();
            self.clients();
            self.calls();
            self.time();
            if self.reduction == before || self.runs >= RUNS_MAX {
                return;
            }
        }
    }

    /// Runs with more left out, and keeps to that if the same law breaks.
    fn attempt(&mut self, change: impl FnOnce(&mut Reduction)) -> bool {
        let mut reduction = self.reduction.clone();
        change(&mut reduction);
        if self.runs >= RUNS_MAX || reduction == self.reduction {
            return false;
        }
        self.runs += 1;
        let report = (self.run)(&reduction);
        let breaks = report.violation.as_ref().is_some_and(|violation| violation.law == self.law);
        if breaks {
            (self.best, self.reduction) = (report, reduction);
        }
        breaks
    }

    fn classes(&mut self) {
        for fault in self.best.classes.clone() {
            self.attempt(|reduction| reduction.without.push(fault));
        }
    }

    /// Leaves out runs of strikes, each half as long as the one before. The numbers are those of the smallest run so far, which changes on the way.
    fn strikes(&mut self) {
        let mut length = self.left().len().div_ceil(2);
        while length > 0 {
            let mut at = 0;
            while at < self.left().len() {
                let skip: Vec<u64> = self.left().into_iter().skip(at).take(length).collect();
                if !self.attempt(|reduction| reduction.skip_strikes.extend(&skip)) {
                    at += length;
                }
                if self.runs >= RUNS_MAX {
                    return;
                }
            }
            length = if length == 1 { 0 } else { length.div_ceil(2) };
        }
    }

    /// The strikes that are not left out.
    fn left(&self) -> Vec<u64> {
        let skipped = &self.reduction.skip_strikes;
        self.best.strikes.iter().map(|strike| strike.number).filter(|number| !skipped.contains(number)).collect()
    }

    fn clients(&mut self) {
        let most = self.reduction.clients.unwrap_or(CLIENTS);
        let _found = (1..most).any(|clients| self.attempt(|reduction| reduction.clients = Some(clients)));
    }

    fn calls(&mut self) {
        let mut most = self.reduction.calls.unwrap_or(self.best.operations);
        while most > 1 && self.attempt(|reduction| reduction.calls = Some(most / 2)) {
            most /= 2;
        }
    }

    fn time(&mut self) {
        let mut most = self.reduction.until_ms.unwrap_or(self.best.simulated_us / 1000);
        while most > 500 && self.attempt(|reduction| reduction.until_ms = Some(most / 2)) {
            most /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Facts, Observation};
    use crate::options::Profile;

    /// A law that no run with two power losses of one machine keeps.
    #[derive(Default)]
    struct TwoLosses(u32);

    impl Law for TwoLosses {
        fn name(&self) -> &'static str {
            "two-losses"
        }

        fn after(&mut self, _: &Facts, seen: &Observation) -> Result<(), String> {
            self.0 += u32::from(matches!(seen, Observation::Struck { fault: Fault::Power, .. }));
            if self.0 < 2 { Ok(()) } else { Err("node 1 lost power again".to_owned()) }
        }
    }

    fn laws() -> Vec<Box<dyn Law>> {
        vec![Box::<TwoLosses>::default()]
    }

    #[test]
    fn a_failure_shrinks_to_what_it_needs_and_repeats_exactly() {
        let plan = |seed, reduction| Plan { seed, profile: Profile::Quorum3, reduction, text: false };
        let breaks = |report: &SeedReport| report.violation.is_some() && report.classes.len() > 2;
        let whole = (1..200)
            .map(|seed| run_seed_under(&plan(seed, Reduction::default()), laws()))
            .find(breaks)
            .expect("some seed has two power losses and other faults");
        let shrunk = shrink_under(&plan(whole.seed, Reduction::default()), &laws).expect("it fails");
        assert_eq!(shrunk.classes, vec![Fault::Power], "no other class is needed");
        assert_eq!(shrunk.strikes, 2, "two strikes are needed, no more");
        assert_eq!(shrunk.reduction.clients, Some(1));
        assert!(shrunk.runs <= RUNS_MAX + 1);
        assert!(shrunk.violation.replay.contains("--without-faults"), "{}", shrunk.violation.replay);
        assert!(shrunk.story.ends_with("node 1 lost power again\n"), "{}", shrunk.story);
        let (one, other) = (plan(whole.seed, shrunk.reduction.clone()), plan(whole.seed, shrunk.reduction));
        let (one, other) = (run_seed_under(&one, laws()), run_seed_under(&other, laws()));
        assert_eq!(one.trace_hash, other.trace_hash);
        assert_eq!(one.violation, other.violation);
        assert_eq!(one.violation.map(|violation| violation.what), Some(shrunk.violation.what));
    }

    #[test]
    fn a_seed_that_keeps_all_laws_is_not_shrunk() {
        let plan = Plan { seed: 1, profile: Profile::One, reduction: Reduction::default(), text: false };
        assert!(shrink(&plan).is_none());
    }
}
