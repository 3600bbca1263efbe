//! What to run: seeds, and of one seed everything, or less than everything while a failure is made small.

use highwater_wire::NodeId;

use crate::faults::Fault;
use crate::options::Profile;

/// Clients of a run.
pub const CLIENTS: u32 = 6;

/// What of a seed's run is left out. The default leaves out nothing.
///
/// A reduced run is a run of its own: what is left out shifts everything that comes after it. It repeats exactly, and that is all that is asked of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reduction {
    /// Classes of faults that do not strike although the seed drew them.
    pub without: Vec<Fault>,
    /// Strikes that come to nothing, by number; the first strike of a run is number 1.
    pub skip_strikes: Vec<u64>,
    /// Only so many clients, at least 1.
    pub clients: Option<u32>,
    /// Clients begin no more calls once so many have ended.
    pub calls: Option<u64>,
    /// Everything is healed when so many simulated milliseconds have passed, if not before.
    pub until_ms: Option<u64>,
}

impl Reduction {
    /// Whether it leaves out nothing.
    pub fn is_nothing(&self) -> bool {
        *self == Reduction::default()
    }

    /// The arguments of `highwater sim` that ask for it, with a space before each.
    pub fn arguments(&self) -> String {
        let mut text = String::new();
        let mut list = |name: &str, items: Vec<String>| {
            if !items.is_empty() {
                text.push_str(&format!(" --{name} {}", items.join(",")));
            }
        };
        list("without-faults", self.without.iter().map(|fault| fault.name().to_owned()).collect());
        list("skip-strikes", self.skip_strikes.iter().map(u64::to_string).collect());
        list("clients", self.clients.iter().map(u32::to_string).collect());
        list("calls", self.calls.iter().map(u64::to_string).collect());
        list("until-ms", self.until_ms.iter().map(u64::to_string).collect());
        text
    }
}

/// One run of one seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Nodes and rule, or the mixture that the seed draws from.
    pub profile: Profile,
    /// What is left out.
    pub reduction: Reduction,
    /// Whether the text of everything that happens is kept.
    pub text: bool,
}

impl Plan {
    /// The command that runs it again and prints every event.
    pub fn replay(&self) -> String {
        let (profile, seed) = (self.profile.name(), self.seed);
        format!("highwater sim --profile {profile} --seed {seed}{} --trace", self.reduction.arguments())
    }
}

/// A fault that struck at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// Counted from 1 in a run, those left out included.
    pub number: u64,
    /// Of what class.
    pub fault: Fault,
    /// Where.
    pub node: NodeId,
    /// When, in simulated microseconds.
    pub at_us: u64,
}

/// Which seeds to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// How many seeds at the most.
    pub seeds: u64,
    /// The first; the others follow it.
    pub first_seed: u64,
    /// Nodes and rule.
    pub profile: Profile,
    /// What is left out of each.
    pub reduction: Reduction,
    /// How many threads, at least 1.
    pub jobs: usize,
    /// Keep a report of every seed, not only of those that broke a law.
    pub each: bool,
    /// Keep the text of everything that happens. Meant for one seed.
    pub trace: bool,
}

impl Default for RunOptions {
    /// One hundred seeds from 1 on, mixed, whole, on one thread, without text.
    fn default() -> Self {
        RunOptions {
            seeds: 100,
            first_seed: 1,
            profile: Profile::Mixed,
            reduction: Reduction::default(),
            jobs: 1,
            each: false,
            trace: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_names_everything_that_is_left_out() {
        let whole = Plan { seed: 7, profile: Profile::Isr3, reduction: Reduction::default(), text: false };
        assert_eq!(whole.replay(), "highwater sim --profile isr3 --seed 7 --trace");
        let reduction = Reduction {
            without: vec![Fault::Pause, Fault::Clog],
            skip_strikes: vec![3, 7],
            clients: Some(2),
            calls: Some(40),
            until_ms: Some(9000),
        };
        assert_eq!(
            reduction.arguments(),
            " --without-faults pause,clogged-link --skip-strikes 3,7 --clients 2 --calls 40 --until-ms 9000"
        );
    }
}
