//! A coordinator beside a metadata of one's own: what it proposes is committed when the test says so.

use highwater_wire::{LogId, Rank, Set, Version};

use super::*;
use crate::command::Void;

pub(crate) const MAIN: PartitionId = PartitionId(1);

pub(crate) fn peer(n: u32) -> PeerId {
    PeerId { node: NodeId(n), log: LogId(u64::from(n) * 10) }
}

pub(crate) fn start(starts: u64) -> Incarnation {
    Incarnation { starts, random: starts * 1000 }
}

pub(crate) fn sender(n: u32, starts: u64) -> Sender {
    Sender { peer: peer(n), incarnation: start(starts) }
}

pub(crate) fn rank(epoch: u32, leo: u64) -> Rank {
    Rank { last_epoch: Some(Epoch(epoch)), leo }
}

pub(crate) struct World {
    now: Millis,
    pub(crate) metadata: Metadata,
    pub(crate) coordinator: Coordinator,
    pub(crate) out: Vec<Action>,
}

/// The coordinator on node 1, in that epoch of the metadata.
pub(crate) fn begin(metadata: Metadata, rule: CommitRule, epoch: u32, now: Millis, gone: &[u32]) -> World {
    let start = CoordinatorStart {
        me: sender(1, 1),
        epoch: Epoch(epoch),
        heartbeat_ms: 100,
        session_ms: 600,
        voters: vec![peer(3), peer(1), peer(2)],
        databases: vec![("main".into(), rule)],
        gone: gone.iter().map(|n| NodeId(*n)).collect(),
        now,
    };
    let mut out = Vec::new();
    let coordinator = Coordinator::new(start, &metadata, &mut out);
    World { now, metadata, coordinator, out }
}

/// Three nodes registered, `main` created, and the ballot for its first leader begun.
pub(crate) fn created(rule: CommitRule) -> World {
    let mut world = begin(Metadata::default(), rule, 7, 1000, &[]);
    for n in 1..=3 {
        world.register(n, &[1]);
        world.commit();
    }
    world.commit();
    world
}

/// As above, and node `leader` appointed in epoch 0.
pub(crate) fn led(rule: CommitRule, leader: u32) -> World {
    let mut world = created(rule);
    let ballot = world.asked().expect("the first leader is balloted for").0;
    for n in 1..=3 {
        world.promise(n, ballot, 0, rank(0, u64::from(n == leader)));
    }
    world.commit();
    assert_eq!(world.record().leader, Some((peer(leader), start(1))));
    world.out.clear();
    world
}

impl World {
    pub(crate) fn step(&mut self, event: Event) {
        self.coordinator.step(self.now, event, &self.metadata, &mut self.out);
    }

    pub(crate) fn message(&mut self, from: Sender, partition: PartitionId, epoch: Option<u32>, body: Body) {
        self.step(Event::Message(Envelope { partition, sender: from, epoch: epoch.map(Epoch), body }));
    }

    pub(crate) fn register(&mut self, n: u32, starts: &[u64]) {
        let incarnations: Vec<Incarnation> = starts.iter().map(|s| start(*s)).collect();
        let from = Sender { peer: peer(n), incarnation: incarnations[incarnations.len() - 1] };
        let body = Body::Register { incarnations, address: format!("node-{n}") };
        self.message(from, PartitionId::METADATA, None, body);
    }

    pub(crate) fn promise(&mut self, n: u32, ballot: u64, epoch: u32, rank: Rank) {
        self.message(sender(n, 1), MAIN, Some(epoch), Body::Promise { ballot, rank });
    }

    /// Lets time pass in heartbeats, which these nodes send.
    pub(crate) fn pass(&mut self, ms: Millis, alive: &[u32]) {
        let until = self.now + ms;
        while self.now < until {
            self.now = (self.now + 100).min(until);
            for n in alive {
                self.message(sender(*n, 1), PartitionId::METADATA, None, Body::Heartbeat { leaving: false });
            }
            self.step(Event::Tick);
        }
    }

    /// What was proposed since the last look, which is forgotten.
    pub(crate) fn proposed(&mut self) -> Vec<Command> {
        let mut commands = Vec::new();
        self.out.retain(|action| match action {
            Action::Propose(command) => {
                commands.push(command.clone());
                false
            }
            _ => true,
        });
        commands
    }

    /// Commits everything proposed so far, and tells the coordinator. Returns what became of it.
    pub(crate) fn commit(&mut self) -> Vec<Applied> {
        let commands = self.proposed();
        commands.into_iter().map(|command| self.apply(command)).collect()
    }

    pub(crate) fn apply(&mut self, command: Command) -> Applied {
        let applied = self.metadata.apply(&command);
        self.step(Event::Applied(command, applied));
        applied
    }

    /// The last ballot's number and epoch that a replica was asked for.
    pub(crate) fn asked(&self) -> Option<(u64, u32)> {
        self.out.iter().rev().find_map(|action| match action {
            Action::Send(_, Envelope { epoch: Some(epoch), body: Body::PromiseRequest { ballot }, .. }) => {
                Some((*ballot, epoch.0))
            }
            _ => None,
        })
    }

    pub(crate) fn record(&self) -> &crate::PartitionRecord {
        self.metadata.partition(MAIN).expect("main was created")
    }

    pub(crate) fn sent(&self, n: u32) -> Vec<&Body> {
        self.out
            .iter()
            .filter_map(|action| match action {
                Action::Send(NodeId(to), envelope) if *to == n => Some(&envelope.body),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn leads_told(&self, n: u32) -> usize {
        self.sent(n).iter().filter(|body| matches!(body, Body::Lead(_))).count()
    }
}

#[test]
fn a_registration_is_answered_once_it_is_committed_and_the_same_again_with_the_same_answer() {
    let mut world = begin(Metadata::default(), CommitRule::Quorum { q: 2 }, 7, 0, &[]);
    world.register(2, &[1]);
    assert_eq!(world.sent(2), [] as [&Body; 0], "nothing is said of what is not committed");
    world.register(2, &[1]);
    assert_eq!(world.proposed().len(), 1, "a repetition waits for the first");
    let command = Command::RegisterNode { peer: peer(2), incarnations: vec![start(1)], address: "node-2".into() };
    assert_eq!(world.apply(command), Applied::Done);
    let accepted = Body::Registered { incarnation: start(1), accepted: true };
    assert_eq!(world.sent(2), [&accepted]);
    world.register(2, &[1]);
    assert_eq!(world.sent(2), [&accepted, &accepted]);
    assert!(world.proposed().is_empty(), "it is on record");
}

#[test]
fn a_registration_is_refused_only_by_the_log() {
    let mut world = created(CommitRule::Quorum { q: 2 });
    world.out.clear();
    world.register(2, &[3, 4]);
    assert_eq!(world.sent(2), [] as [&Body; 0], "by what is applied so far this would be refused, but that may be old");
    assert_eq!(world.commit(), [Applied::Void(Void::OlderCopy)]);
    assert_eq!(world.sent(2), [&Body::Registered { incarnation: start(4), accepted: false }]);
}

#[test]
fn what_the_metadata_did_not_take_in_is_proposed_again_at_the_next_look_and_not_at_once() {
    let mut world = begin(Metadata::default(), CommitRule::Quorum { q: 2 }, 7, 1000, &[]);
    let refuse_once = |world: &mut World, again: &dyn Fn(&mut World)| {
        let commands = world.proposed();
        assert_eq!(commands.len(), 1);
        again(world);
        assert!(world.proposed().is_empty(), "it is under way");
        world.step(Event::NotProposed(commands[0].clone()));
        assert!(world.proposed().is_empty(), "or it would be asked for as fast as it is refused");
        again(world);
        let repeated = world.proposed();
        assert_eq!(repeated, commands);
        world.apply(repeated[0].clone())
    };
    let tick = |world: &mut World| world.step(Event::Tick);
    for n in 1..=3 {
        world.register(n, &[1]);
        assert_eq!(refuse_once(&mut world, &|world| world.register(n, &[1])), Applied::Done);
    }
    assert_eq!(refuse_once(&mut world, &tick), Applied::Done, "the database");
    let ballot = world.asked().expect("the first leader is balloted for").0;
    world.promise(1, ballot, 0, rank(0, 0));
    world.promise(2, ballot, 0, rank(0, 0));
    assert_eq!(refuse_once(&mut world, &tick), Applied::Done, "its leader");
}

#[test]
fn a_lost_proposal_is_made_again() {
    let mut world = begin(Metadata::default(), CommitRule::Quorum { q: 2 }, 7, 0, &[]);
    world.register(2, &[1]);
    assert_eq!(world.proposed().len(), 1);
    world.now += 600;
    world.register(2, &[1]);
    assert_eq!(world.proposed().len(), 1);
}

#[test]
fn databases_are_created_once_all_voters_have_registered() {
    let mut world = begin(Metadata::default(), CommitRule::Isr { min: 2 }, 7, 0, &[]);
    for n in 1..=2 {
        world.register(n, &[1]);
        world.commit();
    }
    assert!(world.proposed().is_empty(), "node 3 has not registered");
    world.register(3, &[1]);
    world.commit();
    let proposed = world.proposed();
    let create = Command::CreatePartition {
        id: MAIN,
        name: "main".into(),
        rule: CommitRule::Isr { min: 2 },
        replicas: vec![peer(1), peer(2), peer(3)],
    };
    assert_eq!(proposed, std::slice::from_ref(&create));
    world.step(Event::Tick);
    assert!(world.proposed().is_empty(), "it is under way");
    world.apply(create);
    world.step(Event::Tick);
    assert!(world.proposed().is_empty(), "it exists");
}

#[test]
fn a_ballot_fences_chooses_records_and_only_then_announces() {
    let mut world = created(CommitRule::Quorum { q: 2 });
    let (ballot, epoch) = world.asked().expect("a ballot has begun");
    assert_eq!(epoch, 0, "the first epoch");
    world.promise(2, ballot, 0, rank(0, 0));
    assert!(world.proposed().is_empty(), "one promise of three chooses nobody under quorum:2");
    world.promise(3, ballot, 0, rank(0, 5));
    let appoint = Command::Appoint {
        id: MAIN,
        version: Version(1),
        epoch: Epoch(0),
        leader: peer(3),
        incarnation: start(1),
        members: vec![peer(1), peer(2), peer(3)],
    };
    assert_eq!(world.proposed(), std::slice::from_ref(&appoint));
    world.message(sender(1, 1), MAIN, None, Body::WhoLeads);
    assert!((1..=3).all(|n| world.leads_told(n) == 0), "nothing is said of what is not committed");
    world.apply(appoint);
    assert!((1..=3).all(|n| world.leads_told(n) == 1), "all replicas are told");
    world.message(sender(1, 1), MAIN, Some(0), Body::WhoLeads);
    assert_eq!(world.leads_told(1), 2, "and whoever asks");
    let set = Set { rule: CommitRule::Quorum { q: 2 }, members: vec![peer(1), peer(2), peer(3)] };
    assert!(world.sent(1).iter().any(|body| matches!(body, Body::Lead(lead)
        if lead.leader == peer(3) && lead.incarnation == start(1) && lead.version == Version(2) && lead.set == set)));
}

#[test]
fn promises_count_for_their_ballot_their_epoch_and_the_registered_incarnation_alone() {
    let mut world = created(CommitRule::Quorum { q: 2 });
    let (ballot, _) = world.asked().expect("a ballot has begun");
    world.promise(1, ballot, 0, rank(0, 1));
    world.promise(2, ballot + 1, 0, rank(0, 1));
    world.message(sender(2, 2), MAIN, Some(0), Body::Promise { ballot, rank: rank(0, 1) });
    let stranger = Sender { peer: PeerId { node: NodeId(2), log: LogId(1) }, incarnation: start(1) };
    world.message(stranger, MAIN, Some(0), Body::Promise { ballot, rank: rank(0, 1) });
    assert!(world.proposed().is_empty());
    world.promise(2, ballot, 0, rank(0, 1));
    assert_eq!(world.proposed().len(), 1);
}

#[test]
fn a_restarted_leader_is_gone_whatever_it_answers() {
    let mut world = led(CommitRule::Quorum { q: 2 }, 2);
    world.pass(3000, &[1, 2, 3]);
    assert_eq!(world.asked(), None, "a living leader stays");
    world.register(2, &[1, 2]);
    world.commit();
    assert_eq!(world.asked().map(|(_, epoch)| epoch), Some(1));
    let (ballot, _) = world.asked().expect("a ballot has begun");
    // It may be appointed again, in its new incarnation.
    world.message(sender(2, 2), MAIN, Some(1), Body::Promise { ballot, rank: rank(0, 9) });
    world.promise(1, ballot, 1, rank(0, 3));
    world.commit();
    assert_eq!(world.record().leader, Some((peer(2), start(2))));
}

#[test]
fn a_promise_given_before_a_restart_appoints_nobody() {
    let mut world = led(CommitRule::Quorum { q: 2 }, 2);
    world.step(Event::Gone(NodeId(2)));
    let (ballot, _) = world.asked().expect("a ballot has begun");
    world.promise(3, ballot, 1, rank(0, 9));
    world.register(3, &[1, 2]);
    assert_eq!(world.commit(), [Applied::Done]);
    world.promise(1, ballot, 1, rank(0, 3));
    assert!(world.proposed().is_empty(), "only one promise still counts");
    world.out.clear();
    world.pass(100, &[1]);
    assert_eq!(world.asked(), Some((ballot, 1)), "node 3 is asked again");
    world.message(sender(3, 2), MAIN, Some(1), Body::Promise { ballot, rank: rank(0, 2) });
    world.commit();
    assert_eq!(world.record().leader, Some((peer(1), start(1))));
}

#[test]
fn a_silent_leader_is_gone_after_its_session_and_one_whose_process_is_gone_at_once() {
    let mut world = led(CommitRule::Quorum { q: 2 }, 2);
    world.pass(500, &[1, 3]);
    assert_eq!(world.asked(), None);
    world.pass(200, &[1, 3]);
    assert_eq!(world.asked().map(|(_, epoch)| epoch), Some(1));

    let mut world = led(CommitRule::Quorum { q: 2 }, 2);
    world.step(Event::Gone(NodeId(3)));
    assert_eq!(world.asked(), None, "node 3 leads nothing");
    world.step(Event::Gone(NodeId(2)));
    assert_eq!(world.asked().map(|(_, epoch)| epoch), Some(1));
}

#[test]
fn a_new_coordinator_gives_everybody_a_session_but_those_known_to_be_gone() {
    let world = led(CommitRule::Quorum { q: 2 }, 2);
    let mut later = begin(world.metadata.clone(), CommitRule::Quorum { q: 2 }, 8, 50_000, &[]);
    assert_eq!(later.asked(), None, "nobody was heard of yet, and nobody is held to be dead for that");
    later.pass(700, &[1, 3]);
    assert_eq!(later.asked().map(|(_, epoch)| epoch), Some(1));

    let later = begin(world.metadata.clone(), CommitRule::Quorum { q: 2 }, 8, 50_000, &[2]);
    assert_eq!(later.asked().map(|(_, epoch)| epoch), Some(1));
}

#[test]
fn a_ballot_that_gets_nowhere_asks_again_and_later_takes_a_higher_epoch() {
    let mut world = led(CommitRule::Quorum { q: 2 }, 2);
    world.step(Event::Gone(NodeId(2)));
    let first = world.asked().expect("a ballot has begun");
    world.out.clear();
    world.pass(100, &[1]);
    assert_eq!(world.asked(), Some(first), "the same ballot, asked again");
    world.pass(500, &[1]);
    let (ballot, epoch) = world.asked().expect("a new ballot has begun");
    assert!(ballot > first.0 && epoch == first.1 + 1);
    // A promise for the former one is for nothing.
    world.promise(1, first.0, first.1, rank(0, 3));
    world.promise(3, first.0, first.1, rank(0, 3));
    assert!(world.proposed().is_empty());
    // The time given doubles, to a limit: in a minute only so many epochs go by.
    world.pass(60_000, &[1]);
    let (_, last) = world.asked().expect("it goes on");
    assert!((epoch + 4..epoch + 12).contains(&last), "epoch {last} after {epoch}");
}

#[test]
fn whoever_refuses_the_leader_or_belongs_to_a_later_epoch_causes_a_ballot_above_that() {
    let mut world = led(CommitRule::Quorum { q: 2 }, 2);
    world.message(sender(3, 1), MAIN, Some(0), Body::WhoLeads);
    assert_eq!(world.asked(), None);
    world.message(sender(3, 1), MAIN, Some(5), Body::Refused { promised: Epoch(5) });
    assert_eq!(world.asked().map(|(_, epoch)| epoch), Some(6));

    let mut world = led(CommitRule::Quorum { q: 2 }, 2);
    world.message(sender(3, 1), MAIN, Some(5), Body::WhoLeads);
    assert_eq!(world.asked().map(|(_, epoch)| epoch), Some(6));
    // Refused in the middle of the ballot: nothing else can come of it.
    world.message(sender(1, 1), MAIN, Some(9), Body::Refused { promised: Epoch(9) });
    assert_eq!(world.asked().map(|(_, epoch)| epoch), Some(10));
    // The living leader may be appointed again on its own promise alone.
    let (ballot, epoch) = world.asked().expect("a ballot has begun");
    world.promise(2, ballot, epoch, rank(0, 1));
    world.commit();
    assert_eq!((world.record().leader, world.record().epoch), (Some((peer(2), start(1))), Some(Epoch(10))));
}

#[test]
fn of_two_coordinators_in_one_epoch_one_records_and_the_other_announces_what_was_recorded() {
    let mut old = led(CommitRule::Quorum { q: 2 }, 2);
    let mut new = begin(old.metadata.clone(), CommitRule::Quorum { q: 2 }, 8, old.now, &[2]);
    old.step(Event::Gone(NodeId(2)));
    let (first, second) = (old.asked().expect("one ballot"), new.asked().expect("another"));
    assert!(first.1 == second.1 && first.0 != second.0, "the same epoch, told apart by the ballot");
    for n in [1, 3] {
        old.promise(n, first.0, first.1, rank(0, u64::from(n == 1)));
        new.promise(n, second.0, second.1, rank(0, u64::from(n == 3)));
    }
    let (theirs, ours) = (old.proposed(), new.proposed());
    assert!(theirs.len() == 1 && ours.len() == 1 && theirs != ours);
    // Both reach the log in this order, and both coordinators apply it.
    for command in ours.into_iter().chain(theirs) {
        let (a, b) = (old.apply(command.clone()), new.apply(command));
        assert_eq!(a, b);
    }
    assert_eq!(old.metadata, new.metadata);
    assert_eq!(old.record().leader, Some((peer(3), start(1))));
    for world in [&old, &new] {
        assert_eq!(world.leads_told(1), 1);
        assert!(world.sent(1).iter().all(|body| !matches!(body, Body::Lead(lead) if lead.leader != peer(3))));
    }
}

#[test]
fn a_void_appointment_is_balloted_for_anew() {
    let mut world = led(CommitRule::Quorum { q: 2 }, 2);
    world.step(Event::Gone(NodeId(2)));
    let (ballot, _) = world.asked().expect("a ballot has begun");
    world.promise(1, ballot, 1, rank(0, 3));
    world.promise(3, ballot, 1, rank(0, 9));
    let appoint = world.proposed();
    assert_eq!(appoint.len(), 1);
    // Node 3 restarts before its appointment is committed.
    world.register(3, &[1, 2]);
    world.commit();
    assert_eq!(world.apply(appoint[0].clone()), Applied::Void(Void::Incarnation));
    let (again, epoch) = world.asked().expect("another ballot has begun");
    assert!(again > ballot && epoch == 2);
}

#[test]
fn under_isr_a_ballot_waits_for_the_living_and_drops_the_dead_from_the_set() {
    let mut world = led(CommitRule::Isr { min: 1 }, 2);
    world.step(Event::Gone(NodeId(2)));
    let (ballot, _) = world.asked().expect("a ballot has begun");
    world.promise(1, ballot, 1, rank(0, 3));
    assert!(world.proposed().is_empty(), "node 3 lives and would be thrown out of the set");
    world.promise(3, ballot, 1, rank(0, 9));
    world.commit();
    assert_eq!(world.record().leader, Some((peer(3), start(1))));
    assert_eq!(world.record().set.members, [peer(1), peer(3)]);

    // It does not wait for ever.
    world.out.clear();
    world.step(Event::Gone(NodeId(3)));
    let (ballot, _) = world.asked().expect("a ballot has begun");
    world.pass(100, &[1]);
    world.promise(1, ballot, 2, rank(0, 3));
    world.commit();
    assert_eq!(world.record().set.members, [peer(1)]);
}

#[test]
fn a_change_of_the_set_applies_only_for_the_records_leader_epoch_and_version() {
    let mut world = led(CommitRule::Isr { min: 1 }, 2);
    let version = world.record().version;
    let change = |version| Body::ChangeSet { version, members: vec![peer(1), peer(2)] };
    world.message(sender(1, 1), MAIN, Some(0), change(version));
    world.message(sender(2, 1), MAIN, Some(0), change(Version(version.0 - 1)));
    assert!(world.proposed().is_empty());
    assert_eq!((world.leads_told(1), world.leads_told(2)), (1, 1), "the answer is the record");
    world.message(sender(2, 1), MAIN, Some(0), change(version));
    world.message(sender(2, 1), MAIN, Some(0), change(version));
    let proposed = world.proposed();
    assert_eq!(proposed.len(), 1, "a repetition waits for the first");
    assert_eq!(world.leads_told(2), 1, "nothing is said of what is not committed");
    assert_eq!(world.apply(proposed[0].clone()), Applied::Done);
    assert_eq!((world.leads_told(1), world.leads_told(2), world.leads_told(3)), (2, 2, 1));
    assert_eq!(world.record().set.members, [peer(1), peer(2)]);
    world.message(sender(2, 1), MAIN, Some(0), change(version));
    assert_eq!((world.leads_told(2), world.proposed().len()), (3, 0), "asked again, the answer is the record");
}

#[test]
fn a_leader_is_confirmed_only_after_the_coordinator_was_and_only_if_it_still_leads() {
    let mut world = led(CommitRule::Quorum { q: 2 }, 2);
    world.message(sender(2, 1), MAIN, Some(0), Body::Confirm { round: 5 });
    world.message(sender(2, 1), MAIN, Some(0), Body::Confirm { round: 5 });
    assert_eq!(world.out, [Action::Read(1)]);
    // Newer rounds wait for a read that begins after they arrived, the last of them alone.
    world.message(sender(2, 1), MAIN, Some(0), Body::Confirm { round: 7 });
    world.message(sender(2, 1), MAIN, Some(0), Body::Confirm { round: 9 });
    assert_eq!(world.out, [Action::Read(1)]);
    world.step(Event::Read { id: 1, confirmed: true });
    assert_eq!(world.sent(2), [&Body::Confirmed { round: 5 }]);
    assert!(world.out.contains(&Action::Read(2)), "begun only now");
    world.step(Event::Read { id: 2, confirmed: true });
    assert_eq!(world.sent(2), [&Body::Confirmed { round: 5 }, &Body::Confirmed { round: 9 }]);

    // Not confirmed itself, it confirms nobody.
    world.message(sender(2, 1), MAIN, Some(0), Body::Confirm { round: 11 });
    world.step(Event::Read { id: 3, confirmed: false });
    assert_eq!(world.sent(2).len(), 2);

    // Appointed away while the read was under way.
    world.message(sender(2, 1), MAIN, Some(0), Body::Confirm { round: 13 });
    let members = vec![peer(1), peer(2), peer(3)];
    let (version, leader, incarnation) = (world.record().version, peer(3), start(1));
    world.apply(Command::Appoint { id: MAIN, version, epoch: Epoch(1), leader, incarnation, members });
    world.step(Event::Read { id: 4, confirmed: true });
    assert!(world.sent(2).iter().all(|body| !matches!(body, Body::Confirmed { round: 13 })));
    assert!(matches!(world.sent(2).last(), Some(Body::Lead(lead)) if lead.leader == peer(3)));
}

#[test]
fn a_promise_of_a_node_without_a_session_does_not_count() {
    let mut world = led(CommitRule::Quorum { q: 2 }, 2);
    world.step(Event::Gone(NodeId(2)));
    let (ballot, _) = world.asked().expect("a ballot has begun");
    world.promise(2, ballot, 1, rank(0, 9));
    world.promise(1, ballot, 1, rank(0, 3));
    assert!(world.proposed().is_empty(), "node 2 would be replaced at once");
    world.message(sender(2, 1), PartitionId::METADATA, None, Body::Heartbeat { leaving: false });
    world.promise(2, ballot, 1, rank(0, 9));
    assert_eq!(world.proposed().len(), 1, "it lives after all");
}

#[test]
fn during_a_ballot_nobody_is_sent_to_the_leader_that_is_being_replaced() {
    let mut world = led(CommitRule::Quorum { q: 2 }, 2);
    world.step(Event::Gone(NodeId(2)));
    let (ballot, epoch) = world.asked().expect("a ballot has begun");
    world.out.clear();
    world.message(sender(3, 1), MAIN, Some(0), Body::WhoLeads);
    assert_eq!(world.sent(3), [&Body::PromiseRequest { ballot }], "it may have missed the question");
    for n in [1, 3] {
        world.promise(n, ballot, epoch, rank(0, 1));
    }
    let appoint = world.proposed();
    world.out.clear();
    world.message(sender(3, 1), MAIN, Some(1), Body::WhoLeads);
    assert!(world.out.is_empty(), "the appointment is on its way");
    world.apply(appoint[0].clone());
    assert_eq!(world.leads_told(3), 1);
}

#[test]
fn a_second_process_of_one_id_waits_for_the_first_to_end() {
    let mut world = led(CommitRule::Quorum { q: 2 }, 2);
    let other = Sender { peer: PeerId { node: NodeId(3), log: LogId(999) }, incarnation: start(1) };
    let register = Body::Register { incarnations: vec![start(1)], address: "elsewhere".into() };
    world.message(other, PartitionId::METADATA, None, register.clone());
    world.message(other, PartitionId::METADATA, None, Body::Heartbeat { leaving: false });
    assert!(world.out.is_empty(), "node 3 lives, with another folder");
    world.pass(700, &[1, 2]);
    world.message(other, PartitionId::METADATA, None, register);
    world.commit();
    assert_eq!(world.sent(3), [&Body::Registered { incarnation: start(1), accepted: true }]);
    assert_eq!(world.metadata.incarnation(other.peer), Some(start(1)));
}
