//! The simplest state machine: it holds the entries that it has applied or executed. It carries out what it is told at once or, where it may be late, when its turn comes.
//!
//! What it asserts of the commands it gets is what a real one relies on. After a crash it holds what it ever published in this process or began with: the most that a
//! machine may keep, so that a replica that knows less than its machine is explored.

use std::collections::VecDeque;

use highwater_partition::{Command, Input, Reign};
use highwater_wire::Offset;

use super::disk::entries_of;
use super::world::Entry;

/// A state machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Machine {
    /// What it has applied and executed, in order.
    entries: Vec<Entry>,
    /// How many of them readers see; none after a rewind, before the next publication.
    published: Option<usize>,
    /// How many of them were shown to readers, or were there when the process started: these it keeps for ever.
    kept: usize,
    /// The reign it executes in.
    reign: Option<Reign>,
    /// Whether it may be late.
    is_late: bool,
    /// What it was told and has not taken up.
    queue: VecDeque<Command>,
}

impl Machine {
    /// One that holds nothing.
    pub(super) fn new(is_late: bool) -> Machine {
        Machine { is_late, ..Machine::default() }
    }

    /// What a crash leaves.
    pub(super) fn after_crash(&self) -> Machine {
        Machine { entries: self.entries[..self.kept].to_vec(), kept: self.kept, ..Machine::new(self.is_late) }
    }

    /// Whether it may be late.
    pub(super) fn is_late(&self) -> bool {
        self.is_late
    }

    /// What it takes up next, if anything waits for it.
    pub(super) fn next(&self) -> Option<&Command> {
        self.queue.front()
    }

    /// Whether it was told to rewind and has not done it yet.
    pub(super) fn is_to_rewind(&self) -> bool {
        self.queue.iter().any(|command| matches!(command, Command::Rewind { .. }))
    }

    /// Takes in what it is told. Returns what it is to carry out now: what it shows to readers it shows at once.
    pub(super) fn tell(&mut self, command: Command) -> Option<Command> {
        if !self.is_late || matches!(command, Command::Publish { .. }) {
            return Some(command);
        }
        self.queue.push_back(command);
        None
    }

    /// Its turn has come. Returns what it is to carry out.
    pub(super) fn take_up(&mut self) -> Option<Command> {
        self.queue.pop_front()
    }

    /// What it has applied and executed.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What readers see, if they see anything at present.
    pub(super) fn published(&self) -> Option<&[Entry]> {
        self.published.map(|published| &self.entries[..published])
    }

    /// The reign in which it executes requests, if it does.
    pub(super) fn reign(&self) -> Option<Reign> {
        self.reign
    }

    /// The log's end that it has reached.
    pub(super) fn end(&self) -> Offset {
        self.entries.len() as u64
    }

    /// Executes a write ahead of the log.
    ///
    /// # Panics
    /// If it may not execute now.
    pub(super) fn execute(&mut self, id: u8) {
        let epoch = self.reign.expect("it executes only in a reign").epoch;
        self.entries.push(Entry { epoch, id });
    }

    /// Carries a command out. Returns its answer, if it has one.
    ///
    /// # Panics
    /// If the command breaks what machines are promised.
    pub(super) fn carry_out(&mut self, command: Command) -> Option<Input> {
        match command {
            Command::Apply { from, to, batches, .. } => {
                assert_eq!(from, self.end(), "a machine applies what comes behind what it holds");
                assert_eq!(self.reign, None, "a machine that executes is given nothing");
                for (base, entry) in entries_of(&batches) {
                    assert_eq!(base, self.end(), "entries are applied one behind the other");
                    self.entries.push(entry);
                }
                assert_eq!(self.end(), to, "what is applied ends where the command says");
                Some(Input::Applied(to))
            }
            Command::Lead { reign, end } => {
                assert_eq!(end, self.end(), "a machine that executes holds the whole log");
                self.reign = Some(reign);
                None
            }
            Command::Publish { hw } => {
                let shown = hw as usize;
                assert!(shown <= self.entries.len(), "what readers are shown was applied");
                assert!(shown >= self.kept, "readers never go back");
                (self.published, self.kept) = (Some(shown), shown);
                None
            }
            Command::Rewind { to } => {
                assert!(to as usize >= self.kept, "what readers saw is never taken back: a rewind to {to}");
                self.entries.truncate(to as usize);
                (self.published, self.reign) = (None, None);
                Some(Input::Rewound(self.end()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::Epoch;

    use super::*;

    /// A machine that holds two entries, one of them shown.
    fn machine() -> Machine {
        let entries = vec![Entry { epoch: Epoch(0), id: 0 }, Entry { epoch: Epoch(0), id: 1 }];
        Machine { entries, published: Some(1), kept: 1, ..Machine::default() }
    }

    #[test]
    fn a_crash_leaves_what_was_shown_and_a_rewind_what_it_says() {
        assert_eq!((machine().after_crash().end(), machine().after_crash().published()), (1, None));
        let mut rewound = machine();
        assert!(matches!(rewound.carry_out(Command::Rewind { to: 1 }), Some(Input::Rewound(1))));
        assert_eq!((rewound.end(), rewound.published()), (1, None));
    }

    #[test]
    #[should_panic(expected = "what readers saw is never taken back")]
    fn a_rewind_below_what_was_shown_is_seen() {
        machine().carry_out(Command::Rewind { to: 0 });
    }

    #[test]
    #[should_panic(expected = "readers never go back")]
    fn a_publication_of_less_is_seen() {
        machine().carry_out(Command::Publish { hw: 0 });
    }

    #[test]
    #[should_panic(expected = "what readers are shown was applied")]
    fn a_publication_of_what_was_not_applied_is_seen() {
        machine().carry_out(Command::Publish { hw: 3 });
    }

    #[test]
    fn one_that_may_be_late_shows_at_once_and_does_the_rest_in_its_turn() {
        let mut late = Machine { is_late: true, ..machine() };
        assert!(late.tell(Command::Rewind { to: 1 }).is_none() && late.is_to_rewind());
        assert!(matches!(late.tell(Command::Publish { hw: 2 }), Some(Command::Publish { hw: 2 })));
        assert!(matches!(late.take_up(), Some(Command::Rewind { to: 1 })));
        assert!(late.next().is_none() && machine().tell(Command::Rewind { to: 1 }).is_some());
    }

    #[test]
    #[should_panic(expected = "holds the whole log")]
    fn a_reign_that_begins_elsewhere_is_seen() {
        machine().carry_out(Command::Lead { reign: Reign { epoch: Epoch(1), number: 1 }, end: 3 });
    }
}
