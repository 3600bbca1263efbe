//! The breadth-first search.

use std::collections::BTreeSet;
use std::rc::Rc;

use highwater_replica::{Role, Timeout};
use highwater_wire::{Body, CommitRule, Envelope, Epoch, StreamId, Version};

use super::intern::{FastMap, Interner, Sets};
use super::world::{Action, COORDINATOR, Facts, Local, Node, Record, State, peer};
use super::{Config, REPLICAS, Report, Violation, coordinator, describe, laws, local};

/// What a step of one replica comes to.
enum Outcome {
    /// Beyond the bounds: not explored.
    Beyond,
    /// The replica stopped itself.
    Stopped(String),
    /// The new replica, and what to send to whom; the rest of what it did.
    Done { node: u32, sent: Vec<(usize, u32)>, done: local::Done },
}

/// What there is to do for one replica with one inbox.
type Deliveries = Rc<Vec<(u32, u32)>>;

pub(super) struct Search {
    pub(super) config: Config,
    pub(super) nodes: Interner<Node>,
    pub(super) messages: Interner<Envelope>,
    pub(super) sets: Sets,
    pub(super) facts: Interner<Facts>,
    outcomes: Vec<Rc<Outcome>>,
    known: FastMap<(u32, Local), u32>,
    deliveries: FastMap<(u32, u32), Deliveries>,
    answers: FastMap<(u32, u32), Rc<Vec<(usize, u32)>>>,
    states: Vec<State>,
    parents: Vec<u32>,
    /// For the same replicas and facts, the states whose inboxes are not contained in those of another.
    largest: FastMap<([u32; REPLICAS], u32), Vec<u32>>,
    /// States that are not expanded, since another one contains them.
    contained: Vec<bool>,
    steps: u64,
}

/// A step that was taken: the state it leads to, or the law it breaks.
type Taken = Result<State, String>;

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
            deliveries: FastMap::default(),
            answers: FastMap::default(),
            states: Vec::new(),
            parents: Vec::new(),
            largest: FastMap::default(),
            contained: Vec::new(),
            steps: 0,
        }
    }

    fn first(&mut self) -> State {
        let nodes = std::array::from_fn(|index| self.nodes.number(local::first(index, &self.config)));
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
            stood: false,
        });
        let state = State { nodes, inboxes: [Sets::EMPTY; REPLICAS + 1], facts };
        let facts = Facts::clone(self.facts.get(facts));
        match self.config.rule {
            Some(_) => self.tell_all(&state, facts, None),
            None => state,
        }
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
        if std::env::var("RATIO").is_ok() {
            let a: std::collections::HashSet<_> = self.states.iter().map(|s| (s.nodes, s.facts)).collect();
            let b: std::collections::HashSet<_> = self.states.iter().map(|s| s.nodes).collect();
            let c: std::collections::HashSet<_> = self.states.iter().map(|s| s.inboxes).collect();
            println!("nodes+facts {} nodes {} inboxes {}", a.len(), b.len(), c.len());
        }
        let complete = at == self.states.len();
        self.report(depth, complete, None)
    }

    /// Notes a state that was reached from another. More messages allow everything that fewer do, and the laws do not look at them: a state is not
    /// explored if another one has the same replicas and facts and all its messages.
    fn visit(&mut self, state: State, parent: usize) {
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

    /// The events on the way to state `at`, and the last one, in words.
    fn trace(&mut self, mut at: usize, last: &Action) -> Vec<String> {
        let mut events = vec![describe::action(self, last)];
        while at != 0 {
            let (parent, state) = (self.parents[at] as usize, self.states[at]);
            let before = self.states[parent];
            let led_here = self.actions(&before).into_iter().find(|action| self.take(&before, action) == Some(Ok(state)));
            events.push(describe::action(self, &led_here.expect("some action led here")));
            at = parent;
        }
        events.reverse();
        events
    }

    /// Everything that may happen in `state`. Deliveries that change nothing are left out.
    fn actions(&mut self, state: &State) -> Vec<Action> {
        let facts = Rc::clone(self.facts.get(state.facts));
        let mut actions = Vec::new();
        for index in 0..REPLICAS {
            let node = Rc::clone(self.nodes.get(state.nodes[index]));
            let deliveries = self.deliveries(index, state.nodes[index], state.inboxes[index]);
            actions.extend(deliveries.iter().map(|(message, _)| Action::At(index, Local::Deliver(*message))));
            if node.durable < node.log.len() {
                actions.push(Action::At(index, Local::Flush));
            }
            if facts.crashes < self.config.crashes {
                actions.extend((node.durable..=node.log.len()).map(|kept| Action::At(index, Local::Crash(kept))));
            }
            let role = node.replica.role();
            if matches!(role, Role::Leader { .. }) && facts.writes < self.config.writes {
                actions.push(Action::At(index, Local::Write(facts.writes + 1)));
            }
            if facts.reads < self.config.reads && !matches!(role, Role::Idle | Role::Candidate { .. }) {
                actions.push(Action::At(index, Local::Read));
            }
            // The replicas are alike until one stands: that one is called replica 0.
            let may_stand = self.config.rule.is_none() && (facts.stood || index == 0);
            if may_stand && !matches!(role, Role::Leader { .. }) {
                actions.push(Action::At(index, Local::Stand));
            }
            actions.extend(self.timeouts(&facts, index, &role, &node).into_iter().map(|timeout| {
                Action::At(index, Local::Fire(timeout))
            }));
        }
        if self.config.rule.is_some() {
            self.coordinator_actions(state, &facts, &mut actions);
        }
        actions
    }

    fn timeouts(&self, facts: &Facts, index: usize, role: &Role, node: &Node) -> Vec<Timeout> {
        let mut due = Vec::new();
        let live = node.replica.stream_is_live();
        if matches!(role, Role::Follower { .. }) && live && facts.silences < self.config.silences {
            due.push(Timeout::Silent);
        }
        if let (Some(CommitRule::Isr { .. }), Role::Leader { .. }) = (self.config.rule, role) {
            due.extend((0..REPLICAS).filter(|member| *member != index).map(|member| Timeout::Lagging(peer(member))));
        }
        due
    }

    fn coordinator_actions(&self, state: &State, facts: &Facts, actions: &mut Vec<Action>) {
        let versions_left = facts.record.version.0 < self.config.versions;
        if !versions_left {
            return;
        }
        let numbers = self.sets.get(state.inboxes[COORDINATOR]);
        let inbox: Vec<&Envelope> = numbers.iter().map(|number| &**self.messages.get(*number)).collect();
        for (epoch, leader, starts, set) in coordinator::appointments(facts, &inbox, self.config.commit_rule()) {
            actions.push(Action::Appoint { epoch, leader, starts, set });
        }
        for (number, envelope) in numbers.iter().zip(&inbox) {
            if matches!(envelope.body, Body::ChangeSet { .. }) && coordinator::is_of_use(facts, envelope) {
                actions.push(Action::Change(*number));
            }
        }
    }

    /// Gives all answers that change nobody: they only add messages.
    fn answer(&mut self, mut state: State) -> State {
        loop {
            let before = state.inboxes;
            for index in 0..REPLICAS {
                let answers = self.answers(index, state.nodes[index], state.inboxes[index]);
                for (to, message) in answers.iter() {
                    state.inboxes[*to] = self.sets.add(state.inboxes[*to], *message);
                }
            }
            if state.inboxes == before {
                return state;
            }
        }
    }

    fn answers(&mut self, index: usize, node: u32, inbox: u32) -> Rc<Vec<(usize, u32)>> {
        if let Some(known) = self.answers.get(&(node, inbox)) {
            return Rc::clone(known);
        }
        let mut all = Vec::new();
        for message in self.sets.get(inbox).to_vec() {
            let outcome = self.outcome(index, node, Local::Deliver(message));
            if let Outcome::Done { node: after, sent, .. } = &*self.outcomes[outcome as usize]
                && *after == node
            {
                all.extend(sent.iter().copied());
            }
        }
        all.sort_unstable();
        all.dedup();
        let all = Rc::new(all);
        self.answers.insert((node, inbox), Rc::clone(&all));
        all
    }

    /// The messages of an inbox that change this replica.
    fn deliveries(&mut self, index: usize, node: u32, inbox: u32) -> Deliveries {
        if let Some(known) = self.deliveries.get(&(node, inbox)) {
            return Rc::clone(known);
        }
        let numbers = Rc::clone(self.sets.get(inbox));
        let mut all = Vec::new();
        for number in numbers.iter() {
            let outcome = self.outcome(index, node, Local::Deliver(*number));
            let changes = match &*self.outcomes[outcome as usize] {
                Outcome::Beyond => false,
                Outcome::Stopped(_) => true,
                Outcome::Done { node: after, done, .. } => {
                    *after != node || !done.indexes.is_empty()
                }
            };
            if changes {
                all.push((*number, outcome));
            }
        }
        let all = Rc::new(all);
        self.deliveries.insert((node, inbox), Rc::clone(&all));
        all
    }

    /// The outcome of a step of one replica, computed once.
    fn outcome(&mut self, index: usize, number: u32, what: Local) -> u32 {
        if let Some(known) = self.known.get(&(number, what)) {
            return *known;
        }
        let node = Rc::clone(self.nodes.get(number));
        let message = match what {
            Local::Deliver(message) => Some(Rc::clone(self.messages.get(message))),
            _ => None,
        };
        let outcome = match local::step(index, &node, what, message.as_deref(), &self.config) {
            Err(reason) => Outcome::Stopped(reason),
            Ok((_, done)) if done.sent.iter().any(|(_, envelope)| self.is_beyond(envelope)) => Outcome::Beyond,
            Ok((node, mut done)) => {
                let node = self.nodes.number(node);
                let mut sent = Vec::new();
                for (to, envelope) in std::mem::take(&mut done.sent) {
                    if self.is_modelled(&envelope) {
                        sent.push((to, self.messages.number(envelope)));
                    }
                }
                Outcome::Done { node, sent, done }
            }
        };
        let number_of = u32::try_from(self.outcomes.len()).expect("fewer than 2^32 outcomes");
        self.outcomes.push(Rc::new(outcome));
        self.known.insert((number, what), number_of);
        number_of
    }

    fn is_beyond(&self, envelope: &Envelope) -> bool {
        match envelope.body {
            Body::Open { stream: StreamId(id), .. } => id > self.config.streams,
            Body::Stand { .. } => envelope.epoch >= Some(Epoch(self.config.epochs)),
            _ => false,
        }
    }

    /// Who leads is told to everybody at all times, so nobody needs to ask. Refusals are left out: they end streams and make leaders resign, which
    /// crashes, silences and later epochs do as well. What belongs to an epoch below the promised one is therefore forgotten.
    fn is_modelled(&self, envelope: &Envelope) -> bool {
        !matches!(envelope.body, Body::WhoLeads | Body::Refused { .. })
    }

    /// Takes the action; none if it leads beyond the bounds.
    fn take(&mut self, state: &State, action: &Action) -> Option<Taken> {
        let mut facts = Facts::clone(self.facts.get(state.facts));
        match action {
            Action::At(index, what) => self.take_local(state, facts, *index, *what),
            Action::Appoint { epoch, leader, starts, set } => {
                coordinator::next_version(&mut facts);
                facts.record.epoch = Some(*epoch);
                facts.record.leader = Some((*leader, *starts));
                facts.record.set = set.clone();
                Some(self.tell_record(state, facts))
            }
            Action::Change(number) => {
                let Body::ChangeSet { members, .. } = &self.messages.get(*number).body else {
                    panic!("a change is asked for by ChangeSet")
                };
                facts.record.set = members.iter().map(|member| member.node.0 as usize).collect();
                coordinator::next_version(&mut facts);
                Some(self.tell_record(state, facts))
            }
        }
    }

    fn tell_record(&mut self, state: &State, facts: Facts) -> Taken {
        let envelope = coordinator::told(&facts.record, &self.config);
        let rule = self.config.commit_rule();
        let next = self.tell_all(state, facts, Some(envelope));
        let (facts, nodes) = (Rc::clone(self.facts.get(next.facts)), self.nodes_of(&next));
        laws::durable_where_promised(&facts, &nodes, rule)?;
        laws::covers_record(&facts, &nodes)?;
        Ok(next)
    }

    fn nodes_of(&self, state: &State) -> [Rc<Node>; REPLICAS] {
        std::array::from_fn(|index| Rc::clone(self.nodes.get(state.nodes[index])))
    }

    /// Tells all replicas the record, and asks them for promises on its version.
    fn tell_all(&mut self, state: &State, facts: Facts, record: Option<Envelope>) -> State {
        let mut next = *state;
        for envelope in record.into_iter().chain(coordinator::requests(&facts.record, &self.config)) {
            let message = self.messages.number(envelope);
            for index in 0..REPLICAS {
                next.inboxes[index] = self.sets.add(next.inboxes[index], message);
            }
        }
        self.settle(next, facts)
    }

    fn take_local(&mut self, state: &State, mut facts: Facts, index: usize, what: Local) -> Option<Taken> {
        let outcome = self.outcome(index, state.nodes[index], what);
        let outcome = Rc::clone(&self.outcomes[outcome as usize]);
        let (node, sent, done) = match &*outcome {
            Outcome::Beyond => return None,
            Outcome::Stopped(reason) => return Some(Err(format!("replica {index} stopped itself: {reason}"))),
            Outcome::Done { node, sent, done } => (*node, sent, done),
        };
        match what {
            Local::Crash(_) => facts.crashes += 1,
            Local::Write(_) => facts.writes += 1,
            Local::Fire(Timeout::Silent) => facts.silences += 1,
            Local::Stand => facts.stood = true,
            Local::Read => {
                facts.reads += 1;
                facts.read_floor = Some(facts.committed.len() as u64);
            }
            Local::Deliver(_) | Local::Flush | Local::Fire(_) => {}
        }
        let mut next = *state;
        next.nodes[index] = node;
        for (to, message) in sent {
            next.inboxes[*to] = self.sets.add(next.inboxes[*to], *message);
        }
        let judged = self.judge(state, &next, &mut facts, index, done);
        Some(judged.map(|()| self.settle(next, facts)))
    }

    fn judge(
        &self,
        before: &State,
        after: &State,
        facts: &mut Facts,
        index: usize,
        done: &local::Done,
    ) -> Result<(), String> {
        let nodes = self.nodes_of(after);
        let (old, new) = (self.nodes.get(before.nodes[index]), &nodes[index]);
        if let Some(to) = done.cut {
            laws::cuts(facts, index, to)?;
        }
        if let Some((epoch, log)) = &done.led {
            laws::begins_to_lead(facts, index, new.starts, *epoch, log)?;
        }
        if let Some(hw) = done.hw {
            laws::announces(facts, index, new, hw)?;
        }
        if new.replica.stream_is_live() && !old.replica.stream_is_live() {
            laws::goes_live(&nodes, index)?;
        }
        for read in &done.indexes {
            laws::reads(facts, *read)?;
        }
        if old.log != new.log {
            laws::logs_agree(&nodes)?;
        }
        if old.log != new.log || old.durable != new.durable || done.hw.is_some() {
            laws::durable_where_promised(facts, &nodes, self.config.commit_rule())?;
        }
        laws::covers_record(facts, &nodes)
    }

    /// Brings a state into its normal form: answers that change nobody are given, and what nobody can make use of any more is forgotten.
    fn settle(&mut self, state: State, facts: Facts) -> State {
        let mut state = self.answer(state);
        for index in 0..REPLICAS {
            let promised = self.nodes.get(state.nodes[index]).replica.promised();
            let messages = &self.messages;
            state.inboxes[index] =
                self.sets.retain(state.inboxes[index], |message| messages.get(message).epoch >= promised);
        }
        let messages = &self.messages;
        state.inboxes[COORDINATOR] = self
            .sets
            .retain(state.inboxes[COORDINATOR], |message| coordinator::is_of_use(&facts, messages.get(message)));
        state.facts = self.facts.number(facts);
        state
    }
}
