//! What a search says of itself, while it runs and at its end.

use std::fmt;

/// How far a search has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Different states visited.
    pub states: usize,
    /// States whose successors are still to be visited.
    pub waiting: usize,
    /// The number of events to the states expanded now.
    pub depth: usize,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Different states visited.
    pub states: usize,
    /// Steps taken, those included that led to a state known before.
    pub steps: u64,
    /// The number of events on the longest of the shortest ways to a state.
    pub depth: usize,
    /// Different messages sent.
    pub messages: usize,
    /// Different states of one replica with its disk.
    pub replicas: usize,
    /// How many healed clusters were played to the end, from sampled states.
    pub healed: usize,
    /// Every state within the bounds was visited.
    pub complete: bool,
    /// The first violation, on a shortest way.
    pub violation: Option<Violation>,
}

impl Report {
    /// Every state was visited and no law broken.
    pub fn is_good(&self) -> bool {
        self.complete && self.violation.is_none()
    }
}

/// A broken law.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which law, and how.
    pub law: String,
    /// The events that lead to it, in words.
    pub trace: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { states, steps, depth, messages, replicas, healed, complete, violation } = self;
        write!(
            f,
            "{states} states{}, depth {depth}, {steps} steps, {replicas} states of one replica, {messages} messages, \
             {healed} times healed and back in service",
            if *complete { "" } else { " (not all)" }
        )?;
        if let Some(Violation { law, trace }) = violation {
            write!(f, "\nbroken: {law}")?;
            for (number, event) in trace.iter().enumerate() {
                write!(f, "\n{:>3}. {event}", number + 1)?;
            }
        }
        Ok(())
    }
}
