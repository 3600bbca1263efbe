//! Liveness: from sampled states, the cluster heals and must come back to service.
//!
//! From a state, every case is played in which all replicas live or one is dead, where the rule survives that; in the self-electing partition also after nobody heard
//! anybody for long, and with one replica that sends and hears nobody. Within a bounded time somebody must
//! lead; HW must reach the start of its epoch though nobody writes; every living follower's stream must be live; then a write must be committed and
//! acknowledged, and be shown to readers everywhere. What was committed before must still be there.
//!
//! Where it may stand still: under `quorum:q` of n with fewer than q or than n - q + 1 living; under `isr:min` with fewer than `min` living members of
//! the recorded ISR, or of a change of it that a leader has proposed and that may yet be recorded; in the self-electing partition with half or fewer.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use highwater_partition::Outcome;
use highwater_wire::CommitRule;

use super::heal::Healed;
use super::local::reason_of;
use super::world::{Facts, Node};
use super::{Config, REPLICAS, laws};

/// After so many ticks of the healed cluster's clock (ten seconds; the longest timer, of a lagging member, takes two) it must be in service.
const TICKS_MAX: usize = 200;

/// For so many of them (two seconds; a leader falls silent after two election times of at most 300 ms) nobody hears anybody, where that is played.
const TICKS_CUT_OFF: usize = 40;

/// The number of the write that must be committed: no other has it.
const WRITE: u8 = u8::MAX;

/// Plays every case from this state. Returns how many were played.
///
/// # Errors
/// Which law is broken, in which case.
pub(super) fn check(nodes: &[Rc<Node>; REPLICAS], facts: &Facts, config: &Config) -> Result<usize, String> {
    let mut played = 0;
    for case in cases(config) {
        if !must_serve(nodes, facts, config, case.missing()) {
            continue;
        }
        played += 1;
        let outcome = catch_unwind(AssertUnwindSafe(|| play(nodes, facts, config, case)));
        outcome
            .map_err(|panic| format!("a replica stopped itself: {}", reason_of(panic.as_ref())))
            .flatten()
            .map_err(|what| format!("once healed the cluster serves again: with {case}, {what}"))?;
    }
    Ok(played)
}

/// What goes on being wrong, or was for long.
#[derive(Clone, Copy, Default)]
struct Case {
    dead: Option<usize>,
    /// It sends, and hears nobody.
    deaf: Option<usize>,
    /// Before it is healed, nobody hears anybody for so long that every timer runs out.
    cut_off: bool,
}

impl Case {
    fn missing(self) -> Option<usize> {
        self.dead.or(self.deaf)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.dead, self.deaf) {
            (Some(index), _) => write!(f, "replica {index} dead")?,
            (None, Some(index)) => write!(f, "replica {index} sending and hearing nobody")?,
            (None, None) => write!(f, "all replicas living")?,
        }
        f.write_str(if self.cut_off { ", after nobody heard anybody for long" } else { "" })
    }
}

/// All living or one dead, under every rule. In the self-electing partition, where time alone decides who stands, also after a long silence, and with one replica
/// that hears nobody: under a coordinator a node is judged by its session, which is not modelled.
fn cases(config: &Config) -> Vec<Case> {
    let some_dead = [None, Some(0), Some(1), Some(2)].map(|dead| Case { dead, ..Case::default() });
    if config.rule.is_some() {
        return some_dead.to_vec();
    }
    let after_silence = some_dead.map(|case| Case { cut_off: true, ..case });
    let one_deaf = (0..REPLICAS).map(|index| Case { deaf: Some(index), ..Case::default() });
    some_dead.into_iter().chain(after_silence).chain(one_deaf).collect()
}

fn must_serve(nodes: &[Rc<Node>; REPLICAS], facts: &Facts, config: &Config, dead: Option<usize>) -> bool {
    let CommitRule::Isr { min } = config.commit_rule() else {
        let CommitRule::Quorum { q } = config.commit_rule() else { unreachable!("there are two rules") };
        let living = REPLICAS - usize::from(dead.is_some());
        return living >= (q as usize).max(REPLICAS - q as usize + 1);
    };
    let enough = |members: &mut dyn Iterator<Item = usize>| {
        members.filter(|member| Some(*member) != dead).count() >= min as usize
    };
    let proposed = facts.record.leader.and_then(|(leader, _)| {
        let replica = nodes[leader].replica();
        let leads = replica.promised().is_some_and(|epoch| replica.leads(epoch));
        leads.then(|| replica.proposed()).flatten()
    });
    enough(&mut facts.record.set.iter().copied())
        && proposed.is_none_or(|members| enough(&mut members.iter().map(|member| member.node.0 as usize)))
}

fn play(nodes: &[Rc<Node>; REPLICAS], facts: &Facts, config: &Config, case: Case) -> Result<(), String> {
    let living = std::array::from_fn(|index| (Some(index) != case.dead).then(|| Node::clone(&nodes[index])));
    let mut healed = Healed::new(config, living, facts.record.clone(), case.deaf);
    if case.cut_off {
        healed.cut_off(TICKS_CUT_OFF);
    }
    let mut written = None;
    for _ in 0..TICKS_MAX {
        healed.pass()?;
        let Some((leader, epoch, epoch_start)) = healed.leader() else { continue };
        let (_, node) = healed.living().find(|(index, _)| *index == leader).expect("it leads");
        let hw = node.replica().hw();
        let followers = |judge: &dyn Fn(&Node) -> bool| {
            healed.living().filter(|(index, _)| *index != leader).all(|(_, follower)| judge(follower))
        };
        match written {
            None => {
                if hw >= epoch_start
                    && followers(&|follower| {
                        follower.replica().stream_is_live() && follower.replica().promised() == Some(epoch)
                    })
                {
                    if !laws::holds(node.log(), facts, facts.committed.len()) {
                        return Err(format!(
                            "replica {leader} leads with {:?}, committed was {:?}",
                            node.log(),
                            facts.committed
                        ));
                    }
                    written = Some(healed.write(leader, WRITE)?);
                }
            }
            Some(end) => {
                let shows = |node: &Node| node.machine.published().is_some_and(|shown| shown.len() as u64 >= end);
                let answered = matches!(healed.answer_to_write(WRITE), Some(Outcome::Done(_)));
                if hw >= end && answered && shows(node) && followers(&|it| shows(it) && it.log() == node.log()) {
                    return Ok(());
                }
            }
        }
    }
    let told: Vec<String> = healed
        .living()
        .map(|(index, node)| {
            format!(
                "replica {index} {:?} with HW {} of {}",
                node.replica().role(),
                node.replica().hw(),
                node.log().len()
            )
        })
        .collect();
    let missing = match written {
        None => "a leader with all followers and HW at the start of its epoch",
        Some(_) => "a write committed, acknowledged, and shown to readers everywhere",
    };
    Err(format!("there is not, within the time for it, {missing}: {}", told.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::super::search::Search;
    use super::super::world::Entry;
    use super::*;
    use highwater_wire::Epoch;

    /// The first state of a search.
    fn first(config: &Config) -> ([Rc<Node>; REPLICAS], Facts) {
        let mut search = Search::new(config.clone());
        let state = search.first();
        (search.nodes_of(&state), Facts::clone(search.facts.get(state.facts)))
    }

    #[test]
    fn from_the_first_state_every_rule_comes_into_service_with_any_one_replica_dead() {
        let rules = [CommitRule::Quorum { q: 2 }, CommitRule::Isr { min: 1 }, CommitRule::Isr { min: 2 }];
        for config in rules.map(Config::appointed).into_iter().chain([Config::electing()]) {
            let (nodes, facts) = first(&config);
            let cases = if config.rule.is_some() { 4 } else { 11 };
            assert_eq!(check(&nodes, &facts, &config), Ok(cases), "{config}");
        }
    }

    #[test]
    fn no_service_is_demanded_of_too_few() {
        let config = Config::appointed(CommitRule::Isr { min: 2 });
        let (nodes, mut facts) = first(&config);
        facts.record.set.remove(&2);
        assert_eq!(check(&nodes, &facts, &config), Ok(2), "with all living, and with the one dead that is no member");
    }

    #[test]
    fn a_cluster_that_stands_still_is_seen() {
        // Replicas whose leader is dead, and nobody who begins a ballot.
        let (nodes, facts) = first(&Config::appointed(CommitRule::Quorum { q: 2 }));
        let said = check(&nodes, &facts, &Config::electing()).expect_err("nobody leads");
        assert!(said.contains("once healed the cluster serves again: with replica 0 dead, there is not"), "{said}");
    }

    #[test]
    fn a_loss_that_shows_only_after_healing_is_seen() {
        let config = Config::appointed(CommitRule::Quorum { q: 2 });
        let (nodes, mut facts) = first(&config);
        facts.committed.push((Entry { epoch: Epoch(0), id: 1 }, Epoch(0)));
        let said = check(&nodes, &facts, &config).expect_err("nobody has it");
        assert!(said.contains("committed was"), "{said}");
    }
}
