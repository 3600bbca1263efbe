//! Coverage marks: named situations that runs must come into. A simulator that never does what it is there for passes as easily as a correct product;
//! marks are how that is noticed.
//!
//! A mark is derived from what is seen from outside ([`Observation`]) and never from inside the product. Each says within how many seeds of the mixture it
//! must have been reached: [`crate::Report::unreached`] fails a run of at least so many that has not. The numbers were measured over a few thousand
//! seeds and leave a wide margin: a situation that one seed in ten comes into is owed after three hundred seeds, which a run misses by bad luck once in
//! 10^13. Those that are rarer than one in a hundred were seen too seldom to be measured well, and have more time. When the generator changes, a mark that became rarer shows at once, and either the generator is wrong or the number is.

mod clients;
mod disks;
mod elections;
mod processes;
mod reads;
mod sets;
mod streams;

use std::collections::BTreeSet;

use crate::facts::{Facts, Observation};

macro_rules! marks {
    ($($mark:ident $name:literal within $within:literal : $what:literal;)*) => {
        /// A situation that runs must come into.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mark {
            $(#[doc = $what] $mark,)*
        }

        impl Mark {
            /// All of them.
            pub const ALL: &[Mark] = &[$(Mark::$mark,)*];

            /// Its name in reports.
            pub fn name(self) -> &'static str {
                match self { $(Mark::$mark => $name,)* }
            }

            /// Within so many seeds of the mixture it must have been reached.
            pub fn within(self) -> u64 {
                match self { $(Mark::$mark => $within,)* }
            }

            /// The situation, in words.
            pub fn what(self) -> &'static str {
                match self { $(Mark::$mark => $what,)* }
            }
        }
    };
}

marks! {
    TwoLeaders "two-leaders" within 100: "Two nodes led the database at once, in different epochs.";
    TwoCoordinators "two-coordinators" within 100: "Two nodes led the metadata at once, in different epochs.";
    LeadersApart "leaders-apart" within 100: "The metadata and the database were led by different nodes.";
    ResignedWithEntries "resigned-with-entries" within 100: "A leader resigned with entries that nobody else had.";
    DiedWithEntries "died-with-entries" within 100: "A leader died with entries that nobody else had.";
    DiedUncommitted "died-before-its-first-commit" within 300: "A leader of the database died before anything of its epoch was committed.";
    LedLate "led-late" within 100000: "A leader began when a later epoch had been led already.";
    BallotVoid "ballot-void" within 1000: "A promise came in for a ballot that the record had moved past.";
    BallotDied "ballot-died" within 300: "A coordinator died between asking for promises and recording a leader.";
    PromisedOwing "promise-while-flush-owed" within 150: "A promise was asked for while a flush was owed.";
    Deposed "deposed-by-refusal" within 100: "A leader learned from a refusal that a later epoch was promised.";
    VoteDenied "vote-denied" within 100: "A voter denied a vote.";
    SplitVote "split-vote" within 500: "Two candidates stood for one epoch.";
    VoteLate "vote-late" within 1000: "A vote arrived when its candidate had promised a later epoch.";
    IsrShrank "isr-shrank" within 200: "An ISR shrank under one leader.";
    IsrGrew "isr-grew" within 100: "An ISR grew under one leader.";
    IsrFloor "appointed-at-the-floor" within 150: "A leader was appointed while the ISR was as small as it may be.";
    ChangeOrphaned "isr-change-at-death" within 5000: "An ISR change was in flight when its leader died.";
    ChangeDeposed "isr-change-at-resignation" within 3000: "An ISR change was in flight when its leader resigned.";
    ChangeLate "isr-change-late" within 300: "An ISR change came in when the record had another version.";
    TailCut "tail-cut" within 100: "A follower cut durable entries off, which became a lost tail.";
    UnflushedCut "unflushed-tail-cut" within 3000: "A follower cut entries off that it had not flushed yet.";
    EpochsCut "epochs-cut" within 100000: "One cut took entries of two epochs off.";
    CutTwice "cut-twice" within 1000: "A process cut its log twice.";
    TwoRounds "two-rounds" within 1000: "Reconciliation took two rounds or more.";
    GapReopened "gap-reopened" within 100: "A follower opened its stream anew after a gap.";
    BatchAgain "batch-again" within 100: "A batch arrived that the follower had already.";
    StaleEpoch "stale-epoch" within 100: "A message of an epoch below the one promised arrived.";
    StaleProcess "stale-process" within 150: "A message of a process arrived when its successor ran.";
    TornTail "torn-tail" within 1000: "Recovery cut a torn tail.";
    UnflushedLost "unflushed-lost" within 150: "A process found a log without entries that were never flushed.";
    AppendSurvived "interrupted-append-survived" within 2000: "A process found entries whose append had failed or been interrupted.";
    CutInterrupted "cut-interrupted" within 5000: "A process found a log whose cut had failed or been interrupted.";
    PromiseSurvived "interrupted-promise-survived" within 2000: "A process found a promise whose writing had failed or been interrupted.";
    PromiseLost "interrupted-promise-lost" within 300: "A process did not find a promise whose writing had failed or been interrupted.";
    NotStarted "not-started" within 20000: "A process could not open its logs, for a fault of its disk.";
    DiskFull "disk-full" within 150: "A disk was full at an append.";
    FlushFailed "flush-failed" within 100: "A flush failed.";
    PowerOfAll "power-of-all" within 150: "All machines lost power while the database had a leader.";
    ConfirmDeposed "deposed-while-confirming" within 100: "A leader lost its leadership while a read waited for its confirmation.";
    FollowerRead "follower-read" within 100: "A follower was given an index for a linearizable read.";
    FollowerReadDenied "follower-read-denied" within 200: "A follower asked for an index and was given none.";
    AnsweredFromFirst "answered-from-the-first" within 100: "A write was repeated with its key and answered with what the first had done.";
    OutcomeUnknown "outcome-unknown" within 100: "A leader told a writer that the outcome is unknown.";
    WriteFull "write-refused-full" within 200: "A write was refused for want of room.";
    LeaderAckLost "leader-ack-lost" within 300: "A write that was acknowledged by its leader alone was lost, as that acknowledgement allows.";
    RegisteredLate "registered-late" within 500: "A node registered three processes at once, because two had died unregistered.";
    OlderRefused "older-folder-refused" within 200: "A node whose folder was an older copy of itself was told so.";
    DiedUnregistered "died-unregistered" within 1000: "A process died before its registration was answered.";
}

/// What watches for some marks. It looks at every observation with the facts as they were before it.
trait Watcher {
    /// Looks, and enters what has been reached.
    fn look(&mut self, facts: &Facts, seen: &Observation, reached: &mut BTreeSet<Mark>);
}

/// The marks of one run.
pub struct Marks {
    reached: BTreeSet<Mark>,
    watchers: Vec<Box<dyn Watcher>>,
}

impl Default for Marks {
    fn default() -> Self {
        let watchers: Vec<Box<dyn Watcher>> = vec![
            Box::<elections::Elections>::default(),
            Box::<sets::Sets>::default(),
            Box::<streams::Streams>::default(),
            Box::<disks::Disks>::default(),
            Box::<reads::Reads>::default(),
            Box::<clients::Clients>::default(),
            Box::<processes::Processes>::default(),
        ];
        Marks { reached: BTreeSet::new(), watchers }
    }
}

impl Marks {
    /// Looks at one observation with the facts as they were before it.
    pub fn look(&mut self, facts: &Facts, seen: &Observation) {
        for watcher in &mut self.watchers {
            watcher.look(facts, seen, &mut self.reached);
        }
    }

    /// What has been reached.
    pub fn reached(&self) -> &BTreeSet<Mark> {
        &self.reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sentences_are_unique() {
        let names: BTreeSet<_> = Mark::ALL.iter().map(|mark| mark.name()).collect();
        let sentences: BTreeSet<_> = Mark::ALL.iter().map(|mark| mark.what()).collect();
        assert_eq!((names.len(), sentences.len()), (Mark::ALL.len(), Mark::ALL.len()));
        assert!(Mark::ALL.iter().all(|mark| mark.within() > 0));
    }
}
