//! What recovery decides where its walk over the frames stops: a table, one row for each case, with its reason.
//!
//! The walk goes from frame to frame, as long as each is whole, of this log, at the offset expected next, and of a generation that neither goes down
//! nor was cut off. Where one is not, four facts decide. What has to be told apart is a **torn tail**, which a crash leaves and nobody was told is
//! durable, from **damage** to what had been flushed, which must never be cut: it may be the only copy of something acknowledged.

/// What lies where the next frame was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Zeros, or the end of the file.
    Nothing,
    /// Neither zeros nor a whole frame.
    Damaged,
    /// A whole frame that is dead: left behind by a cut, by an attempt that was given up, or of another log.
    Stale,
    /// A whole frame that cannot be there if the control file is right.
    Impossible,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The log ends here, in good order.
    End,
    /// The log ends here; what lies behind was never durable as a whole and is given up.
    Cut,
    /// Entries that had been flushed are gone or unreadable: refuse.
    RefuseDamage,
    /// The control file and the log contradict each other: refuse.
    RefuseContradiction,
}

/// The facts where the walk stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    /// What lies there.
    pub(crate) found: Found,
    /// The control file, or a live frame further on, says that the log had been flushed beyond this offset.
    pub(crate) was_flushed: bool,
    /// Further on lies a live frame, or a segment that the control file names.
    pub(crate) more_follows: bool,
}

/// A row: what it matches (`None` is anything), what to do, and why.
pub(crate) struct Row {
    found: Option<Found>,
    was_flushed: Option<bool>,
    more_follows: Option<bool>,
    decision: Decision,
    /// For people.
    pub(crate) why: &'static str,
}

/// Exactly one row matches every stop; a test counts.
pub(crate) const TABLE: &[Row] = &[
    Row {
        found: Some(Found::Impossible),
        was_flushed: None,
        more_follows: None,
        decision: Decision::RefuseContradiction,
        // The frame's checksums hold, so the log has been where the control file says it never was: an older control file was put back, or frames
        // were written by something else. Nothing here can be trusted to know what had been promised.
        why: "a frame that the control file says cannot exist: the control file is older than the log, or the two do not belong together",
    },
    Row {
        found: Some(Found::Nothing),
        was_flushed: Some(true),
        more_follows: None,
        decision: Decision::RefuseDamage,
        // The bytes were durable once. A crash does not undo that: the file was shortened or overwritten, or the disk lost a write it had confirmed.
        why: "entries that had been flushed are gone",
    },
    Row {
        found: Some(Found::Damaged),
        was_flushed: Some(true),
        more_follows: None,
        decision: Decision::RefuseDamage,
        // Bit rot, or a write of something else to this place.
        why: "entries that had been flushed are damaged",
    },
    Row {
        found: Some(Found::Stale),
        was_flushed: Some(true),
        more_follows: None,
        decision: Decision::RefuseDamage,
        // An older frame shows again where a newer one had been flushed over it: the disk lost that write.
        why: "entries that had been flushed are gone, and older ones show in their place",
    },
    Row {
        found: Some(Found::Nothing),
        was_flushed: Some(false),
        more_follows: Some(false),
        decision: Decision::End,
        // The usual end.
        why: "nothing was written here",
    },
    Row {
        found: Some(Found::Stale),
        was_flushed: Some(false),
        more_follows: Some(false),
        decision: Decision::End,
        // The usual end after a cut: what was cut still lies behind it.
        why: "only dead frames follow",
    },
    Row {
        found: Some(Found::Damaged),
        was_flushed: Some(false),
        more_follows: Some(false),
        decision: Decision::Cut,
        // The crash came in the middle of the last write; or the end lies in the middle of an older, dead frame, where a batch's bytes show.
        why: "the last write was torn",
    },
    Row {
        found: Some(Found::Nothing),
        was_flushed: Some(false),
        more_follows: Some(true),
        decision: Decision::Cut,
        // A power loss kept later writes of an unfinished flush and lost earlier ones.
        why: "a power loss kept only fragments of what was written last",
    },
    Row {
        found: Some(Found::Damaged),
        was_flushed: Some(false),
        more_follows: Some(true),
        decision: Decision::Cut,
        // The same, with a sector of the damaged frame kept.
        why: "a power loss tore what was written last",
    },
    Row {
        found: Some(Found::Stale),
        was_flushed: Some(false),
        more_follows: Some(true),
        decision: Decision::Cut,
        // The same, where the lost write was to go over a dead frame.
        why: "a power loss lost what was written last over dead frames",
    },
];

impl Row {
    fn matches(&self, stop: Stop) -> bool {
        self.found.is_none_or(|found| found == stop.found)
            && self.was_flushed.is_none_or(|flushed| flushed == stop.was_flushed)
            && self.more_follows.is_none_or(|more| more == stop.more_follows)
    }
}

/// The decision for a stop, with its reason.
pub(crate) fn decide(stop: Stop) -> (Decision, &'static str) {
    let row = TABLE.iter().find(|row| row.matches(stop)).expect("every stop has its row");
    assert!(
        !stop.was_flushed || !matches!(row.decision, Decision::End | Decision::Cut),
        "what had been flushed is never cut: {stop:?}"
    );
    (row.decision, row.why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_stop() -> impl Iterator<Item = Stop> {
        [Found::Nothing, Found::Damaged, Found::Stale, Found::Impossible].into_iter().flat_map(|found| {
            [false, true].into_iter().flat_map(move |was_flushed| {
                [false, true].map(|more_follows| Stop { found, was_flushed, more_follows })
            })
        })
    }

    #[test]
    fn exactly_one_row_matches_every_stop_and_every_row_matches_one() {
        let mut used = vec![0; TABLE.len()];
        for stop in every_stop() {
            let rows: Vec<_> = (0..TABLE.len()).filter(|row| TABLE[*row].matches(stop)).collect();
            assert_eq!(rows.len(), 1, "{stop:?} matches rows {rows:?}");
            used[rows[0]] += 1;
        }
        assert!(used.iter().all(|count| *count > 0), "rows that nothing matches: {used:?}");
    }

    #[test]
    fn what_had_been_flushed_is_refused_and_what_had_not_is_not() {
        for stop in every_stop() {
            let (decision, why) = decide(stop);
            let refused = matches!(decision, Decision::RefuseDamage | Decision::RefuseContradiction);
            assert_eq!(refused, stop.was_flushed || stop.found == Found::Impossible, "{stop:?}");
            assert_eq!(
                decision == Decision::End,
                !refused && !stop.more_follows && stop.found != Found::Damaged,
                "{stop:?}"
            );
            assert!(!why.is_empty());
        }
    }
}
