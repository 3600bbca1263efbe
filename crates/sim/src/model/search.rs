//! The breadth-first search.

use std::rc::Rc;

use highwater_wire::{Envelope, Epoch};

use super::intern::{FastMap, Interner, Sets};
use super::outcome::{Answers, Deliveries, Outcome};
use super::seen::Seen;
use super::symmetry::{Mirror, mirrored};
use super::world::{Action, Facts, Local, Node, State};
use super::{Beginning, Config, Progress, REPLICAS, Report, Violation, begin, coordinator, describe, live, local};

/// After how many steps a search tells how far it has come.
const STEPS_BETWEEN_WORDS: u64 = 1 << 20;

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
    seen: Seen,
    steps: u64,
    healed: usize,
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
            seen: Seen::new(),
            steps: 0,
            healed: 0,
        }
    }

    pub(super) fn first(&mut self) -> State {
        let mut at = |index: usize, place: usize| {
            self.nodes.number(local::first(index, begin::left(place, index, &self.config), &self.config))
        };
        let nodes: [u32; REPLICAS] = std::array::from_fn(|index| at(index, index));
        let images: [u32; REPLICAS] = std::array::from_fn(|index| at(mirrored(index), index));
        for (node, image) in nodes.into_iter().zip(images) {
            self.mirror.nodes.note(node, image);
            self.mirror.nodes.note(image, node);
        }
        let (record, reigns) = begin::history(&self.config);
        let facts = self.facts.number(Facts {
            record,
            reigns,
            committed: Vec::new(),
            known_hw: [0; REPLICAS],
            waiting: Default::default(),
            failed: Default::default(),
            writes: 0,
            crashes: 0,
            silences: 0,
            reads: 0,
            looks: 0,
            stands: 0,
        });
        let state = State { nodes, inboxes: [Sets::EMPTY; REPLICAS + 1], facts };
        let facts = Facts::clone(self.facts.get(facts));
        match self.config.rule {
            Some(_) => {
                let told = facts.record.leader.map(|_| coordinator::told(&facts.record, &self.config));
                let state = self.tell_all(&state, facts, told);
                let is_over = self.config.first_ballot || self.config.beginning != Beginning::Empty;
                if is_over { state } else { self.after_first_ballot(state) }
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

    pub(super) fn run(mut self, tell: &mut dyn FnMut(Progress)) -> Report {
        let first = self.first();
        self.visit(first, 0);
        let (mut at, mut depth, mut level_end) = (0, 0, 1);
        while at < self.seen.len() && self.seen.len() < self.config.states_max {
            if at == level_end {
                depth += 1;
                level_end = self.seen.len();
            }
            let state = self.seen.get(at);
            if self.seen.is_contained(at) {
                at += 1;
                continue;
            }
            if !self.serves_once_healed(at, &state) {
                let violation = self.violation(at, None);
                return self.report(depth, false, Some(violation));
            }
            for action in self.actions(&state) {
                self.steps += 1;
                if self.steps.is_multiple_of(STEPS_BETWEEN_WORDS) {
                    let states = self.seen.len();
                    tell(Progress { states, waiting: states - at, depth });
                }
                match self.take(&state, &action) {
                    None => {}
                    Some(Ok(next)) => self.visit(next, at),
                    Some(Err(_)) => {
                        let violation = self.violation(at, Some(&action));
                        return self.report(depth, false, Some(violation));
                    }
                }
            }
            at += 1;
        }
        let complete = at == self.seen.len();
        self.report(depth, complete, None)
    }

    /// Heals the cluster if this is one of the sampled states; whether it serves then, in every case.
    fn serves_once_healed(&mut self, at: usize, state: &State) -> bool {
        if self.config.live_every == 0 || !at.is_multiple_of(self.config.live_every) {
            return true;
        }
        let played = live::check(&self.nodes_of(state), self.facts.get(state.facts), &self.config);
        self.healed += played.as_ref().copied().unwrap_or_default();
        played.is_ok()
    }

    /// The law that is broken when the cluster is healed from that state on.
    fn broken_once_healed(&self, state: &State) -> Option<String> {
        live::check(&self.nodes_of(state), self.facts.get(state.facts), &self.config).err()
    }

    /// Notes a state that was reached from another.
    fn visit(&mut self, state: State, parent: usize) {
        let state = self.representative(state);
        self.seen.add(state, parent, &self.sets);
    }

    fn report(&self, depth: usize, complete: bool, violation: Option<Violation>) -> Report {
        Report {
            states: self.seen.len(),
            steps: self.steps,
            depth,
            messages: self.messages.len(),
            replicas: self.nodes.len(),
            healed: self.healed,
            complete,
            violation,
        }
    }

    /// What is broken in state `at`, or by one more event there, with the events on the way to it, in words. States on the way stand for their mirror
    /// images too, so the way is walked again from the beginning, with every replica keeping its name.
    fn violation(&mut self, at: usize, last: Option<&Action>) -> Violation {
        let mut way = vec![at];
        while way.last() != Some(&0) {
            way.push(self.seen.parent(way[way.len() - 1]));
        }
        let (mut state, mut trace) = (self.first(), Vec::new());
        for next in way.iter().rev().skip(1) {
            let goal = self.seen.get(*next);
            let step = self.actions(&state).into_iter().find_map(|action| match self.take(&state, &action) {
                Some(Ok(reached)) if self.representative(reached) == goal => Some((action, reached)),
                _ => None,
            });
            let (action, reached) = step.expect("some action led here");
            trace.push(describe::action(self, &action));
            state = reached;
        }
        let Some(last) = last else {
            // Timers tell the replicas apart, so the mirror image may come back where the state that was sampled does not.
            let stored = self.seen.get(at);
            let law = self.broken_once_healed(&state).or_else(|| {
                let law = self.broken_once_healed(&stored)?;
                Some(format!("{law} (replicas 1 and 2 in each other's places)"))
            });
            return Violation { law: law.expect("it was broken when it was found"), trace };
        };
        let last = if self.seen.get(at) == state { last.clone() } else { self.action_in_mirror(last) };
        trace.push(describe::action(self, &last));
        let broken = self.take(&state, &last).expect("within bounds");
        Violation { law: broken.expect_err("it is broken in the mirror too"), trace }
    }
}
