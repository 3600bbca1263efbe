//! The breadth-first search.

use std::collections::BTreeSet;
use std::rc::Rc;

use highwater_wire::{Envelope, Epoch, Version};

use super::intern::{FastMap, Interner, Sets};
use super::outcome::{Answers, Deliveries, Outcome};
use super::symmetry::{Mirror, mirrored};
use super::world::{Action, Facts, Local, Node, Record, State};
use super::{Config, REPLICAS, Report, Violation, describe, local};

pub(super) struct Search {
    pub(super) config: Config,
    pub(super) nodes: Interner<Node>,
    pub(super) messages: Interner<Envelope>,
    pub(super) sets: Sets,
    pub(super) facts: Interner<Facts>,
    pub(super) outcomes: Vec<Rc<Outcome>>,
    pub(super) known: FastMap<(u32, Local), u32>,
    pub(super) mirror: Mirror,
    pub(super) deliveries: FastMap<(u32, u32), Deliveries>,
    /// Inboxes without what their replica can only refuse, and the coordinator's without what it can make no use of.
    pub(super) not_older: FastMap<(u32, Option<Epoch>), u32>,
    pub(super) of_use: FastMap<(u32, u32), u32>,
    pub(super) answers: FastMap<(u32, u32), Answers>,
    states: Vec<State>,
    parents: Vec<u32>,
    /// For the same replicas and facts, the states whose inboxes are not contained in those of another.
    largest: FastMap<([u32; REPLICAS], u32), Vec<u32>>,
    /// States that are not expanded, since another one contains them.
    contained: Vec<bool>,
    steps: u64,
}

impl Search {
    pub(super) fn new(config: Config) -> Search {
        Search {
            config,
            nodes: Interner::new(),
            messages: Interner::new(),
            sets: Sets::new(),
            facts: Interner::new(),
            outcomes: Vec::new(),
            known: FastMap::default(),
            mirror: Mirror::default(),
            deliveries: FastMap::default(),
            not_older: FastMap::default(),
            of_use: FastMap::default(),
            answers: FastMap::default(),
            states: Vec::new(),
            parents: Vec::new(),
            largest: FastMap::default(),
            contained: Vec::new(),
            steps: 0,
        }
    }

    pub(super) fn first(&mut self) -> State {
        let nodes: [u32; REPLICAS] = std::array::from_fn(|index| self.nodes.number(local::first(index, &self.config)));
        for index in 0..REPLICAS {
            self.mirror.nodes.insert(nodes[index], nodes[mirrored(index)]);
        }
        let record =
            Record { epoch: None, leader: None, version: Version(0), set: (0..REPLICAS).collect::<BTreeSet<_>>() };
        let facts = self.facts.number(Facts {
            record,
            reigns: Vec::new(),
            committed: Vec::new(),
            known_hw: [0; REPLICAS],
            read_floor: None,
            writes: 0,
            crashes: 0,
            silences: 0,
            reads: 0,
            stands: 0,
        });
        let state = State { nodes, inboxes: [Sets::EMPTY; REPLICAS + 1], facts };
        let facts = Facts::clone(self.facts.get(facts));
        match self.config.rule {
            Some(_) => {
                let state = self.tell_all(&state, facts, None);
                if self.config.first_ballot { state } else { self.after_first_ballot(state) }
            }
            None => state,
        }
    }

    /// The state in which all replicas have promised the first epoch, and replica 0 is on record as its leader. Nobody has heard of that yet.
    fn after_first_ballot(&mut self, mut state: State) -> State {
        let first = Epoch(0);
        for index in 0..REPLICAS {
            let asks = |search: &Search, action: &Action| match action {
                Action::At(at, Local::Deliver(message)) => {
                    *at == index && search.messages.get(*message).epoch == Some(first)
                }
                _ => false,
            };
            let asked =
                self.actions(&state).into_iter().find(|action| asks(self, action)).expect("a promise is asked for");
            state = self.take(&state, &asked).expect("within bounds").expect("a promise breaks no law");
        }
        let whole = |action: &Action| matches!(action, Action::Appoint { epoch, set, .. } if *epoch == first && set.len() == REPLICAS);
        let appointed = self.actions(&state).into_iter().find(whole).expect("all have promised");
        self.take(&state, &appointed).expect("within bounds").expect("an appointment breaks no law")
    }

    pub(super) fn run(mut self) -> Report {
        let first = self.first();
        self.visit(first, 0);
        let (mut at, mut depth, mut level_end) = (0, 0, 1);
        while at < self.states.len() && self.states.len() < self.config.states_max {
            if at == level_end {
                depth += 1;
                level_end = self.states.len();
            }
            let state = self.states[at];
            if self.contained[at] {
                at += 1;
                continue;
            }
            for action in self.actions(&state) {
                self.steps += 1;
                match self.take(&state, &action) {
                    None => {}
                    Some(Ok(next)) => self.visit(next, at),
                    Some(Err(law)) => {
                        let trace = self.trace(at, &action);
                        return self.report(depth, false, Some(Violation { law, trace }));
                    }
                }
            }
            at += 1;
        }
        let complete = at == self.states.len();
        self.report(depth, complete, None)
    }

    /// Notes a state that was reached from another. More messages allow everything that fewer do, and the laws do not look at them: a state is not
    /// explored if another one has the same replicas and facts and all its messages.
    fn visit(&mut self, state: State, parent: usize) {
        let state = self.representative(state);
        let number = u32::try_from(self.states.len()).expect("fewer than 2^32 states");
        let largest = self.largest.entry((state.nodes, state.facts)).or_default();
        let (sets, states) = (&self.sets, &self.states);
        let contains = |larger: &State, smaller: &State| {
            larger.inboxes.iter().zip(&smaller.inboxes).all(|(larger, smaller)| sets.contains(*larger, *smaller))
        };
        if largest.iter().any(|known| contains(&states[*known as usize], &state)) {
            return;
        }
        let contained = &mut self.contained;
        largest.retain(|known| {
            let smaller = contains(&state, &states[*known as usize]);
            contained[*known as usize] |= smaller;
            !smaller
        });
        largest.push(number);
        self.states.push(state);
        self.contained.push(false);
        self.parents.push(u32::try_from(parent).expect("fewer than 2^32 states"));
    }

    fn report(&self, depth: usize, complete: bool, violation: Option<Violation>) -> Report {
        Report {
            states: self.states.len(),
            steps: self.steps,
            depth,
            messages: self.messages.len(),
            replicas: self.nodes.len(),
            complete,
            violation,
        }
    }

    /// The events on the way to state `at`, and the last one, in words. States on the way stand for their mirror images too, so the way is
    /// walked again from the beginning, with every replica keeping its name.
    fn trace(&mut self, at: usize, last: &Action) -> Vec<String> {
        let mut way = vec![at];
        while way.last() != Some(&0) {
            way.push(self.parents[way[way.len() - 1]] as usize);
        }
        let (mut state, mut events) = (self.first(), Vec::new());
        for next in way.iter().rev().skip(1) {
            let goal = self.states[*next];
            let step = self.actions(&state).into_iter().find_map(|action| match self.take(&state, &action) {
                Some(Ok(reached)) if self.representative(reached) == goal => Some((action, reached)),
                _ => None,
            });
            let (action, reached) = step.expect("some action led here");
            events.push(describe::action(self, &action));
            state = reached;
        }
        let last = if self.representative(state) == state { last.clone() } else { self.action_in_mirror(last) };
        events.push(describe::action(self, &last));
        events
    }
}
